//! Loading a Plan: checks, memory, addresses. Everything that a step needs is prepared here, once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::drive::lock;
use super::executor::{Executor, Loaded, PlanId};
use super::host::arenas::placed;
use super::host::memory::{Arena, Bindings};
use super::host::worker::panic_message;
use super::io::{self, Io};
use super::step::{Run, RunParts};
use super::tasks::{Home, Tasks};
use super::transport::{self, Staging};
use super::{ExecError, StepInput, validate};
use crate::mesh::Rank;
use crate::plan::Plan;
use crate::plan::order::{self, Order};
use crate::units::Bytes;

impl Executor {
    /// Checks a Plan, allocates its memory, and prepares all that its steps need.
    ///
    /// # Errors
    /// If the Plan cannot run here: its memory does not fit, an op has no kernel, or its
    /// instructions do not fit their buffers. A Plan that hangs is loaded, and its hang reported
    /// when it runs.
    pub fn load(&mut self, plan: Arc<Plan>) -> Result<PlanId, ExecError> {
        self.give_up();
        let first = self.plans.first().map(|loaded| Arc::clone(&loaded.run.plan));
        let (order, tasks) = prepare(&plan, &self.homes, first.as_deref())?;
        self.check_cap(&plan)?;
        let id = PlanId(self.plans.len());
        let prepared = self.allocate(id, &plan, &tasks).and_then(|(staging, moved)| {
            self.write_constants(id, &plan)?;
            Ok((staging, moved))
        });
        let (staging, moved) = prepared.inspect_err(|_| self.arenas.forget(id.0))?;
        let parts = RunParts {
            bindings: self.bind(id, &plan, (&tasks, &order), &staging),
            tasks,
            pool: Arc::clone(&self.pool),
            cells: self.cells.clone(),
            options: self.options.clone(),
        };
        let io = Io::new(&plan);
        let run = Arc::new(Run::new(plan, id.0, order, parts));
        self.plans.push(Loaded { run, io, staging });
        if moved {
            self.bind_again();
        }
        Ok(id)
    }

    /// Refuses a Plan of which a rank places more than the cap.
    fn check_cap(&self, plan: &Plan) -> Result<(), ExecError> {
        let Some(have) = self.options.memory_cap else { return Ok(()) };
        for rank in plan.mesh.ranks() {
            let before = self.plans.iter().map(|loaded| loaded.run.plan.as_ref());
            let plans: Vec<&Plan> = before.chain([plan]).collect();
            let need = need(&plans, rank);
            if need > have {
                let device = self.device_infos()[self.device_of(rank)].name.clone();
                return Err(ExecError::Memory { rank, device, need, have });
            }
        }
        Ok(())
    }

    /// Allocates the memory of all ranks, and staging bytes. Returns those, and whether step
    /// arenas of earlier Plans have moved.
    fn allocate(
        &mut self,
        id: PlanId,
        plan: &Plan,
        tasks: &Tasks,
    ) -> Result<(Arc<Arena>, bool), ExecError> {
        let refuse = |what: String, bytes: Bytes| ExecError::Device {
            device: "cpu".into(),
            why: format!("the machine does not give {bytes} for {what}"),
            remedy: "Use a smaller model or batch, or a machine with more memory".into(),
        };
        let mut moved = false;
        for rank in plan.mesh.ranks() {
            let is_here = self.homes[rank.index()] == Home::Host;
            let allocated = self.arenas.load(plan, rank, is_here);
            moved |= allocated.map_err(|bytes| refuse(format!("rank {rank}"), bytes))?;
        }
        for (device, cell) in self.cells.iter().enumerate() {
            let ranks: Vec<Rank> = plan
                .mesh
                .ranks()
                .filter(|rank| self.homes[rank.index()] == Home::Device(device))
                .collect();
            lock(cell).device.load(id.0, plan, &ranks)?;
        }
        let bytes = Staging::new(plan, tasks).bytes;
        let staging =
            Arena::zeroed(bytes).ok_or_else(|| refuse("messages".into(), Bytes(bytes)))?;
        Ok((Arc::new(staging), moved))
    }

