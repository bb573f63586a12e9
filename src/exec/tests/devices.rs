//! Ranks on devices: batches, staged messages, timing, and what is said when a device fails.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::loopback::{Log, Loopback, Mode};
use super::programs::{declare, fill, floats, join, message, programs, relay, view_of};
use super::*;
use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Input, Life, Output, Plan};
use crate::sim::Links;
use crate::trace::Path;
use crate::units::{Bytes, Nanos};

/// An executor over devices of one mode and the host as the last slot.
fn executor(devices: Vec<Loopback>, placement: &[usize], options: ExecOptions) -> Executor {
    let mut slots: Vec<DeviceSlot> = devices.into_iter().map(Loopback::slot).collect();
    slots.push(DeviceSlot::Host);
    Executor::new(slots, placement.to_vec(), options).unwrap()
}

fn load(executor: &mut Executor, plan: &Plan) -> PlanId {
    executor.load(Arc::new(plan.clone())).unwrap()
}

#[test]
fn all_ranks_on_one_device_are_one_submit_a_step() {
    let device = Loopback::new("a", Mode::Late(2));
    let log = device.log();
    let plan = relay(4, 10, 1.5);
    let mut executor = executor(vec![device], &[0; 4], threads(2));
    let id = load(&mut executor, &plan);
    for step in 0..3 {
        let out = executor.run(id, step, &nothing()).unwrap();
        assert_eq!(log.submits.load(SeqCst), step as usize + 1);
        assert_eq!(out.crossed.links.len(), 4);
        assert!(out.trace.paths.iter().flatten().all(|&path| path == Path::Direct));
    }
    assert_eq!(executor.read(id, view_of(&plan, 0, "x")).unwrap(), [13.5; 10]);
    assert_eq!(executor.allocated(Rank(0)), Bytes(256 + 40));
}

#[test]
fn messages_between_memories_are_staged_and_counted_where_they_cross() {
    let plan = relay(4, 10, 1.5);
    let (a, b) = (Loopback::new("a", Mode::Late(1)), Loopback::new("b", Mode::AtSubmit));
    let logs = [a.log(), b.log()];
    // Ranks on a, host, b, a: 0→1 and 1→2 and 2→3 are staged, 3→0 stays inside a.
    let mut executor = executor(vec![a, b], &[0, 2, 1, 0], threads(2));
    let id = load(&mut executor, &plan);
    let out = executor.run(id, 0, &nothing()).unwrap();
    assert_eq!(executor.read(id, view_of(&plan, 0, "x")).unwrap(), [13.5; 10]);
    let link = |from, to| (Rank(from), Rank(to), Axis::Pp, 40);
    assert_eq!(out.crossed.links, [link(0, 1), link(1, 2), link(2, 3), link(3, 0)]);
    assert_eq!(out.instructions, plan.instr_count() as u64);
    assert_eq!(out.trace.paths[0], [Path::Direct, Path::Staged, Path::Staged, Path::Direct]);
    // Device a: what rank 1 waits for, then what rank 3 does with what came round. Device b: one.
    assert_eq!(logs.each_ref().map(|log: &Arc<Log>| log.submits.load(SeqCst)), [2, 1]);
    let infos: Vec<&str> = executor.device_infos().iter().map(|info| info.name.as_str()).collect();
    assert_eq!(infos, ["a", "b", "cpu"]);
    assert_eq!([0, 1, 2, 3].map(|rank| executor.device_of(Rank(rank))), [0, 2, 1, 0]);
}

#[test]
fn a_batch_is_cut_after_what_another_device_waits_for() {
    // Rank 0 sends its first result and has twenty more things to do; they go into a second batch.
    let mut ranks = programs(2);
    let (x, y) = (floats(&mut ranks[0], "x", 4), floats(&mut ranks[0], "y", 4));
    let z = floats(&mut ranks[1], "z", 4);
    ranks[0].launch(fill(4, 1.0), &[], &[x]);
    message(&mut ranks, (0, x), (1, z), 1);
    for _ in 0..20 {
        ranks[0].launch(fill(4, 2.0), &[], &[y]);
    }
    let plan = join(ranks);
    let device = Loopback::new("a", Mode::Late(0));
    let log = device.log();
    let mut executor = executor(vec![device], &[0, 1], threads(1));
    let id = load(&mut executor, &plan);
    executor.run(id, 0, &nothing()).unwrap();
    assert_eq!(log.submits.load(SeqCst), 2);
    assert_eq!(executor.read(id, z).unwrap(), [1.0; 4]);
}

#[test]
fn timestamps_are_laid_on_the_clock_of_the_step() {
    let plan = relay(2, 4, 1.0);
    let mut device = Loopback::new("a", Mode::AtSubmit);
    device.has_timestamps = true;
    let mut executor = executor(vec![device], &[0, 0], threads(1));
    let id = load(&mut executor, &plan);
    let trace = executor.run(id, 0, &nothing()).unwrap().trace;
    for (rank, index) in [(0, 0), (0, 3), (1, 1)] {
        assert_eq!(trace.span(Rank(rank), index).duration(), Nanos(1_000));
    }
    assert!(trace.span(Rank(0), 0).end <= trace.span(Rank(1), 1).start);
    assert!(trace.end() < Nanos(1_000_000_000), "the device's own origin is not shown");
}

