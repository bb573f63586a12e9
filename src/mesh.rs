//! Ranks and the mesh that they form: data × pipeline × tensor.
//!
//! Pure arithmetic between a rank and its coordinates. What a rank does is the planner's business.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in the mesh, 0-based.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index into per-rank lists.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An axis of the mesh: what is cut along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// The batch.
    Dp,
    /// The matrices.
    Tp,
    /// The layers.
    Pp,
}

impl Axis {
    /// The axes in the order in which they are printed.
    pub const ALL: [Self; 3] = [Self::Dp, Self::Tp, Self::Pp];

    /// The long word for people: data, tensor, pipeline.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dp => "data",
            Self::Tp => "tensor",
            Self::Pp => "pipeline",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Dp => "dp",
            Self::Tp => "tp",
            Self::Pp => "pp",
        })
    }
}

/// Which axis runs fastest through the rank numbers. It decides which bytes cross nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RankOrder {
    /// Tensor fastest, then data, then pipeline (the default).
    #[default]
    #[serde(rename = "tp-dp-pp")]
    TpDpPp,
    /// Tensor fastest, then pipeline, then data.
    #[serde(rename = "tp-pp-dp")]
    TpPpDp,
}

/// A rank's coordinate on each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coord {
    /// Which replica of the model.
    pub dp: u32,
    /// Which slice of every matrix.
    pub tp: u32,
    /// Which position of the pipeline.
    pub pp: u32,
}

impl Coord {
    /// The coordinate on `axis`.
    pub const fn on(self, axis: Axis) -> u32 {
        match axis {
            Axis::Dp => self.dp,
            Axis::Tp => self.tp,
            Axis::Pp => self.pp,
        }
    }

    /// The same coordinate with another value on `axis`.
    #[must_use]
    pub const fn with(mut self, axis: Axis, value: u32) -> Self {
        match axis {
            Axis::Dp => self.dp = value,
            Axis::Tp => self.tp = value,
            Axis::Pp => self.pp = value,
        }
        self
    }
}

impl fmt::Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}t{}p{}", self.dp, self.tp, self.pp)
    }
}

/// Sizes of the three axes and the order of the ranks.
///
/// ```
/// use shardlab::mesh::{Axis, Mesh, Rank, RankOrder};
/// let mesh = Mesh { dp: 4, tp: 4, pp: 4, order: RankOrder::TpDpPp };
/// assert_eq!(mesh.coord(Rank(37)).to_string(), "d1t1p2");
/// assert_eq!(mesh.group(Rank(37), Axis::Dp), [33, 37, 41, 45].map(Rank));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mesh {
    /// Data-parallel size.
    pub dp: u32,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline-parallel size.
    pub pp: u32,
    /// Which axis runs fastest.
    pub order: RankOrder,
}

impl Mesh {
    /// Number of ranks.
    pub const fn size(self) -> u32 {
        self.dp * self.tp * self.pp
    }

    /// All ranks in ascending order.
    pub fn ranks(self) -> impl Iterator<Item = Rank> {
        (0..self.size()).map(Rank)
    }

    /// Size of an axis.
    pub const fn len(self, axis: Axis) -> u32 {
        match axis {
            Axis::Dp => self.dp,
            Axis::Tp => self.tp,
            Axis::Pp => self.pp,
        }
    }

    /// Where a rank lies.
    pub const fn coord(self, rank: Rank) -> Coord {
        let (tp, rest) = (rank.0 % self.tp, rank.0 / self.tp);
        match self.order {
            RankOrder::TpDpPp => Coord { tp, dp: rest % self.dp, pp: rest / self.dp },
            RankOrder::TpPpDp => Coord { tp, pp: rest % self.pp, dp: rest / self.pp },
        }
    }

    /// The rank at a coordinate: the inverse of [`Mesh::coord`].
    pub const fn rank(self, at: Coord) -> Rank {
        Rank(match self.order {
            RankOrder::TpDpPp => at.tp + self.tp * (at.dp + self.dp * at.pp),
            RankOrder::TpPpDp => at.tp + self.tp * (at.pp + self.pp * at.dp),
        })
    }

    /// The ranks that share all other coordinates with `rank`, in order along `axis`.
    pub fn group(self, rank: Rank, axis: Axis) -> Vec<Rank> {
        let at = self.coord(rank);
        (0..self.len(axis)).map(|value| self.rank(at.with(axis, value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn coordinates_and_ranks_are_inverse_in_both_orders() {
        for order in [RankOrder::TpDpPp, RankOrder::TpPpDp] {
            let mesh = Mesh { dp: 3, tp: 2, pp: 5, order };
            for rank in mesh.ranks() {
                assert_eq!(mesh.rank(mesh.coord(rank)), rank);
            }
        }
    }

    #[test]
    fn a_mesh_of_64_has_16_groups_of_4_on_each_axis_and_they_meet_in_at_most_one_rank() {
        let mesh = Mesh { dp: 4, tp: 4, pp: 4, order: RankOrder::TpDpPp };
        let groups = |axis| -> BTreeSet<Vec<Rank>> {
            mesh.ranks().map(|rank| mesh.group(rank, axis)).collect()
        };
        for axis in Axis::ALL {
            assert_eq!(groups(axis).len(), 16);
            assert!(groups(axis).iter().all(|group| group.len() == 4));
        }
        for (a, b) in [(Axis::Dp, Axis::Tp), (Axis::Dp, Axis::Pp), (Axis::Tp, Axis::Pp)] {
            for one in groups(a) {
                for other in groups(b) {
                    assert!(one.iter().filter(|rank| other.contains(rank)).count() <= 1);
                }
            }
        }
        let stride = |axis| mesh.group(Rank(0), axis)[1].0;
        assert_eq!([stride(Axis::Tp), stride(Axis::Dp), stride(Axis::Pp)], [1, 4, 16]);
        let other = Mesh { order: RankOrder::TpPpDp, ..mesh };
        assert_eq!(other.group(Rank(0), Axis::Dp)[1].0, 16);
    }
}
