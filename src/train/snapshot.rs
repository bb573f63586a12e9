//! The whole state of a session at one step, to the bit: what one goes back to or branches from.
//!
//! Unlike a checkpoint it is no business of logical tensors: replicas that differ, as they do
//! under some faults, stay different.

use super::TrainError;
use super::session::Session;
use crate::exec::ExecError;
use crate::plan::{BufferDecl, BufferId, Life, Plan, View};

/// Weights, optimizer state and the next step of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    step: u64,
    /// The persistent buffers of the Plan, in its order.
    buffers: Vec<Vec<f32>>,
}

impl Snapshot {
    /// The step that runs next, 0-based; it says where the data stand as well.
    pub fn step(&self) -> u64 {
        self.step
    }
}

impl Session {
    /// Copies the state.
    ///
    /// # Errors
    /// If a device failed.
    pub fn snapshot(&mut self) -> Result<Snapshot, TrainError> {
        let id = self.train;
        let plan = self.plan().clone();
        let buffers = persistent(&plan).map(|(view, _)| self.executor.read(id, view));
        let buffers = buffers.collect::<Result<_, ExecError>>()?;
        Ok(Snapshot { step: self.step, buffers })
    }

    /// Goes back to a state of this session, or of another one of the same layout.
    ///
    /// # Errors
    /// If the snapshot is of another layout, or a device failed.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), TrainError> {
        let id = self.train;
        let plan = self.plan().clone();
        let lens = persistent(&plan).map(|(_, decl)| decl.len as usize);
        if !lens.eq(snapshot.buffers.iter().map(Vec::len)) {
            return Err(ExecError::Input {
                what: "the snapshot".into(),
                why: "it is of another layout or model".into(),
                remedy: "Go back with the layout it was taken from, or use a checkpoint".into(),
            }
            .into());
        }
        for ((view, _), values) in persistent(&plan).zip(&snapshot.buffers) {
            self.executor.write(id, view, values)?;
        }
        self.step = snapshot.step;
        self.recent.clear();
        Ok(())
    }
}

fn persistent(plan: &Plan) -> impl Iterator<Item = (View, &BufferDecl)> {
    let buffers = (0..).map(BufferId).zip(&plan.buffers);
    let lasting = buffers.filter(|(_, decl)| decl.life == Life::Persistent);
    lasting.map(|(buffer, decl)| (View { buffer, offset: 0, len: decl.len }, decl))
}
