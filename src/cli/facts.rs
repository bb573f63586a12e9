//! The facts of a finished run, for its summary: where waiting comes from, what to try next.
//!
//! Everything is computed from the run or from formulas; how it is laid out is `summary`'s business.

use clap::Parser as _;

use super::args;
use super::clocks::Clocks;
use super::live::LossTarget;
use super::progress::charset;
use super::report::{median_seconds, tokens_per_second};
use super::run::{End, Run};
use super::settings::Settings;
use super::summary::{
    Command, Entropy, Exact, Formula, Learned, Predicted, Sharing, Suggestion, Summary, Waiting,
    summary,
};
use super::text::{Colour, Terminal};
use crate::config::{Layout, Scenario};
use crate::data::Marks;
use crate::exec::DeviceKind;
use crate::mesh::Axis;
use crate::planner::schedule::{Schedule, named};
use crate::planner::{Purpose, StepSpec, plan_step};
use crate::trace::Badge;
use crate::trace::bubble::formula_waiting_over_span;
use crate::trace::idle::Messages;
use crate::train::verify::Verification;
use crate::units::Nanos;

/// What came out of a run, as text for standard output.
pub(super) fn summary_text(
    run: &Run,
    clocks: Option<&Clocks>,
    exact: Option<&Verification>,
    next: Vec<Suggestion>,
) -> String {
    let session = &run.session;
    let layout = &session.scenario().layout;
    let ledger = session.ledger();
    let facts = Summary {
        steps: run.steps.len() as u64,
        seconds: run.seconds,
        device: super::doctor::device_and_why(session).0,
        sharing: sharing(run),
        ranks: session.plan().mesh.size(),
        learned: learned(run),
        exact: exact.map(exactness),
        tokens_per_sec: tokens_per_second(session, &run.steps).unwrap_or(f64::NAN),
        predicted: run
            .predicted_step()
            .zip(median_seconds(&run.steps))
            .map(|(seconds, measured)| Predicted { seconds, measured }),
        waiting: clocks
            .filter(|_| session.plan().mesh.size() > 1)
            .map(|clocks| waiting(layout, clocks)),
        devices_spend: clocks.map(Clocks::device_words).unwrap_or_default(),
        sent: Axis::ALL.map(|axis| ledger.bytes_on(axis)),
        memory: ledger.ranks.iter().map(|rank| (&rank.memory).into()).collect(),
        next,
    };
    // Data are plain text wherever they go.
    let paper = Terminal { width: 80, height: 24, charset: charset(), colour: Colour::Off };
    summary(&facts, &program(), &paper)
}

fn sharing(run: &Run) -> Sharing {
    let session = &run.session;
    if session.devices().iter().all(|device| device.kind == DeviceKind::Host) {
        return Sharing::Cores(run.cores);
    }
    let mut devices: Vec<usize> =
        session.plan().mesh.ranks().map(|rank| session.device_of(rank)).collect();
    devices.sort_unstable();
    devices.dedup();
    match devices.len() as u32 {
        count if count < session.plan().mesh.size() => Sharing::Devices(count),
        _ => Sharing::Own,
    }
}

fn learned(run: &Run) -> Option<Learned> {
    let [(_, before), .., (_, after)] = *run.held_out.as_slice() else { return None };
    let target = |marks: Marks| LossTarget { loss: marks.pairs, reached: after < marks.pairs };
    let entropy = |marks: Marks| Entropy {
        symbols: run.session.model().vocab_size,
        letters: marks.bytes,
        pairs: marks.pairs,
    };
    Some(Learned { before, after, target: run.marks.map(target), entropy: run.marks.map(entropy) })
}

fn exactness(verification: &Verification) -> Exact {
    let Verification { loss_rel_max, grad_norm_rel_max, grad_rel_max, final_rel_max, .. } =
        *verification;
    let [allowed, _] = verification.tolerance;
    Exact {
        steps: u32::try_from(verification.steps).unwrap_or(u32::MAX),
        largest: loss_rel_max.max(grad_norm_rel_max).max(grad_rel_max).max(final_rel_max),
        allowed,
        first_difference: verification.first_difference.clone(),
    }
}

/// How much the ranks waited, what the textbook says, and what the rest is.
fn waiting(layout: &Layout, clocks: &Clocks) -> Waiting {
    let schedule = named::table(layout).ok();
    let formula = schedule.as_ref().and_then(Schedule::explain).map(|explained| {
        let share = explained.times.waiting_over_span();
        let expression = explained.formula.map_or("with F 1, B 2", |formula| formula.over_span);
        Formula { expression: expression.into(), share }
    });
    let Messages { hidden, exposed } = clocks.messages();
    Waiting {
        share: clocks.bubble.waiting_over_span,
        badge: Badge::Replayed,
        links: clocks.links.clone(),
        rest: clocks.rest(formula.as_ref().map(|formula| formula.share)),
        formula,
        path: clocks.path_words(),
        messages: (hidden + exposed > Nanos(0))
            .then(|| format!("a rank has {hidden} hidden, {exposed} exposed")),
    }
}

