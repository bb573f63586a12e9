//! The picture of real Plans: goal: that blocks of the timeline say neither more nor less than the
//! Trace. Method: small layouts drawn at random, durations made up from flops, replayed over links
//! that cost something; what blocks show is added up again from the spans of instructions.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardlab::cli::live::{Header, LiveState, Progress, Shown, live};
use shardlab::cli::text::{Charset, Colour, Terminal, width};
use shardlab::config::ScheduleName;
use shardlab::mesh::Rank;
use shardlab::ops::Kernel as _;
use shardlab::plan::order::{self, Order};
use shardlab::plan::{Action, Lane, Plan};
use shardlab::planner::plan_step;
use shardlab::planner::schedule::Pass;
use shardlab::sim::{Links, replay};
use shardlab::trace::cause::Cause;
use shardlab::trace::draw::axis::TimeAxis;
use shardlab::trace::draw::playback::slow_motion;
use shardlab::trace::draw::timeline::{Level, Target, Timeline};
use shardlab::trace::draw::{Block, Work, blocks, shortest_forward};
use shardlab::trace::{Badge, Trace};
use shardlab::units::{Bytes, Nanos};

use crate::layouts::draw_spec;

/// A replayed step whose kernels take a microsecond and a nanosecond for every ten flops, a little
/// more on some ranks than on others.
fn step(plan: &Plan, order: &Order) -> Trace {
    let duration = |rank: usize, action: &Action| match action {
        Action::Launch { op, .. } => {
            let exact = 1_000 + op.flops().0 / 10;
            Nanos(exact + exact * (rank as u64 * 7 % 5) / 20)
        }
        Action::Copy { .. } => Nanos(500),
        Action::Send { .. } | Action::Recv { .. } => Nanos(0),
    };
    let durations: Vec<Vec<Nanos>> = plan
        .programs
        .iter()
        .enumerate()
        .map(|(rank, p)| p.instrs.iter().map(|instr| duration(rank, &instr.action)).collect())
        .collect();
    let links = Links { latency: Nanos(2_000), bytes_per_sec: Some(4e9) };
    replay(plan, &order::graph(plan, order), &durations, &links, 0).expect("it does not hang")
}

/// Time in which the Compute lane of a rank runs passes.
fn pass_time(plan: &Plan, trace: &Trace, rank: usize) -> Nanos {
    let instrs = plan.programs[rank].instrs.iter().zip(&trace.spans[rank]);
    instrs
        .filter(|(instr, _)| instr.lane == Lane::Compute && Work::of(instr.origin).is_pass())
        .map(|(_, span)| span.duration())
        .sum()
}

/// A cell is one block; two if what it runs again was ready before the gradient had come. Cells that
/// take turns with another one are several: they are left out.
fn assert_cells_are_whole(row: &[Block]) {
    let mut cells: BTreeMap<_, Vec<Work>> = BTreeMap::new();
    for block in row {
        let Some(work) = block.work().filter(|work| work.is_pass()) else { continue };
        let pass = match work {
            Work::Forward => Pass::F,
            Work::WeightGrad => Pass::W,
            _ => Pass::B,
        };
        cells.entry((block.stage, block.microbatch, pass)).or_default().push(work);
    }
    for (cell, blocks) in cells {
        let [.., whole] = blocks.as_slice() else { unreachable!("a cell has a block") };
        let before = &blocks[..blocks.len() - 1];
        assert!(*whole != Work::Recompute && before.len() <= 1, "{cell:?}: {blocks:?}");
        assert!(before.iter().all(|work| *work == Work::Recompute), "{cell:?}: {blocks:?}");
    }
}

#[test]
fn blocks_cover_every_nanosecond_and_show_all_work_of_passes() {
    for seed in 0..60 {
        let spec = draw_spec(seed, 12);
        let plan = plan_step(&spec).expect("a legal layout");
        let order = order::derive(&plan);
        let trace = step(&plan, &order);
        for (rank, row) in blocks(&plan, &order, &trace).iter().enumerate() {
            let mut at = Nanos(0);
            for block in row {
                assert_eq!((block.start, block.rank), (at, Rank(rank as u32)), "seed {seed}");
                at = block.end;
            }
            assert_eq!(at, trace.end(), "seed {seed}, rank {rank}");
            let busy: Nanos = row.iter().map(Block::busy).sum();
            let waiting: Nanos = row.iter().map(Block::waiting).sum();
            assert_eq!(busy + waiting, trace.end());
            let passes = row.iter().filter(|block| block.work().is_some_and(Work::is_pass));
            let shown: Nanos = passes.map(Block::busy).sum();
            assert_eq!(shown, pass_time(&plan, &trace, rank), "seed {seed}, rank {rank}");
            if spec.layout.overlap && spec.layout.schedule != ScheduleName::DualPipeV {
                assert_cells_are_whole(row);
            }
        }
    }
}

