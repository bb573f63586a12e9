//! What is said when a Plan cannot run: hangs, faulty shapes, too little memory, a kernel that
//! panics, numbers that are not finite.

use std::sync::Arc;

use super::programs::{
    add_assign, declare, fill, floats, join, message, programs, relay, scale, view_of,
};
use super::*;
use crate::mesh::{Axis, Rank};
use crate::ops::Op;
use crate::ops::attention::{Attention, Heads};
use crate::ops::cast::Cast;
use crate::plan::{Action, BufferId, Held, Lane, LogicalTensor, Origin, Phase, Piece, Place, Plan};
use crate::plan::{Tag, View};
use crate::shape::{DType, Shape};
use crate::units::Bytes;

/// The error of the first step of a Plan, the same for any number of threads.
fn error_of(plan: &Plan) -> String {
    let texts = [1, 2, 4].map(|thread_count| {
        let (mut executor, id) = on_host(plan.clone(), thread_count);
        let text = executor.run(id, 0, &nothing()).unwrap_err().to_string();
        // A hang leaves the executor usable, and hangs again.
        assert_eq!(executor.run(id, 1, &nothing()).unwrap_err().to_string(), text);
        executor.begin(id, 2, &nothing()).unwrap();
        let stepped = loop {
            match executor.advance() {
                Ok(advanced) => assert!(matches!(advanced, Advance::Ran { .. })),
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(stepped, text);
        text
    });
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    texts[0].clone()
}

/// Two ranks that each want to receive before they send.
fn crossed_wires() -> Plan {
    let mut ranks = programs(2);
    let views: Vec<(View, View)> =
        ranks.iter_mut().map(|p| (floats(p, "x", 4), floats(p, "y", 4))).collect();
    for me in 0..2 {
        let other = 1 - me;
        let (x, y) = views[me];
        ranks[me].origin =
            Origin { phase: Phase::Backward, microbatch: Some(me as u32), ..Origin::default() };
        ranks[me].recv(y, Rank(other as u32), Tag(other as u64));
        ranks[me].launch(add_assign(4), &[y], &[x]);
        ranks[me].send(Axis::Pp, x, Rank(other as u32), Tag(me as u64));
    }
    join(ranks)
}

#[test]
fn a_cycle_over_two_ranks_is_reported_with_who_waits_for_what() {
    let text = error_of(&crossed_wires());
    assert_eq!(
        text,
        "the step hangs: \
         rank 0 waits at #1 add_assign (backward m0) for a message from rank 1 (tag 1), which \
         waits for #1 add_assign (backward m1) of rank 1, which waits for a message from rank 0 \
         (tag 0), which waits for #1 add_assign (backward m0): a cycle; \
         rank 1 waits at #1 add_assign (backward m1) for a message from rank 0 (tag 0), which \
         waits for #1 add_assign (backward m0) of rank 0, which waits for a message from rank 1 \
         (tag 1), which waits for #1 add_assign (backward m1): a cycle"
    );
}

#[test]
fn messages_without_a_partner_are_reported() {
    let mut unsent = relay(3, 4, 1.0);
    // Rank 1 loses its send to rank 2.
    let instrs = &mut unsent.programs[1].instrs;
    instrs.retain(|instr| !matches!(instr.action, Action::Send { .. }));
    assert_eq!(
        error_of(&unsent),
        "the step hangs: \
         rank 0 waits at #3 add_assign for a message from rank 2 (tag 0), which waits for #1 scale \
         of rank 2, which waits for a message from rank 1 (tag 2), which is never sent; \
         rank 2 waits at #1 scale for a message from rank 1 (tag 2), which is never sent"
    );
    let mut unreceived = relay(2, 4, 1.0);
    unreceived.programs[0].instrs.truncate(2);
    assert_eq!(
        error_of(&unreceived),
        "the step hangs: \
         rank 1 waits at #2 to send to rank 0 (tag 0), which is never received"
    );
}

#[test]
fn a_receive_whose_place_is_never_free_is_reported() {
    // Rank 0 must receive into x before it may send x: the send waits for the receive, the other
    // rank sends only after it has received.
    let mut ranks = programs(2);
    let (x, y) = (floats(&mut ranks[0], "x", 4), floats(&mut ranks[1], "y", 4));
    ranks[1].launch(fill(4, 1.0), &[], &[y]);
    ranks[0].recv(x, Rank(1), Tag(1));
    ranks[0].send(Axis::Pp, x, Rank(1), Tag(2));
    ranks[1].recv(y, Rank(0), Tag(2));
    ranks[1].launch(scale(4, 2.0), &[], &[y]);
    ranks[1].send(Axis::Pp, y, Rank(0), Tag(1));
    let text = error_of(&join(ranks));
    assert!(text.contains("rank 1 waits at #2 scale for a message from rank 0 (tag 2)"), "{text}");
    assert!(text.contains(": a cycle"), "{text}");
}

#[test]
fn a_rank_that_places_more_than_the_cap_is_refused_with_need_and_have() {
    let options = ExecOptions { memory_cap: Some(Bytes(4096)), ..threads(1) };
    let mut executor = Executor::on_host(2, options);
    executor.load(Arc::new(relay(2, 256, 1.0))).unwrap();
    let text = executor.load(Arc::new(relay(2, 1024, 1.0))).unwrap_err().to_string();
    assert_eq!(
        text,
        "rank 0 needs 8.0 KiB on cpu, which has 4.0 KiB. Use more ranks, a higher ZeRO stage, \
         recompute, or fewer rows in a microbatch"
    );
    // The refused Plan left nothing behind.
    assert_eq!(executor.allocated(Rank(0)), Bytes(2048));
    executor.load(Arc::new(relay(2, 512, 1.0))).unwrap();
}

/// An attention whose sizes make its kernel divide by zero.
fn broken_attention() -> (Op, u32, u32, u32) {
    let heads = Heads {
        seq: 2,
        batch: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 4,
        group: 0,
        first_head: 0,
        first_kv_head: 0,
    };
    (Op::Attention(Attention { heads }), 24, 8, 2)
}

#[test]
fn a_kernel_that_panics_fails_the_step_and_not_the_pool() {
    let mut ranks = programs(2);
    let good = floats(&mut ranks[0], "x", 4);
    ranks[0].launch(fill(4, 1.0), &[], &[good]);
    let p = &mut ranks[1];
    let (op, qkv, out, lse) = broken_attention();
    let (qkv, out, lse) = (floats(p, "qkv", qkv), floats(p, "out", out), floats(p, "lse", lse));
    p.launch(fill(qkv.len, 1.0), &[], &[qkv]);
    p.launch(op, &[qkv], &[out, lse]);
    let plan = join(ranks);
    let (mut executor, id) = on_host(plan, 4);
    for step in 0..5 {
        let error = executor.run(id, step, &nothing()).unwrap_err();
        let ExecError::Panic { rank, instr, op, .. } = &error else { panic!("{error}") };
        assert_eq!((*rank, *instr, op.as_str()), (Rank(1), 1, "attention"));
    }
    let sound = executor.load(Arc::new(relay(2, 10, 1.0))).unwrap();
    executor.run(sound, 0, &nothing()).unwrap();
}

/// The refusal of a relay of two ranks after `change`.
fn refusal(change: impl FnOnce(&mut Plan)) -> String {
    let mut plan = relay(2, 4, 1.0);
    change(&mut plan);
    let mut executor = Executor::on_host(2, threads(1));
    executor.load(Arc::new(plan)).unwrap_err().to_string()
}

#[test]
fn faulty_shapes_are_refused_before_anything_runs() {
    let instr = |plan: &mut Plan, rank: usize, index: usize, action: Action| {
        plan.programs[rank].instrs[index].action = action;
    };
    let text = refusal(|plan| {
        let x = view_of(plan, 0, "x");
        let long = View { len: 5, ..x };
        instr(plan, 0, 0, Action::Launch { op: fill(5, 1.0), inputs: vec![], outputs: vec![long] });
    });
    assert!(text.contains("rank 0 #0 uses elements 0..5 of x, which has 4"), "{text}");
    let text = refusal(|plan| {
        let x = view_of(plan, 0, "x");
        instr(plan, 0, 0, Action::Launch { op: fill(3, 1.0), inputs: vec![], outputs: vec![x] });
    });
    assert!(text.contains("rank 0 #0 fill: x has 3 elements, not 4 of x"), "{text}");
    let text = refusal(|plan| {
        let x = view_of(plan, 0, "x");
        let op = add_assign(4);
        instr(plan, 0, 0, Action::Launch { op, inputs: vec![x], outputs: vec![x] });
    });
    assert!(text.contains("rank 0 #0 add_assign: output x shares 16 bytes with x"), "{text}");
    let text = refusal(|plan| {
        let foreign = view_of(plan, 1, "x");
        let op = fill(4, 1.0);
        instr(plan, 0, 0, Action::Launch { op, inputs: vec![], outputs: vec![foreign] });
    });
    assert!(text.contains("rank 0 #0 uses x of rank 1"), "{text}");
    let text = refusal(|plan| {
        let view = View { len: 2, ..view_of(plan, 1, "x") };
        instr(plan, 1, 0, Action::Recv { view, from: Rank(0), tag: Tag(1), hops: 1 });
    });
    assert!(
        text.contains("rank 0 #1 sends 4 f32 of x to rank 1 (tag 1), but rank 1 #0 receives 2 f32"),
        "{text}"
    );
    let text =
        refusal(|plan| plan.buffers[0].place = Place { offset: 12, ..plan.buffers[0].place });
    assert!(
        text.contains("rank 0: x lies at step+12: places are multiples of 256 bytes"),
        "{text}"
    );
    let text = refusal(|plan| plan.programs[0].instrs[0].lane = Lane::Posted);
    assert!(text.contains("rank 0 #0 is a launch in lane posted"), "{text}");
    let text = refusal(|plan| plan.buffers[0].place.offset = u64::MAX - 7);
    assert!(text.contains("rank 0: buffer x cannot lie at"), "{text}");
    let text = refusal(|plan| plan.buffers[0].place.offset = u64::MAX - 255);
    assert!(text.contains("the machine does not give 16384.0 PiB for rank 0"), "{text}");
    let text = refusal(|plan| plan.buffers[0].rank = Rank(9));
    assert!(text.contains("buffer x belongs to rank 9, which does not exist"), "{text}");
    let text = refusal(|plan| {
        let view = view_of(plan, 0, "x");
        plan.programs[0].instrs[1].lane = Lane::Out(Axis::Pp, Rank(0));
        instr(plan, 0, 1, Action::Send { view, to: Rank(0), tag: Tag(1), hops: 1 });
    });
    assert!(text.contains("rank 0 #1 exchanges a message with itself"), "{text}");
    let text = refusal(|plan| plan.mesh.pp = 3);
    assert!(text.contains("it has 3 ranks, 2 are placed on devices"), "{text}");
    let text = refusal(|plan| {
        let view = View { buffer: BufferId(99), offset: 0, len: 4 };
        let to = Rank(7);
        instr(plan, 1, 2, Action::Send { view, to, tag: Tag(1), hops: 1 });
    });
    assert!(text.contains("rank 1 #2 uses buffer #99"), "{text}");
}

#[test]
fn ops_on_sixteen_bits_have_no_kernel() {
    let mut ranks = programs(1);
    let p = &mut ranks[0];
    let x = floats(p, "x", 4);
    let y = p.buffer("y", crate::plan::Role::Activations, DType::Bf16, 4);
    p.launch(fill(4, 1.0), &[], &[x]);
    p.launch(Op::Cast(Cast { from: DType::F32, to: DType::Bf16, len: 4 }), &[x], &[y]);
    let mut executor = Executor::on_host(1, threads(1));
    let text = executor.load(Arc::new(join(ranks))).unwrap_err().to_string();
    assert_eq!(text, "rank 0, instruction 1: cast has no kernel; this Plan can only be simulated");
}

#[test]
fn diagnose_names_the_first_launch_that_writes_a_number_that_is_not_finite() {
    let mut ranks = programs(2);
    let (x, y) = (floats(&mut ranks[0], "x", 8), floats(&mut ranks[1], "grad", 8));
    ranks[0].launch(fill(8, 3e38), &[], &[x]);
    message(&mut ranks, (0, x), (1, y), 1);
    ranks[1].origin = Origin {
        phase: Phase::Backward,
        stage: Some(1),
        layer: Some(2),
        microbatch: Some(0),
        ..Origin::default()
    };
    ranks[1].launch(scale(3, 10.0), &[], &[y.slice(5..8)]);
    ranks[1].launch(scale(8, 0.0), &[], &[y]);
    let piece = Piece {
        tensor: 0,
        held: Held::Gradient,
        rows: 0..4,
        cols: 0..1,
        flat: 0..4,
        offset: 4,
        owned: true,
    };
    ranks[1].piece(y, piece);
    let mut plan = join(ranks);
    plan.tensors.push(LogicalTensor { name: "model.norm.weight".into(), shape: Shape(vec![4]) });
    let (mut executor, id) = on_host(plan.clone(), 2);
    let found = executor.diagnose(id, 0, &nothing()).unwrap().unwrap();
    assert_eq!(
        found.to_string(),
        "rank 1, stage 1, layer 2, microbatch 0: scale (#1) writes inf in grad[5], of \
         model.norm.weight"
    );
    assert_eq!((found.rank, found.instr, found.element, found.was_read), (Rank(1), 1, 5, false));

    // Finite numbers: the whole step runs, as in `run`.
    let (mut executor, id) = on_host(relay(3, 4, 1.0), 2);
    assert_eq!(executor.diagnose(id, 0, &nothing()).unwrap(), None);
    assert_eq!(executor.read(id, view_of(&relay(3, 4, 1.0), 0, "x")).unwrap(), [5.0; 4]);
}

#[test]
fn diagnose_blames_a_weight_that_was_not_finite_before_the_step() {
    let mut ranks = programs(1);
    let p = &mut ranks[0];
    let w = declare(p, "w", 4, crate::plan::Life::Persistent);
    let x = floats(p, "x", 4);
    p.launch(fill(4, 1.0), &[], &[x]);
    p.launch(add_assign(4), &[w], &[x]);
    let plan = join(ranks);
    let (mut executor, id) = on_host(plan.clone(), 1);
    executor.write(id, w, &[0.0, 0.0, f32::NAN, 0.0]).unwrap();
    let found = executor.diagnose(id, 0, &nothing()).unwrap().unwrap();
    assert_eq!(found.to_string(), "rank 0: add_assign (#1) reads NaN in w[2]");
}
