//! `shardlab` without arguments: trains the quickstart, proves it against one rank, sums up.

use super::clocks::Clocks;
use super::facts::{suggestions, summary_text};
use super::output;
use super::report::Report;
use super::run::{self, End, Extras, Run};
use super::settings::Settings;
use super::{Failure, Outcome};
use crate::config::Scenario;
use crate::exec::ExecOptions;
use crate::train::verify::{against_one_rank, checked_training};
use crate::train::{DeviceRequest, Options};

/// Runs the command.
///
/// # Errors
/// If it cannot start, a device fails, or results cannot be written.
pub fn run(json: bool) -> Result<Outcome, Failure> {
    output::listen_for_interrupts();
    let scenario = Scenario::quickstart();
    let settings = Settings { scenario: scenario.clone(), is_chosen: false, notes: Vec::new() };
    let session = run::open(settings, Options::default(), None)?;
    let marks = session.marks();
    let run = run::train(session, Extras { evaluate: true, marks, ..Extras::default() })?;
    let clocks = Clocks::of(&run);
    let verification = match &run.end {
        End::Done => {
            let training = checked_training(&scenario.training);
            let checked = Scenario { training, ..scenario };
            let host = DeviceRequest::cpu();
            output::progress("checking three steps of SGD against an unsplit run …");
            Some(against_one_rank(&checked, &host, &ExecOptions::default())?)
        }
        End::Interrupted | End::NotFinite(_) => None,
    };
    if json {
        let predicted = run.predicted_step();
        output::print_json(&Report::of(&run.session, &run.steps, clocks.as_ref(), predicted))?;
    } else {
        let next = match &run.end {
            End::Done => suggestions(&Scenario::quickstart()),
            End::Interrupted | End::NotFinite(_) => Vec::new(),
        };
        output::print(&summary_text(&run, clocks.as_ref(), verification.as_ref(), next))?;
    }
    let outcome = run.outcome();
    let exact = verification.is_none_or(|verification| verification.pass);
    Ok(match outcome {
        Outcome::Success if !(exact && learned(&run)) => Outcome::CheckFailed,
        other => other,
    })
}

/// Whether the last held-out loss is under the mark.
fn learned(run: &Run) -> bool {
    match (run.held_out.last(), run.marks) {
        (Some((_, loss)), Some(marks)) => *loss < marks.pairs,
        _ => true,
    }
}