#[test]
fn without_timestamps_a_batch_is_shared_out_or_each_instruction_is_fenced() {
    let plan = relay(3, 1_000, 1.0);
    for timing in [Timing::Batched, Timing::Fenced] {
        let device = Loopback::new("a", Mode::Late(1));
        let log = device.log();
        let mut executor = executor(vec![device], &[0; 3], ExecOptions { timing, ..threads(1) });
        let id = load(&mut executor, &plan);
        let trace = executor.run(id, 0, &nothing()).unwrap().trace;
        // Four launches and three messages.
        let submits = if timing == Timing::Fenced { 7 } else { 1 };
        assert_eq!(log.submits.load(SeqCst), submits);
        let order = crate::plan::order::derive(&plan);
        for rank in plan.mesh.ranks() {
            for index in 0..plan.programs[rank.index()].instrs.len() {
                for before in order.predecessors(rank, index as u32) {
                    let before = trace.span(rank, before as usize);
                    assert!(before.end <= trace.span(rank, index).start, "{timing:?}");
                }
            }
        }
    }
}

/// Rank 0 and 1 each turn an input into an output.
fn with_outputs() -> Plan {
    let mut ranks = programs(2);
    for program in &mut ranks {
        let scalars = declare(program, "scalars", 4, Life::Input(Input::Scalars));
        let output = Output::LossSum { counted: true };
        let loss = declare(program, "loss", 1, Life::Output(output));
        let from = scalars.slice(0..1);
        program.push(crate::plan::Lane::Compute, Action::Copy { from, to: loss });
    }
    join(ranks)
}

#[test]
fn inputs_and_outputs_reach_devices_with_one_wait_each() {
    let plan = with_outputs();
    let device = Loopback::new("a", Mode::Late(1));
    let log = device.log();
    let mut executor = executor(vec![device], &[0, 0], threads(1));
    let id = load(&mut executor, &plan);
    let input = StepInput { labels: &[5, -100], tokens: &[1, 2], lr: 0.75, ..nothing() };
    let out = executor.run(id, 0, &input).unwrap();
    assert!((out.loss - 1.5).abs() < 1e-12);
    assert_eq!(log.submits.load(SeqCst), 2);
}

#[test]
fn a_hang_on_devices_is_reported_at_once() {
    let mut plan = relay(3, 4, 1.0);
    plan.programs[1].instrs.retain(|instr| !matches!(instr.action, Action::Send { .. }));
    let texts = [[0, 0, 0], [2, 2, 2], [0, 1, 2], [0, 2, 0]].map(|placement| {
        let devices = ["a", "b"].map(|name| Loopback::new(name, Mode::Late(1))).into();
        let mut executor = executor(devices, &placement, threads(2));
        let id = load(&mut executor, &plan);
        executor.run(id, 0, &nothing()).unwrap_err().to_string()
    });
    assert!(
        texts[0].contains("a message from rank 1 (tag 2), which is never sent"),
        "{}",
        texts[0]
    );
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn a_device_that_is_lost_or_stuck_ends_the_step_with_its_name() {
    let plan = relay(4, 10, 1.0);
    let mut device = Loopback::new("lossy", Mode::AtSubmit);
    device.lost_after = 2;
    let mut with_lossy = executor(vec![device], &[0, 1, 0, 1], threads(2));
    let id = load(&mut with_lossy, &plan);
    let text = with_lossy.run(id, 0, &nothing()).unwrap_err().to_string();
    assert_eq!(text, "lossy: the device was lost. Restart");

    let device = Loopback::new("stuck", Mode::Never);
    let time_limit = Some(Duration::from_millis(20));
    let options = ExecOptions { time_limit, ..threads(2) };
    let mut with_stuck = executor(vec![device], &[0, 1, 0, 1], options);
    let id = load(&mut with_stuck, &plan);
    let text = with_stuck.run(id, 0, &nothing()).unwrap_err().to_string();
    assert!(
        text.starts_with("stuck: a batch of 2 instructions did not end within 20ms. Raise"),
        "{text}"
    );
}

#[test]
fn a_device_that_panics_ends_the_step_and_the_others_go_on() {
    let plan = relay(4, 10, 1.0);
    let mut device = Loopback::new("a", Mode::AtSubmit);
    device.panics_at = 1;
    let mut executor = executor(vec![device], &[0, 1, 1, 1], threads(2));
    let id = load(&mut executor, &plan);
    let text = executor.run(id, 0, &nothing()).unwrap_err().to_string();
    assert!(text.contains("its thread panicked: on purpose"), "{text}");
}

#[test]
fn delays_on_devices_cost_time_and_change_no_bit() {
    let plan = relay(3, 10, 1.5);
    let mut options = threads(2);
    options.delays.ranks.insert(Rank(0), RankDelay { factor: 1.0, extra: Nanos(2_000_000) });
    options
        .delays
        .links
        .insert((Rank(0), Rank(1)), Links { latency: Nanos(3_000_000), ..Links::FREE });
    let mut executor = executor(vec![Loopback::new("a", Mode::AtSubmit)], &[0, 1, 0], options);
    let id = load(&mut executor, &plan);
    let trace = executor.run(id, 0, &nothing()).unwrap().trace;
    assert_eq!(executor.read(id, view_of(&plan, 0, "x")).unwrap(), [1.5 + 4.0 * 1.5; 10]);
    assert!(trace.span(Rank(0), 0).duration() >= Nanos(2_000_000));
    assert!(trace.span(Rank(1), 0).duration() >= Nanos(3_000_000));
    assert!(trace.span(Rank(1), 1).start >= Nanos(5_000_000));
}

#[test]
fn a_rank_on_a_device_that_is_not_there_is_refused() {
    let refused = Executor::new(vec![DeviceSlot::Host], vec![0, 3], threads(1));
    let text = refused.unwrap_err().to_string();
    assert!(text.starts_with("the placement of rank 1: device 3 of 1."), "{text}");
}
