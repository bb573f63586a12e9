//! The executor: loads Plans, runs their steps, reads and writes their buffers.
//!
//! A step has three parts: [`Executor::begin`] writes the inputs, threads or
//! [`Executor::advance`] run the instructions, [`Executor::end`] reads the outputs. Running them
//! one after the other is [`Executor::run`].

use std::sync::{Arc, Mutex};

use super::crew::Crew;
use super::device::{Device, DeviceInfo, DeviceKind};
use super::drive::{Cell, Driven, lock};
use super::host::arenas::Arenas;
use super::host::memory::Arena;
use super::host::pool::Pool;
use super::host::worker;
use super::io::{self, Io, Sums};
use super::options::{Delays, ExecOptions};
use super::step::Run;
use super::tasks::Home;
use super::{ExecError, StepInput, StepOutput, hang, transport};
use crate::mesh::Rank;
use crate::plan::{Plan, View};
use crate::shape::DType;
use crate::trace::{Clock, Trace};
use crate::units::Bytes;

/// What runs the ranks that are placed on it.
#[derive(Debug)]
pub enum DeviceSlot {
    /// The pool of the machine's own cores; all such slots are one and the same.
    Host,
    /// An accelerator.
    Device(Box<dyn Device>),
}

/// A loaded Plan of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanId(pub(super) usize);

/// What one call of [`Executor::advance`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Ran an instruction on the host, or handed it to a device; of a message its send.
    Ran {
        /// Whose.
        rank: Rank,
        /// Which.
        instr: usize,
    },
    /// Nothing can start now; something is in flight.
    Idle,
    /// Every instruction has ended.
    Done,
}

/// Runs Plans on ranks that live on the host or on devices.
#[derive(Debug)]
pub struct Executor {
    infos: Vec<DeviceInfo>,
    placement: Vec<usize>,
    pub(super) homes: Vec<Home>,
    pub(super) cells: Vec<Arc<Mutex<Cell>>>,
    pub(super) options: ExecOptions,
    pub(super) pool: Arc<Pool>,
    /// Started by the first step that runs with threads.
    crew: Option<Crew>,
    pub(super) arenas: Arenas,
    pub(super) plans: Vec<Loaded>,
    /// The step that was begun and not ended.
    current: Option<Current>,
    pub(super) scratch: Vec<u8>,
}

/// A Plan with all that its steps need.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) run: Arc<Run>,
    pub(super) io: Io,
    /// Bytes of staged messages.
    pub(super) staging: Arc<Arena>,
}

impl Loaded {
    /// The Run, to change it; no step runs.
    pub(super) fn run_mut(&mut self) -> &mut Run {
        Arc::get_mut(&mut self.run).expect("no thread holds a step between steps")
    }
}

/// A step that was begun.
#[derive(Clone, Copy, Debug)]
struct Current {
    id: PlanId,
    step: u64,
    inverse_valid: f64,
    last_set: usize,
}

