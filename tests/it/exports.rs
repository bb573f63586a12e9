//! Goal: exported steps are what other programs expect. Method: layouts drawn at random with
//! durations drawn at random; slices of a thread never overlap, every message is one flow whose ends
//! lie inside slices, blocks cover all time, and bytes are those of the Plan.

use std::collections::BTreeMap;

use shardlab::mesh::Rank;
use shardlab::plan::{Action, Plan, order};
use shardlab::planner::plan_step;
use shardlab::sim::{Links, replay};
use shardlab::trace::Trace;
use shardlab::trace::export::kineto::{Event, Kineto, Micros};
use shardlab::trace::export::rows::{Detail, rows};
use shardlab::trace::export::{Recording, csv, jsonl};
use shardlab::units::{Bytes, Nanos};

use crate::layouts::{Draw, draw_spec};

/// A drawn step; links are free for even seeds.
fn step(seed: u64) -> (Plan, Trace) {
    let plan = plan_step(&draw_spec(seed, 8)).expect("a legal layout");
    let graph = order::graph(&plan, &order::derive(&plan));
    let mut draw = Draw(seed);
    let mut durations = Vec::new();
    for program in &plan.programs {
        let row = program.instrs.iter().map(|_| Nanos(draw.below(5_000)));
        durations.push(row.collect::<Vec<_>>());
    }
    let slow = Links { latency: Nanos(700), bytes_per_sec: Some(1e9) };
    let links = if seed.is_multiple_of(2) { Links::FREE } else { slow };
    let trace = replay(&plan, &graph, &durations, &links, seed).expect("it does not hang");
    (plan, trace)
}

fn events(plan: &Plan, trace: &Trace) -> Vec<Event> {
    let kineto = Kineto::new(plan, trace, &[], &[]);
    plan.mesh.ranks().flat_map(|rank| kineto.events(rank)).collect()
}

/// The slices of each thread, by (process, thread).
fn slices(events: &[Event]) -> BTreeMap<(u32, u64), Vec<(Micros, Micros)>> {
    let mut slices: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events {
        if let (Micros(start), Some(Micros(length))) = (event.ts, event.dur) {
            let slice = (Micros(start), Micros(start + length));
            slices.entry((event.pid, event.tid)).or_default().push(slice);
        }
    }
    slices.values_mut().for_each(|slices| slices.sort_unstable());
    slices
}

#[test]
fn slices_of_a_thread_follow_one_another_and_flows_join_the_halves_of_messages() {
    for seed in 0..40 {
        let (plan, trace) = step(seed);
        let events = events(&plan, &trace);
        for event in &events {
            let is_kernel = event.cat == Some("kernel");
            let takes_time = event.dur.is_some_and(|length| length > Micros(Nanos(0)));
            assert!(!is_kernel || takes_time, "seed {seed}: {event:?}");
            assert_eq!(is_kernel, event.args.contains_key("stream"), "seed {seed}: {event:?}");
        }
        let slices = slices(&events);
        for (thread, slices) in &slices {
            for pair in slices.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "seed {seed}, {thread:?}: {pair:?}");
            }
        }
        let mut flows: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        for event in events.iter().filter(|event| matches!(event.ph, "s" | "f")) {
            let inside = slices[&(event.pid, event.tid)]
                .iter()
                .any(|(start, end)| *start <= event.ts && event.ts <= *end);
            assert!(inside, "seed {seed}: {event:?}");
            flows.entry(event.id.expect("a flow has a number")).or_default().push(event);
        }
        for flow in flows.values() {
            let kinds: Vec<&str> = flow.iter().map(|event| event.ph).collect();
            assert!(kinds == ["s", "f"] || kinds == ["f", "s"], "seed {seed}: {flow:?}");
            assert_eq!((&flow[0].name, flow[0].cat), (&flow[1].name, flow[1].cat));
            assert_ne!(flow[0].pid, flow[1].pid);
        }
        let sends = plan.programs.iter().flat_map(|program| &program.instrs);
        let sends = sends.filter(|instr| matches!(instr.action, Action::Send { .. })).count();
        assert_eq!(flows.len(), sends, "seed {seed}");
    }
}

#[test]
fn blocks_cover_the_time_of_every_rank_and_carry_the_bytes_of_the_plan() {
    for seed in 0..40 {
        let (plan, trace) = step(seed);
        let order = order::derive(&plan);
        let sent = |rank: Rank| -> Bytes {
            let instrs = plan.programs[rank.index()].instrs.iter();
            let bytes = instrs.map(|instr| match instr.action {
                Action::Send { view, .. } => plan.view_bytes(view),
                _ => Bytes(0),
            });
            bytes.sum()
        };
        for detail in [Detail::Blocks, Detail::Instructions] {
            let rows = rows(&plan, &order, &trace, detail);
            for rank in plan.mesh.ranks() {
                let mine: Vec<_> = rows.iter().filter(|row| row.rank == rank).collect();
                let bytes: Bytes = mine.iter().map(|row| row.bytes).sum();
                assert_eq!(bytes, sent(rank), "seed {seed}, rank {rank}, {detail:?}");
                if detail == Detail::Blocks {
                    let mut at = Nanos(0);
                    for row in mine {
                        assert_eq!(row.start_ns, at, "seed {seed}, rank {rank}");
                        assert_eq!(row.phase == "wait", row.cause.is_some());
                        at = row.end_ns;
                    }
                    assert_eq!(at, trace.end(), "seed {seed}, rank {rank}");
                }
            }
            let columns = 13;
            let table = csv::table(&rows, trace.clock);
            assert_eq!(table.lines().count(), rows.len() + 1);
            assert_eq!(table.lines().next().map(|line| line.split(',').count()), Some(columns));
            assert_eq!(jsonl::lines(&rows, trace.clock).lines().count(), rows.len());
        }
    }
}

#[test]
fn a_recording_survives_being_written_and_read_and_says_what_does_not_fit() {
    let (plan, trace) = step(3);
    let recording = Recording::of("drawn", vec!["cpu".into()], &plan);
    let recording = Recording { replayed: Some(trace), ..recording };
    let text = serde_json::to_string(&recording).expect("it is JSON");
    let read: Recording = serde_json::from_str(&text).expect("it is a recording");
    assert_eq!(read.fault(), None);
    assert_eq!(
        Recording { instructions: recording.instructions.clone(), ..read.clone() },
        recording
    );
    let other = Recording { plan: step(4).0, ..read.clone() };
    assert!(other.fault().is_some());
    assert!(Recording { schema: 2, ..read }.fault().is_some_and(|why| why.contains("schema 2")));
}
