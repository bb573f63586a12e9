//! Whole steps on the host: results, bytes, spans, memory, and the two ways to drive them.

use std::sync::Arc;
use std::time::Duration;

use super::programs::{
    add, add_assign, declare, fill, floats, join, message, programs, relay, scale, view_of,
};
use super::*;
use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Lane, Life, Tag};
use crate::sim::Links;
use crate::trace::Path;
use crate::units::{Bytes, Nanos};

#[test]
fn a_message_goes_round_and_every_byte_and_instruction_is_counted() {
    for thread_count in [1, 2, 5] {
        let plan = relay(4, 10, 1.5);
        let (mut executor, id) = on_host(plan.clone(), thread_count);
        let out = executor.run(id, 7, &nothing()).unwrap();
        let x = executor.read(id, view_of(&plan, 0, "x")).unwrap();
        assert_eq!(x, [1.5 + 8.0 * 1.5; 10]);
        let link = |from, to| (Rank(from), Rank(to), Axis::Pp, 40);
        assert_eq!(out.crossed.links, [link(0, 1), link(1, 2), link(2, 3), link(3, 0)]);
        assert_eq!((out.crossed.bytes(), out.crossed.bytes_on(Axis::Dp)), (Bytes(160), Bytes(0)));
        assert_eq!(out.instructions, plan.instr_count() as u64);
        assert_eq!(out.trace.step, 7);
        assert!(out.trace.paths.iter().flatten().all(|&path| path == Path::Direct));
    }
}

#[test]
fn spans_follow_the_order_and_both_halves_of_a_message_have_one_span() {
    let plan = relay(3, 1_000, 1.0);
    let (mut executor, id) = on_host(plan.clone(), 2);
    let trace = executor.run(id, 0, &nothing()).unwrap().trace;
    let order = crate::plan::order::derive(&plan);
    for rank in plan.mesh.ranks() {
        for index in 0..plan.programs[rank.index()].instrs.len() {
            let span = trace.span(rank, index);
            assert!(span.start <= span.end);
            for before in order.predecessors(rank, index as u32) {
                assert!(trace.span(rank, before as usize).end <= span.start);
            }
            if let Some((peer, other)) = order.peer[rank.index()][index] {
                assert_eq!(trace.span(peer, other as usize), span);
            }
        }
    }
}

#[test]
fn lanes_run_side_by_side_and_hazards_keep_them_apart() {
    // The Reduce lane doubles what Compute wrote and Compute adds that: each waits for the other
    // through memory alone.
    let mut ranks = programs(1);
    let p = &mut ranks[0];
    let (x, y) = (floats(p, "x", 4), floats(p, "y", 4));
    p.launch(fill(4, 1.0), &[], &[x]);
    p.launch(fill(4, 0.0), &[], &[y]);
    for _ in 0..10 {
        p.launch_on(Lane::Reduce, scale(4, 2.0), &[], &[x]);
        p.launch(add_assign(4), &[x], &[y]);
        p.push(Lane::Reduce, Action::Copy { from: y.slice(0..2), to: x.slice(2..4) });
    }
    let plan = join(ranks);
    let mut results = Vec::new();
    for thread_count in [1, 4] {
        let (mut executor, id) = on_host(plan.clone(), thread_count);
        executor.run(id, 0, &nothing()).unwrap();
        results.push(executor.read(id, view_of(&plan, 0, "y")).unwrap());
    }
    assert_eq!(results[0], results[1]);
    // Elements 0 and 1: 2 + 4 + … + 1024.
    assert_eq!(results[0][..2], [2046.0; 2]);
}

#[test]
fn views_of_no_elements_run() {
    let mut ranks = programs(2);
    let (a, b) = (floats(&mut ranks[0], "a", 0), floats(&mut ranks[1], "b", 0));
    ranks[0].launch(fill(0, 1.0), &[], &[a]);
    ranks[0].push(Lane::Reduce, Action::Copy { from: a, to: a });
    let (tag, hops) = (Tag(1), 1);
    let send = Action::Send { view: a, to: Rank(1), tag, hops };
    ranks[0].push(Lane::Out(Axis::Pp, Rank(1)), send);
    ranks[1].push(Lane::Posted, Action::Recv { view: b, from: Rank(0), tag, hops });
    ranks[1].launch(scale(0, 3.0), &[], &[b]);
    let (mut executor, id) = on_host(join(ranks), 2);
    let out = executor.run(id, 0, &nothing()).unwrap();
    assert_eq!(out.instructions, 5);
    assert_eq!(out.crossed, Crossed::default());
}

