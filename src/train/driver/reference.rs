//! One rank that trains beside a run on the same batches: what the run should come to.

use super::events::Difference;
use crate::checkpoint::Checkpoint;
use crate::config::{Layout, Scenario};
use crate::data::Dataset;
use crate::plan::Held;
use crate::train::verify::tensor_differences;
use crate::train::{Options, Session, TrainError};

/// The one rank.
#[derive(Debug)]
pub(super) struct Reference {
    session: Session,
}

impl Reference {
    /// One rank in a given state, on the CPU.
    ///
    /// # Errors
    /// If it cannot be trained.
    pub(super) fn start(
        scenario: &Scenario,
        dataset: Option<Dataset>,
        state: &Checkpoint,
    ) -> Result<Self, TrainError> {
        let single = Scenario { layout: Layout::default(), ..scenario.clone() };
        let options = Options { dataset, ..Options::on_cpu() };
        Ok(Self { session: Session::resume(state, single, options)? })
    }

    /// Trains the step that `run` has just trained, and says how far the two are from one another.
    ///
    /// # Errors
    /// If a device failed, or the one rank's numbers are not finite.
    pub(super) fn follow(&mut self, run: &mut Session) -> Result<Difference, TrainError> {
        let report = self.session.step()?;
        let right = self.session.tensors(Held::Weight)?;
        let found = run.tensors(Held::Weight)?;
        let differences = tensor_differences(run.model(), &right, &found);
        let mut difference = Difference { loss: report.loss, weights: 0.0, tensor: None };
        for (name, relative) in differences {
            // A difference that is not a number is the largest of all.
            let relative = if relative.is_nan() { f64::INFINITY } else { relative };
            if relative > difference.weights {
                let tensors = &run.plan().tensors;
                let index = tensors.iter().position(|tensor| tensor.name == name);
                difference.weights = relative;
                difference.tensor = index.map(|index| index as u32);
            }
        }
        Ok(difference)
    }
}
