//! Holds the schedules against `PyTorch`'s own tables and the textbook's numbers.

use super::csv::parse;
use super::explain::{Explanation, Formula, textbook};
use super::gpipe::gpipe;
use super::interleaved_1f1b::interleaved_1f1b;
use super::named::{Held, held, named, splits_backward};
use super::one_f_one_b::one_f_one_b;
use super::unit_time::{in_flight_peaks, pairs_can_overlap, unit_times};
use super::*;
use crate::config::ScheduleName;
use crate::config::schedule::Stages;

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../tests/schedules/", $name, ".csv")))
    };
}

/// (name, text), stages, microbatches.
const WHOLE: [((&str, &str), u32, u32); 10] = [
    (file!("1F1B-pp2-v1-mb7"), 2, 7),
    (file!("1F1B-pp4-v1-mb8"), 4, 8),
    (file!("DualPipeV-pp4-v2-mb8"), 8, 8),
    (file!("GPipe-pp3-v1-mb3"), 3, 3),
    (file!("GPipe-pp4-v1-mb6"), 4, 6),
    (file!("Interleaved1F1B-pp2-v3-mb4"), 6, 4),
    (file!("Interleaved1F1B-pp4-v2-mb8"), 8, 8),
    (file!("InterleavedZeroBubble-pp4-v2-mb8"), 8, 8),
    (file!("LoopedBFS-pp4-v2-mb8"), 8, 8),
    (file!("ZBVZeroBubble-pp4-v2-mb8"), 8, 8),
];

fn read(name: &str) -> Schedule {
    let ((_, text), ..) = WHOLE.into_iter().find(|((file, _), ..)| *file == name).unwrap();
    parse(text).unwrap()
}

fn messages(schedule: &Schedule, stages: u32, microbatches: u32) -> Vec<String> {
    schedule.check(stages, microbatches).iter().map(ToString::to_string).collect()
}

#[test]
fn every_schedule_equals_pytorchs_cell_by_cell() {
    for ((file, text), stages, microbatches) in WHOLE {
        let table = parse(text).unwrap();
        let positions = table.rows.len() as u32;
        let class = file.split('-').next().unwrap();
        let name = if class == "ZBVZeroBubble" { "ZB-V" } else { class };
        let name: ScheduleName = name.parse().unwrap();
        let ours = named(&name, positions, stages / positions, microbatches).unwrap();
        assert_eq!(ours, table, "{file}");
        assert_eq!(table.known(), Some(name), "{file}");
    }
}

/// Stages a position that a test tries.
fn chunk_counts(name: &ScheduleName) -> &'static [u32] {
    match name.stages() {
        Stages::One => &[1],
        Stages::V => &[2],
        Stages::Loop | Stages::Given => &[1, 2, 3],
    }
}

/// Every named schedule with small numbers of positions, chunks and microbatches.
fn all_small() -> impl Iterator<Item = (ScheduleName, [u32; 3])> {
    ScheduleName::NAMED.into_iter().flat_map(|name| {
        let sizes = (1..=5).flat_map(move |positions| {
            let chunks = chunk_counts(&name).iter();
            let sizes = chunks.flat_map(move |&v| (1..=12).map(move |m| [positions, v, m]));
            let name = name.clone();
            sizes.map(move |sizes| (name.clone(), sizes))
        });
        sizes.collect::<Vec<_>>()
    })
}

#[test]
fn what_positions_hold_is_known_without_the_table() {
    for (name, [positions, chunks, microbatches]) in all_small() {
        let table = named(&name, positions, chunks, microbatches).unwrap();
        let context = format!("{name}: {positions} positions, {chunks} chunks, {microbatches}");
        let known = held(&name, positions, chunks, microbatches).unwrap();
        assert_eq!(known, Held::of(&table), "{context}");
        let has_weights =
            (0..table.rows.len()).flat_map(|row| table.acts(row)).any(|act| act.pass == Pass::W);
        let splits = splits_backward(&name).unwrap();
        // A single position may have nothing to wait for, and so nothing to split.
        assert!(splits == has_weights || (splits && positions == 1), "{context}");
    }
}

