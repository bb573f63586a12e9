//! A time axis that stands still: it grows at once where a step is longer, and shrinks only when it is
//! asked to.

use std::collections::VecDeque;

use shardlab::trace::draw::axis::TimeAxis;
use shardlab::units::Nanos;

/// Steps whose longest the axis holds.
const OVER: usize = 8;

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
            self.newest = Some(step);
            self.hold(length);
        }
    }

    /// A step of this length is new.
    pub(super) fn hold(&mut self, length: Nanos) {
        let is_first = self.recent.is_empty();
        if self.recent.len() == OVER {
            self.recent.pop_front();
        }
        self.recent.push_back(length);
        if is_first || length > self.axis.end {
            self.shrink();
        }
    }

    /// The shortest axis that holds the last steps.
    pub(super) fn shrink(&mut self) {
        self.axis = TimeAxis::holding(self.recent.iter().copied().max().unwrap_or_default());
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
}
