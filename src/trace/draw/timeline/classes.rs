//! Rows that stand for many ranks: of a large cluster one rank of each kind is drawn.

use super::Timeline;
use crate::mesh::Rank;
use crate::units::{Bytes, grouped};

/// Ranks that have the same step, one of which is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// The first of them, by its number in the cluster.
    pub first: Rank,
    /// How many they are.
    pub count: u32,
    /// Their pipeline position.
    pub position: u32,
}

impl Timeline {
    /// Says that each rank of the Plan stands for several: `alike[rank]`.
    ///
    /// # Panics
    /// If the Plan has another number of ranks.
    #[must_use]
    pub fn standing_for(mut self, alike: Vec<Alike>) -> Self {
        assert_eq!(alike.len(), self.rows.len(), "one entry for each rank of the Plan");
        self.alike = alike;
        let mut top_down = std::mem::take(&mut self.top_down);
        top_down.sort_by_key(|rank| (self.position_of(*rank), *rank));
        self.top_down = top_down;
        self
    }

    /// Says what a rank may hold at most: memory is drawn against it.
    #[must_use]
    pub fn within(mut self, capacity: Bytes) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// What a rank may hold at most, if that was said.
    pub fn capacity(&self) -> Option<Bytes> {
        self.capacity
    }

    /// Number of pipeline positions.
    pub fn positions(&self) -> u32 {
        match self.alike.iter().map(|alike| alike.position + 1).max() {
            Some(positions) => positions,
            None => self.plan.mesh.pp,
        }
    }

    /// How many ranks a position has, drawn or not.
    pub fn ranks_at(&self, position: u32) -> u32 {
        self.position(position).map(|rank| self.weight(rank)).sum()
    }

    /// Whether rows stand for more than the rank that they show.
    pub(super) fn has_alike(&self) -> bool {
        !self.alike.is_empty()
    }

    /// The pipeline position of a rank.
    pub(super) fn position_of(&self, rank: Rank) -> u32 {
        match self.alike.get(rank.index()) {
            Some(alike) => alike.position,
            None => self.plan.mesh.coord(rank).pp,
        }
    }

    /// How many ranks are as this one, itself included.
    pub(super) fn weight(&self, rank: Rank) -> u32 {
        self.alike.get(rank.index()).map_or(1, |alike| alike.count)
    }

    /// The number by which people know a rank.
    pub(super) fn number(&self, rank: Rank) -> Rank {
        self.alike.get(rank.index()).map_or(rank, |alike| alike.first)
    }

    /// Who does something, at the beginning of a sentence: `Rank 3`, or `Rank 512, as 255 others,`.
    pub(super) fn who(&self, rank: Rank) -> String {
        let number = self.number(rank);
        match self.weight(rank) {
            1 => format!("Rank {number}"),
            2 => format!("Rank {number}, as 1 other,"),
            count => format!("Rank {number}, as {} others,", grouped(count - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::plan::order;
    use crate::planner::schedule::one_f_one_b::one_f_one_b;
    use crate::planner::schedule::textbook;
    use crate::sim::{Links, replay};
    use crate::trace::Badge;
    use crate::trace::draw::fonts::SansTable;
    use crate::trace::draw::scene::{Area, Canvas, Scene, Sketch};
    use crate::trace::draw::theme::Theme;
    use crate::trace::draw::timeline::{Frame, Target, draw};
    use crate::units::Nanos;

    /// Two positions of 512 ranks each, one of which is slow at the first position.
    fn cluster() -> Timeline {
        of_ranks(512)
    }

    fn of_ranks(count: u32) -> Timeline {
        let plan = textbook::plan(&one_f_one_b(3, 4));
        let order = order::derive(&plan);
        let graph = order::graph(&plan, &order);
        let durations: Vec<Vec<Nanos>> =
            plan.programs.iter().map(|p| vec![Nanos(1000); p.instrs.len()]).collect();
        let trace = replay(&plan, &graph, &durations, &Links::FREE, 0).unwrap();
        let timeline = Timeline::new(Arc::new(plan), &order, Arc::new(trace), &[]);
        let alike = [(count, count, 1), (1, count - 1, 0), (0, 1, 0)];
        let alike =
            alike.map(|(first, count, position)| Alike { first: Rank(first), count, position });
        timeline.standing_for(alike.into())
    }

    fn scene(timeline: &Timeline) -> Scene {
        let canvas = Canvas { theme: &Theme::LIGHT, measure: &SansTable };
        let area = Area::sized(900.0, 300.0);
        let mut sketch = Sketch::new(canvas, area);
        draw(
            &mut sketch,
            timeline,
            &Frame::new(area, (Nanos(0), timeline.end()), Badge::Predicted),
        );
        sketch.scene
    }

    #[test]
    fn positions_count_all_their_ranks_and_rows_go_by_position() {
        let timeline = cluster();
        assert_eq!(timeline.positions(), 2);
        assert_eq!([0, 1].map(|position| timeline.ranks_at(position)), [512, 512]);
        assert_eq!(timeline.ranks(), [Rank(1), Rank(2), Rank(0)]);
        assert_eq!(timeline.slowest(1), Some(Rank(0)));
    }

    #[test]
    fn a_row_says_for_how_many_ranks_it_stands() {
        let texts: Vec<String> =
            scene(&cluster()).labels().map(|label| label.full.clone()).collect();
        for text in ["stage 0 · 512 ranks", "stage 1 · 512 ranks"] {
            assert_eq!(texts.iter().filter(|other| *other == text).count(), 1, "{texts:?}");
        }
        assert!(texts.contains(&"all alike".to_owned()), "{texts:?}");
        // Of thousands the number is told whole.
        let scene = scene(&of_ranks(65_536));
        let label = scene.labels().find(|label| label.full == "stage 0 × 65,536").unwrap();
        assert_eq!(label.text, label.full);
    }

    #[test]
    fn sentences_name_the_numbers_of_the_cluster() {
        let timeline = cluster();
        let said = timeline.explain(&Target::Rank(Rank(0)));
        assert!(said.starts_with("Rank 512, as 511 others, works"), "{said}");
        let said = timeline.explain(&Target::Rank(Rank(2)));
        assert!(said.starts_with("Rank 0 works"), "{said}");
        let said = timeline.explain(&Target::Position(0));
        assert!(said.starts_with("512 ranks at pipeline position 0 wait"), "{said}");
        assert_eq!(grouped(1_048_576_u32), "1,048,576");
        assert_eq!([7_u32, 999, 1000].map(grouped), ["7", "999", "1,000"]);
    }
}
