//! Goal: an opened collective tells the truth. Method: layouts drawn at random; what members end
//! with is what the kind of collective promises, bytes are those of the Plan, and the numbers of a
//! step that really runs add up: a cell that says "sum of ranks {0,2}" holds the sum of what these
//! two began with.

use std::collections::{BTreeMap, BTreeSet};

use shardlab::config::{CollectiveChoice, Layout, Scenario, ZeroStage};
use shardlab::mesh::{Axis, Rank};
use shardlab::plan::order::{self, Order};
use shardlab::plan::{Action, CollectiveKind, Held, Plan};
use shardlab::planner::plan_step;
use shardlab::trace::captured::{Captured, Members, first};
use shardlab::train::{Options, Session};
use shardlab::units::Bytes;

use crate::layouts::draw_spec;

/// One instruction of each collective of a Plan that sends something.
fn collectives(plan: &Plan, order: &Order) -> Vec<(Rank, u32)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        for (index, instr) in (0u32..).zip(&program.instrs) {
            let origin = instr.origin;
            let (Some(collective), Some((peer, _))) =
                (origin.collective, order.peer[rank.index()][index as usize])
            else {
                continue;
            };
            let key = |rank| (rank, collective, origin.axis);
            if !seen.contains(&key(rank)) {
                found.push((rank, index));
            }
            seen.extend([key(rank), key(peer)]);
        }
    }
    found
}

fn assert_promise(captured: &Captured, what: &str) {
    let members = captured.members.len();
    let everyone = (0..members).map(Members::one).reduce(|mut all, one| {
        all.join(&one);
        all
    });
    let last = captured.cells(captured.rounds.len());
    for chunk in 0..captured.chunks.len() {
        let held: Vec<Option<&Members>> =
            last.iter().map(|row| row[chunk].map(|cell| &cell.summed)).collect();
        let full = held.iter().filter(|held| **held == everyone.as_ref()).count();
        match captured.collective.kind {
            CollectiveKind::AllReduce => assert_eq!(full, members, "{what}: {held:?}"),
            CollectiveKind::ReduceScatter => assert_eq!(full, 1, "{what}: {held:?}"),
            CollectiveKind::AllGather | CollectiveKind::Broadcast => {
                let one = held[0].is_some_and(|first| first.count() == 1);
                assert!(one && held.iter().all(|other| *other == held[0]), "{what}: {held:?}");
            }
            CollectiveKind::PointToPoint => assert!(held.iter().all(Option::is_some), "{what}"),
        }
    }
}

/// Bytes of the sends that belong to the collective.
fn sent(plan: &Plan, captured: &Captured) -> Bytes {
    let of_rank = |rank: &Rank| {
        let instrs = plan.programs[rank.index()].instrs.iter();
        instrs.filter_map(|instr| match instr.action {
            Action::Send { view, .. }
                if instr.origin.collective == Some(captured.collective)
                    && instr.origin.axis == Some(captured.axis) =>
            {
                Some(plan.view_bytes(view))
            }
            _ => None,
        })
    };
    captured.members.iter().flat_map(of_rank).sum()
}

#[test]
fn members_end_with_what_the_kind_of_collective_promises() {
    let mut kinds: BTreeMap<CollectiveKind, u32> = BTreeMap::new();
    for seed in 0..60 {
        let spec = draw_spec(seed, 12);
        let plan = plan_step(&spec).expect("a legal layout");
        let order = order::derive(&plan);
        for at in collectives(&plan, &order) {
            let what = format!("seed {seed}, rank {}, instruction {}", at.0, at.1);
            let captured = Captured::of(&plan, &order, at).expect(&what);
            assert_eq!(captured.bytes(), sent(&plan, &captured), "{what}");
            assert_promise(&captured, &what);
            *kinds.entry(captured.collective.kind).or_default() += 1;
        }
    }
    assert!(kinds.len() >= 3 && kinds.values().all(|count| *count > 20), "{kinds:?}");
}