#[test]
fn every_schedule_is_right_for_any_positions_chunks_and_microbatches() {
    for (name, [positions, chunks, microbatches]) in all_small() {
        let context = format!("{name}, p {positions}, v {chunks}, m {microbatches}");
        let schedule = named(&name, positions, chunks, microbatches).unwrap();
        assert_eq!(schedule.check(positions * chunks, microbatches), [], "{context}");
        assert_eq!(schedule.stage_count(), positions * chunks, "{context}");
        assert_eq!(schedule.microbatch_count(), microbatches, "{context}");
        assert!(pairs_can_overlap(&schedule), "{context}");
        let known = schedule.known().unwrap();
        assert_eq!(named(&known, positions, chunks, microbatches).unwrap(), schedule, "{context}");
        for stage in 0..positions * chunks {
            let row = schedule.owner(stage).unwrap();
            let weights = schedule.acts(row as usize).filter(|act| act.stage == stage);
            let weights = weights.filter(|act| matches!(act.pass, Pass::B | Pass::W));
            let order: Vec<u32> = weights.map(|act| act.microbatch).collect();
            let ascends = order.is_sorted();
            assert_eq!(ascends, name != ScheduleName::LoopedBfs || microbatches == 1, "{context}");
            let expected = match name.stages() {
                Stages::V if stage >= positions => 2 * positions - 1 - stage,
                _ => stage % positions,
            };
            assert_eq!(row, expected, "{context}");
        }
    }
}

#[test]
fn formulas_are_exact_wherever_they_are_given() {
    let mut given = 0;
    for (name, [positions, chunks, microbatches]) in all_small() {
        let formula = Formula::of(&name, positions, chunks, microbatches);
        let fills = microbatches >= 2 * positions;
        assert!(formula.is_some() || !fills, "{name}: a filled pipeline has a formula");
        let Some(formula) = formula else { continue };
        let schedule = named(&name, positions, chunks, microbatches).unwrap();
        let Explanation { times, ideal, .. } = schedule.explain().unwrap();
        let context = format!("{name}, p {positions}, v {chunks}, m {microbatches}");
        // In whole numbers: waiting / ideal = formula.
        assert_eq!(times.waiting * formula.work, formula.waiting * times.busy, "{context}");
        assert_eq!(ideal * u64::from(positions), times.busy, "{context}");
        assert_eq!(times.waiting_over_span(), formula.waiting_over_span(), "{context}");
        assert_eq!(times.waiting_over_ideal(), formula.waiting_over_ideal(), "{context}");
        given += 1;
    }
    assert!(given > 500, "{given} formulas were held");
}

#[test]
fn every_table_of_pytorch_parses_round_trips_and_is_right() {
    for ((name, text), stages, microbatches) in WHOLE {
        let schedule = parse(text).unwrap();
        assert_eq!(schedule.check(stages, microbatches), [], "{name}");
        assert_eq!(schedule.stage_count(), stages, "{name}");
        let printed = schedule.to_string();
        assert_eq!(parse(&printed).unwrap(), schedule, "{name}");
        // What is printed is the file without what is dropped.
        let kept = |line: &str| {
            let cells = line.split(',').filter(|cell| !cell.contains("REDUCE_GRAD"));
            cells.collect::<Vec<_>>().join(",") + "\n"
        };
        assert_eq!(printed, text.lines().map(kept).collect::<String>(), "{name}");
    }
}

#[test]
fn broken_tables_are_refused_naming_stage_missing_and_unknown_microbatch() {
    let (_, text) = file!("broken-1F1B-pp2-v1-mb7");
    assert_eq!(
        messages(&parse(text).unwrap(), 2, 7),
        ["stage 1: microbatch 0 is missing its forward; microbatch 7 does not exist \
          (7 microbatches: 0–6)"]
    );
    let (_, text) = file!("broken-1F1B-pp4-v1-mb8");
    assert_eq!(
        messages(&parse(text).unwrap(), 4, 8),
        ["stage 3: microbatch 0 is missing its forward; microbatch 8 does not exist \
          (8 microbatches: 0–7)"]
    );
}

#[test]
fn gpipe_and_1f1b_take_the_textbooks_time_and_memory() {
    for (positions, microbatches, span) in
        [(2, 4, 15), (4, 4, 21), (4, 8, 33), (4, 16, 57), (8, 8, 45), (8, 16, 69)]
    {
        let descending: Vec<u32> = (1..=positions).rev().collect();
        for (schedule, peaks) in [
            (gpipe(positions, microbatches), vec![microbatches; positions as usize]),
            (one_f_one_b(positions, microbatches), descending),
        ] {
            assert_eq!(schedule.check(positions, microbatches), []);
            let times = unit_times(&schedule, textbook).unwrap();
            let (p, m) = (u64::from(positions), u64::from(microbatches));
            assert_eq!(times.span, span);
            // waiting/span = (p−1)/(m+p−1) and waiting/ideal = (p−1)/m, in whole numbers.
            assert_eq!(times.waiting * (m + p - 1), (p - 1) * (times.waiting + times.busy));
            assert_eq!(times.waiting * m, (p - 1) * times.busy);
            assert_eq!(times.waiting_over_span(), (p - 1) as f64 / (m + p - 1) as f64);
            assert_eq!(times.waiting_over_ideal(), (p - 1) as f64 / m as f64);
            assert_eq!(in_flight_peaks(&schedule), peaks);
        }
    }
}

