//! `shardlab train`: trains any scenario, writes what is asked for, says what came out.

use super::args::TrainArgs;
use super::clocks::Clocks;
use super::facts::{resumption, summary_text};
use super::output::{self, OutputFile};
use super::report::Report;
use super::run::{self, Extras, Run};
use super::settings::Settings;
use super::{Failure, Outcome};
use crate::checkpoint::Checkpoint;
use crate::config::{ConfigError, OptimizerKind};
use crate::sim::Wires;
use crate::trace::Trace;
use crate::trace::export::Recording;
use crate::train::{Options, TrainError};

/// Runs the command.
///
/// # Errors
/// If it cannot start, a device fails, or results cannot be written.
pub fn run(args: &TrainArgs) -> Result<Outcome, Failure> {
    output::listen_for_interrupts();
    let checkpoint = match &args.resume {
        Some(folder) => Some(Checkpoint::read(folder).map_err(TrainError::from)?),
        None => None,
    };
    let settings = match &checkpoint {
        Some(checkpoint) => resumed_settings(checkpoint, args)?,
        None => Settings::resolve(&args.run, |_| {})?,
    };
    if args.checkpoint_every == Some(0) {
        let remedy = "Give at least 1, or leave it out for a checkpoint at the end";
        return Err(ConfigError::value("checkpoint-every", "is 0", remedy).into());
    }
    let metrics = match &args.metrics {
        Some(path) if args.resume.is_some() => Some(OutputFile::append(path)?),
        Some(path) => Some(OutputFile::create(path)?),
        None => None,
    };
    let trace = args.trace.as_deref().map(OutputFile::create).transpose()?;
    let evaluate = !args.json || settings.scenario.training.eval_every > 0;
    let options = Options {
        devices: args.devices.device.clone(),
        exec: args.devices.exec_options(),
        wires: Wires::read(&args.links)?,
        ..Options::default()
    };
    if let Some(folder) = &args.checkpoint {
        Checkpoint::prepare(folder).map_err(TrainError::from)?;
    }
    let session = run::open(settings, options, checkpoint.as_ref())?;
    let extras = Extras {
        evaluate,
        marks: if evaluate { session.marks() } else { None },
        threads: args.devices.threads.map(u32::from),
        metrics,
        checkpoint: args.checkpoint.clone(),
        checkpoint_every: args.checkpoint_every,
    };
    let run = run::train(session, extras)?;
    let clocks = Clocks::of(&run);
    if let Some(mut file) = trace {
        file.write_line(&recording(&run, clocks.as_ref().map(|clocks| &clocks.replayed)))?;
    }
    if args.json {
        let predicted = run.predicted_step();
        output::print_json(&Report::of(&run.session, &run.steps, clocks.as_ref(), predicted))?;
    } else {
        let next = resumption(&run, args.checkpoint.as_deref());
        output::print(&summary_text(&run, clocks.as_ref(), None, next))?;
    }
    Ok(run.outcome())
}

fn resumed_settings(checkpoint: &Checkpoint, args: &TrainArgs) -> Result<Settings, ConfigError> {
    let settings = Settings::resume(checkpoint.state.scenario.clone(), &args.run)?;
    let (done, steps) = (checkpoint.state.step, settings.scenario.training.steps);
    if done >= steps {
        let unit = if steps == 1 { "step" } else { "steps" };
        let why = format!("the checkpoint has trained {done} of {steps} {unit} already");
        let remedy = format!("Say --steps with more than {done}");
        return Err(ConfigError::value("resume", why, remedy));
    }
    let kept = checkpoint.state.scenario.training.optimizer;
    let wanted = settings.scenario.training.optimizer;
    if kept == OptimizerKind::Sgd && wanted == OptimizerKind::AdamW {
        let why = "the checkpoint is one of sgd and holds no moments for adamw";
        return Err(ConfigError::value("optimizer", why, "Leave --optimizer out"));
    }
    Ok(settings)
}

/// The last step with its Plan.
fn recording(run: &Run, replayed: Option<&Trace>) -> Recording {
    let session = &run.session;
    let devices = session.devices().into_iter().map(|device| device.name).collect();
    let measured = run.last.as_ref().map(|report| report.trace.as_ref().clone());
    let recording = Recording::of(session.scenario().name.clone(), devices, session.plan());
    Recording { measured, replayed: replayed.cloned(), ..recording }
}