/// What to try after the quickstart: commands that run as they are written, with what the formula
/// promises for each.
pub fn suggestions(scenario: &Scenario) -> Vec<Suggestion> {
    let Layout { dp, tp, pp, microbatches, .. } = scenario.layout;
    let now = formula_waiting_over_span(pp, microbatches);
    let waits = |layout: &Layout| {
        let then = formula_waiting_over_span(layout.pp, layout.microbatches);
        let moves = if then > now { "grows" } else { "falls" };
        format!("waiting {moves} to {:.0} % {}", 100.0 * then, Badge::Formula.word())
    };
    let deeper = format!("train --pp {} --tp 1", pp * tp);
    let finer = format!("train --microbatches {}", microbatches * 4);
    let mut next = Vec::new();
    if let Some(layout) = legal_layout(&deeper) {
        next.push((deeper, format!("{} stages: {}", layout.pp, waits(&layout))));
    }
    if let Some(layout) = legal_layout(&finer) {
        next.push((finer, format!("smaller pieces: {}", waits(&layout))));
    }
    let verify = format!("verify --dp {dp} --tp {tp} --pp {pp}");
    next.push((verify, "prove it equals one rank".into()));
    let own = |(command, what)| Suggestion { command: Command::Own(command), what };
    let mut next: Vec<Suggestion> = next.into_iter().map(own).collect();
    next.push(Suggestion {
        command: Command::Whole("cargo run --release -p shardlab-visualizer".into()),
        what: "watch it in a window".into(),
    });
    next
}

/// The layout that a `train` command asks for, if it can run.
fn legal_layout(command: &str) -> Option<Layout> {
    let words = ["shardlab"].into_iter().chain(command.split(' '));
    let Some(args::Command::Train(args)) = args::Cli::try_parse_from(words).ok()?.command else {
        return None;
    };
    let scenario = Settings::resolve(&args.run, |_| {}).ok()?.scenario;
    let spec = StepSpec {
        model: scenario.model.resolve().ok()?,
        layout: scenario.layout.clone(),
        training: scenario.training,
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    };
    plan_step(&spec).is_ok().then_some(scenario.layout)
}

/// How to go on with a run that has a checkpoint.
pub(super) fn resumption(run: &Run, folder: Option<&std::path::Path>) -> Vec<Suggestion> {
    match (&run.end, folder) {
        (End::Interrupted, Some(folder)) => vec![Suggestion {
            command: Command::Own(format!("train --resume {}", folder.display())),
            what: "go on where it stopped".into(),
        }],
        // Weights that know bytes write text.
        (End::Done, Some(folder)) if run.marks.is_some() => vec![Suggestion {
            command: Command::Own(format!("generate {}", folder.display())),
            what: "text from these weights".into(),
        }],
        _ => Vec::new(),
    }
}

/// How this program was started, for commands that are to be copied.
fn program() -> String {
    let set = |name| std::env::var_os(name).is_some();
    if set("CARGO") && set("CARGO_MANIFEST_DIR") {
        return "cargo run --release --".into();
    }
    // A path that was typed is typed again; a long one is no command to copy.
    let first = std::env::args_os().next().unwrap_or_default();
    match first.to_str() {
        Some(path) if path.contains(['/', '\\']) && path.len() <= 24 && !path.contains(' ') => {
            path.into()
        }
        _ => "shardlab".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_promise_what_the_formula_says() {
        let next = suggestions(&Scenario::quickstart());
        let lines: Vec<String> = next
            .iter()
            .map(|Suggestion { command, what }| match command {
                Command::Own(arguments) => format!("{arguments}: {what}"),
                Command::Whole(line) => format!("{line}: {what}"),
            })
            .collect();
        assert_eq!(
            lines,
            [
                "train --pp 4 --tp 1: 4 stages: waiting grows to 43 % FORMULA",
                "train --microbatches 16: smaller pieces: waiting falls to 6 % FORMULA",
                "verify --dp 2 --tp 2 --pp 2: prove it equals one rank",
                "cargo run --release -p shardlab-visualizer: watch it in a window",
            ]
        );
    }

    #[test]
    fn what_cannot_run_is_not_suggested() {
        assert!(legal_layout("train --pp 7 --tp 1").is_none());
        assert!(legal_layout("train --microbatches 64").is_none());
    }
}
