//! Runs a step in program order, one instruction after the other, and lets somebody look at the
//! memory after each. The bits are those of any other run: they never depend on the order.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::drive::lock;
use super::executor::{Executor, PlanId};
use super::host::worker;
use super::step::Run;
use super::tasks::Kind;
use super::{ExecError, StepInput, StepOutput};
use crate::mesh::Rank;

/// Looks at the memory after an instruction, given by its rank and its index there, has ended; a
/// break gives the step up.
pub type Look<'a> = dyn FnMut(&Executor, (Rank, u32)) -> Result<ControlFlow<()>, ExecError> + 'a;

impl Executor {
    /// Runs a step in program order on the calling thread. `look` is called after every
    /// instruction and before the next one writes; of a message after the send, then after the
    /// receive. `None`: `look` gave the step up.
    ///
    /// # Errors
    /// As [`Executor::run`], and those of `look`.
    pub fn run_in_order(
        &mut self,
        id: PlanId,
        step: u64,
        input: &StepInput<'_>,
        look: &mut Look<'_>,
    ) -> Result<Option<StepOutput>, ExecError> {
        self.begin(id, step, input)?;
        let run = Arc::clone(&self.plans[id.0].run);
        while !run.is_over() {
            let Some(task) = earliest(&run) else {
                if let Some(due) = run.until_due() {
                    std::thread::sleep(due);
                }
                run.end_due();
                continue;
            };
            run.claim(task);
            let at = run.tasks.list[task as usize];
            match (at.set as usize).checked_sub(run.tasks.host_set_count) {
                None => worker::execute(&run, 0, task),
                Some(device) => {
                    let mut cell = lock(&self.cells[run.tasks.devices[device]]);
                    let done = cell.encode(&run, task).and_then(|()| cell.fence(&run));
                    if let Err(error) = done {
                        run.fail(error);
                    }
                }
            }
            // In one memory a message is one task for both of its halves.
            let whole = matches!(at.kind, Kind::Message { .. });
            let receive = run.order.peer[at.rank.index()][at.instr as usize].filter(|_| whole);
            for half in [Some((at.rank, at.instr)), receive].into_iter().flatten() {
                if !run.has_failed() && look(self, half)?.is_break() {
                    self.give_up();
                    return Ok(None);
                }
            }
        }
        self.end().map(Some)
    }
}

/// The earliest instruction of all that are ready, on any rank.
fn earliest(run: &Run) -> Option<u32> {
    let ready = (0..run.tasks.set_starts.len() - 1).filter_map(|set| run.peek(set));
    ready.min_by_key(|&task| {
        let task = &run.tasks.list[task as usize];
        (task.instr, task.rank)
    })
}
