//! Blocks of small Plans with known times: which there are, that they cover every nanosecond, and
//! what each wait is for.

use expect_test::expect;

use super::super::sketch::{Sketch, collective, one_f_one_b, pass};
use super::super::{Work, block_at, shortest_forward};
use super::*;
use crate::mesh::{Axis, Mesh, RankOrder};
use crate::plan::{CollectiveKind, Origin, Phase};

fn mesh(dp: u32, tp: u32, pp: u32) -> Mesh {
    Mesh { dp, tp, pp, order: RankOrder::TpDpPp }
}

fn blocks_of(sketch: &Sketch) -> Vec<Vec<Block>> {
    let (order, trace) = sketch.replay();
    let rows = blocks(&sketch.plan, &order, &trace);
    for row in &rows {
        assert_covers(row, trace.end());
    }
    rows
}

/// Every instant lies in exactly one block, and notches lie inside theirs.
fn assert_covers(row: &[Block], end: Nanos) {
    let mut at = Nanos(0);
    for block in row {
        assert_eq!(block.start, at, "no hole and no overlap before {block}");
        assert!(block.start < block.end, "{block} takes time");
        for inner in [&block.notches, &block.recompute] {
            assert!(inner.windows(2).all(|pair| pair[0].end <= pair[1].start), "{inner:?}");
            assert!(inner.iter().all(|i| block.start <= i.start && i.end <= block.end));
        }
        at = block.end;
    }
    assert_eq!(at, end, "the row ends with the step");
    let sum: Nanos = row.iter().map(|block| block.busy() + block.waiting()).sum();
    assert_eq!(sum, end, "busy + waiting = step");
}

/// A rank: `0–1 F0 │ 2–4 waits for B0 from rank 4`.
fn text(rows: &[Vec<Block>]) -> String {
    let block = |block: &Block| {
        let what = match block.kind {
            BlockKind::Work(_) => block.to_string(),
            BlockKind::Waiting(cause) => cause.to_string(),
        };
        let inner = |name: &str, spans: &[Span]| {
            let times = spans.iter().map(|span| format!("{}–{}", span.start.0, span.end.0));
            let times: Vec<String> = times.collect();
            if times.is_empty() { String::new() } else { format!(" ({name} {})", times.join(" ")) }
        };
        let (notches, again) = (inner("waits", &block.notches), inner("R", &block.recompute));
        format!("{}–{} {what}{notches}{again}", block.start.0, block.end.0)
    };
    let mut text = String::new();
    for row in rows {
        let mut width = 0;
        for block in row.iter().map(block) {
            // Blocks go on below where a line is full.
            let gap = match width {
                0 => "",
                1..60 => " │ ",
                _ => "\n  ",
            };
            width = if gap == "\n  " { 1 } else { width } + block.chars().count();
            text += &format!("{gap}{block}");
        }
        text += "\n";
    }
    text
}