#[test]
fn the_slowest_of_unequal_stages_rules() {
    let weight = [1, 1, 2, 1];
    let time = |act: Act| weight[act.stage as usize] * textbook(act);
    assert_eq!(unit_times(&one_f_one_b(4, 8), time).unwrap().span, 55);
}

#[test]
fn interleaving_shrinks_the_bubble_and_keeps_more() {
    for ([p, v, m], span, kept) in [
        ([2, 2, 4], 27, 5),
        ([4, 2, 4], 33, 8),
        ([4, 2, 8], 57, 11),
        ([4, 2, 16], 105, 11),
        ([4, 4, 8], 105, 19),
        ([8, 2, 16], 117, 23),
    ] {
        let schedule = interleaved_1f1b(p, v, m);
        let times = unit_times(&schedule, textbook).unwrap();
        assert_eq!((times.span, in_flight_peaks(&schedule)[0]), (span, kept), "{p} {v} {m}");
        // waiting/ideal = (p−1)/(v·m), in whole numbers.
        assert_eq!(times.waiting * u64::from(v * m), u64::from(p - 1) * times.busy);
    }
}

#[test]
fn a_remainder_of_microbatches_makes_no_hole_in_the_middle() {
    for (p, m) in [(4, 6), (4, 7), (4, 11), (3, 10), (5, 13)] {
        for v in [2, 3] {
            let times = unit_times(&interleaved_1f1b(p, v, m), textbook).unwrap();
            assert_eq!(times.span, u64::from(3 * (v * m + p - 1)), "{p} {v} {m}");
        }
    }
    // Two groups, of six and five: no group is smaller than the pipeline is long.
    let last = interleaved_1f1b(4, 2, 11).to_string();
    assert!(last.lines().last().unwrap().starts_with("3F0,3F1,3F2,3F3,3F4,3F5,7F0,7B0"), "{last}");
}

#[test]
fn zero_bubble_schedules_take_the_published_time_and_memory() {
    for p in 2..=8 {
        for m in [2 * p, 2 * p + 3, 4 * p] {
            let explained = |name| named(&name, p, 1, m).unwrap().explain().unwrap();
            let whole = explained(ScheduleName::OneFOneB);
            let (h1, h2) = (explained(ScheduleName::ZbH1), explained(ScheduleName::ZbH2));
            let (p, m) = (u64::from(p), u64::from(m));
            // Bubbles of the paper, F = I = W = 1: (p−1)(F+I+W), (p−1)(F+I−W), (p−1)(F+I−2W); the
            // last one is what is left inside rows, for a synchronous step also waits for its skew.
            assert_eq!(whole.times.span - whole.ideal, 3 * (p - 1));
            assert_eq!(h1.times.span - h1.ideal, p - 1);
            assert_eq!(h2.times.waiting_inside(), 0);
            assert_eq!([h1.times.span, h2.times.span], [3 * m + p - 1; 2]);
            // Activations: p and 2p−1 microbatches, on all positions alike.
            assert!(h1.row_peaks.iter().all(|&peak| u64::from(peak) == p));
            assert!(h2.row_peaks.iter().all(|&peak| u64::from(peak) == 2 * p - 1));
        }
    }
    // The share of ZB-H1, and its bubble as a part of that of 1F1B.
    let h1 = named(&ScheduleName::ZbH1, 4, 1, 8).unwrap().explain().unwrap();
    assert_eq!((h1.times.span, h1.times.waiting), (27, 4 * 3));
}