#[test]
fn a_plan_without_instructions_is_a_step() {
    let (mut executor, id) = on_host(join(programs(2)), 2);
    let out = executor.run(id, 0, &nothing()).unwrap();
    assert_eq!((out.instructions, out.loss, out.grad_norm), (0, 0.0, 0.0));
}

#[test]
fn advance_runs_one_instruction_at_a_time_to_the_same_result() {
    let plan = relay(4, 10, 1.5);
    let (mut executor, id) = on_host(plan.clone(), 3);
    executor.begin(id, 3, &nothing()).unwrap();
    let mut ran = Vec::new();
    while let Advance::Ran { rank, instr } = executor.advance().unwrap() {
        ran.push((rank, instr));
    }
    assert_eq!(executor.advance().unwrap(), Advance::Done);
    let stepped = executor.end().unwrap();
    // Each receive runs with its send.
    assert_eq!(ran.len(), plan.instr_count() - 4);
    assert_eq!(ran[0], (Rank(0), 0));
    let x = executor.read(id, view_of(&plan, 0, "x")).unwrap();
    let whole = executor.run(id, 3, &nothing()).unwrap();
    assert_eq!(executor.read(id, view_of(&plan, 0, "x")).unwrap(), x);
    assert_eq!(stepped.crossed, whole.crossed);
    assert_eq!(stepped.instructions, whole.instructions);
}

#[test]
fn a_step_that_was_begun_may_be_given_up_for_another() {
    let plan = relay(3, 10, 1.0);
    let (mut executor, id) = on_host(plan.clone(), 1);
    assert!(executor.advance().is_err() && executor.end().is_err());
    executor.begin(id, 0, &nothing()).unwrap();
    executor.advance().unwrap();
    let too_early = executor.end().unwrap_err().to_string();
    assert!(too_early.contains("instructions are left"), "{too_early}");
    let out = executor.run(id, 1, &nothing()).unwrap();
    assert_eq!(out.instructions, plan.instr_count() as u64);
}

#[test]
fn plans_share_persistent_memory_and_the_largest_step_memory() {
    let plan = |len: u32, add_to_w: bool| {
        let mut ranks = programs(1);
        let p = &mut ranks[0];
        let w = declare(p, "w", 64, Life::Persistent);
        let x = floats(p, "x", len);
        p.launch(fill(len, 1.0), &[], &[x]);
        if add_to_w {
            p.launch(add_assign(64), &[x.slice(0..64)], &[w]);
        }
        join(ranks)
    };
    let (small, large) = (plan(64, true), plan(1024, false));
    let (mut executor, first) = on_host(small.clone(), 2);
    assert_eq!(executor.allocated(Rank(0)), Bytes(512));
    executor.run(first, 0, &nothing()).unwrap();
    let second = executor.load(Arc::new(large)).unwrap();
    assert_eq!(executor.allocated(Rank(0)), Bytes(256 + 4096));
    // The step arena moved when it grew: the first Plan must have followed.
    for step in 0..3 {
        executor.run(second, step, &nothing()).unwrap();
        executor.run(first, step, &nothing()).unwrap();
    }
    let w = view_of(&small, 0, "w");
    assert_eq!(executor.read(second, w).unwrap(), [4.0; 64]);
    executor.write(second, w, &[2.5; 64]).unwrap();
    assert_eq!(executor.read(first, w).unwrap(), [2.5; 64]);

    let mut other = small;
    other.buffers[0].label = "v".into();
    let refused = executor.load(Arc::new(other)).unwrap_err().to_string();
    assert!(refused.contains("persistent buffer 0 is v, in the first Plan w"), "{refused}");
}

#[test]
fn memory_is_flat_over_a_thousand_steps() {
    let plan = relay(8, 100, 1.0);
    let (mut executor, id) = on_host(plan.clone(), 2);
    let before: Vec<Bytes> = plan.mesh.ranks().map(|rank| executor.allocated(rank)).collect();
    assert_eq!(before[1], Bytes(400));
    for step in 0..1_000 {
        let out = executor.run(id, step, &nothing()).unwrap();
        assert_eq!(out.instructions, plan.instr_count() as u64);
    }
    let after: Vec<Bytes> = plan.mesh.ranks().map(|rank| executor.allocated(rank)).collect();
    assert_eq!(before, after);
}