fn layout(collective: CollectiveChoice, zero: ZeroStage) -> Layout {
    Layout { dp: 4, zero, collective, microbatches: 2, ..Layout::default() }
}

fn session(collective: CollectiveChoice, zero: ZeroStage) -> Session {
    let mut scenario = Scenario::quickstart();
    scenario.model = "tiny".parse().expect("a preset");
    scenario.training.batch = 8;
    scenario.training.seq = 8;
    scenario.layout = layout(collective, zero);
    Session::start(scenario, Options::on_cpu()).expect("it starts")
}

#[test]
fn a_captured_step_trains_as_any_other_to_the_bit() {
    for (collective, zero) in [
        (CollectiveChoice::Ring, ZeroStage::Zero1),
        (CollectiveChoice::Direct, ZeroStage::Zero3),
        (CollectiveChoice::Tree, ZeroStage::Zero0),
    ] {
        let (mut plain, mut opened) = (session(collective, zero), session(collective, zero));
        for (index, at) in collectives(plain.plan(), plain.order()).into_iter().take(3).enumerate()
        {
            let right = plain.step().expect("it trains");
            let (report, captured) = opened.step_capturing(at).expect("it is a collective");
            assert_eq!(report.loss.to_bits(), right.loss.to_bits(), "step {index}");
            assert_eq!((report.step, &report.crossed), (right.step, &right.crossed));
            let weights = [&mut plain, &mut opened].map(|s| s.tensors(Held::Weight).expect("read"));
            assert_eq!(weights[0], weights[1], "step {index}");
            assert!(captured.samples.iter().all(|sample| !sample.values.is_empty()));
        }
        // An instruction of no collective is refused, and nothing runs.
        let (rank, program) = (Rank(0), &opened.plan().programs[0]);
        let alone = program.instrs.iter().position(|instr| instr.origin.collective.is_none());
        let alone = u32::try_from(alone.expect("kernels")).expect("a small Plan");
        assert!(opened.step_capturing((rank, alone)).is_err());
        assert!(opened.step_capturing((Rank(99), 0)).is_err());
        assert_eq!(opened.next_step(), plain.next_step());
    }
}

/// Holds what every cell says against its numbers.
pub(crate) fn assert_numbers_add_up(captured: &Captured, what: &str) {
    let mut compared = 0;
    for change in captured.rounds.iter().flat_map(|round| &round.changes) {
        let terms: Vec<&[f32]> = change
            .cell
            .summed
            .iter()
            .map(|member| {
                let began = captured.start[member][change.chunk].as_ref();
                captured.values(began.expect("it contributed"))
            })
            .collect();
        for (index, found) in captured.values(&change.cell).iter().enumerate() {
            let sum: f32 = terms.iter().map(|term| term[index]).sum();
            let scale: f32 = terms.iter().map(|term| term[index].abs()).sum();
            assert!((sum - found).abs() <= 1e-6 * scale, "{what}: {sum} {found}");
            compared += usize::from(scale > 0.0);
        }
    }
    assert!(compared > 8, "{what}: {compared} numbers were compared");
}

#[test]
fn the_numbers_of_a_step_that_runs_add_up() {
    for collective in [CollectiveChoice::Ring, CollectiveChoice::Direct, CollectiveChoice::Tree] {
        for zero in [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2] {
            let what = format!("{collective:?} {zero:?}");
            let mut session = session(collective, zero);
            let (plan, order) = (session.plan().clone(), session.order().clone());
            let at = first(&plan, &order).expect("a collective");
            let (_, captured) = session.step_capturing(at).expect("it sends");
            assert!(captured.samples.iter().all(|sample| !sample.values.is_empty()), "{what}");
            assert_numbers_add_up(&captured, &what);
            if collective == CollectiveChoice::Ring {
                let summing = captured.collective.kind == CollectiveKind::ReduceScatter;
                let rounds = if summing { 3 } else { 6 };
                assert_eq!((captured.rounds.len(), captured.summing_rounds()), (rounds, 3));
                assert_eq!(captured.axis, Axis::Dp);
            }
        }
    }
}
