//! `shardlab` without arguments: trains the quickstart, proves it against one rank, sums up.

use super::output;
use super::report::{BytesEntry, MemoryEntry, Report, planned_crossings, tokens_per_second};
use super::run::{self, End, Extras, Marks, Run};
use super::settings::Settings;
use super::{Failure, Outcome};
use crate::config::Scenario;
use crate::exec::ExecOptions;
use crate::mesh::Axis;
use crate::trace::Trace;
use crate::trace::bubble::{Bubble, formula_waiting_over_span};
use crate::train::verify::{Verification, against_one_rank, checked_training};
use crate::train::{DeviceRequest, Options};
use crate::units::Bytes;

/// Runs the command.
///
/// # Errors
/// If it cannot start, a device fails, or results cannot be written.
pub fn run(json: bool) -> Result<Outcome, Failure> {
    output::listen_for_interrupts();
    let scenario = Scenario::quickstart();
    let settings = Settings { scenario: scenario.clone(), is_chosen: false, notes: Vec::new() };
    let session = run::open(settings, Options::default(), None)?;
    let marks = Marks::of(&session);
    let run = run::train(session, Extras { evaluate: true, ..Extras::default() })?;
    let replayed = run.replayed();
    let verification = match &run.end {
        End::Done => {
            let training = checked_training(&scenario.training);
            let checked = Scenario { training, ..scenario };
            let host = DeviceRequest::cpu();
            Some(against_one_rank(&checked, &host, &ExecOptions::default())?)
        }
        End::Interrupted | End::NotFinite(_) => None,
    };
    if json {
        let waiting = replayed.as_ref().map(|(_, waiting)| waiting);
        output::print_json(&Report::of(&run.session, &run.steps, waiting))?;
    } else {
        let text = summary_text(&run, replayed.as_ref(), marks, verification.as_ref());
        output::print(&text)?;
    }
    let outcome = run.outcome();
    let exact = verification.is_none_or(|verification| verification.pass);
    Ok(match outcome {
        Outcome::Success if !(exact && learned(&run, marks)) => Outcome::CheckFailed,
        other => other,
    })
}

/// Whether the last held-out loss is under the mark.
fn learned(run: &Run, marks: Option<Marks>) -> bool {
    match (run.held_out.last(), marks) {
        (Some((_, loss)), Some(marks)) => *loss < marks.pairs,
        _ => true,
    }
}

/// What came out of a run, for people.
pub(super) fn summary_text(
    run: &Run,
    replayed: Option<&(Trace, Bubble)>,
    marks: Option<Marks>,
    verification: Option<&Verification>,
) -> String {
    let layout = &run.session.scenario().layout;
    let ledger = run.session.ledger();
    let mut text = format!("Trained {} steps in {:.0} s.\n\n", run.steps.len(), run.seconds);
    if let [(_, before), .., (_, after)] = run.held_out.as_slice() {
        text += &format!("  It learned     held-out loss {before:.2} → {after:.2}\n");
        if let Some(marks) = marks {
            text += &format!("                 target < {:.2}\n", marks.pairs);
        }
    }
    if let Some(verification) = verification {
        let largest = verification.grad_rel_max.max(verification.final_rel_max);
        text += &format!("  It is exact    {} {largest:.1e}\n", verification.pass);
    }
    if let Some(speed) = tokens_per_second(&run.session, &run.steps) {
        text += &format!("  Speed          {speed:.0} tokens/s\n");
    }
    if let Some((_, bubble)) = replayed {
        let formula = formula_waiting_over_span(layout.pp, layout.microbatches);
        let (waiting, formula) = (bubble.waiting_over_span * 100.0, formula * 100.0);
        text += &format!("  Waiting        {waiting:.1} %, formula {formula:.1} %\n");
    }
    let bytes = BytesEntry::of(&planned_crossings(&ledger), ledger.ranks.len());
    let axes = Axis::ALL.map(|axis| format!("{} {}", axis.word(), Bytes(bytes.by_axis[&axis])));
    text += &format!("  Sent per step  {}\n", axes.join("   "));
    let peak = MemoryEntry::of(&ledger).iter().map(|entry| entry.peak).max().unwrap_or_default();
    text += &format!("  Memory         {peak} at most\n");
    text
}
