//! What keys do in Compare: the same as in Watch, in both timelines at once.

use shardlab::mesh::Rank;
use shardlab::trace::Span;
use shardlab::trace::draw::timeline::{Arrows, Direction, Grain, Level, Target};
use shardlab::units::Nanos;

use super::{Compare, Half};
use crate::play;
use crate::shown::{Command, Revealed};

impl Compare {
    /// The part of the time that is in sight; `None`: all.
    pub(in crate::app) fn seen(&self) -> Option<Span> {
        self.sight(Half::Upper).window
    }

    /// Another part of the time in sight.
    pub(in crate::app) fn see(&mut self, window: Option<Span>) {
        self.window(window);
    }

    /// The axis as short as the two allow.
    pub(in crate::app) fn shrink(&mut self) {
        self.axis.shrink();
    }

    /// The instant under the pointer.
    pub(in crate::app) fn under_pointer(&self) -> Option<Nanos> {
        self.halves.iter().find_map(|shown| shown.part.under_pointer())
    }

    /// Which dependencies are drawn.
    pub(in crate::app) fn arrows(&mut self, arrows: Arrows) {
        self.halves.iter_mut().for_each(|shown| shown.sight.arrows = arrows);
    }

    /// What is chosen, and in which half.
    fn chosen_in(&self) -> Option<(Half, Target)> {
        Half::BOTH.into_iter().find_map(|half| Some((half, self.sight(half).selection?)))
    }

    /// The time that is marked, else that of what is chosen.
    pub(in crate::app) fn section(&self) -> Option<Span> {
        let of_choice = || {
            let (half, target) = self.chosen_in()?;
            Some(self.held(half)?.timeline.span(&target)?.1)
        };
        self.sight(Half::Upper).marked.or_else(of_choice)
    }

    /// The next stop of either timeline.
    pub(in crate::app) fn next_stop(&self, at: Nanos, grain: Grain, way: Direction) -> Nanos {
        let stops = Half::BOTH.into_iter().filter_map(|half| {
            let stop = self.held(half)?.timeline.next_stop(at, grain, way);
            (stop != at).then_some(stop)
        });
        let next = match way {
            Direction::Forward => stops.min(),
            Direction::Back => stops.max(),
        };
        next.unwrap_or(at)
    }

    /// Chooses what stands at the playhead in the row below the chosen one, or above: from the upper
    /// timeline into the lower one and back.
    pub(in crate::app) fn select_row(&mut self, direction: play::Direction, at: Nanos) {
        // Of one Plan each row is in both.
        let halves = if self.has_one_plan() { &Half::BOTH[..1] } else { &Half::BOTH[..] };
        let rows: Vec<(Half, Rank)> = halves
            .iter()
            .copied()
            .filter_map(|half| Some((half, self.held(half)?)))
            .flat_map(|(half, held)| held.timeline.ranks().iter().map(move |rank| (half, *rank)))
            .collect();
        let now = self.chosen_in().and_then(|(half, target)| {
            let rank = self.rank_of(half, target)?;
            rows.iter().position(|row| *row == (half, rank))
        });
        let next = match (now, direction) {
            (None, _) => 0,
            (Some(now), play::Direction::Forward) => (now + 1).min(rows.len() - 1),
            (Some(now), play::Direction::Back) => now.saturating_sub(1),
        };
        if let Some((half, rank)) = rows.get(next).copied() {
            self.select_at(half, rank, at);
        }
    }

    /// Chooses what the chosen row does at the playhead; opens or closes a group.
    pub(in crate::app) fn select_here(&mut self, at: Nanos) {
        match self.chosen_in() {
            Some((half, Target::Position(position))) => {
                self.each(half, |sight| sight.unfold(position));
            }
            Some((half, target)) => {
                if let Some(rank) = self.rank_of(half, target) {
                    self.select_at(half, rank, at);
                }
            }
            None => self.select_row(play::Direction::Forward, at),
        }
    }

    /// Clears the top-most thing alone.
    pub(in crate::app) fn escape(&mut self) {
        let sight = self.sight(Half::Upper);
        if sight.marked.is_some() {
            self.halves.iter_mut().for_each(|shown| shown.sight.marked = None);
        } else if self.chosen_in().is_some() {
            self.halves.iter_mut().for_each(|shown| shown.sight.selection = None);
        } else {
            self.window(None);
        }
    }

    fn rank_of(&self, half: Half, target: Target) -> Option<Rank> {
        match target {
            Target::Position(position) => self.held(half)?.timeline.slowest(position),
            other => crate::shown::rank_of(other),
        }
    }

    fn select_at(&mut self, half: Half, rank: Rank, at: Nanos) {
        let Some(held) = self.held(half) else { return };
        // At the end of the step nothing runs any more: what ran last.
        let at = Nanos(at.0.min(held.length().0.saturating_sub(1)));
        let target = held.timeline.target_at(rank, Level::Pass, at).unwrap_or(Target::Rank(rank));
        // One half at a time, so that rows are walked through in order.
        self.halves.iter_mut().for_each(|shown| shown.sight.selection = None);
        self.obey(half, Command::Select(Some(target)));
        self.each(half, |sight| sight.reveal = Some(Revealed::Rank(rank)));
    }
}
