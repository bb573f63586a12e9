//! Proves that a Plan is sound, or names all its faults with rank and instruction.
//!
//! [`check()`] never runs anything: it reads the Plan once and the step's graph once. [`cycle`]
//! finds out who waits for whom; messages, memory contents and owned pieces each have a file of
//! their own.

mod contents;
pub mod cycle;
mod fault;
mod messages;
mod pieces;
mod views;

pub use fault::{Fault, FaultKind};

use super::order::{self, Order};
use super::{Action, BufferId, Instr, Plan, View};
use crate::mesh::Rank;

/// All faults of a Plan; none: every rank can run it to its end, and all memory is read after it
/// was written.
///
/// # Cost
/// Near-linear in instructions, buffers and pieces, if there is no cycle.
pub fn check(plan: &Plan) -> Vec<Fault> {
    let mut faults = Faults::default();
    let programs = plan.programs.len();
    if programs != plan.mesh.size() as usize {
        let kind = FaultKind::ProgramCount { ranks: plan.mesh.size(), programs };
        faults.add(None, None, kind);
    }
    for (rank, instr, line) in instrs(plan) {
        views::check_instr(plan, rank, instr, line, &mut faults);
    }
    // Whoever names a buffer that does not exist has no memory to reason about.
    let named = |view: &View| (view.buffer.0 as usize) < plan.buffers.len();
    if instrs(plan).all(|(_, _, line)| views(&line.action).iter().all(named)) {
        let order = order::derive(plan);
        messages::check_messages(plan, &order, &mut faults);
        contents::check_contents(plan, &mut faults);
        check_cycle(plan, &order, &mut faults);
    }
    views::check_buffers(plan, &mut faults);
    pieces::check_pieces(plan, &mut faults);
    faults.list
}

fn check_cycle(plan: &Plan, order: &Order, faults: &mut Faults) {
    let graph = order::graph(plan, order);
    if let Some(cycle) = cycle::shortest(&graph) {
        let lines = cycle::explain(plan, order, &graph, &cycle);
        let nodes = cycle.iter().map(|node| graph.nodes[*node as usize]);
        let instrs: Vec<_> = nodes.flat_map(order::Node::instrs).collect();
        let next = cycle.get(1).unwrap_or(&cycle[0]);
        let (rank, instr, _) = cycle::wait_between(order, &graph, cycle[0], *next);
        faults.add(Some(rank), Some(instr), FaultKind::Cycle { lines, instrs });
    }
}

/// The faults so far.
#[derive(Default)]
struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    fn add(&mut self, rank: Option<Rank>, instr: Option<u32>, kind: FaultKind) {
        self.list.push(Fault { rank, instr, kind });
    }

    fn at(&mut self, rank: Rank, instr: u32, kind: FaultKind) {
        self.add(Some(rank), Some(instr), kind);
    }
}

/// All instructions with their rank and index.
fn instrs(plan: &Plan) -> impl Iterator<Item = (Rank, u32, &Instr)> {
    let ranks = (0..).map(Rank).zip(&plan.programs);
    ranks.flat_map(|(rank, program)| {
        (0..).zip(&program.instrs).map(move |(i, line)| (rank, i, line))
    })
}

/// All views of an instruction: read ones, then written ones.
fn views(action: &Action) -> Vec<View> {
    match action {
        Action::Launch { inputs, outputs, .. } => inputs.iter().chain(outputs).copied().collect(),
        Action::Send { view, .. } | Action::Recv { view, .. } => vec![*view],
        Action::Copy { from, to } => vec![*from, *to],
    }
}

/// The label of a buffer, or its number if it does not exist.
fn label(plan: &Plan, buffer: BufferId) -> String {
    match plan.buffers.get(buffer.0 as usize) {
        Some(decl) => decl.label.clone(),
        None => format!("#{}", buffer.0),
    }
}

