//! Holds the schedules against `PyTorch`'s own tables and the textbook's numbers.

use super::csv::parse;
use super::gpipe::gpipe;
use super::one_f_one_b::one_f_one_b;
use super::unit_time::{in_flight_peaks, unit_times};
use super::*;

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

/// Forward 1, full backward 2, as in the textbook; halves of a backward 1 each.
fn textbook(act: Act) -> u64 {
    if act.pass == Pass::B { 2 } else { 1 }
}

fn messages(schedule: &Schedule, stages: u32, microbatches: u32) -> Vec<String> {
    schedule.check(stages, microbatches).iter().map(ToString::to_string).collect()
}

#[test]
fn gpipe_and_1f1b_equal_pytorchs_cell_by_cell() {
    assert_eq!(gpipe(4, 6), read("GPipe-pp4-v1-mb6"));
    assert_eq!(gpipe(3, 3), read("GPipe-pp3-v1-mb3"));
    assert_eq!(one_f_one_b(4, 8), read("1F1B-pp4-v1-mb8"));
    assert_eq!(one_f_one_b(2, 7), read("1F1B-pp2-v1-mb7"));
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
    let schedule = read("Interleaved1F1B-pp4-v2-mb8");
    let times = unit_times(&schedule, textbook).unwrap();
    assert_eq!((times.span, in_flight_peaks(&schedule)[0]), (57, 11));
    assert_eq!(times.waiting * 2 * 8, (4 - 1) * times.busy);
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
