//! The loop that the quickstart and `train` share: steps, held-out losses, metrics, checkpoints.
//!
//! Whatever ends it early (Ctrl-C, a number that is not finite), what was trained until then is
//! written and reported.

use std::path::PathBuf;

use serde::Serialize;

use super::calibrated::known_step;
use super::output::{self, OutputFile};
use super::progress::Watch;
use super::report::{StepEntry, check_counts};
use super::settings::Settings;
use super::{Failure, Outcome};
use crate::checkpoint::Checkpoint;
use crate::data::Marks;
use crate::exec::{Clock, DeviceKind, cores};
use crate::ledger::Ledger;
use crate::train::{Options, Session, StepReport, TrainError};
use crate::units::Nanos;

/// How long nothing may be said while devices are opened.
const SILENCE: std::time::Duration = std::time::Duration::from_millis(700);

/// What a run does beside training.
#[derive(Debug, Default)]
pub(super) struct Extras {
    /// Whether held-out losses are measured at the start and the end.
    pub(super) evaluate: bool,
    /// Marks of the loss; none where the data have no bytes.
    pub(super) marks: Option<Marks>,
    /// Workers of the CPU, if not all cores.
    pub(super) threads: Option<u32>,
    /// Takes one JSON line a step.
    pub(super) metrics: Option<OutputFile>,
    /// Where checkpoints go.
    pub(super) checkpoint: Option<PathBuf>,
    /// How often besides at the end.
    pub(super) checkpoint_every: Option<u64>,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) session: Session,
    pub(super) steps: Vec<StepEntry>,
    /// Held-out losses: after how many steps, and the loss.
    pub(super) held_out: Vec<(u64, f64)>,
    /// Marks of the loss.
    pub(super) marks: Option<Marks>,
    /// Cores that host ranks share.
    pub(super) cores: u32,
    /// Wall clock of everything.
    pub(super) seconds: f64,
    /// What the last step measured.
    pub(super) last: Option<StepReport>,
    /// Steps that were trained when the last checkpoint was written.
    saved: Option<u64>,
    pub(super) end: End,
}

/// Why a run is over.
#[derive(Debug)]
pub(super) enum End {
    /// All steps are trained.
    Done,
    /// Ctrl-C.
    Interrupted,
    /// The next step has a number that is not finite.
    NotFinite(TrainError),
}

/// One line of `--metrics`.
#[derive(Serialize)]
struct MetricsLine {
    #[serde(flatten)]
    step: StepEntry,
    tokens_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_out_loss: Option<f64>,
}

/// Opens a session; says what takes so long if it does.
///
/// # Errors
/// If training cannot start.
pub(super) fn open(
    settings: Settings,
    options: Options,
    resumed: Option<&Checkpoint>,
) -> Result<Session, Failure> {
    let Settings { scenario, notes, .. } = settings;
    for note in notes {
        output::progress(format_args!("note: {note}"));
    }
    let ranks = scenario.layout.mesh().size();
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    let patience = std::thread::Builder::new().name("patience".into()).spawn(move || {
        if is_ready.recv_timeout(SILENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            output::progress(format_args!("shardlab · {ranks} ranks · preparing …"));
        }
    });
    let session = match resumed {
        Some(checkpoint) => Session::resume(checkpoint, scenario, options),
        None => Session::start(scenario, options),
    };
    drop(ready);
    if let Ok(patience) = patience {
        patience.join().ok();
    }
    session.map_err(Failure::at_start)
}

/// Trains until the last step of the scenario.
///
/// # Errors
/// If a device fails, counts do not agree, or results cannot be written.
pub(super) fn train(session: Session, mut extras: Extras) -> Result<Run, Failure> {
    let clock = Clock::start();
    let until = session.scenario().training.steps;
    let eval_every = session.scenario().training.eval_every;
    let ledger = session.ledger();
    let watch = Watch::start(&session, until, extras.marks.map(|marks| marks.pairs));
    let mut run = Run {
        session,
        steps: Vec::new(),
        held_out: Vec::new(),
        marks: extras.marks,
        cores: extras.threads.unwrap_or_else(|| cores() as u32),
        seconds: 0.0,
        last: None,
        saved: None,
        end: End::Done,
    };
    if extras.evaluate {
        run.hold_out(&watch)?;
    }
    while run.session.next_step() < until {
        if output::interrupted() {
            run.end = End::Interrupted;
            break;
        }
        let report = match run.session.step() {
            Err(error @ TrainError::NotFinite { .. }) => {
                run.end = End::NotFinite(error);
                break;
            }
            other => other?,
        };
        watch.step(&report);
        let trained = report.step + 1;
        let evaluates = eval_every > 0 && trained.is_multiple_of(eval_every) && trained < until;
        let held_out = if evaluates { Some(run.hold_out(&watch)?) } else { None };
        run.finish_step(report, &ledger, &mut extras, held_out)?;
        if extras.checkpoint_every.is_some_and(|every| every > 0 && trained.is_multiple_of(every)) {
            run.save(&extras, &watch)?;
        }
    }
    if extras.evaluate && !run.steps.is_empty() && matches!(run.end, End::Done) {
        run.hold_out(&watch)?;
    }
    run.save(&extras, &watch)?;
    run.seconds = Nanos(clock.now()).as_secs();
    Ok(run)
}

impl Run {
    fn finish_step(
        &mut self,
        report: StepReport,
        ledger: &Ledger,
        extras: &mut Extras,
        held_out_loss: Option<f64>,
    ) -> Result<(), Failure> {
        check_counts(&report, ledger)?;
        let step = StepEntry::from(&report);
        if let Some(metrics) = &mut extras.metrics {
            let training = &self.session.scenario().training;
            let tokens = f64::from(training.batch) * f64::from(training.seq);
            let tokens_per_second = tokens / report.seconds;
            metrics.write_line(&MetricsLine { step, tokens_per_second, held_out_loss })?;
        }
        self.steps.push(step);
        self.last = Some(report);
        Ok(())
    }

    fn hold_out(&mut self, watch: &Watch) -> Result<f64, Failure> {
        let loss = self.session.held_out_loss()?;
        let trained = self.session.next_step();
        self.held_out.push((trained, loss));
        watch.say(&format!("held-out loss {loss:.4} after step {trained}"));
        Ok(loss)
    }

    fn save(&mut self, extras: &Extras, watch: &Watch) -> Result<(), Failure> {
        let Some(folder) = &extras.checkpoint else { return Ok(()) };
        let trained = self.session.next_step();
        if self.saved == Some(trained) {
            return Ok(());
        }
        self.session.save(folder)?;
        self.saved = Some(trained);
        watch.say(&format!("checkpoint after step {trained}: {}", folder.display()));
        Ok(())
    }

    /// Seconds of a step as predicted from what this machine's cores were measured to take; `None`
    /// if they never were, or if something else ran the ranks.
    pub(super) fn predicted_step(&self) -> Option<f64> {
        let mut devices = self.session.devices().into_iter();
        let on_host = devices.all(|device| device.kind == DeviceKind::Host);
        let trace = on_host.then(|| known_step(self.session.plan(), self.cores))??;
        Some(trace.end().as_secs())
    }

    /// Says why the run ended early, and what that means for the process.
    pub(super) fn outcome(&self) -> Outcome {
        match &self.end {
            End::Done => Outcome::Success,
            End::Interrupted => Outcome::Interrupted,
            End::NotFinite(error) => {
                output::progress(format_args!("error: {error}"));
                Outcome::NotFinite
            }
        }
    }
}