#[cfg(test)]
mod tests {
    //! Each fault is planted into a sound Plan; the words are part of what is tested.
    use super::*;
    use crate::mesh::Axis;
    use crate::plan::sample::{Sample, WIDTH, gpipe, one_f_one_b, pipeline, random_program};
    use crate::plan::{Arena, BufferDecl, Lane, Life, Output, Place, Role, Tag};
    use crate::shape::DType;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn expect_faults(plan: &Plan, expected: Expect) {
        // One line for each fault, and for each wait of a cycle.
        let text = |fault: &Fault| fault.to_string().replace("; ", ";\n    ");
        let faults: Vec<String> = check(plan).iter().map(text).collect();
        expected.assert_eq(&faults.join("\n"));
    }

    /// The 1F1B pipeline of two ranks and two microbatches, after `change`.
    fn changed(change: impl FnOnce(&mut Plan)) -> Plan {
        let mut plan = pipeline(&one_f_one_b(2, 2));
        change(&mut plan);
        plan
    }

    fn action(plan: &mut Plan, rank: usize, instr: usize) -> &mut Action {
        &mut plan.programs[rank].instrs[instr].action
    }

    #[test]
    fn pipelines_are_sound() {
        for (p, m) in [(1, 1), (1, 3), (2, 1), (2, 4), (4, 2), (4, 8)] {
            assert_eq!(check(&pipeline(&gpipe(p, m))), [], "GPipe {p} {m}");
            assert_eq!(check(&pipeline(&one_f_one_b(p, m))), [], "1F1B {p} {m}");
        }
    }