/// The senders of the messages that the next line of an idle Compute lane waits for at an instant: the
/// waits that ended last are followed back, over the ranks, until one of them runs. Written apart
/// from the library's own search, which never leaves the rank.
fn missing_senders(
    (plan, order, trace): (&Plan, &Order, &Trace),
    rank: Rank,
    time: Nanos,
) -> Vec<Rank> {
    let span = |(rank, instr): (Rank, u32)| trace.span(rank, instr as usize);
    let instrs = (0..).zip(&plan.programs[rank.index()].instrs);
    let mut compute = instrs.filter(|(_, instr)| instr.lane == Lane::Compute);
    let next = compute.find(|(index, _)| span((rank, *index)).start > time);
    let mut at = next.map(|(next, _)| (rank, next));
    let mut senders = Vec::new();
    while let Some((rank, instr)) = at {
        let halves = [Some((rank, instr)), order.peer[rank.index()][instr as usize]];
        let before = halves.into_iter().flatten().flat_map(|(rank, instr)| {
            order.predecessors(rank, instr).map(move |before| (rank, before))
        });
        let last = before.max_by_key(|before| (span(*before).end, before.1));
        at = last.filter(|before| span(*before).end > time);
        senders.extend(at.and_then(|(rank, instr)| {
            match plan.programs[rank.index()].instrs[instr as usize].action {
                Action::Send { .. } => Some(rank),
                Action::Recv { from, .. } => Some(from),
                Action::Launch { .. } | Action::Copy { .. } => None,
            }
        }));
        at = at.filter(|at| span(*at).start > time);
    }
    senders
}

#[test]
fn a_wait_names_the_rank_that_is_missing_at_its_last_moment() {
    let (mut compared, mut others) = (0, 0);
    for seed in 0..60 {
        let plan = plan_step(&draw_spec(seed, 12)).expect("a legal layout");
        let order = order::derive(&plan);
        let trace = step(&plan, &order);
        for block in blocks(&plan, &order, &trace).iter().flatten() {
            let Some(Cause::Message { from, .. }) = block.cause() else { continue };
            let last = Nanos(block.end.0 - 1);
            let senders = missing_senders((&plan, &order, &trace), block.rank, last);
            if let Some(first) = senders.first() {
                // That message may wait itself, for a place that an earlier one fills until then.
                assert!(senders.contains(&from), "seed {seed}: {senders:?}; {block:?}");
                others += usize::from(*first != from);
                compared += 1;
            }
        }
    }
    assert!(compared > 500, "{compared} waits were compared");
    assert!(100 * others < compared, "{others} of {compared} are not the first message");
}

#[test]
fn what_lies_at_an_instant_is_found_again_at_every_level() {
    let mut found = 0;
    for seed in 0..30 {
        let plan = Arc::new(plan_step(&draw_spec(seed, 12)).expect("a legal layout"));
        let order = order::derive(&plan);
        let trace = Arc::new(step(&plan, &order));
        let timeline = Timeline::new(plan.clone(), &order, trace.clone(), &[]);
        for rank in plan.mesh.ranks() {
            for level in Level::ALL {
                let (mut at, mut waits) = (Nanos(0), Nanos(0));
                while at < timeline.end() {
                    let target = timeline.target_at(rank, level, at).expect("no holes");
                    let (whose, span) = timeline.span(&target).expect("it is there");
                    let what = format!("seed {seed}, rank {rank}, {level:?}: {target:?} at {at}");
                    assert!(whose == rank && span.start == at && at < span.end, "{what}: {span:?}");
                    let words = timeline.explain(&target);
                    assert!(words.ends_with('.') && words.chars().count() <= 120, "{words}");
                    if let Target::Wait { .. } = target {
                        waits += span.duration();
                    }
                    at = span.end;
                    found += 1;
                }
                let waiting: Nanos = timeline.blocks(rank).iter().map(Block::waiting).sum();
                assert!(waits <= waiting, "a wait is one at every level");
                assert!(level != Level::Instr || waits == waiting, "seed {seed}, rank {rank}");
            }
        }
    }
    assert!(found > 10_000, "{found} cells were found");
}

#[test]
fn frames_of_any_layout_fit() {
    for seed in 0..20 {
        let spec = draw_spec(seed, 12);
        let plan = plan_step(&spec).expect("a legal layout");
        let order = order::derive(&plan);
        let trace = step(&plan, &order);
        let rows = blocks(&plan, &order, &trace);
        let header = Header {
            mesh: plan.mesh,
            device: "the CPU".into(),
            why: None,
            zero: spec.layout.zero,
            schedule: "1F1B".into(),
            microbatches: spec.layout.microbatches,
            params: spec.model.parameter_count(),
        };
        let progress = Progress {
            step: 1,
            steps: 1,
            losses: &[5.5],
            target: None,
            tokens_per_sec: None,
            seconds_left: None,
        };
        let speed =
            slow_motion(trace.end(), shortest_forward(rows.iter().flatten()).expect("a forward"));
        let peaks = vec![Bytes(1 << 20); rows.len()];
        for (columns, sixteenth) in [(80, 3), (72, 8), (71, 12), (50, 16), (49, 0), (30, 0)] {
            let sweep = Nanos(trace.end().0 * sixteenth / 16);
            let axis = TimeAxis::holding(trace.end());
            let shown =
                Shown { step: 1, badge: Badge::Replayed, speed, blocks: &rows, axis, sweep };
            let (peaks, progress) = (&peaks, &progress);
            let state = LiveState { header: &header, peaks, shown: Some(shown), progress };
            let (charset, colour) = (Charset::Utf8, Colour::Off);
            let lines = live(&state, &Terminal { width: columns, height: 24, charset, colour });
            assert!(lines.len() <= 20, "seed {seed}");
            assert!(lines.iter().all(|line| width(line) <= columns), "seed {seed}: {lines:#?}");
        }
    }
}