#[test]
fn an_op_of_many_parts_has_the_same_bits_on_any_number_of_threads() {
    const LEN: u32 = 200_000;
    let mut ranks = programs(1);
    let p = &mut ranks[0];
    let (x, y, z) = (floats(p, "x", LEN), floats(p, "y", LEN), floats(p, "z", LEN));
    p.launch(fill(LEN, 0.1), &[], &[x]);
    p.launch(scale(LEN, 0.3), &[], &[x]);
    p.launch(fill(LEN, 7.7), &[], &[y]);
    p.launch(add(LEN), &[x, y], &[z]);
    p.launch(add_assign(LEN), &[x], &[z]);
    let plan = join(ranks);
    let want = vec![(0.1f32 * 0.3 + 7.7) + 0.1f32 * 0.3; LEN as usize];
    for thread_count in [1, 2, 8] {
        let (mut executor, id) = on_host(plan.clone(), thread_count);
        for step in 0..10 {
            executor.run(id, step, &nothing()).unwrap();
        }
        assert_eq!(executor.read(id, view_of(&plan, 0, "z")).unwrap(), want);
    }
}

#[test]
fn delays_cost_time_and_change_no_bit() {
    let plan = relay(3, 10, 1.5);
    let mut options = threads(2);
    options.delays.ranks.insert(Rank(1), RankDelay { factor: 1.0, extra: Nanos(3_000_000) });
    options
        .delays
        .links
        .insert((Rank(1), Rank(2)), Links { latency: Nanos(5_000_000), ..Links::FREE });
    let mut executor = Executor::on_host(3, options);
    let id = executor.load(Arc::new(plan.clone())).unwrap();
    let slow = executor.run(id, 0, &nothing()).unwrap();
    let x = executor.read(id, view_of(&plan, 0, "x")).unwrap();
    assert_eq!(x, [1.5 + 4.0 * 1.5; 10]);
    // Rank 1: receive, scale, send. The slow kernel and the slow message show in their own spans.
    assert!(slow.trace.span(Rank(1), 1).duration() >= Nanos(3_000_000));
    assert!(slow.trace.span(Rank(1), 2).duration() >= Nanos(5_000_000));
    assert!(slow.trace.span(Rank(2), 1).start >= Nanos(8_000_000));
    assert!(slow.trace.end() < Nanos(500_000_000), "{}", slow.trace.end());

    executor.set_delays(Delays::default());
    let quick = executor.run(id, 1, &nothing()).unwrap();
    assert!(quick.trace.span(Rank(1), 1).duration() < Nanos(3_000_000));
    assert_eq!(executor.read(id, view_of(&plan, 0, "x")).unwrap(), x);
}

#[test]
fn a_slow_rank_holds_nobody_else_up() {
    // One worker, two ranks that know nothing of each other: the slow one's 20 ms pass while the
    // other works.
    let mut ranks = programs(2);
    for program in &mut ranks {
        let x = floats(program, "x", 8);
        for _ in 0..4 {
            program.launch(fill(8, 1.0), &[], &[x]);
        }
    }
    let mut options = threads(1);
    options.delays.ranks.insert(Rank(0), RankDelay { factor: 1.0, extra: Nanos(5_000_000) });
    let mut executor = Executor::on_host(2, options);
    let id = executor.load(Arc::new(join(ranks))).unwrap();
    let trace = executor.run(id, 0, &nothing()).unwrap().trace;
    assert!(trace.span(Rank(0), 3).end >= Nanos(20_000_000));
    assert!(trace.span(Rank(1), 3).end < trace.span(Rank(0), 1).end);
}

#[test]
fn an_executor_may_move_to_another_thread() {
    let plan = relay(2, 10, 1.0);
    let (mut executor, id) = on_host(plan.clone(), 2);
    executor.run(id, 0, &nothing()).unwrap();
    let moved = std::thread::spawn(move || executor.run(id, 1, &nothing()).unwrap().instructions);
    assert_eq!(moved.join().unwrap(), plan.instr_count() as u64);
}

#[test]
fn an_executor_leaves_no_thread_behind() {
    let plan = Arc::new(relay(2, 10, 1.0));
    for _ in 0..20 {
        let mut executor = Executor::on_host(2, threads(4));
        let id = executor.load(Arc::clone(&plan)).unwrap();
        executor.run(id, 0, &nothing()).unwrap();
    }
    // Every Run holds the Plan: one that a thread kept alive would show here.
    assert_eq!(Arc::strong_count(&plan), 1);
    std::thread::sleep(Duration::from_millis(1));
    let (mut executor, id) = on_host(message_only(), 2);
    assert_eq!(executor.run(id, 0, &nothing()).unwrap().instructions, 2);
}

/// A message and nothing else: the smallest step of two ranks.
fn message_only() -> crate::plan::Plan {
    let mut ranks = programs(2);
    let (a, b) = (floats(&mut ranks[0], "a", 1), floats(&mut ranks[1], "b", 1));
    message(&mut ranks, (0, a), (1, b), 9);
    join(ranks)
}