impl Executor {
    /// An executor for `placement.len()` ranks: `placement[rank]` is an index into `devices`.
    ///
    /// # Errors
    /// If a rank is placed on a device that is not there.
    pub fn new(
        devices: Vec<DeviceSlot>,
        placement: Vec<usize>,
        options: ExecOptions,
    ) -> Result<Self, ExecError> {
        if let Some(rank) = placement.iter().position(|&slot| slot >= devices.len()) {
            return Err(ExecError::Input {
                what: format!("the placement of rank {rank}"),
                why: format!("device {} of {}", placement[rank], devices.len()),
                remedy: "Place every rank on a device that is given".into(),
            });
        }
        let (mut cells, mut infos, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let thread_count = options.threads.unwrap_or_else(super::options::cores).max(1);
        for slot in devices {
            match slot {
                DeviceSlot::Host => {
                    infos.push(host_info(thread_count));
                    slots.push(Home::Host);
                }
                DeviceSlot::Device(device) => {
                    infos.push(device.info().clone());
                    slots.push(Home::Device(cells.len()));
                    cells.push(Arc::new(Mutex::new(Cell::new(device))));
                }
            }
        }
        let homes: Vec<Home> = placement.iter().map(|&slot| slots[slot]).collect();
        let worker_count = if homes.contains(&Home::Host) { thread_count } else { 0 };
        Ok(Self {
            infos,
            pool: Arc::new(Pool::new(worker_count, cells.len())),
            crew: None,
            arenas: Arenas::new(homes.len()),
            plans: Vec::new(),
            current: None,
            scratch: Vec::new(),
            placement,
            homes,
            cells,
            options,
        })
    }

    /// An executor with all ranks on the host.
    pub fn on_host(rank_count: u32, options: ExecOptions) -> Self {
        Self::on_device(DeviceSlot::Host, rank_count, options)
    }

    /// An executor with all ranks on one device.
    pub fn on_device(device: DeviceSlot, rank_count: u32, options: ExecOptions) -> Self {
        let executor = Self::new(vec![device], vec![0; rank_count as usize], options);
        executor.unwrap_or_else(|error| unreachable!("every rank is on slot 0: {error}"))
    }

    /// Runs one step with all threads.
    ///
    /// # Errors
    /// If the input does not fit the Plan, the step hangs, a kernel panics or a device fails.
    /// Weights may then be half updated: load a checkpoint.
    pub fn run(
        &mut self,
        id: PlanId,
        step: u64,
        input: &StepInput<'_>,
    ) -> Result<StepOutput, ExecError> {
        self.begin(id, step, input)?;
        if self.crew.is_none() {
            let names: Vec<String> =
                self.cells.iter().map(|cell| lock(cell).device.info().name.clone()).collect();
            let crew = Crew::new(self.pool.worker_count(), &names);
            self.crew = Some(crew.map_err(|error| ExecError::Device {
                device: "the host".into(),
                why: format!("it started no thread: {error}"),
                remedy: "Ask for fewer threads".into(),
            })?);
        }
        if let Some(crew) = &self.crew {
            crew.run(&self.plans[id.0].run);
        }
        self.end()
    }

    /// Begins a step: starts its clock and writes its inputs. A step that was not ended is given
    /// up.
    ///
    /// # Errors
    /// If the input does not fit the Plan or a device fails.
    pub fn begin(&mut self, id: PlanId, step: u64, input: &StepInput<'_>) -> Result<(), ExecError> {
        self.give_up();
        let inverse_valid = io::inverse_valid_labels(input.labels);
        let loaded = &mut self.plans[id.0];
        io::check_input(&loaded.io.inputs, input)?;
        loaded.run_mut().reset();
        let run = &loaded.run;
        for (device, cell) in self.cells.iter().enumerate() {
            let set = run.tasks.device_set(device);
            lock(cell).reset(set.map_or(0, |set| run.tasks.set(set).len()));
        }
        for &(rank, view, kind) in &loaded.io.inputs {
            io::fill(&mut self.scratch, kind, input, inverse_valid);
            match self.homes[rank.index()] {
                Home::Host => self.arenas.write(id.0, &run.plan, view, &self.scratch),
                Home::Device(device) => {
                    let device = &mut lock(&self.cells[device]).device;
                    device.encode_upload(id.0, rank, view, &self.scratch)?;
                }
            }
        }
        self.current = Some(Current { id, step, inverse_valid, last_set: 0 });
        Ok(())
    }

    /// Runs one instruction of the step that was begun, on the calling thread alone.
    ///
    /// # Errors
    /// If nothing was begun, the step hangs, a kernel panics or a device fails; the step is given
    /// up then.
    pub fn advance(&mut self) -> Result<Advance, ExecError> {
        let Some(current) = &mut self.current else {
            return Err(nothing_begun());
        };
        let run = Arc::clone(&self.plans[current.id.0].run);
        let advanced = advance(&run, &self.cells, &mut current.last_set);
        if advanced.is_err() {
            self.give_up();
        }
        advanced
    }

    /// Ends the step that was begun: reads its outputs.
    ///
    /// # Errors
    /// If nothing was begun, not every instruction has ended, or the step hangs or has failed.
    pub fn end(&mut self) -> Result<StepOutput, ExecError> {
        let current = self.current.ok_or_else(nothing_begun)?;
        let run = Arc::clone(&self.plans[current.id.0].run);
        if !run.is_over() {
            return Err(ExecError::Input {
                what: "the end of the step".into(),
                why: "instructions are left".into(),
                remedy: "Call `advance` until it is done".into(),
            });
        }
        let failure = failure(&run);
        self.give_up();
        if let Some(error) = failure {
            return Err(error);
        }
        let sums = self.read_outputs(current.id)?;
        let (spans, paths) = (run.spans(), transport::paths(&self.homes));
        Ok(StepOutput {
            loss: sums.loss(current.inverse_valid),
            grad_norm: sums.grad_norm(),
            trace: Trace { clock: Clock::Measured, step: current.step, spans, paths },
            crossed: transport::crossed(&run),
            instructions: run.ended_count(),
        })
    }

    /// Reads a view, between steps or between two calls of [`Executor::advance`]; integers are
    /// converted.
    ///
    /// # Errors
    /// If the view does not exist or the device fails.
    pub fn read(&self, id: PlanId, view: View) -> Result<Vec<f32>, ExecError> {
        let dtype = self.check_view(id, view)?;
        let bytes = self.read_bytes(id, view)?;
        let words = bytes.as_chunks::<4>().0.iter();
        Ok(match dtype {
            DType::I32 => words.map(|&word| i32::from_ne_bytes(word) as f32).collect(),
            DType::F32 | DType::Bf16 | DType::F16 => {
                words.map(|&w| f32::from_ne_bytes(w)).collect()
            }
        })
    }

    /// Writes a view of floats; as [`Executor::read`].
    ///
    /// # Errors
    /// If the view does not exist or has another length, or the device fails.
    pub fn write(&mut self, id: PlanId, view: View, values: &[f32]) -> Result<(), ExecError> {
        self.check_view(id, view)?;
        if values.len() != view.len as usize {
            return Err(ExecError::Input {
                what: "a write".into(),
                why: format!("{} values for a view of {}", values.len(), view.len),
                remedy: "Bring as many values as the view has elements".into(),
            });
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.write_bytes(id, view, &bytes)
    }

    /// Bytes allocated for a rank.
    pub fn allocated(&self, rank: Rank) -> Bytes {
        match self.homes[rank.index()] {
            Home::Host => self.arenas.allocated(rank),
            Home::Device(device) => lock(&self.cells[device]).device.allocated(rank),
        }
    }

    /// A loaded Plan.
    pub fn plan(&self, id: PlanId) -> &Arc<Plan> {
        &self.plans[id.0].run.plan
    }

    /// What is known of the devices, in the order in which they were given.
    pub fn device_infos(&self) -> &[DeviceInfo] {
        &self.infos
    }

    /// The index of the device that runs a rank.
    pub fn device_of(&self, rank: Rank) -> usize {
        self.placement[rank.index()]
    }

    /// The faults on purpose.
    pub fn delays(&self) -> &Delays {
        &self.options.delays
    }

    /// Changes the faults on purpose, from the next step on.
    pub fn set_delays(&mut self, delays: Delays) {
        self.give_up();
        self.options.delays = delays;
        for loaded in &mut self.plans {
            loaded.run_mut().set_delays(&self.options);
        }
    }

    /// Ends a step that was begun, wherever it is; its results are not read.
    pub(super) fn give_up(&mut self) {
        if let Some(current) = self.current.take() {
            let run = &self.plans[current.id.0].run;
            for cell in &self.cells {
                lock(cell).drain(run);
            }
        }
    }

    pub(super) fn read_bytes(&self, id: PlanId, view: View) -> Result<Vec<u8>, ExecError> {
        let plan = self.plan(id);
        let rank = plan.buffer(view.buffer).rank;
        match self.homes[rank.index()] {
            Home::Host => Ok(self.arenas.read(id.0, plan, view)),
            Home::Device(device) => lock(&self.cells[device]).device.read(id.0, rank, view),
        }
    }

    fn write_bytes(&self, id: PlanId, view: View, bytes: &[u8]) -> Result<(), ExecError> {
        let plan = self.plan(id);
        let rank = plan.buffer(view.buffer).rank;
        match self.homes[rank.index()] {
            Home::Host => self.arenas.write(id.0, plan, view, bytes),
            Home::Device(device) => {
                lock(&self.cells[device]).device.write(id.0, rank, view, bytes)?;
            }
        }
        Ok(())
    }

    fn check_view(&self, id: PlanId, view: View) -> Result<DType, ExecError> {
        let decl = self.plan(id).buffers.get(view.buffer.0 as usize);
        let end = u64::from(view.offset) + u64::from(view.len);
        match decl {
            Some(decl) if end <= u64::from(decl.len) => Ok(decl.dtype),
            _ => Err(ExecError::Input {
                what: "a view".into(),
                why: format!("elements {}..{end} of buffer {}", view.offset, view.buffer.0),
                remedy: "Take views from the declarations of the Plan".into(),
            }),
        }
    }

    /// Reads the outputs of the step, with one wait a device.
    fn read_outputs(&self, id: PlanId) -> Result<Sums, ExecError> {
        let outputs = &self.plans[id.0].io.outputs;
        let mut values = vec![[0; 4]; outputs.len()];
        for (&(_, view, _), value) in outputs.iter().zip(&mut values) {
            if self.homes[self.plan(id).buffer(view.buffer).rank.index()] == Home::Host {
                value.copy_from_slice(&self.arenas.read(id.0, self.plan(id), view));
            }
        }
        for (device, cell) in self.cells.iter().enumerate() {
            let mut cell = lock(cell);
            let mut downloads = Vec::new();
            for (index, &(rank, view, _)) in outputs.iter().enumerate() {
                if self.homes[rank.index()] == Home::Device(device) {
                    downloads.push((index, cell.device.encode_download(id.0, rank, view)?));
                }
            }
            if downloads.is_empty() {
                continue;
            }
            let batch = cell.device.submit()?;
            cell.device.wait(batch)?;
            for (index, download) in downloads {
                cell.device.finish_download(download, &mut values[index])?;
            }
        }
        let mut sums = Sums::default();
        for (&(.., output), value) in outputs.iter().zip(values) {
            sums.add(output, f32::from_ne_bytes(value));
        }
        Ok(sums)
    }
}

/// One step of [`Executor::advance`].
fn advance(
    run: &Run,
    cells: &[Arc<Mutex<Cell>>],
    last_set: &mut usize,
) -> Result<Advance, ExecError> {
    let ran = |task: u32| {
        let task = run.tasks.list[task as usize];
        Ok(Advance::Ran { rank: task.rank, instr: task.instr as usize })
    };
    loop {
        run.end_due();
        if run.is_over() {
            return failure(run).map_or(Ok(Advance::Done), Err);
        }
        if run.tasks.host_set_count > 0
            && let Some(task) = run.claim_host(last_set)
        {
            worker::execute(run, 0, task);
            return ran(task);
        }
        let mut any = false;
        for &device in &run.tasks.devices {
            let set = run.tasks.device_set(device).expect("it is a device of the Plan");
            match lock(&cells[device]).advance(run, set)? {
                Driven::Encoded(task) => return ran(task),
                Driven::Ended => any = true,
                Driven::InFlight | Driven::Idle => {}
            }
        }
        if !any && !run.is_over() {
            return Ok(Advance::Idle);
        }
    }
}

/// Why a step that is over is not done.
fn failure(run: &Run) -> Option<ExecError> {
    let hang = || (!run.has_all_ended()).then(|| ExecError::Hang { waiting: hang::report(run) });
    run.take_failure().or_else(hang)
}

fn nothing_begun() -> ExecError {
    ExecError::Input {
        what: "the step".into(),
        why: "none was begun".into(),
        remedy: "Call `begin` first".into(),
    }
}

fn host_info(thread_count: usize) -> DeviceInfo {
    DeviceInfo {
        name: "cpu".into(),
        kind: DeviceKind::Host,
        api: "CPU".into(),
        driver: format!("{thread_count} threads"),
    }
}
