//! Frames of the live view as golden text, in all widths and without UTF-8.

use expect_test::{Expect, expect};

use super::super::text::{Charset, Colour};
use super::*;
use crate::mesh::RankOrder;
use crate::trace::draw::playback::slow_motion;
use crate::trace::draw::sketch::{Sketch, one_f_one_b};
use crate::trace::draw::{blocks, shortest_forward};

const MS: u64 = 1_000_000;

/// A step that was replayed, with everything else a view shows.
struct Scene {
    header: Header,
    blocks: Vec<Vec<Block>>,
    end: Nanos,
    peaks: Vec<Bytes>,
    losses: Vec<f64>,
}

impl Scene {
    fn of(sketch: &Sketch, microbatches: u32) -> Self {
        let mesh = sketch.plan.mesh;
        let (order, trace) = sketch.replay();
        let header = Header {
            mesh,
            device: "the CPU".into(),
            why: Some("no GPU found; none needed".into()),
            zero: ZeroStage::Zero1,
            schedule: "1F1B".into(),
            microbatches,
            params: 1_100_000,
        };
        let peak = |rank| Bytes(if mesh.coord(rank).pp == 0 { 3_984_589 } else { 3_355_443 });
        Self {
            header,
            blocks: blocks(&sketch.plan, &order, &trace),
            end: trace.end(),
            peaks: mesh.ranks().map(peak).collect(),
            // From ln 256 down to 2.71.
            losses: (0..96).map(|step| 2.6 + 2.95 * (-f64::from(step) / 29.0).exp()).collect(),
        }
    }

    fn quickstart() -> Self {
        Self::of(
            &one_f_one_b(Mesh { dp: 2, tp: 2, pp: 2, order: RankOrder::TpDpPp }, 4, 10 * MS),
            4,
        )
    }

    fn shown(&self, sweep: u64) -> Shown<'_> {
        Shown {
            step: 41,
            badge: Badge::Replayed,
            speed: slow_motion(self.end, shortest_forward(self.blocks.iter().flatten()).unwrap()),
            blocks: &self.blocks,
            axis: TimeAxis::holding(self.end),
            sweep: Nanos(sweep),
        }
    }

    fn frame(&self, sweep: u64, terminal: &Terminal) -> Vec<String> {
        let progress = Progress {
            step: 96,
            steps: 200,
            losses: &self.losses,
            target: Some(LossTarget { loss: 2.49, reached: false }),
            tokens_per_sec: Some(20_100.0),
            seconds_left: Some(21.0),
        };
        let shown = Some(self.shown(sweep));
        let header = &self.header;
        let state = LiveState { header, peaks: &self.peaks, shown, progress: &progress };
        let lines = live(&state, terminal);
        assert_fits(&lines, terminal);
        lines
    }
}

/// What must hold for every frame.
fn assert_fits(lines: &[String], terminal: &Terminal) {
    assert!(lines.len() <= HEIGHT && lines.len() < terminal.height.max(2), "{lines:#?}");
    for line in lines {
        let visible: String =
            line.split('\x1b').enumerate().fold(String::new(), |all, (i, part)| {
                all + if i == 0 { part } else { part.split_once('m').unwrap().1 }
            });
        assert!(
            width(&visible) <= terminal.width.min(WIDTH),
            "{} columns: {line}",
            width(&visible)
        );
        assert!(terminal.charset == Charset::Utf8 || visible.is_ascii(), "{line}");
    }
}

fn terminal(width: usize) -> Terminal {
    Terminal { width, height: 24, charset: Charset::Utf8, colour: Colour::Off }
}

