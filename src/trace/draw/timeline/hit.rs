//! What lies under a point.

use super::{Layout, Level, RowBox, RowKind, Target, Timeline};
use crate::mesh::Rank;
use crate::trace::draw::scene::{Area, Point};

/// How high notches of waiting are at the bottom of a block, of its height.
pub(super) const NOTCH: f32 = 0.2;

impl Layout {
    /// What lies under a point: a block or a wait, also one in a line of a group or in a notch;
    /// beside the track the rank or the pipeline position.
    pub fn hit(&self, timeline: &Timeline, at: Point) -> Option<Target> {
        let row = self.row_at(at)?;
        if !(self.track.left..self.track.right()).contains(&at.x) {
            return Some(match row.kind {
                RowKind::Rank(rank) => Target::Rank(rank),
                RowKind::Group { position, .. } | RowKind::Heading { position } => {
                    Target::Position(position)
                }
            });
        }
        let (rank, band) = self.rank_at(row, at)?;
        if row.beside.is_some_and(|beside| beside.contains(at)) {
            return self.hit_beside(timeline, rank, at);
        }
        let time = self.time_at(at.x);
        // Thin lines are cut like large rows, so that a block has one name.
        let whole = timeline.target_at(rank, self.level, time)?;
        if at.y >= band.bottom() - band.height * NOTCH && band == row.blocks {
            let fine = timeline.target_at(rank, Level::Instr, time);
            return fine.filter(|fine| matches!(fine, Target::Wait { .. })).or(Some(whole));
        }
        Some(whole)
    }

    /// The rank whose blocks or line lie under a point, and where they are.
    fn rank_at(&self, row: &RowBox, at: Point) -> Option<(Rank, Area)> {
        if let Some(lines) = row.lines.as_ref().filter(|lines| lines.area.contains(at)) {
            let index = ((at.y - lines.area.top) / lines.pitch) as usize;
            let index = index.min(lines.ranks.len().checked_sub(1)?);
            return Some((lines.ranks[index], lines.line(index)));
        }
        match row.kind {
            RowKind::Rank(rank) | RowKind::Group { shown: rank, .. } => Some((rank, row.blocks)),
            RowKind::Heading { .. } => None,
        }
    }

    fn hit_beside(&self, timeline: &Timeline, rank: Rank, at: Point) -> Option<Target> {
        let row = timeline.row(rank);
        let time = self.time_at(at.x);
        let index = row.beside.partition_point(|beside| beside.span.end <= time);
        let beside = row.beside.get(index).filter(|beside| beside.span.start <= time)?;
        Some(Target::block(rank, Level::Instr, beside.instr))
    }
}
