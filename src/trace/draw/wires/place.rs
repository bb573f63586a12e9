//! Where cards lie: decided by the mesh and the size alone.

use crate::mesh::{Coord, Mesh, Rank};
use crate::trace::draw::scene::Area;

/// How much a card shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Size {
    /// Rank and state.
    Small,
    /// Rank, state and memory, for many side by side.
    Narrow,
    /// Rank, coordinates and state.
    Medium,
    /// All of it.
    Large,
}

impl Size {
    const ALL: [Self; 4] = [Self::Large, Self::Medium, Self::Narrow, Self::Small];

    /// Width and height in points at a desk.
    const fn points(self) -> (f32, f32) {
        match self {
            Self::Large => (104.0, 48.0),
            Self::Medium => (104.0, 38.0),
            Self::Narrow => (60.0, 48.0),
            Self::Small => (66.0, 20.0),
        }
    }
}

/// The places of all cards.
#[derive(Clone, Debug)]
pub(super) struct Places {
    mesh: Mesh,
    area: Area,
    pub(super) size: Size,
    /// A card.
    pub(super) card: (f32, f32),
    /// Between tensor ranks, between replicas, between pipeline positions.
    pub(super) gaps: [f32; 3],
    /// Above and left of the first card.
    pub(super) margin: (f32, f32),
    /// Replicas below one another; more of them stand in a further column.
    rows: u32,
    zoom: f32,
}

impl Places {
    /// The largest cards for which all ranks have room; `None` where not even the smallest do.
    pub(super) fn over(mesh: Mesh, area: Area, zoom: f32) -> Option<Self> {
        for size in Size::ALL {
            for columns in 1..=mesh.dp {
                let rows = mesh.dp.div_ceil(columns);
                if rows * columns >= mesh.dp + rows {
                    continue;
                }
                if let Some(places) = Self::fitted(mesh, area, size, (rows, columns), zoom) {
                    return Some(places);
                }
            }
        }
        None
    }

    fn fitted(
        mesh: Mesh,
        area: Area,
        size: Size,
        (rows, columns): (u32, u32),
        zoom: f32,
    ) -> Option<Self> {
        let (width, height) = size.points();
        let card = (width * zoom, height * zoom);
        let least = least_gaps(mesh, size, zoom);
        let across = (mesh.tp * columns, mesh.pp);
        let of = |gap_tp: f32, gap_pp: f32| {
            let position = across.0 as f32 * card.0 + (across.0 - 1) as f32 * gap_tp;
            across.1 as f32 * position + (across.1 - 1) as f32 * gap_pp
        };
        // Below the last row, wires of the pipeline go around cards.
        let below = if mesh.pp > 1 && mesh.tp * columns > 1 { least[1] } else { 0.0 };
        let tall = rows as f32 * card.1 + (rows - 1) as f32 * least[1] + below;
        if of(least[0], least[2]) > area.width || tall > area.height {
            return None;
        }
        // What is left over goes into the gaps, up to twice the least.
        let spare_x = area.width - of(least[0], least[2]);
        let slots = (across.0 - 1) as f32 * across.1 as f32 + 2.0 * (across.1 - 1) as f32;
        let more_x = (spare_x / slots.max(1.0)).min(least[0]);
        let more_y = ((area.height - tall) / rows as f32).min(least[1]);
        let gaps = [least[0] + more_x, least[1] + more_y, least[2] + 2.0 * more_x];
        let used_x = of(gaps[0], gaps[2]);
        let used_y = rows as f32 * card.1 + (rows - 1) as f32 * gaps[1] + below;
        let left = area.left + (area.width - used_x) / 2.0;
        let top = area.top + (area.height - used_y) / 2.0;
        let margin = (left - area.left, top - area.top);
        let area = Area::new(left, top, used_x, used_y);
        Some(Self { mesh, area, size, card, gaps, margin, rows, zoom })
    }

    /// The card of a rank.
    pub(super) fn card(&self, rank: Rank) -> Area {
        let Coord { dp, tp, pp } = self.mesh.coord(rank);
        let (row, block) = (dp % self.rows, dp / self.rows);
        let columns = self.mesh.dp.div_ceil(self.rows) * self.mesh.tp;
        let position = columns as f32 * self.card.0 + (columns - 1) as f32 * self.gaps[0];
        let column = (block * self.mesh.tp + tp) as f32;
        let left = pp as f32 * (position + self.gaps[2]) + column * (self.card.0 + self.gaps[0]);
        let top = row as f32 * (self.card.1 + self.gaps[1]);
        Area::new(self.area.left + left, self.area.top + top, self.card.0, self.card.1)
    }

    /// Whether something stands between two pipeline positions.
    pub(super) fn is_wide(&self) -> bool {
        self.mesh.tp * self.mesh.dp.div_ceil(self.rows) > 1
    }

    /// The upper edge of the room that cards and wires have.
    pub(super) fn top(&self) -> f32 {
        self.area.top - self.margin.1
    }

    /// The left edge of that room.
    pub(super) fn left(&self) -> f32 {
        self.area.left - self.margin.0
    }

    /// How much larger everything is than at a desk.
    pub(super) fn zoom(&self) -> f32 {
        self.zoom
    }

    /// The distance of two wires side by side.
    pub(super) fn pitch(&self) -> f32 {
        4.0 * self.zoom
    }

    /// Which place of a bundle below a row a tensor rank's wire has.
    pub(super) fn lane(&self, rank: Rank) -> u32 {
        let at = self.mesh.coord(rank);
        at.tp + self.mesh.tp * (at.dp / self.rows)
    }
}

/// The smallest gaps in which wires can be told apart.
fn least_gaps(mesh: Mesh, size: Size, zoom: f32) -> [f32; 3] {
    let small = matches!(size, Size::Small | Size::Narrow);
    let tensor = if small { 18.0 } else { 28.0 };
    // A bundle of pipeline wires goes below each row where tensor ranks stand in its way.
    let lanes = if mesh.pp > 1 && mesh.tp > 1 { 2.0 * mesh.tp as f32 } else { 0.0 };
    let data = (if small { 8.0 } else { 18.0 }) + 4.0 * lanes.min(8.0);
    [tensor * zoom, data * zoom, (if small { 28.0 } else { 48.0 }) * zoom]
}