    /// Fills the inputs that are the same in every step.
    fn write_constants(&mut self, id: PlanId, plan: &Plan) -> Result<(), ExecError> {
        let nothing =
            StepInput { tokens: &[], labels: &[], seq: 0, lr: 0.0, bias_corrections: [1.0; 2] };
        for (rank, view, input) in Io::new(plan).constants {
            io::fill(&mut self.scratch, input, &nothing, 0.0);
            match self.homes[rank.index()] {
                Home::Host => self.arenas.write(id.0, plan, view, &self.scratch),
                Home::Device(device) => {
                    lock(&self.cells[device]).device.write(id.0, rank, view, &self.scratch)?;
                }
            }
        }
        Ok(())
    }

    /// Resolves all views of a Plan to addresses.
    fn bind(
        &self,
        id: PlanId,
        plan: &Plan,
        (tasks, order): (&Tasks, &Order),
        staging: &Arc<Arena>,
    ) -> Bindings {
        let mut arenas = self.arenas.of_plan(id.0);
        let staging_arena = arenas.len();
        arenas.push(Arc::clone(staging));
        let mut bindings = Bindings::new(arenas);
        let layout = Staging::new(plan, tasks);
        transport::bind(plan, tasks, order, (&layout, staging_arena), &mut bindings);
        bindings
    }

    /// Resolves the views of all earlier Plans again, after their step arenas have moved.
    fn bind_again(&mut self) {
        let last = self.plans.len() - 1;
        for index in 0..last {
            let loaded = &self.plans[index];
            let run = &loaded.run;
            let bindings =
                self.bind(PlanId(index), &run.plan, (&run.tasks, &run.order), &loaded.staging);
            self.plans[index].run_mut().bindings = bindings;
        }
    }
}

/// Bytes that an executor places for a rank with these Plans of one run: they share the persistent
/// memory, have inputs and outputs of their own, and take turns in the memory of the step.
pub fn need(plans: &[&Plan], rank: Rank) -> Bytes {
    let all: Vec<[u64; 3]> = plans.iter().map(|plan| placed(plan, rank)).collect();
    let largest = |arena: usize| all.iter().map(|sizes| sizes[arena]).max().unwrap_or(0);
    let io: u64 = all.iter().map(|sizes| sizes[1]).sum();
    Bytes(largest(0) + io + largest(2))
}

/// Checks a Plan and derives its tasks.
fn prepare(plan: &Plan, homes: &[Home], first: Option<&Plan>) -> Result<(Order, Tasks), ExecError> {
    let refuse = |faults: Vec<String>| {
        if faults.is_empty() { Ok(()) } else { Err(ExecError::Plan { faults }) }
    };
    if plan.mesh.size() as usize != homes.len() {
        let (ranks, placed) = (plan.mesh.size(), homes.len());
        let fault = format!("it has {ranks} ranks, {placed} are placed on devices");
        return Err(ExecError::Plan { faults: vec![fault] });
    }
    // An op whose sizes make no sense may panic when it is asked for its signature.
    let prepared = catch_unwind(AssertUnwindSafe(|| {
        refuse(validate::faults(plan))?;
        refuse(first.map_or_else(Vec::new, |first| validate::persistent_faults(first, plan)))?;
        if let Some((rank, instr, op)) = validate::without_kernel(plan) {
            return Err(ExecError::NoKernel { rank, instr, op });
        }
        let order = order::derive(plan);
        let tasks = Tasks::new(plan, &order, homes);
        Ok((order, tasks))
    }));
    prepared.unwrap_or_else(|payload| {
        let fault =
            format!("the sizes of an op make no sense: {}", panic_message(payload.as_ref()));
        Err(ExecError::Plan { faults: vec![fault] })
    })
}
