//! A training run: Plans, devices, data and state, one step at a time.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::devices::{self, DeviceRequest, Devices};
use super::faults::{self, Fault, Planted};
use super::{TrainError, fit};
use crate::checkpoint::{Checkpoint, State, Tensors, init, pieces};
use crate::config::{Model, OptimizerKind, Scenario};
use crate::data::{Batch, Batches, Dataset, Marks};
use crate::exec::{
    Crossed, Delays, DeviceInfo, ExecOptions, Executor, PlanId, Progress, StepInput, StepOutput,
    Timing,
};
use crate::ledger::Ledger;
use crate::mesh::Rank;
use crate::plan::order::{self, Graph, Order};
use crate::plan::{Held, Plan, View};
use crate::planner::{Purpose, StepSpec, plan_step};
use crate::sim::ladder::Ladder;
use crate::sim::{self, Wires};
use crate::trace::Trace;
use crate::units::Bytes;

/// How many measured steps the replayed clock takes its medians over.
const REPLAY_STEPS: usize = 16;

/// How a session runs, besides what its scenario says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which devices run the ranks.
    pub devices: DeviceRequest,
    /// Workers, memory cap, delays, and who is told how far the start has come.
    pub exec: ExecOptions,
    /// Initial weights; from the scenario's seed if absent.
    pub weights: Option<Tensors>,
    /// Data that replace the scenario's.
    pub dataset: Option<Dataset>,
    /// What is broken on purpose.
    pub faults: Vec<Fault>,
    /// Links of the replayed clock.
    pub wires: Wires,
}

impl Options {
    /// All ranks on the host's own cores; the rest by default.
    pub fn on_cpu() -> Self {
        Self { devices: DeviceRequest::cpu(), ..Self::default() }
    }
}

/// What one step tells.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Which step, 0-based.
    pub step: u64,
    /// Mean loss before the update.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f32,
    /// Wall clock from the first instruction to the end of the last.
    pub seconds: f64,
    /// When every instruction ran.
    pub trace: Arc<Trace>,
    /// Bytes that crossed between ranks.
    pub crossed: Crossed,
    /// Instructions that ran.
    pub instructions: u64,
}

/// A training run.
#[derive(Debug)]
pub struct Session {
    scenario: Scenario,
    model: Model,
    /// The Plan that runs.
    plan: Arc<Plan>,
    /// The same without faults.
    original: Arc<Plan>,
    faults: Vec<Fault>,
    /// Instructions of `original` that faults changed.
    fault_places: Vec<(Rank, u32)>,
    order: Arc<Order>,
    graph: Arc<Graph>,
    pub(super) executor: Executor,
    pub(super) train: PlanId,
    /// Loaded when the first held-out loss is asked for.
    evaluate: Option<PlanId>,
    spec: StepSpec,
    batches: Batches,
    pub(super) step: u64,
    pub(super) recent: VecDeque<Arc<Trace>>,
    wires: Wires,
    /// What `auto` found, or why a device was left out: lines for people.
    notes: Vec<String>,
}

impl Session {
    /// Plans the step, opens the devices and writes the initial weights.
    ///
    /// # Errors
    /// If the layout cannot run, the data cannot be used, no device fits, or memory does not
    /// suffice.
    pub fn start(scenario: Scenario, options: Options) -> Result<Self, TrainError> {
        options.exec.watcher.tell(Progress::Planning);
        let model = scenario.model.resolve()?;
        let dataset = match &options.dataset {
            Some(dataset) => dataset.clone(),
            None => Dataset::open(&scenario.data)?,
        };
        let mut batches = Batches::new(dataset, &scenario.training, model.vocab_size)?;
        let mut spec = StepSpec {
            model: model.clone(),
            layout: scenario.layout.clone(),
            training: scenario.training.clone(),
            purpose: Purpose::Train,
            device_kinds: Vec::new(),
        };
        // Refusals come before any device is opened.
        let mut original = plan_step(&spec)?;
        if let Some(cap) = options.exec.memory_cap {
            fit::check(&original, &spec, cap)?;
        }
        faults::plant(&original, &options.faults)?;
        let devices = devices::open(&options.devices, &spec, &options.exec)?;
        let Devices { slots, placement, kinds, notes, timing } = devices;
        let one_kind = kinds.windows(2).all(|pair| pair[0] == pair[1]);
        spec.device_kinds = kinds;
        // Only different kinds of device change the Plan.
        if !one_kind {
            original = plan_step(&spec)?;
        }
        let original = Arc::new(original);
        let Planted { plan, places, repeats_rows } = faults::plant(&original, &options.faults)?;
        let plan = if plan == *original { Arc::clone(&original) } else { Arc::new(plan) };
        if repeats_rows {
            batches = batches.with_repeated_rows(plan.mesh.dp);
        }
        let timing = if timing == Timing::Fenced { timing } else { options.exec.timing };
        let delays = faults::delays(&options.exec.delays, &options.faults);
        let exec = ExecOptions { timing, delays, ..options.exec };
        let watcher = exec.watcher.clone();
        let mut executor = Executor::new(slots, placement, exec)?;
        let train = executor.load(Arc::clone(&plan))?;
        watcher.tell(Progress::Loading);
        let order = Arc::new(order::derive(&plan));
        let graph = Arc::new(order::graph(&plan, &order));
        let mut session = Self {
            scenario,
            model,
            plan,
            original,
            faults: options.faults,
            fault_places: places,
            order,
            graph,
            executor,
            train,
            evaluate: None,
            spec,
            batches,
            step: 0,
            recent: VecDeque::new(),
            wires: options.wires,
            notes,
        };
        match &options.weights {
            Some(weights) => session.set(Held::Weight, weights)?,
            None => session.initialize()?,
        }
        Ok(session)
    }

