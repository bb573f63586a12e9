//! What is told while training runs: one line every tenth of the steps.

use super::output;
use super::verify::layout_words;
use crate::exec::Clock;
use crate::train::{Session, StepReport};
use crate::units::Nanos;

/// Tells how training goes.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Clock,
    first: u64,
    steps: u64,
    tokens_per_step: f64,
}

impl Watch {
    /// Begins to tell about a session that goes on to `steps` steps.
    pub(super) fn start(session: &Session, steps: u64) -> Self {
        let scenario = session.scenario();
        let ranks = scenario.layout.mesh().size();
        let (device, why) = super::doctor::device_and_why(session);
        let why = why.map_or(String::new(), |why| format!(" ({why})"));
        let params = session.model().parameter_count();
        output::progress(format_args!("shardlab · {ranks} ranks on {device}{why}"));
        output::progress(format_args!("{} · {params} params", layout_words(&scenario.layout)));
        let training = &scenario.training;
        Self {
            clock: Clock::start(),
            first: session.next_step(),
            steps,
            tokens_per_step: f64::from(training.batch) * f64::from(training.seq),
        }
    }

    /// Takes over what a step has measured.
    pub(super) fn step(&self, report: &StepReport) {
        let (step, steps) = (report.step + 1, self.steps);
        if step * 10 / steps.max(1) == report.step * 10 / steps.max(1) {
            return;
        }
        let speed = self.tokens_per_step / report.seconds;
        let elapsed = Nanos(self.clock.now()).as_secs();
        let left = elapsed / (step - self.first) as f64 * (steps - step) as f64;
        output::progress(format_args!(
            "step {step}/{steps}  loss {:.4}  {speed:.0} tokens/s  {left:.0} s left",
            report.loss
        ));
    }

    /// Says a line.
    pub(super) fn say(&self, line: &str) {
        output::progress(line);
    }
}