#[test]
fn schedules_in_a_v_take_the_published_time_and_memory() {
    for p in 2..=8 {
        for m in [2 * p, 2 * p + 1, 4 * p] {
            let explained = |name| named(&name, p, 2, m).unwrap().explain().unwrap();
            let (zb_v, dual) = (explained(ScheduleName::ZbV), explained(ScheduleName::DualPipeV));
            let p64 = u64::from(p);
            // No hole inside a row, in the memory of 1F1B: p microbatches of two halves.
            assert_eq!(zb_v.times.waiting_inside(), 0);
            assert!(zb_v.row_peaks.iter().all(|&peak| peak == 2 * p));
            // DualPipe: (PP/2−1)(F&B + B − 3W) of PP = 2p stages, F&B = 3; activations PP + 1.
            assert_eq!(dual.times.span - dual.ideal, (p64 - 1) * (3 + 2 - 3));
            assert!(dual.row_peaks.iter().all(|&peak| peak == 2 * p + 1));
            let descending: Vec<u32> = (1..=2 * p).rev().collect();
            assert_eq!([&zb_v.stage_peaks, &dual.stage_peaks], [&descending, &descending]);
        }
    }
}

#[test]
fn another_order_is_no_known_schedule() {
    let mut schedule = named(&ScheduleName::ZbH1, 3, 1, 5).unwrap();
    let cells = schedule.rows[2].len();
    schedule.rows[2].swap(cells - 2, cells - 1);
    assert_eq!(schedule.check(3, 5), []);
    let explained = schedule.explain().unwrap();
    assert_eq!((explained.known, explained.formula), (None, None));
    // Numbers out of all proportion are looked at no further.
    assert_eq!(parse("4294967294F4294967294").unwrap().known(), None);
    assert_eq!(parse("").unwrap().known(), None);
}

#[test]
fn a_microbatch_is_not_paired_with_itself() {
    let itself = parse("(0F0;0B0)OVERLAP_F_B,0F1,0B1").unwrap();
    assert_eq!(
        messages(&itself, 1, 2),
        [
            "row 0: (0F0;0B0)OVERLAP_F_B pairs microbatch 0 with itself: its passes need one another. \
          Pair two microbatches"
        ]
    );
}

#[test]
fn pairs_that_would_wait_for_each_other_run_in_turn() {
    // Row 1 runs 1F1 before 1B0, so the backward of the pair needs its forward.
    let crossed = parse("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1").unwrap();
    assert_eq!(messages(&crossed, 2, 2), Vec::<String>::new());
    assert!(!pairs_can_overlap(&crossed));
    let times = unit_times(&crossed, textbook).unwrap();
    assert_eq!(times.rows[0], [0..1, 1..7, 7..9]);
    assert_eq!((times.span, times.busy), (9, 12));
}

#[test]
fn rows_that_keep_more_than_fits_are_named_with_need_and_have() {
    let words = |schedule: Schedule, have| -> Vec<String> {
        schedule.check_activations(have).iter().map(ToString::to_string).collect()
    };
    let fixes = "Use a schedule that keeps fewer, more microbatches of fewer rows, or recompute";
    assert_eq!(
        words(one_f_one_b(4, 8), 3),
        [format!("row 0 keeps 4 microbatches of stage 0 at once, but 3 fit. {fixes}")]
    );
    assert_eq!(
        words(named(&ScheduleName::ZbV, 2, 2, 4).unwrap(), 3)[1],
        format!("row 1 keeps 2 microbatches of stage 1, 2 of stage 2 at once, but 3 fit. {fixes}")
    );
    assert_eq!(words(one_f_one_b(4, 8), 4), Vec::<String>::new());
}

#[test]
fn fewer_microbatches_than_stages_and_odd_sizes_are_right() {
    for positions in 1..=6 {
        for microbatches in 1..=7 {
            for schedule in [gpipe(positions, microbatches), one_f_one_b(positions, microbatches)] {
                assert_eq!(schedule.check(positions, microbatches), []);
                let times = unit_times(&schedule, textbook).unwrap();
                assert_eq!(times.span, u64::from(3 * (microbatches + positions - 1)));
            }
        }
    }
}

#[test]
fn cells_run_one_after_another_and_after_what_they_need() {
    let times = unit_times(&one_f_one_b(2, 2), textbook).unwrap();
    assert_eq!(times.rows, [[0..1, 1..2, 4..6, 7..9], [1..2, 2..4, 4..5, 5..7]]);
}

