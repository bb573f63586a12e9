//! Goal: exported steps are what other programs expect. Method: layouts drawn at random with
//! durations drawn at random; slices of a thread never overlap, every message is one flow whose ends
//! lie inside slices, blocks cover all time, and bytes are those of the Plan.

use std::collections::BTreeMap;

use shardlab::ledger::ByRole;
use shardlab::mesh::Rank;
use shardlab::plan::{Action, Plan, order};
use shardlab::planner::plan_step;
use shardlab::sim::{Links, replay};
use shardlab::trace::export::kineto::{Event, Kineto, Micros, Size};
use shardlab::trace::export::rows::{Detail, rows};
use shardlab::trace::export::{Recording, csv, jsonl};
use shardlab::trace::{Span, Trace};
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

/// A step's live memory, made up: it changes at every instruction.
fn memory(plan: &Plan) -> Vec<Vec<ByRole>> {
    let counts = plan.programs.iter().map(|program| program.instrs.len() as u64);
    let live = |at| ByRole::new([at, 1, 2, 3, 4].map(Bytes));
    counts.map(|count| (0..count).map(live).collect()).collect()
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<Size>) -> (Size, String) {
    let mut bytes = Vec::new();
    let size = write(&mut bytes).expect("memory takes everything");
    (size, String::from_utf8(bytes).expect("JSON is text"))
}

#[test]
fn a_part_of_a_step_holds_what_runs_in_it_and_whole_messages() {
    for seed in 0..40 {
        let (plan, trace) = step(seed);
        let memory = memory(&plan);
        let end = trace.end().0;
        let window = Span { start: Nanos(end / 3), end: Nanos(end / 2) };
        let kineto = || Kineto::new(&plan, &trace, &[], &memory);
        let (whole, part) = (kineto(), kineto().within(Some(window)));
        for rank in plan.mesh.ranks() {
            let slices = |kineto: &Kineto<'_>| -> Vec<Event> {
                let events = kineto.events(rank).into_iter();
                events
                    .filter(|event| event.ph == "X" && event.cat != Some("user_annotation"))
                    .collect()
            };
            let runs = |event: &Event| {
                let (Micros(start), Micros(length)) = (event.ts, event.dur.unwrap());
                start < window.end && (start + length > window.start || start == window.start)
            };
            let expected: Vec<Event> = slices(&whole).into_iter().filter(runs).collect();
            assert_eq!(slices(&part), expected, "seed {seed}, rank {rank}");
            let counters: Vec<Event> =
                part.events(rank).into_iter().filter(|event| event.ph == "C").collect();
            assert!(counters.is_sorted_by_key(|event| event.ts), "seed {seed}, rank {rank}");
            let inside = |event: &Event| window.start <= event.ts.0 && event.ts.0 < window.end;
            assert!(counters.iter().all(inside), "seed {seed}, rank {rank}");
        }
        // Both ends of a flow, or none, and the mark of the step around all slices.
        let all: Vec<Event> = plan.mesh.ranks().flat_map(|rank| part.events(rank)).collect();
        let mut flows: BTreeMap<u64, u32> = BTreeMap::new();
        all.iter().filter_map(|event| event.id).for_each(|id| *flows.entry(id).or_default() += 1);
        assert!(flows.values().all(|&ends| ends == 2), "seed {seed}");
        let mark = all.iter().find(|event| event.cat == Some("user_annotation")).unwrap();
        let mark = (mark.ts.0, mark.ts.0 + mark.dur.unwrap().0);
        for event in all.iter().filter(|event| event.ph == "X") {
            let (start, length) = (event.ts.0, event.dur.unwrap().0);
            assert!(mark.0 <= start && start + length <= mark.1, "seed {seed}: {event:?}");
        }
    }
}

#[test]
fn the_size_of_a_trace_is_known_before_it_is_written() {
    for seed in 0..40 {
        let (plan, trace) = step(seed);
        let memory = memory(&plan);
        let end = trace.end().0;
        for window in [None, Some(Span { start: Nanos(end / 4), end: Nanos(end / 2) })] {
            let kineto = Kineto::new(&plan, &trace, &[], &memory).within(window);
            let (size, text) = written(|out| kineto.write_all(out));
            assert_eq!(size.bytes, Bytes(text.len() as u64));
            let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
            assert_eq!(json["traceEvents"].as_array().map(Vec::len), Some(size.events as usize));
            let about = kineto.estimate();
            let near = |about: u64, exact: u64| about.abs_diff(exact) * 10 <= exact;
            let is_near = near(about.events, size.events) && near(about.bytes.0, size.bytes.0);
            assert!(is_near, "seed {seed}: {about}, it is {size}");
        }
    }
}

/// As many events as make the viewers of the field stay blank, in one file.
#[test]
fn two_million_events_are_estimated_and_a_part_of_them_is_small() {
    let (mut plan, mut trace) = step(3);
    let long = trace.end();
    let (program, spans) = (plan.programs[0].instrs.clone(), trace.spans[0].clone());
    let times = 2_000_000 / program.len() as u64;
    let launches = |index: &usize| {
        !matches!(program[*index].action, Action::Send { .. } | Action::Recv { .. })
    };
    let kept: Vec<usize> = (0..program.len()).filter(launches).collect();
    plan.programs[0].instrs.clear();
    trace.spans[0].clear();
    for time in 0..times * program.len() as u64 / kept.len() as u64 {
        let at = |span: Span| Span { start: span.start + long * time, end: span.end + long * time };
        plan.programs[0].instrs.extend(kept.iter().map(|&index| program[index].clone()));
        trace.spans[0].extend(kept.iter().map(|&index| at(spans[index])));
    }
    let kineto = || Kineto::new(&plan, &trace, &[], &[]);
    let about = kineto().estimate();
    assert!(about.is_too_large() && about.events > 1_900_000, "{about}");
    let part = kineto().within(Some(Span { start: long * 1000, end: long * 1010 }));
    assert!(!part.estimate().is_too_large());
    let (size, _) = written(|out| part.write_all(out));
    assert!(size.events > 10 * kept.len() as u64 && !size.is_too_large(), "{size}");
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
