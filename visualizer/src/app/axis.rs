//! A time axis that stands still: it grows at once where a step is longer, and shrinks only when it is
//! asked to.

use std::collections::VecDeque;

use shardlab::trace::draw::axis::TimeAxis;
use shardlab::units::Nanos;

use crate::run::MEDIAN_OVER;

/// Steps whose longest the axis holds.
const OVER: usize = 8;

/// So many steps of a run have cold caches: they may take ten times as long as those that follow,
/// which have an axis of their own.
pub(super) const COLD: u64 = 2;

/// From this step on the replayed clock has its medians of as many steps as it takes: the axis looks
/// once more at what is shown, because on a busy machine the first few are much longer.
const SETTLED: u64 = MEDIAN_OVER as u64;

/// The axis and the lengths of the last steps.
#[derive(Clone, Debug)]
pub(super) struct SteadyAxis {
    axis: TimeAxis,
    recent: VecDeque<Nanos>,
    /// The newest step that it has held, and the length of the one that is shown.
    newest: Option<u64>,
    shown: Nanos,
}

impl Default for SteadyAxis {
    fn default() -> Self {
        let axis = TimeAxis::holding(Nanos(0));
        Self { axis, recent: VecDeque::new(), newest: None, shown: Nanos(0) }
    }
}

impl SteadyAxis {
    /// The axis. Who looks at a longer step of before sees all of it, and the same axis again when
    /// back.
    pub(super) fn axis(&self) -> TimeAxis {
        if self.shown > self.axis.end { TimeAxis::holding(self.shown) } else { self.axis }
    }

    /// This step of a run is shown.
    pub(super) fn show(&mut self, step: u64, length: Nanos) {
        self.shown = length;
        if self.newest.is_none_or(|newest| step > newest) {
            let crosses = |line: u64| self.newest.is_some_and(|was| was < line && step >= line);
            if self.newest.is_some_and(|newest| newest < COLD) || crosses(SETTLED) {
                self.recent.clear();
            }
            self.newest = Some(step);
            self.hold(length);
        }
    }

    /// A step of this length is new, and shown.
    pub(super) fn hold(&mut self, length: Nanos) {
        self.shown = length;
        let is_first = self.recent.is_empty();
        if self.recent.len() == OVER {
            self.recent.pop_front();
        }
        self.recent.push_back(length);
        if is_first || length > self.axis.end {
            self.axis = TimeAxis::holding(self.recent.iter().copied().max().unwrap_or_default());
        }
    }

    /// The shortest axis that holds the shown step, whatever was longer before.
    pub(super) fn shrink(&mut self) {
        self.recent.clear();
        self.hold(self.shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_at_once_and_shrinks_only_when_asked() {
        let ms = |count: u64| Nanos(count * 1_000_000);
        let mut axis = SteadyAxis::default();
        axis.hold(ms(95));
        assert_eq!(axis.axis().end, ms(100));
        axis.hold(ms(130));
        assert_eq!(axis.axis().end, ms(150));
        for _ in 0..20 {
            axis.hold(ms(90));
            assert_eq!(axis.axis().end, ms(150));
        }
        axis.shrink();
        assert_eq!(axis.axis().end, ms(90));
    }

    #[test]
    fn a_longer_step_of_before_stretches_it_while_it_is_shown() {
        let ms = |count: u64| Nanos(count * 1_000_000);
        let mut axis = SteadyAxis::default();
        axis.show(7, ms(90));
        axis.show(3, ms(140));
        assert_eq!(axis.axis().end, ms(150));
        axis.show(7, ms(90));
        assert_eq!(axis.axis().end, ms(90));
        axis.show(8, ms(95));
        assert_eq!(axis.axis().end, ms(100));
    }

    #[test]
    fn asked_to_shrink_it_holds_the_shown_step_and_forgets_longer_ones_of_before() {
        let ms = |count: u64| Nanos(count * 1_000_000);
        let mut axis = SteadyAxis::default();
        axis.show(7, ms(600));
        axis.show(8, ms(65));
        assert_eq!(axis.axis().end, ms(600));
        axis.shrink();
        assert_eq!(axis.axis(), TimeAxis::holding(ms(65)));
        axis.show(9, ms(64));
        axis.shrink();
        axis.show(10, ms(140));
        assert_eq!(axis.axis().end, ms(150));
    }

    #[test]
    fn an_axis_of_the_first_steps_is_looked_at_once_more_and_never_again() {
        let ms = |count: u64| Nanos(count * 1_000_000);
        let mut axis = SteadyAxis::default();
        axis.show(3, ms(600));
        axis.show(9, ms(65));
        assert_eq!(axis.axis().end, ms(600));
        axis.show(17, ms(65));
        assert_eq!(axis.axis(), TimeAxis::holding(ms(65)));
        axis.show(20, ms(600));
        for step in 21..60 {
            axis.show(step, ms(65));
            assert_eq!(axis.axis().end, ms(600));
        }
    }

    #[test]
    fn a_step_with_cold_caches_does_not_stretch_the_axis_of_those_that_follow() {
        let ms = |count: u64| Nanos(count * 1_000_000);
        let mut axis = SteadyAxis::default();
        axis.show(0, ms(600));
        assert_eq!(axis.axis().end, ms(600));
        axis.show(2, ms(65));
        assert_eq!(axis.axis(), TimeAxis::holding(ms(65)));
        axis.show(3, ms(600));
        axis.show(4, ms(65));
        assert_eq!(axis.axis().end, ms(600));
    }
}