fn check(lines: &[String], expected: &Expect) {
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn eight_ranks_are_eight_rows() {
    check(
        &Scene::quickstart().frame(76 * MS, &terminal(80)),
        &expect![[r#"
        shardlab · 8 ranks on the CPU (no GPU found; none needed)
        data 2 × tensor 2 × pipeline 2 · ZeRO 1 · 1F1B · 4 microbatches · 1.1 M params
        A row is a rank. Letters work, ░ waits. F forward  B backward
        RS sum gradients  O optimizer  AG share weights                     Ctrl-C stops

        showing step 41 in slow motion 1/32                        REPLAYED   peak MiB
          rank      0 ms              60                120            180
          0 d0t0p0  F0-F1-░░░░░░B0----F2-B1----F3-B2----░░░B3----RS-O--AG-  ████   3.8
          1 d0t1p0  F0-F1-░░░░░░B0----F2-B1----F3-B2----░░░B3----RS-O--AG-  ████   3.8
          2 d1t0p0  F0-F1-░░░░░░B0----F2-B1----F3-B2----░░░B3----RS-O--AG-  ████   3.8
          3 d1t1p0  F0-F1-░░░░░░B0----F2-B1----F3-B2----░░░B3----RS-O--AG-  ████   3.8
          4 d0t0p1  ░░░F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-░░░░░░  ███▍   3.2
          5 d0t1p1  ░░░F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-░░░░░░  ███▍   3.2
          6 d1t0p1  ░░░F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-░░░░░░  ███▍   3.2
          7 d1t1p1  ░░░F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-░░░░░░  ███▍   3.2
                                          ▲ now: rank 0 runs B1, rank 4 runs F2

        loss 5.55 ▇▅▄▃▂▂▂▂ 2.71  target < 2.49     step  96/200  20,100 tok/s  21 s left
    "#]],
    );
}

#[test]
fn a_narrow_terminal_has_no_memory_column_and_a_very_narrow_one_only_the_loss() {
    let scene = Scene::quickstart();
    check(
        &scene.frame(30 * MS, &terminal(71)),
        &expect![[r#"
        shardlab · 8 ranks on the CPU (no GPU found; none needed)
        data 2 × tensor 2 × pipeline 2 · ZeRO 1 · 1F1B · 4 microbatches · 1.1 …
        A row is a rank. Letters work, ░ waits. F forward  B backward
        RS sum gradients  O optimizer  AG share weights            Ctrl-C stops

        showing step 41 in slow motion 1/32                          REPLAYED
          rank      0 ms               60                 120             180
          0 d0t0p0  F0-F1-░░░░░░░B0----F2-B1-----F3-B2----░░░B3-----RS-O--AG-
          1 d0t1p0  F0-F1-░░░░░░░B0----F2-B1-----F3-B2----░░░B3-----RS-O--AG-
          2 d1t0p0  F0-F1-░░░░░░░B0----F2-B1-----F3-B2----░░░B3-----RS-O--AG-
          3 d1t1p0  F0-F1-░░░░░░░B0----F2-B1-----F3-B2----░░░B3-----RS-O--AG-
          4 d0t0p1  ░░░F0-B0-----F1-B1----F2-B2-----F3-B3----RS-O---AG-░░░░░░
          5 d0t1p1  ░░░F0-B0-----F1-B1----F2-B2-----F3-B3----RS-O---AG-░░░░░░
          6 d1t0p1  ░░░F0-B0-----F1-B1----F2-B2-----F3-B3----RS-O---AG-░░░░░░
          7 d1t1p1  ░░░F0-B0-----F1-B1----F2-B2-----F3-B3----RS-O---AG-░░░░░░
                             ▲ now: rank 0 waits for B0 from rank 4

        loss 5.55 ▇▆▅▄▃▃▃▂▂▂▂▂▂ 2.71  target < 2.49     step  96/200  21 s left
    "#]],
    );
    check(
        &scene.frame(125 * MS, &terminal(50)),
        &expect![[r#"
            shardlab · 8 ranks on the CPU (no GPU found; none…
            data 2 × tensor 2 × pipeline 2 · ZeRO 1 · 1F1B · …
            A row is a rank. Letters work, ░ waits. F forward
            B backward  RS sum gradients  O optimizer

            showing step 41 in slow motion 1/32     REPLAYED
              rank      0 ms        60          120      180
              0 d0t0p0  F0F1░░░░B0--F2B1--F3B2--░░B3--RSO-AG
              1 d0t1p0  F0F1░░░░B0--F2B1--F3B2--░░B3--RSO-AG
              2 d1t0p0  F0F1░░░░B0--F2B1--F3B2--░░B3--RSO-AG
              3 d1t1p0  F0F1░░░░B0--F2B1--F3B2--░░B3--RSO-AG
              4 d0t0p1  ░░F0B0--F1B1--F2B2--F3B3--RSO-AG░░░░
              5 d0t1p1  ░░F0B0--F1B1--F2B2--F3B3--RSO-AG░░░░
              6 d1t0p1  ░░F0B0--F1B1--F2B2--F3B3--RSO-AG░░░░
              7 d1t1p1  ░░F0B0--F1B1--F2B2--F3B3--RSO-AG░░░░
            now: rank 0 waits for B3 from rank 4 ▲

            loss 5.55 ▇▅▄▃▃▂▂▂▂ 2.71   step  96/200  21 s left
        "#]],
    );
    check(
        &scene.frame(30 * MS, &terminal(49)),
        &expect![[r#"
        loss 5.55 ▇▅▄▃▂▂▂▂ 2.71   step  96/200  21 s left
    "#]],
    );
    check(
        &scene.frame(30 * MS, &terminal(30)),
        &expect![[r#"
        loss 2.71   step  96/200
    "#]],
    );
}

#[test]
fn without_utf8_waiting_is_dots_and_bars_are_hashes() {
    let terminal = Terminal { charset: Charset::Ascii, ..terminal(80) };
    check(
        &Scene::quickstart().frame(30 * MS, &terminal),
        &expect![[r#"
        shardlab | 8 ranks on the CPU (no GPU found; none needed)
        data 2 x tensor 2 x pipeline 2 | ZeRO 1 | 1F1B | 4 microbatches | 1.1 M params
        A row is a rank. Letters work, . waits. F forward  B backward
        RS sum gradients  O optimizer  AG share weights                     Ctrl-C stops

        showing step 41 in slow motion 1/32                        REPLAYED   peak MiB
          rank      0 ms              60                120            180
          0 d0t0p0  F0-F1-......B0----F2-B1----F3-B2----...B3----RS-O--AG-  ####   3.8
          1 d0t1p0  F0-F1-......B0----F2-B1----F3-B2----...B3----RS-O--AG-  ####   3.8
          2 d1t0p0  F0-F1-......B0----F2-B1----F3-B2----...B3----RS-O--AG-  ####   3.8
          3 d1t1p0  F0-F1-......B0----F2-B1----F3-B2----...B3----RS-O--AG-  ####   3.8
          4 d0t0p1  ...F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-......  ###    3.2
          5 d0t1p1  ...F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-......  ###    3.2
          6 d1t0p1  ...F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-......  ###    3.2
          7 d1t1p1  ...F0-B0----F1-B1----F2-B2----F3-B3----RS-O--AG-......  ###    3.2
                             ^ now: rank 0 waits for B0 from rank 4

        loss 5.55 *=-:.... 2.71  target < 2.49     step  96/200  20,100 tok/s  21 s left
    "#]],
    );
}

#[test]
fn sixty_four_ranks_are_a_row_for_each_pipeline_position() {
    let mesh = Mesh { dp: 4, tp: 4, pp: 4, order: RankOrder::TpDpPp };
    check(
        &Scene::of(&one_f_one_b(mesh, 8, 3 * MS), 8).frame(20 * MS, &terminal(80)),
        &expect![[r#"
            shardlab · 64 ranks on the CPU (no GPU found; none needed)
            data 4 × tensor 4 × pipeline 4 · ZeRO 1 · 1F1B · 8 microbatches · 1.1 M params
            A row: pipeline position p, slowest of 16 ranks. ░ waits. F forward  B backward
            RS sum gradients  O optimizer  AG share weights                     Ctrl-C stops

            showing step 41 in slow motion 1/128                       REPLAYED   peak MiB
              position    0 ms             40               80             120
              p0 rank 0   FF-FF░░░░░░░░B0-FB1-FB2F-B3F-B4░░B5░B6-░B7-RSOAG      ████   3.8
              p1 rank 16  ░F-FF░░░░░B0-FB1-FB2-FB3-FB4-FB5-░B6░░B7RSOAG░░       ███▍   3.2
              p2 rank 32  ░░░FF░░░B0F-B1F-B2F-B3FB4-FB5-FB6-░B7RSOAG░░░░░       ███▍   3.2
              p3 rank 48  ░░░░FB0-FB1-FB2-FB3-FB4F-B5F-B6F-B7RSOAG░░░░░░░       ███▍   3.2
                                  ▲ now: rank 0 waits for B0 from rank 16

            loss 5.55 ▇▅▄▃▂▂▂▂ 2.71  target < 2.49     step  96/200  20,100 tok/s  21 s left
        "#]],
    );
}

#[test]
fn more_positions_than_rows_are_folded() {
    let mesh = Mesh { dp: 1, tp: 1, pp: 16, order: RankOrder::TpDpPp };
    let scene = Scene::of(&one_f_one_b(mesh, 8, 3 * MS), 8);
    check(
        &scene.frame(20 * MS, &terminal(80)),
        &expect![[r#"
            shardlab · 16 ranks on the CPU (no GPU found; none needed)
            data 1 × tensor 1 × pipeline 16 · ZeRO 1 · 1F1B · 8 microbatches · 1.1 M params
            A row: pipeline position p, slowest of 2 ranks. ░ waits. F forward  B backward
            RS sum gradients  O optimizer  AG share weights                     Ctrl-C stops

            showing step 41 in slow motion 1/128                       REPLAYED   peak MiB
              position        0 ms            80              160          240
              p0–1 rank 0     FFFFF░░░░░░░░░░░░░░░░░░░░░░░BB-B░B░B░BB-B-O       ████   3.8
              p2–3 rank 2     ░FFFFF░░░░░░░░░░░░░░░░░░░B░B░B░BB-B░B░B-AG░       ███▍   3.2
              p4–5 rank 4     ░░FFFFF░░░░░░░░░░░░░░░░B░BB-B░B░B░BB-OAG░░░       ███▍   3.2
              p6–7 rank 6     ░░░FFFFFF░░░░░░░░░░░B-B░B░B░BB-B░B-AG░░░░░░       ███▍   3.2
              p8–9 rank 8     ░░░░░FFFFF░░░░░░░░B░B░BB-B░B░B░BOAG░░░░░░░░       ███▍   3.2
              p10–11 rank 10  ░░░░░░FFFF░░░░░░BFBB░B░B░BB-B-O░░░░░░░░░░░░       ███▍   3.2
              p12–13 rank 12  ░░░░░░░FFF░░░BFBFBFBFBB░B░B-AG░░░░░░░░░░░░░       ███▍   3.2
              p14–15 rank 14  ░░░░░░░░FF░BFBFBBFBFBFBB-OAG░░░░░░░░░░░░░░░       ███▍   3.2
                                  ▲ now: rank 8 waits for F0 from rank 7

            loss 5.55 ▇▅▄▃▂▂▂▂ 2.71  target < 2.49     step  96/200  20,100 tok/s  21 s left
        "#]],
    );
}

#[test]
fn before_the_first_step_the_picture_has_its_place() {
    let scene = Scene::quickstart();
    let progress = Progress {
        step: 0,
        steps: 200,
        losses: &[],
        target: None,
        tokens_per_sec: None,
        seconds_left: None,
    };
    let state =
        LiveState { header: &scene.header, peaks: &scene.peaks, shown: None, progress: &progress };
    let lines = live(&state, &terminal(80));
    assert_fits(&lines, &terminal(80));
    assert_eq!(lines.len(), scene.frame(0, &terminal(80)).len(), "nothing moves later");
    check(
        &lines,
        &expect![[r#"
            shardlab · 8 ranks on the CPU (no GPU found; none needed)
            data 2 × tensor 2 × pipeline 2 · ZeRO 1 · 1F1B · 4 microbatches · 1.1 M params
            A row is a rank. Letters work, ░ waits. F forward  B backward
                                                                                Ctrl-C stops

            training begins; its first step will be shown here in slow motion
              rank
              0 d0t0p0                                                          ████   3.8
              1 d0t1p0                                                          ████   3.8
              2 d1t0p0                                                          ████   3.8
              3 d1t1p0                                                          ████   3.8
              4 d0t0p1                                                          ███▍   3.2
              5 d0t1p1                                                          ███▍   3.2
              6 d1t0p1                                                          ███▍   3.2
              7 d1t1p1                                                          ███▍   3.2


            loss                                      step   0/200
        "#]],
    );
}

#[test]
fn behind_the_sweep_it_is_bright_and_ahead_dim() {
    let terminal = Terminal { colour: Colour::On, ..terminal(80) };
    let lines = Scene::quickstart().frame(45 * MS, &terminal);
    let row = lines.iter().find(|line| line.starts_with("  0 ")).unwrap();
    let marked =
        [("\x1b[97;44m", "<F>"), ("\x1b[30;43m", "<B>"), ("\x1b[2m", "<dim>"), ("\x1b[0m", "</>")]
            .iter()
            .fold(row.trim_start().to_owned(), |row, (ansi, mark)| row.replace(ansi, mark));
    check(
        &[marked],
        &expect![[r#"
        0 d0t0p0  <F>F0-F1-</>░░░░░░<B>B0</><dim>----F2-B1----F3-B2----░░░B3----RS-O--AG-</>  ████   3.8
    "#]],
    );
}

#[test]
fn every_frame_fits_every_terminal() {
    let scenes = [
        Scene::quickstart(),
        Scene::of(&one_f_one_b(Mesh { dp: 1, tp: 1, pp: 1, order: RankOrder::TpDpPp }, 1, 900), 1),
        Scene::of(&one_f_one_b(Mesh { dp: 3, tp: 1, pp: 3, order: RankOrder::TpPpDp }, 12, MS), 12),
    ];
    for scene in &scenes {
        for (width, height) in [(80, 24), (200, 60), (72, 20), (60, 11), (50, 7), (9, 3), (1, 1)] {
            for colour in [Colour::On, Colour::Off] {
                for charset in [Charset::Utf8, Charset::Ascii] {
                    let terminal = Terminal { width, height, charset, colour };
                    for eighth in 0..=8 {
                        let lines = scene.frame(scene.end.0 * eighth / 8, &terminal);
                        assert!(lines.iter().any(|line| !line.is_empty()));
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_never_shows_another_microbatch_than_its_block() {
    // Forty microbatches in fifty columns: numbers that do not fit are left out, not cut.
    let mesh = Mesh { dp: 1, tp: 1, pp: 2, order: RankOrder::TpDpPp };
    let scene = Scene::of(&one_f_one_b(mesh, 20, MS), 20);
    check(
        &scene.frame(20 * MS, &terminal(80)),
        &expect![[r#"
            shardlab · 2 ranks on the CPU (no GPU found; none needed)
            data 1 × tensor 1 × pipeline 2 · ZeRO 1 · 1F1B · 20 microbatches · 1.1 M params
            A row is a rank. Letters work, ░ waits. F forward  B backward
            RS sum gradients  O optimizer  AG share weights                     Ctrl-C stops

            showing step 41 in slow motion 1/256                       REPLAYED   peak MiB
              rank      0 ms              25                50              75
              0 d0t0p0  FF░BFBFBFB-FBFBFBFBFBFB-FBFBFBFBFBFB-FBFBFB░B-OAG       ████   3.8
              1 d0t0p1  ░FBFBFBFBFBFB-FBFBFBFBFBFBFB-FBFBFBFBFBFB-FB-AG░        ███▍   3.2
                                      ▲ now: rank 0 runs B5, rank 1 runs F6

            loss 5.55 ▇▅▄▃▂▂▂▂ 2.71  target < 2.49     step  96/200  20,100 tok/s  21 s left
        "#]],
    );
}
