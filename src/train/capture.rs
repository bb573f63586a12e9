//! Opens a collective of a step that really trains: the step runs in program order, and the first
//! elements of every chunk are read on their way.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::TrainError;
use super::session::{Session, StepReport, step_input};
use crate::exec::ExecError;
use crate::mesh::Rank;
use crate::plan::Plan;
use crate::plan::order::Order;
use crate::trace::captured::{Captured, Sample};

impl Session {
    /// Runs the next step and captures the collective that an instruction belongs to. The weights
    /// are updated as by [`Session::step`], to the bit; the step is slower, and its times say
    /// little, as instructions wait for one another.
    ///
    /// # Errors
    /// As [`Session::step`], and if the instruction belongs to no collective that sends anything;
    /// nothing has run then.
    pub fn step_capturing(
        &mut self,
        at: (Rank, u32),
    ) -> Result<(StepReport, Captured), TrainError> {
        let (plan, order) = (self.plan().clone(), self.order().clone());
        let program = plan.programs.get(at.0.index());
        let exists = program.is_some_and(|program| (at.1 as usize) < program.instrs.len());
        let captured = if exists { Captured::of(&plan, &order, at) } else { None };
        let mut captured = captured.ok_or_else(|| ExecError::Input {
            what: format!("rank {}, instruction {}", at.0, at.1),
            why: "it belongs to no collective that sends anything".into(),
            remedy: "Choose a block such as RS, AG or AR".into(),
        })?;
        let batch = self.batches().batch(self.next_step());
        let (step, id) = (self.next_step(), self.train);
        let input = step_input(self.scenario(), &batch, step);
        let moments = moments(&plan, &order, &captured.samples);
        for sample in captured.samples.iter_mut().filter(|sample| sample.after.is_none()) {
            sample.values = self.executor.read(id, sample.view)?;
        }
        let samples = &mut captured.samples;
        let output = self.executor.run_in_order(id, step, &input, &mut |executor, at| {
            for &index in moments.get(&at).into_iter().flatten() {
                let sample: &mut Sample = &mut samples[index];
                sample.values = executor.read(id, sample.view)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let output = output.unwrap_or_else(|| unreachable!("nobody gave the step up"));
        let report = self.finish_step(output, &input, step)?;
        Ok((report, captured))
    }
}

/// After which instruction each sample is to be read: what arrives, after its receive.
fn moments(plan: &Plan, order: &Order, samples: &[Sample]) -> BTreeMap<(Rank, u32), Vec<usize>> {
    let mut moments: BTreeMap<(Rank, u32), Vec<usize>> = BTreeMap::new();
    for (index, sample) in samples.iter().enumerate() {
        let Some((rank, instr)) = sample.after else { continue };
        let arrives = plan.buffer(sample.view.buffer).rank != rank;
        let receive = order.peer[rank.index()][instr as usize].filter(|_| arrives);
        moments.entry(receive.unwrap_or((rank, instr))).or_default().push(index);
    }
    moments
}