#[test]
fn one_f_one_b_is_the_textbook_picture() {
    let rows = blocks_of(&one_f_one_b(mesh(1, 1, 2), 4, 1));
    expect![[r#"
        0–1 F0 │ 1–2 F1 │ 2–4 waits for B0 from rank 1 │ 4–6 B0 │ 6–7 F2 │ 7–9 B1 │ 9–10 F3
          10–12 B2 │ 12–13 waits for B3 from rank 1 │ 13–15 B3 │ 15–16 RS │ 16–17 O
          17–18 AG
        0–1 waits for F0 from rank 0 │ 1–2 F0 │ 2–4 B0 │ 4–5 F1 │ 5–7 B1 │ 7–8 F2 │ 8–10 B2
          10–11 F3 │ 11–13 B3 │ 13–14 RS │ 14–15 O │ 15–16 AG │ 16–18 is done with this step
    "#]]
    .assert_eq(&text(&rows));
    assert_eq!(shortest_forward(rows.iter().flatten()), Some(Nanos(1)));
    // Waiting of one rank over its passes is the formula (p − 1) / (m + p − 1) = 1/5.
    let waiting: Nanos =
        rows[0].iter().filter(|b| b.end.0 <= 15).map(|block| block.waiting()).sum();
    assert_eq!(waiting.0 * 5, 15);
}

#[test]
fn every_nanosecond_is_covered_in_deep_and_wide_meshes() {
    for (at, microbatches) in [(mesh(2, 2, 2), 4), (mesh(4, 4, 4), 8), (mesh(1, 1, 7), 3)] {
        // An odd unit, so that halves and thirds do not come out even.
        let rows = blocks_of(&one_f_one_b(at, microbatches, 7_919));
        assert_eq!(rows.len(), at.size() as usize);
        for row in &rows {
            let passes = row.iter().filter(|block| block.work().is_some_and(Work::is_pass));
            assert_eq!(passes.count() as u32, 2 * microbatches, "one block a cell");
        }
    }
}

#[test]
fn waits_for_tensor_ranks_are_notches_and_count_as_waiting() {
    // Each of two tensor ranks computes 3, exchanges 2 and computes 4, for two microbatches.
    let mut sketch = Sketch::new(mesh(1, 2, 1));
    for (me, other) in [(Rank(0), Rank(1)), (Rank(1), Rank(0))] {
        for microbatch in 0..2 {
            let origin = pass(Phase::Forward, 0, microbatch);
            let [mine, theirs] = [me, other].map(|rank| format!("half{microbatch}.{rank}"));
            let whole = format!("whole{microbatch}");
            sketch.launch((me, Lane::Compute), origin, 3, &[], &mine);
            sketch.send((me, other), Axis::Tp, origin, 2, &mine);
            sketch.recv((me, other), Axis::Tp, origin, 2, &theirs);
            sketch.launch((me, Lane::Compute), origin, 4, &[&mine, &theirs], &whole);
        }
    }
    let rows = blocks_of(&sketch);
    expect![[r#"
        0–9 F0 (waits 3–5) │ 9–18 F1 (waits 12–14)
        0–9 F0 (waits 3–5) │ 9–18 F1 (waits 12–14)
    "#]]
    .assert_eq(&text(&rows));
    assert_eq!((rows[0][0].busy(), rows[0][0].waiting()), (Nanos(7), Nanos(2)));
}

#[test]
fn recompute_belongs_to_its_backward_unless_the_gradient_is_still_missing() {
    let mut sketch = Sketch::new(mesh(1, 1, 2));
    let (first, last) = (Rank(0), Rank(1));
    let forward = pass(Phase::Forward, 0, 0);
    sketch.launch((first, Lane::Compute), forward, 2, &[], "x");
    sketch.send((first, last), Axis::Pp, forward, 1, "x");
    let theirs = pass(Phase::Backward, 1, 0);
    sketch.recv((first, last), Axis::Pp, theirs, 1, "d_x");
    let [again, back] = [Phase::Recompute, Phase::Backward].map(|phase| pass(phase, 0, 0));
    sketch.launch((first, Lane::Compute), again, 2, &["x"], "kept");
    sketch.launch((first, Lane::Compute), back, 4, &["kept", "d_x"], "d_1");
    sketch.launch((first, Lane::Compute), again, 2, &["x"], "kept_0");
    sketch.launch((first, Lane::Compute), back, 4, &["kept_0", "d_1"], "d_0");

    sketch.recv((last, first), Axis::Pp, forward, 1, "x");
    let [f, r, b] = [Phase::Forward, Phase::Recompute, Phase::Backward].map(|p| pass(p, 1, 0));
    sketch.launch((last, Lane::Compute), f, 2, &["x"], "y");
    sketch.launch((last, Lane::Compute), r, 2, &["y"], "kept");
    sketch.launch((last, Lane::Compute), b, 4, &["kept"], "d_x");
    sketch.send((last, first), Axis::Pp, b, 1, "d_x");
    let rows = blocks_of(&sketch);
    expect![[r#"
        0–2 F0 │ 2–4 R0 │ 4–12 waits for B0 from rank 1 │ 12–22 B0 (R 16–18)
        0–3 waits for F0 from rank 0 │ 3–5 F0 │ 5–11 B0 (R 5–7) │ 11–22 is done with this step
    "#]]
    .assert_eq(&text(&rows));
    let pieces: Vec<String> = rows[0][3]
        .pieces()
        .iter()
        .map(|(kind, span)| format!("{kind:?} {}", span.duration().0))
        .collect();
    assert_eq!(pieces, ["Work(Backward) 4", "Work(Recompute) 2", "Work(Backward) 4"]);
}

/// Two data-parallel ranks: gradients of two layers are summed on the Reduce lane while backward
/// goes on; the second rank is `late` by that much.
fn overlapped(late: u64) -> Sketch {
    let mut sketch = Sketch::new(mesh(2, 1, 1));
    let sum = collective(Phase::GradReduce, CollectiveKind::AllReduce);
    for (me, other) in [(Rank(0), Rank(1)), (Rank(1), Rank(0))] {
        let back = pass(Phase::Backward, 0, 0);
        for layer in ["1", "0"] {
            let [mine, theirs] = [me, other].map(|rank| format!("grad{layer}.{rank}"));
            let takes = 5 + if me == Rank(1) { late } else { 0 };
            sketch.launch((me, Lane::Compute), back, takes, &[], &mine);
            sketch.send((me, other), Axis::Dp, sum, 2, &mine);
            sketch.recv((me, other), Axis::Dp, sum, 2, &theirs);
            let total = format!("sum{layer}");
            sketch.launch((me, Lane::Reduce), sum, 1, &[&mine, &theirs], &total);
        }
        let update = Origin { phase: Phase::Optimizer, ..Origin::default() };
        sketch.launch((me, Lane::Compute), update, 3, &["sum1", "sum0"], "weight");
    }
    sketch
}

#[test]
fn sums_beside_backward_are_hidden_and_shown_where_compute_is_idle() {
    expect![[r#"
        0–10 B0 │ 10–13 AR │ 13–16 O
        0–10 B0 │ 10–13 AR │ 13–16 O
    "#]]
    .assert_eq(&text(&blocks_of(&overlapped(0))));
}

#[test]
fn a_rank_waits_for_the_sum_with_a_late_one() {
    expect![[r#"
        0–10 B0 │ 10–12 AR │ 12–18 waits for AR from rank 1 │ 18–21 AR │ 21–24 O
        0–18 B0 │ 18–19 AR │ 19–22 O │ 22–24 is done with this step
    "#]]
    .assert_eq(&text(&blocks_of(&overlapped(4))));
}

#[test]
fn the_block_at_an_instant_is_the_one_that_covers_it() {
    let rows = blocks_of(&one_f_one_b(mesh(1, 1, 2), 4, 10));
    let at = |nanos| block_at(&rows[0], Nanos(nanos)).map(ToString::to_string);
    assert_eq!(at(0).as_deref(), Some("F0"));
    assert_eq!(at(9).as_deref(), Some("F0"));
    assert_eq!(at(10).as_deref(), Some("F1"));
    assert_eq!(at(25).as_deref(), Some("waiting"));
    assert_eq!(at(179).as_deref(), Some("AG"));
    assert_eq!(at(180), None);
}
