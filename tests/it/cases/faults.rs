//! Goal: what is late changes no bit, what does not fit is named and never hangs. Method: delays
//! while a step runs, and Plans in which one rank does something else than the others.

use std::time::{Duration, Instant};

use shardlab::config::{CollectiveChoice, Layout, ZeroStage};
use shardlab::exec::{Delays, ExecError, ExecOptions, RankDelay};
use shardlab::mesh::Rank;
use shardlab::plan::check::{FaultKind, check};
use shardlab::plan::{Action, Phase, Plan};
use shardlab::planner::{StepSpec, plan_step};
use shardlab::sim::Links;
use shardlab::units::Nanos;

use super::{model, sgd, spec};
use crate::layouts::Draw;
use crate::machine::{Trained, attempt, batches, same_bits};

/// Delays of up to 100 µs a kernel and 300 µs a message, on some ranks and links.
fn draw_delays(draw: &mut Draw, ranks: u32) -> Delays {
    let mut delays = Delays::default();
    for rank in (0..ranks).map(Rank) {
        if draw.below(3) == 0 {
            let extra = Nanos(draw.below(100_000));
            let factor = 1.0 + draw.below(4) as f64;
            delays.ranks.insert(rank, RankDelay { factor, extra });
        }
        for to in (0..ranks).map(Rank).filter(|to| *to != rank) {
            if draw.below(4) == 0 {
                delays.links.insert(
                    (rank, to),
                    Links { latency: Nanos(draw.below(300_000)), ..Links::FREE },
                );
            }
        }
    }
    delays
}

fn with_delays(spec: &StepSpec, delays: Delays, steps: u64) -> Trained {
    let options = ExecOptions { delays, ..ExecOptions::default() };
    let batches = batches(spec, 1, steps);
    attempt(plan_step(spec).unwrap(), spec, 1, options, &batches).unwrap()
}

#[test]
fn overlap_changes_time_only_whatever_is_late() {
    let mut draw = Draw(1);
    for zero in [ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
        let with = |overlap| {
            let collective = CollectiveChoice::Direct;
            let (dp, pp, bucket_bytes) = (2, 2, 4);
            let base = Layout { overlap, bucket_bytes, collective, ..Layout::default() };
            spec(model(), Layout { dp, pp, zero, microbatches: 2, ..base }, sgd(4, 5))
        };
        let first = with_delays(&with(false), Delays::default(), 2);
        for number in 0..34 {
            let delays = draw_delays(&mut draw, 4);
            let late = with_delays(&with(number % 4 != 0), delays, 2);
            assert_eq!(same_bits(&first.gradients, &late.gradients), Ok(()), "ZeRO {zero}");
            assert_eq!(same_bits(&first.weights, &late.weights), Ok(()), "ZeRO {zero}");
            assert_eq!(late.copies_differ, None);
        }
    }
}

#[test]
fn a_gradient_is_sent_after_its_last_write_however_late_that_is() {
    let layout = Layout { dp: 2, bucket_bytes: 4, ..Layout::default() };
    let mut spec = spec(model(), layout, sgd(2, 4));
    spec.model.num_hidden_layers = 1;
    let first = with_delays(&spec, Delays::default(), 1);
    let extra = Nanos(50_000_000);
    let slow = RankDelay { factor: 1.0, extra };
    let delays = Delays { ranks: [(Rank(1), slow)].into(), ..Delays::default() };
    let late = with_delays(&spec, delays, 1);
    assert_eq!(same_bits(&first.weights, &late.weights), Ok(()));
    let plan = plan_step(&spec).unwrap();
    let instrs = &plan.programs[1].instrs;
    let mut waited = 0;
    for (index, instr) in instrs.iter().enumerate() {
        let (Phase::GradReduce, Action::Send { view, .. }) = (instr.origin.phase, &instr.action)
        else {
            continue;
        };
        let (arena, sent) = plan.view_place(*view);
        for (writer, earlier) in instrs[..index].iter().enumerate() {
            let overlaps = earlier.action.writes().iter().any(|written| {
                let (other, range) = plan.view_place(*written);
                other == arena && range.start < sent.end && sent.start < range.end
            });
            if overlaps && matches!(earlier.action, Action::Launch { .. }) {
                let (write, send) =
                    (late.trace.span(Rank(1), writer), late.trace.span(Rank(1), index));
                assert!(
                    write.duration() >= extra && write.end <= send.start,
                    "#{writer}, #{index}"
                );
                waited += 1;
            }
        }
    }
    assert!(waited >= 3, "{waited} gradients are written and then sent");
}

/// Runs a faulty Plan; whatever it does, it does at once.
fn error_at_once(plan: Plan, spec: &StepSpec) -> ExecError {
    let start = Instant::now();
    let batches = batches(spec, 2, 1);
    let error = attempt(plan, spec, 2, ExecOptions::default(), &batches).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1), "after {:?}: {error}", start.elapsed());
    error
}

#[test]
fn a_rank_that_brings_another_size_is_named_with_instruction_and_both_sizes() {
    for collective in [CollectiveChoice::Ring, CollectiveChoice::Tree, CollectiveChoice::Direct] {
        let layout = Layout { dp: 4, collective, ..Layout::default() };
        let spec = spec(model(), layout, sgd(4, 5));
        let mut plan = plan_step(&spec).unwrap();
        // Rank 2 sends and receives one element less in each message of its gradient sums.
        let mut first = None;
        for (index, instr) in plan.programs[2].instrs.iter_mut().enumerate() {
            if instr.origin.phase != Phase::GradReduce {
                continue;
            }
            if let Action::Send { view, .. } | Action::Recv { view, .. } = &mut instr.action {
                view.len -= 1;
                first.get_or_insert((index, view.len));
            }
        }
        let (_, len) = first.unwrap();
        let faults = check(&plan);
        assert!(!faults.is_empty());
        for fault in &faults {
            let text = fault.to_string();
            assert!(text.contains("rank 2 #"), "the odd rank is in every line: {text}");
        }
        let sizes = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        for size in [len, len + 1] {
            assert!(sizes.contains(&format!("{size} f32")), "{size} in {sizes}");
        }
        let error = error_at_once(plan, &spec);
        assert!(matches!(error, ExecError::Plan { .. }), "{error}");
        assert!(error.to_string().contains("rank 2 #"), "{error}");
    }
}

#[test]
fn a_rank_that_skips_a_microbatch_is_found_before_and_while_it_runs() {
    let layouts = [
        Layout { dp: 2, zero: ZeroStage::Zero3, microbatches: 3, ..Layout::default() },
        Layout { tp: 2, microbatches: 3, ..Layout::default() },
        Layout { pp: 2, microbatches: 3, ..Layout::default() },
    ];
    for layout in layouts {
        let spec = spec(model(), layout, sgd(6, 5));
        let mut plan = plan_step(&spec).unwrap();
        plan.programs[1].instrs.retain(|instr| instr.origin.microbatch != Some(1));
        let kinds: Vec<FaultKind> = check(&plan).into_iter().map(|fault| fault.kind).collect();
        let unmatched = |kind: &FaultKind| {
            matches!(kind, FaultKind::UnmatchedSend { .. } | FaultKind::UnmatchedRecv { .. })
        };
        assert!(kinds.iter().any(unmatched), "{:?}: {kinds:?}", spec.layout);
        let error = error_at_once(plan, &spec);
        let ExecError::Hang { waiting } = &error else { panic!("a hang: {error}") };
        assert!(waiting.iter().any(|line| line.contains("which is never")), "{error}");
    }
}
