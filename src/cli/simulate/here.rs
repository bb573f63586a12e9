//! `simulate --cluster here`: the step of a scenario on this machine's own cores. It is
//! `plan --predict` by another name, because whoever knows `simulate` looks for it there.

use super::super::args::{PlanArgs, RunArgs, SimulateArgs, TrainingArgs};
use super::super::{Failure, Outcome, plan};
use crate::config::ConfigError;
use crate::config::workload::Precision;

/// Whether the cluster that is asked for is this machine.
pub(super) fn is_asked(args: &SimulateArgs) -> bool {
    matches!(&*args.cluster, "here" | "this-machine")
}

/// Refuses, of a described cluster, what only this machine has.
///
/// # Errors
/// If it is said.
pub(super) fn refuse(args: &SimulateArgs) -> Result<(), ConfigError> {
    let only_here = [
        ("scenario", args.scenario.is_some(), "is trained on this machine"),
        ("calibration", args.calibration.is_some(), "is of a machine that was measured"),
    ];
    let fault = |(name, _, why): &(&str, bool, &str)| {
        ConfigError::value(*name, *why, "Leave it out, or say --cluster here")
    };
    ConfigError::collect(only_here.iter().filter(|(_, said, _)| *said).map(fault).collect())
}

/// Predicts the step.
///
/// # Errors
/// If flags say what only a described cluster does, if the machine was not measured, or if the layout
/// cannot run.
pub(super) fn run(args: &SimulateArgs) -> Result<Outcome, Failure> {
    plan::run(&plan_args(args)?)
}

fn plan_args(args: &SimulateArgs) -> Result<PlanArgs, ConfigError> {
    let only_described = [
        ("gpus", args.gpus.is_some()),
        ("cp", args.cp.is_some()),
        ("precision", args.precision != Precision::Half),
        ("slow-rank", !args.slow_rank.is_empty()),
        ("slow-link", !args.slow_link.is_empty()),
        ("jitter", args.jitter != 0.0),
        ("svg", args.svg.is_some()),
        ("trace", args.trace.is_some()),
    ];
    let fault = |(name, _): &(&str, bool)| {
        let why = "is for described clusters, and `here` is this machine";
        ConfigError::value(*name, why, "Leave it out, or name another --cluster")
    };
    let said = only_described.iter().filter(|(_, said)| *said);
    ConfigError::collect(said.map(fault).collect())?;
    let training = TrainingArgs::of_words(args.model.as_deref(), args.batch, args.seq)?;
    Ok(PlanArgs {
        run: RunArgs { scenario: args.scenario.clone(), layout: args.layout.clone(), training },
        predict: true,
        calibration: args.calibration.clone(),
        json: args.json,
        ..PlanArgs::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::args::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    fn asked(flags: &str) -> Result<PlanArgs, String> {
        let words = ["shardlab", "simulate", "--cluster", "here"].into_iter();
        let words = words.chain(flags.split_whitespace());
        let Some(Command::Simulate(args)) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("simulate was asked for")
        };
        assert!(is_asked(&args));
        plan_args(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn this_machine_is_asked_as_plan_predict_asks_it() {
        let args = asked("--dp 2 --tp 2 --batch 16 --seq 64 --json").unwrap();
        assert!(args.predict && args.json);
        let RunArgs { layout, training, .. } = args.run;
        assert_eq!((layout.dp, layout.tp), (Some(2), Some(2)));
        assert_eq!((training.batch, training.seq), (Some(16), Some(64)));
        assert!(asked("").unwrap().run.training.model.is_none());
        let error = asked("--gpus 8 --slow-rank 1=2").unwrap_err();
        assert_eq!(error.lines().count(), 2, "{error}");
        assert!(error.contains("gpus: is for described clusters"), "{error}");
        let error = asked("--seq 99999999999").unwrap_err();
        assert!(error.contains("seq: "), "{error}");
    }
}