#[test]
fn stages_are_owned_by_one_row() {
    let schedule = read("ZBVZeroBubble-pp4-v2-mb8");
    let owners: Vec<_> = (0..9).map(|stage| schedule.owner(stage)).collect();
    assert_eq!(owners[..8], [0, 1, 2, 3, 3, 2, 1, 0].map(Some));
    assert_eq!(owners[8], None);

    let twice = parse("0F0,0B0,1F0,1B0\n1F0,1B0\n\n4F0").unwrap();
    assert_eq!(
        messages(&twice, 3, 1),
        [
            "row 2 runs nothing: give it a stage, or use fewer pipeline positions",
            "stage 2 is in no row: each of the 3 stages must be in exactly one",
            "stage 1 is in rows 0–1: its weights can only be in one",
            "stage 1: microbatch 0 runs forward again; microbatch 0 runs backward again",
            "row 3: stage 4 does not exist (3 stages: 0–2)",
        ]
    );
}

#[test]
fn halves_of_a_backward_are_counted() {
    let schedule = parse("0F0,0F1,0F2,0F3,0F3,0I0,0W1,0B2,0I2,0I3,0W3").unwrap();
    assert_eq!(
        messages(&schedule, 1, 5),
        ["stage 0: microbatch 4 is missing its forward; microbatch 4 is missing its backward; \
          microbatch 1 is missing its input gradient (I); microbatch 0 is missing its weight \
          gradient (W); microbatch 3 runs forward again; microbatch 2 runs backward again"]
    );
    assert_eq!(messages(&parse("0F0,0I0,0W0").unwrap(), 1, 1), Vec::<String>::new());
}

#[test]
fn rows_that_wait_for_one_another_are_named() {
    assert_eq!(
        messages(&parse("0B0,0F0\n1F0,1B0").unwrap(), 2, 1),
        ["rows wait for one another: row 0 stands at 0B0 for 0F0, which comes later in row 0"]
    );
    let crossed = parse("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0").unwrap();
    assert_eq!(
        messages(&crossed, 2, 2),
        ["rows wait for one another: row 0 stands at 0B0 for 1B0, which comes later in row 1; \
          row 1 stands at 1F1 for 0F1, which comes later in row 0"]
    );
    assert_eq!(unit_times(&crossed, textbook), None);
    assert_eq!(
        messages(&parse("0F0,0W0,0I0").unwrap(), 1, 1),
        ["rows wait for one another: row 0 stands at 0W0 for 0I0, which comes later in row 0"]
    );
}

#[test]
fn what_is_not_a_pass_is_dropped() {
    let text = "\u{feff}0UNSHARD, 0F0 ,0SEND_F0,,2RECV_B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,\r\n\
                3RESHARD,1F0,1B0,1RECV_F0,1SEND_B0\r\n\r\n";
    assert_eq!(parse(text).unwrap(), gpipe(2, 1));
}

#[test]
fn bad_cells_are_all_named_with_row_cell_and_what_is_expected() {
    let error = parse("0F0,F0,0F\n0B0,0G0,(0F0)OVERLAP_F_B,0F4294967296,0F0x").unwrap_err();
    let places: Vec<_> = error.0.iter().map(|bad| (bad.row, bad.cell, bad.text.as_str())).collect();
    assert_eq!(
        places,
        [
            (0, 1, "F0"),
            (0, 2, "0F"),
            (1, 1, "0G0"),
            (1, 2, "(0F0)OVERLAP_F_B"),
            (1, 3, "0F4294967296"),
            (1, 4, "0F0x"),
        ]
    );
    assert!(error.to_string().lines().all(|line| line.contains("expected stage, pass")));
}

#[test]
fn messages_of_a_file_that_would_wait_for_one_another_are_told() {
    use super::messages::waits;
    assert_eq!(
        waits("0SEND_F2,2RECV_B0\n3SEND_B0,1RECV_F2"),
        [
            "row 0 stands at 0SEND_F2 for 1RECV_F2, which comes later in row 1",
            "row 1 stands at 3SEND_B0 for 2RECV_B0, which comes later in row 0",
        ]
    );
    // The same with one row receiving first, idle cells and passes between.
    let sound = "0F2,0SEND_F2,,2RECV_B0\n1RECV_F2,1F2,3B0,3SEND_B0,3REDUCE_GRAD\n";
    assert_eq!(waits(sound), Vec::<String>::new());
    let alone = waits("0SEND_F0\n1F0");
    assert_eq!(alone, ["row 0 stands at 0SEND_F0 for 1RECV_F0, which is in no row"]);
    for ((name, text), ..) in WHOLE {
        assert_eq!(waits(text), Vec::<String>::new(), "{name} has no messages");
    }
}
