//! `shardlab verify`: holds a layout against one rank, or against a case that was trained elsewhere.

use serde::Serialize;

use super::args::VerifyArgs;
use super::output;
use super::settings::Settings;
use super::{Failure, Outcome};
use crate::checkpoint::Golden;
use crate::config::{Layout, OptimizerKind, Training};
use crate::mesh::Axis;
use crate::train::verify::{against_golden_while, against_one_rank_while, checked_training};
use crate::train::{TrainError, verify::Verification};

/// The object that `verify --json` prints.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    pass: bool,
    loss_rel_max: f64,
    grad_norm_rel_max: f64,
    grad_rel_max: f64,
    final_rel_max: f64,
    first_difference: &'a Option<String>,
}

/// Runs the command.
///
/// # Errors
/// If the layout or its reference cannot be trained.
pub fn run(args: &VerifyArgs) -> Result<Outcome, Failure> {
    output::listen_for_interrupts();
    let go_on = &mut || !output::interrupted();
    let (devices, exec) = (&args.devices.device, &args.devices.exec_options());
    let (what, steps, verification) = match &args.golden {
        Some(folder) => {
            let golden = Golden::read(folder).map_err(TrainError::from)?;
            let layout = args.run.layout.over_one_rank(golden.training.batch)?;
            let reference = format!("the reference case {}", golden.name);
            let what = described(&layout, &golden.training, &reference);
            output::progress(format_args!("verifying {what}"));
            let answer = against_golden_while(&golden, &layout, devices, exec, go_on);
            (what, golden.steps.len() as u64, answer.map_err(Failure::at_start)?)
        }
        None => {
            let settings = Settings::resolve(&args.run, |scenario| {
                let checked = checked_training(&scenario.training);
                // The rate of the check is one for SGD.
                let lr = match args.run.training.optimizer {
                    Some(OptimizerKind::AdamW) => scenario.training.lr,
                    Some(OptimizerKind::Sgd) | None => checked.lr,
                };
                scenario.training = Training { lr, ..checked };
            })?;
            for note in &settings.notes {
                output::progress(format_args!("note: {note}"));
            }
            let scenario = &settings.scenario;
            let what = described(&scenario.layout, &scenario.training, "one rank");
            output::progress(format_args!("verifying {what}"));
            let answer = against_one_rank_while(scenario, devices, exec, go_on);
            (what, scenario.training.steps, answer.map_err(Failure::at_start)?)
        }
    };
    if args.json {
        let Verification {
            pass,
            loss_rel_max,
            grad_norm_rel_max,
            grad_rel_max,
            final_rel_max,
            ref first_difference,
            ..
        } = verification;
        output::print_json(&Answer {
            pass,
            loss_rel_max,
            grad_norm_rel_max,
            grad_rel_max,
            final_rel_max,
            first_difference,
        })?;
    } else {
        output::print(&text(&what, steps, &verification))?;
    }
    Ok(if verification.steps < steps {
        Outcome::Interrupted
    } else if verification.pass {
        Outcome::Success
    } else {
        Outcome::CheckFailed
    })
}

/// `data 2 × tensor 2 × pipeline 2 · ZeRO 1 · 1F1B · 4 microbatches, 3 steps of sgd, against …`.
fn described(layout: &Layout, training: &Training, reference: &str) -> String {
    let steps = if training.steps == 1 { "step" } else { "steps" };
    format!(
        "{}, {} {steps} of {}, against {reference}",
        layout_words(layout),
        training.steps,
        training.optimizer
    )
}

/// `data 2 × tensor 2 × pipeline 2 · ZeRO 1 · 1F1B · 4 microbatches`.
pub(super) fn layout_words(layout: &Layout) -> String {
    let mesh = layout.mesh();
    let [data, tensor, pipeline] =
        Axis::ALL.map(|axis| format!("{} {}", axis.word(), mesh.len(axis)));
    let microbatches = if layout.microbatches == 1 { "microbatch" } else { "microbatches" };
    let chunks = match layout.chunks {
        1 => String::new(),
        chunks => format!(", {chunks} stages a position"),
    };
    format!(
        "{data} × {tensor} × {pipeline} · ZeRO {} · {}{chunks} · {} {microbatches}",
        layout.zero,
        layout.schedule.title(),
        layout.microbatches
    )
}

fn text(what: &str, steps: u64, verification: &Verification) -> String {
    let [allowed, allowed_weights] = verification.tolerance;
    let rows = [
        ("losses", verification.loss_rel_max, allowed),
        ("gradient norms", verification.grad_norm_rel_max, allowed),
        ("gradients", verification.grad_rel_max, allowed),
        ("final weights", verification.final_rel_max, allowed_weights),
    ];
    let mut text = format!("{what}\n\nlargest relative difference of\n");
    for (name, found, allowed) in rows {
        text += &if found.is_nan() {
            format!("  {name:<15} not compared\n")
        } else {
            let word = if found <= allowed { "pass" } else { "FAIL" };
            format!("  {name:<15} {found:>8.1e}   allowed {allowed:.0e}   {word}\n")
        };
    }
    text += "\n";
    text += &match (&verification.first_difference, verification.pass) {
        (Some(first), _) => format!("FAIL: the first that differs is the {first}\n"),
        (None, true) => "PASS: no difference beyond rounding\n".into(),
        (None, false) => {
            let unit = if steps == 1 { "step" } else { "steps" };
            let done = verification.steps;
            format!("Interrupted after {done} of {steps} {unit}: no difference so far\n")
        }
    };
    text
}