    /// Continues from a checkpoint, at its own layout or any other legal one.
    ///
    /// # Errors
    /// As [`Session::start`], and if the checkpoint does not fit the model.
    pub fn resume(
        checkpoint: &Checkpoint,
        scenario: Scenario,
        options: Options,
    ) -> Result<Self, TrainError> {
        let weights = Some(checkpoint.weights.clone());
        let mut session = Self::start(scenario, Options { weights, ..options })?;
        session.set_moments(checkpoint)?;
        session.step = checkpoint.state.step;
        Ok(session)
    }

    /// Goes on from a checkpoint of the same model, with the Plan and the devices as they are.
    ///
    /// # Errors
    /// If a device failed or the checkpoint does not fit the model.
    pub fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        self.set(Held::Weight, &checkpoint.weights)?;
        self.set_moments(checkpoint)?;
        self.step = checkpoint.state.step;
        self.recent.clear();
        Ok(())
    }

    /// Runs one step.
    ///
    /// # Errors
    /// [`TrainError::NotFinite`] if the loss or the norm is not finite: nothing was updated, and
    /// the same batch has been run again to find the first such number. Else if a device failed.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let batch = self.batches.batch(self.step);
        let report = self.step_on(&batch)?;
        Ok(report)
    }

    /// Runs one step on a given batch, as the next step of the run.
    ///
    /// # Errors
    /// As [`Session::step`].
    pub fn step_on(&mut self, batch: &Batch) -> Result<StepReport, TrainError> {
        let step = self.step;
        let input = step_input(&self.scenario, batch, step);
        let output = self.executor.run(self.train, step, &input)?;
        let report = self.finish_step(output, &input, step)?;
        if self.recent.len() == REPLAY_STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::clone(&report.trace));
        Ok(report)
    }

    /// Counts a step that has run, unless a number of it is not finite.
    pub(super) fn finish_step(
        &mut self,
        output: StepOutput,
        input: &StepInput<'_>,
        step: u64,
    ) -> Result<StepReport, TrainError> {
        let StepOutput { loss, grad_norm, trace, crossed, instructions } = output;
        let seconds = trace.end().as_secs();
        if !(loss.is_finite() && grad_norm.is_finite()) {
            let first = self.executor.diagnose(self.train, step, input)?;
            return Err(TrainError::NotFinite { step, first: first.map(Box::new) });
        }
        let (trace, lr) = (Arc::new(trace), input.lr);
        self.step += 1;
        Ok(StepReport { step, loss, grad_norm, lr, seconds, trace, crossed, instructions })
    }

    /// Mean loss over the held-out text: a quarter as many batches of it as steps are trained, so
    /// that looking never takes longer than training, but at least 2 and at most 32.
    ///
    /// # Errors
    /// As [`Session::evaluate`].
    pub fn held_out_loss(&mut self) -> Result<f64, TrainError> {
        let loss = self.held_out_loss_while(|| true)?;
        Ok(loss.unwrap_or_else(|| unreachable!("nobody stopped it")))
    }

    /// As [`Session::held_out_loss`], given up with `None` when `go_on` says no before a batch.
    ///
    /// # Errors
    /// As [`Session::evaluate`].
    pub fn held_out_loss_while(
        &mut self,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<f64>, TrainError> {
        let batches = (self.scenario.training.steps / 4).clamp(2, 32);
        self.evaluate_while(batches as usize, go_on)
    }

    /// Mean loss over the held-out text, at most `batches` batches of it.
    ///
    /// # Errors
    /// If memory does not suffice for the evaluation's Plan or a device failed.
    pub fn evaluate(&mut self, batches: usize) -> Result<f64, TrainError> {
        let loss = self.evaluate_while(batches, || true)?;
        Ok(loss.unwrap_or_else(|| unreachable!("nobody stopped it")))
    }

    fn evaluate_while(
        &mut self,
        batches: usize,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<f64>, TrainError> {
        let id = match self.evaluate {
            Some(id) => id,
            None => {
                let spec = StepSpec { purpose: Purpose::Evaluate, ..self.spec.clone() };
                let id = self.executor.load(Arc::new(plan_step(&spec)?))?;
                *self.evaluate.insert(id)
            }
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for batch in self.batches.held_out(self.scenario.training.batch).take(batches) {
            if !go_on() {
                return Ok(None);
            }
            let labels = batch.valid_labels() as f64;
            let input = step_input(&self.scenario, &batch, self.step);
            sum += self.executor.run(id, self.step, &input)?.loss * labels;
            count += labels;
        }
        Ok(Some(sum / count))
    }

    /// The last finished steps laid out as if every rank had its own device with free links:
    /// medians over at most 16 steps.
    ///
    /// # Panics
    /// If no step has been run.
    pub fn replayed(&self) -> Trace {
        let recent: Vec<&Trace> = self.recent.iter().map(AsRef::as_ref).collect();
        sim::replay_medians(&self.plan, &self.graph, &recent, &self.wires())
    }

    /// What the waiting of the last steps comes from.
    ///
    /// # Panics
    /// If no step has been run.
    pub fn ladder(&self) -> Ladder {
        let recent: Vec<&Trace> = self.recent.iter().map(AsRef::as_ref).collect();
        Ladder::of(&self.plan, &self.graph, &recent, &self.wires())
    }

    /// The links of the replayed clock, with those that are slowed on purpose.
    pub fn wires(&self) -> Wires {
        self.wires.clone().with_slow(&self.delays().links)
    }

    /// Slow ranks and links, with those of faults.
    pub fn delays(&self) -> &Delays {
        self.executor.delays()
    }

    /// Slows ranks or links on purpose, besides the faults of the run, from the next step on.
    pub fn set_delays(&mut self, delays: &Delays) {
        self.executor.set_delays(faults::delays(delays, &self.faults));
        // Medians over other durations would show neither.
        self.recent.clear();
    }

    /// The step that runs next, 0-based.
    pub fn next_step(&self) -> u64 {
        self.step
    }

    /// What the session trains.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The model's sizes.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The training step's Plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The training step's Plan without faults.
    pub fn original(&self) -> &Arc<Plan> {
        &self.original
    }

    /// What is broken on purpose.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The instructions of [`Session::original`] that are changed or missing on purpose.
    pub fn fault_places(&self) -> &[(Rank, u32)] {
        &self.fault_places
    }

    /// The waits of the training step.
    pub fn order(&self) -> &Arc<Order> {
        &self.order
    }

    /// The graph of the training step.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// What the Plan costs.
    pub fn ledger(&self) -> Ledger {
        Ledger::of(&self.plan)
    }

    /// Losses of models that know little, where the data are bytes.
    pub fn marks(&self) -> Option<Marks> {
        Marks::of(self.batches.dataset(), self.model.vocab_size)
    }

    /// The data.
    pub fn batches(&self) -> &Batches {
        &self.batches
    }

    /// What was found out about devices, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The device of each rank.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let ranks = self.plan.mesh.ranks();
        let infos = self.executor.device_infos();
        ranks.map(|rank| infos[self.executor.device_of(rank)].clone()).collect()
    }

    /// Which of the opened devices runs a rank.
    pub fn device_of(&self, rank: Rank) -> usize {
        self.executor.device_of(rank)
    }

    /// The executor, and the training step in it: to read single buffers of ranks, or to load and
    /// run other Plans over the same weights.
    pub fn executor(&mut self) -> (&mut Executor, PlanId) {
        (&mut self.executor, self.train)
    }

    /// Bytes that a rank's device allocated for it.
    pub fn allocated(&self, rank: Rank) -> Bytes {
        self.executor.allocated(rank)
    }

    /// Whole logical tensors: weights, moments, or the gradients of the last step.
    ///
    /// # Errors
    /// If a device failed.
    pub fn tensors(&mut self, held: Held) -> Result<Tensors, TrainError> {
        self.reading(|plan, read| pieces::gather(plan, held, read))
    }

    /// The first place where two copies of a logical tensor differ in a bit.
    ///
    /// # Errors
    /// If a device failed.
    pub fn replica_difference(&mut self, held: Held) -> Result<Option<String>, TrainError> {
        let found = self.reading(|plan, read| pieces::replica_difference(plan, held, read))?;
        Ok(found.map(|difference| difference.to_string()))
    }

    /// Writes a checkpoint: beside, then renamed.
    ///
    /// # Errors
    /// If a device failed or the files cannot be written.
    pub fn save(&mut self, dir: &Path) -> Result<(), TrainError> {
        self.checkpoint()?.write(dir)?;
        Ok(())
    }

    /// The state as whole logical tensors: what any other layout can go on from.
    ///
    /// # Errors
    /// If a device failed.
    pub fn checkpoint(&mut self) -> Result<Checkpoint, TrainError> {
        let weights = self.tensors(Held::Weight)?;
        let moments = match self.scenario.training.optimizer {
            OptimizerKind::AdamW => [self.tensors(Held::Moment1)?, self.tensors(Held::Moment2)?],
            OptimizerKind::Sgd => [Tensors::new(), Tensors::new()],
        };
        let state = State::new(self.step, self.scenario.clone());
        let model = self.model.clone();
        Ok(Checkpoint { model, weights, moments, state })
    }

    fn set_moments(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        if self.scenario.training.optimizer == OptimizerKind::AdamW {
            self.set(Held::Moment1, &checkpoint.moments[0])?;
            self.set(Held::Moment2, &checkpoint.moments[1])?;
        }
        Ok(())
    }

    /// Writes whole logical tensors into all their copies.
    fn set(&mut self, held: Held, tensors: &Tensors) -> Result<(), TrainError> {
        self.writing(|plan, write| pieces::scatter(plan, held, tensors, write))??;
        Ok(())
    }

    fn initialize(&mut self) -> Result<(), TrainError> {
        let (seed, std) = (self.scenario.training.seed, self.model.initializer_range);
        self.writing(|plan, write| init::initialize(plan, seed, std, write))
    }

    /// Calls `act` with a way to read views; the first error of a device ends up as the result.
    fn reading<T>(
        &mut self,
        act: impl FnOnce(&Plan, &mut dyn FnMut(View) -> Vec<f32>) -> T,
    ) -> Result<T, TrainError> {
        let (executor, id) = (&mut self.executor, self.train);
        let mut failed = None;
        let done = act(&self.plan, &mut |view| {
            executor.read(id, view).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                vec![0.0; view.len as usize]
            })
        });
        failed.map_or(Ok(done), |error| Err(error.into()))
    }

    /// Calls `act` with a way to write views; the first error of a device ends up as the result.
    fn writing<T>(
        &mut self,
        act: impl FnOnce(&Plan, &mut dyn FnMut(View, &[f32])) -> T,
    ) -> Result<T, TrainError> {
        let plan = Arc::clone(&self.plan);
        writing(&mut self.executor, self.train, |write| act(&plan, write))
    }
}

/// Calls `act` with a way to write views of a loaded Plan; the first error of a device ends up as
/// the result.
pub(super) fn writing<T>(
    executor: &mut Executor,
    id: PlanId,
    act: impl FnOnce(&mut dyn FnMut(View, &[f32])) -> T,
) -> Result<T, TrainError> {
    let mut failed = None;
    let done = act(&mut |view, values| {
        if let Err(error) = executor.write(id, view, values) {
            failed.get_or_insert(error);
        }
    });
    failed.map_or(Ok(done), |error| Err(error.into()))
}

/// What the host brings to a step.
pub(super) fn step_input<'a>(scenario: &Scenario, batch: &'a Batch, step: u64) -> StepInput<'a> {
    StepInput {
        tokens: &batch.tokens,
        labels: &batch.labels,
        seq: scenario.training.seq,
        lr: scenario.training.lr_at(step),
        bias_corrections: scenario.training.bias_corrections(step),
    }
}