    #[test]
    fn two_ranks_that_send_first_into_each_others_busy_place_hang() {
        let mut sample = Sample::new(2);
        for (me, other) in [(0, 1), (1, 0)] {
            let x = sample.step(me, "x", 8);
            sample.fill(me, x);
            sample.send(me, x, other, me.into());
            sample.recv(me, x, other, other.into());
        }
        expect_faults(
            &sample.plan,
            expect![[r#"
                rank 0 #2 hangs: rank 0 #2 recv x from rank 1 (8 f32, tag 1) waits for #1 send x to rank 1 (8 f32, tag 0), which reads x before its place is written again;
                    its other half rank 1 #2 recv x from rank 0 (8 f32, tag 0) waits for #1 send x to rank 0 (8 f32, tag 1), which reads x before its place is written again"#]],
        );
    }

    #[test]
    fn the_shortest_of_two_cycles_is_shown() {
        let mut sample = Sample::new(3);
        // A ring of three sends into busy places, and a pair of ranks that does the same.
        for me in 0..3 {
            let x = sample.step(me, "ring", 8);
            sample.fill(me, x);
            sample.send(me, x, (me + 1) % 3, 0);
            sample.recv(me, x, (me + 2) % 3, 0);
        }
        for (me, other) in [(1, 2), (2, 1)] {
            let x = sample.step(me, "pair", 8);
            sample.fill(me, x);
            sample.send(me, x, other, 7);
            sample.recv(me, x, other, 7);
        }
        expect_faults(
            &sample.plan,
            expect![[r#"
                rank 1 #5 hangs: rank 1 #5 recv pair from rank 2 (8 f32, tag 7) waits for #4 send pair to rank 2 (8 f32, tag 7), which reads pair before its place is written again;
                    its other half rank 2 #5 recv pair from rank 1 (8 f32, tag 7) waits for #4 send pair to rank 1 (8 f32, tag 7), which reads pair before its place is written again"#]],
        );
    }

    #[test]
    fn a_message_of_another_size_or_type_is_named_with_both_ends() {
        let mut sample = Sample::new(3);
        let [mine, theirs] =
            [(2, 1025), (1, 262_144)].map(|(rank, len)| sample.step(rank, "grad", len));
        sample.fill(2, mine);
        sample.send(2, mine, 1, 5);
        sample.recv(1, theirs, 2, 5);
        expect_faults(
            &sample.plan,
            expect![
                "rank 2 #1 sends 1025 f32 of grad to rank 1 (tag 5), but rank 1 #0 receives 262144 f32 into grad"
            ],
        );
        let typed = changed(|plan| {
            let Action::Recv { view, .. } = *action(plan, 1, 0) else { panic!("a receive") };
            plan.buffers[view.buffer.0 as usize].dtype = DType::I32;
        });
        expect_faults(
            &typed,
            expect![[r#"
            rank 1 #1 add: a is f32, x.m0 is i32
            rank 0 #1 sends 64 f32 of y.m0 to rank 1 (tag 0), but rank 1 #0 receives 64 i32 into x.m0"#]],
        );
    }

    #[test]
    fn unmatched_halves_are_named() {
        let plan = changed(|plan| {
            let Action::Recv { tag, .. } = action(plan, 1, 0) else { panic!("a receive") };
            *tag = Tag(99);
            let Action::Send { to, .. } = action(plan, 0, 1) else { panic!("a send") };
            *to = Rank(7);
        });
        expect_faults(
            &plan,
            expect![[r#"
                rank 0 #1 is a send in lane pp>1;
                    it belongs into a lane to rank 7
                rank 0 #1 exchanges y.m0 with rank 7, but the Plan has 2 ranks
                rank 1 #0 waits for 64 elements into x.m0 from rank 0 (tag 99), but rank 0 never sends them"#]],
        );
    }

    #[test]
    fn views_and_arguments_must_fit() {
        let plan = changed(|plan| {
            let Action::Launch { inputs, outputs, .. } = action(plan, 0, 0) else {
                panic!("a launch")
            };
            inputs.pop();
            inputs[0].len = 3;
            outputs[0].offset = 1;
        });
        expect_faults(
            &plan,
            expect![[r#"
            rank 0 #0 uses elements 1..65 of y.m0, which has 64
            rank 0 #0 add takes 2 inputs, not 1
            rank 0 #0 add: a has 64 elements, not 3 of w
            rank 0 #1 reads bytes 0..4 of y.m0, which nothing has written before
            rank 0 #5 reads bytes 0..4 of y.m0, which nothing has written before"#]],
        );
        let plan = changed(|plan| {
            let Action::Send { view, .. } = action(plan, 0, 1) else { panic!("a send") };
            view.buffer = BufferId(99);
        });
        expect_faults(
            &plan,
            expect!["rank 0 #1 uses buffer #99, but the Plan declares 20 buffers"],
        );
        let foreign = changed(|plan| {
            let Action::Launch { inputs, .. } = action(plan, 1, 1) else { panic!("a launch") };
            inputs[1].buffer = BufferId(0);
        });
        expect_faults(
            &foreign,
            expect![[r#"
                rank 1 #1 uses w of rank 0;
                    a rank only touches its own buffers"#]],
        );
        let overlapping = changed(|plan| {
            let Action::Launch { inputs, outputs, .. } = action(plan, 1, 1) else {
                panic!("a launch")
            };
            outputs[0] = inputs[0];
        });
        expect_faults(
            &overlapping,
            expect![[r#"
            rank 1 #1 add: output x.m0 shares 256 bytes with x.m0
            rank 1 #2 reads bytes 0..256 of y.m0, which nothing has written before"#]],
        );
    }

    #[test]
    fn copies_must_fit() {
        let mut sample = Sample::new(1);
        let x = sample.step(0, "x", 8);
        sample.fill(0, x);
        for (from, to) in [(x.slice(0..4), x.slice(3..8)), (x.slice(0..4), x.slice(4..8))] {
            sample.push(0, Lane::Reduce, Action::Copy { from, to });
        }
        expect_faults(
            &sample.plan,
            expect![[r#"
            rank 0 #1 copies 4 f32 of x to 5 f32 of x
            rank 0 #1 copy: output x shares 4 bytes with x"#]],
        );
    }

    #[test]
    fn instructions_belong_into_their_lanes() {
        let plan = changed(|plan| {
            let instrs = &mut plan.programs[0].instrs;
            instrs[0].lane = Lane::Posted;
            instrs[1].lane = Lane::Out(Axis::Pp, Rank(0));
            instrs[3].lane = Lane::Out(Axis::Pp, Rank(1));
            plan.programs[1].instrs[0].lane = Lane::Compute;
            for (rank, instr) in [(0, 1), (1, 0)] {
                let (Action::Send { hops, .. } | Action::Recv { hops, .. }) =
                    action(plan, rank, instr)
                else {
                    panic!("a message")
                };
                *hops = if rank == 0 { 3 } else { 2 };
            }
        });
        expect_faults(
            &plan,
            expect![[r#"
                rank 0 #0 is a launch in lane posted;
                    it belongs into compute or reduce
                rank 0 #1 is a send in lane pp>0;
                    it belongs into a lane to rank 1
                rank 0 #1 stands for 3 messages in a row;
                    a Plan that runs has 1 everywhere
                rank 1 #0 is a receive in lane compute;
                    it belongs into posted
                rank 1 #0 stands for 2 messages in a row;
                    a Plan that runs has 1 everywhere
                rank 0 #1 sends 64 f32 in 3 hops of y.m0 to rank 1 (tag 0), but rank 1 #0 receives 64 f32 in 2 hops into x.m0"#]],
        );
    }

    #[test]
    fn reads_of_what_is_not_there_are_named_to_the_byte() {
        let mut sample = Sample::new(1);
        let [a, b, c] = ["a", "b", "c"].map(|label| sample.step(0, label, 64));
        sample.plan.buffers[2].place = Place { offset: 0, ..sample.plan.buffers[2].place };
        sample.fill(0, a.slice(0..16));
        sample.fill(0, c.slice(0..8)); // lies where `a` lies
        sample.add(0, a, a, b);
        let sum = Life::Output(Output::LossSum { counted: true });
        let loss = sample.declare(0, "loss", Role::Workspace, sum, 8);
        sample.add(0, loss, loss, b.slice(0..8));
        expect_faults(
            &sample.plan,
            expect![[r#"
                rank 0 #2 reads bytes 0..32 of a, but #1 has put c there since
                rank 0 #2 reads bytes 64..256 of a, which nothing has written before
                rank 0 #3 reads bytes 0..32 of loss, which nothing has written before"#]],
        );
    }

    #[test]
    fn lasting_buffers_lie_apart_and_where_they_belong() {
        let plan = changed(|plan| {
            let weight = plan.buffers[0].clone();
            plan.buffers.push(BufferDecl { label: "w2".into(), pieces: vec![], ..weight });
            plan.buffers[1].place.offset += 4;
            plan.buffers[2].place.arena = Arena::Io;
        });
        expect_faults(
            &plan,
            expect![[r#"
            rank 0: d_w lies at step+4: places are multiples of 256 bytes
            rank 0: y.m0 lies at io+256: its life belongs into another arena
            rank 0: w and w2 share 256 bytes of the persistent arena, where all buffers live at once"#]],
        );
    }

    #[test]
    fn every_element_has_one_owner() {
        let plan = changed(|plan| {
            let theirs = plan.buffers.iter().rposition(|decl| !decl.pieces.is_empty()).unwrap();
            plan.buffers[0].pieces[0].flat = 0..60;
            let mut piece = plan.buffers[theirs].pieces[0].clone();
            piece.flat = 8..9;
            plan.buffers[theirs].pieces.push(piece.clone());
            piece.offset = WIDTH;
            plan.buffers[theirs].pieces.push(piece.clone());
            piece.rows = 0..WIDTH + 1;
            plan.buffers[theirs].pieces.push(piece);
        });
        expect_faults(
            &plan,
            expect![[r#"
            rank 1: w holds a piece of tensor model.w.r1: its elements end at 65, the buffer at 64
            rank 1: w holds a piece of tensor model.w.r1: rows 0..65, columns 0..1 of [64]
            tensor model.w.r0: Weight of 4 of 64 elements is owned by nobody
            tensor model.w.r1: Weight of row 8, column 0 is owned by both rank 1's w and rank 1's w"#]],
        );
    }

    #[test]
    fn the_mesh_and_the_programs_agree() {
        let plan = changed(|plan| plan.mesh.dp = 2);
        expect_faults(&plan, expect!["the mesh has 4 ranks, the Plan has 2 programs"]);
    }

    proptest! {
        #[test]
        fn any_program_is_judged_without_a_panic(plan in random_program()) {
            for fault in check(&plan) {
                prop_assert!(!fault.to_string().is_empty());
            }
        }
    }
}
