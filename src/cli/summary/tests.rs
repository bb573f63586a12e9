//! The summary as golden text, whole and with its parts missing.
use expect_test::expect;

use super::super::text::{Charset, Colour};
use super::*;

const TERMINAL: Terminal =
    Terminal { width: 80, height: 24, charset: Charset::Utf8, colour: Colour::Off };

fn mib(tenths: u64) -> Bytes {
    Bytes(tenths * 104_858)
}

fn memory(tenths: [u64; 5]) -> Memory {
    Memory { by_role: tenths.map(mib), peak: mib(tenths.iter().sum()) }
}

fn own(arguments: &str, what: &str) -> Suggestion {
    Suggestion { command: Command::Own(arguments.into()), what: what.into() }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn quickstart() -> Summary {
    let [low, high] = [memory([5, 5, 5, 19, 4]), memory([5, 5, 5, 13, 4])];
    Summary {
        steps: 200,
        seconds: 41.3,
        device: "the CPU".into(),
        sharing: Sharing::Cores(2),
        ranks: 8,
        learned: Some(Learned {
            before: 5.551,
            after: 2.43,
            target: Some(LossTarget { loss: 2.4901, reached: true }),
            entropy: Some(Entropy { symbols: 256, letters: 3.304, pairs: 2.4901 }),
        }),
        exact: Some(Exact { steps: 3, largest: 2.4e-7, allowed: 1e-5, first_difference: None }),
        tokens_per_sec: 20_100.4,
        predicted: None,
        waiting: Some(Waiting {
            share: 0.2034,
            badge: Badge::Replayed,
            formula: Some(Formula { expression: "(p−1)/(m+p−1)".into(), share: 0.2 }),
            links: "free".into(),
            rest: words(&["+2.1 unequal stages", "-1.7 uneven times"]),
            path: words(&["71 % on rank 6", "20 % on rank 4", "9 % on others"]),
            messages: None,
        }),
        devices_spend: words(&["71 % kernels", "9 % messages", "20 % dispatch"]),
        sent: [mib(10), mib(60), mib(5)],
        memory: vec![low, low, low, low, high, high, high, high],
        next: vec![
            own("train --pp 4 --tp 1", "4 stages: waiting grows to 43 % FORMULA"),
            own("train --microbatches 16", "smaller pieces: waiting falls to 6 % FORMULA"),
            own("verify --dp 2 --tp 2 --pp 2", "prove it equals one rank"),
            Suggestion {
                command: Command::Whole("cargo run --release -p shardlab-visualizer".into()),
                what: "watch it in a window".into(),
            },
        ],
    }
}

#[test]
fn a_summary_tells_what_was_learned_and_what_it_cost() {
    expect![[r#"
        Trained 200 steps in 41 s on the CPU; 8 ranks shared 2 cores.         MEASURED

          It learned     held-out loss 5.55 → 2.43 nats per byte, target < 2.49      ✓
                         5.55 knows nothing (ln 256), 3.30 letters, 2.49 letter pairs
          It is exact    3 SGD steps against an unsplit run:                         ✓
                         largest relative difference 2.4e-7 (allowed 1e-5)
          Speed          20,100 tokens/s                                      MEASURED
          Waiting        20.3 % of forward + backward, links: free            REPLAYED
                         20.0 % by formula (p−1)/(m+p−1)                       FORMULA
                         the rest: +2.1 unequal stages, -1.7 uneven times     REPLAYED
          Critical path  71 % on rank 6, 20 % on rank 4, 9 % on others        REPLAYED
          Device time    71 % kernels, 9 % messages, 20 % dispatch            MEASURED
          Sent per step  data 1.0 MiB   tensor 6.0 MiB   pipeline 0.5 MiB      COUNTED
          Memory         at the moment when a rank holds most                  COUNTED
            in MiB       weights  gradients  optimizer  activations  workspace  peak
            ranks 0–3        0.5        0.5        0.5          1.9        0.4   3.8
            ranks 4–7        0.5        0.5        0.5          1.3        0.4   3.2

        Try next
          shardlab train --pp 4 --tp 1      4 stages: waiting grows to 43 % FORMULA
          shardlab train --microbatches 16  smaller pieces: waiting falls to 6 % FORMULA
          shardlab verify --dp 2 --tp 2 --pp 2  prove it equals one rank
          cargo run --release -p shardlab-visualizer  watch it in a window
    "#]]
    .assert_eq(&summary(&quickstart(), "shardlab", &TERMINAL));
}

#[test]
fn started_by_cargo_the_suggestions_can_be_copied() {
    let text = summary(&quickstart(), "cargo run --release --", &TERMINAL);
    let next = &text[text.find("Try next").unwrap()..];
    expect![[r#"
        Try next
          cargo run --release -- train --pp 4 --tp 1
              4 stages: waiting grows to 43 % FORMULA
          cargo run --release -- train --microbatches 16
              smaller pieces: waiting falls to 6 % FORMULA
          cargo run --release -- verify --dp 2 --tp 2 --pp 2
              prove it equals one rank
          cargo run --release -p shardlab-visualizer
              watch it in a window
    "#]]
    .assert_eq(next);
}

#[test]
fn a_failed_run_of_one_rank_says_so_without_utf8() {
    let facts = Summary {
        steps: 1,
        sharing: Sharing::Own,
        ranks: 1,
        learned: Some(Learned {
            after: 3.1,
            target: Some(LossTarget { loss: 2.49, reached: false }),
            ..quickstart().learned.unwrap()
        }),
        exact: Some(Exact {
            largest: f64::NAN,
            first_difference: Some("step 2, gradient of lm_head.weight".into()),
            ..quickstart().exact.unwrap()
        }),
        waiting: None,
        sent: [Bytes(0); 3],
        memory: vec![Memory { by_role: [Bytes(1536); 5], peak: Bytes(7680) }],
        next: Vec::new(),
        ..quickstart()
    };
    let text = summary(&facts, "shardlab", &Terminal { charset: Charset::Ascii, ..TERMINAL });
    assert!(text.is_ascii());
    expect![[r#"
        Trained 1 step in 41 s on the CPU.                                    MEASURED

          Not learned    held-out loss 5.55 -> 3.10 nats per byte, target < 2.49    NO
                         5.55 knows nothing (ln 256), 3.30 letters, 2.49 letter pairs
          It is exact    3 SGD steps against an unsplit run:                        NO
                         largest relative difference NaN (allowed 1e-5)
                         first difference: step 2, gradient of lm_head.weight
          Speed          20,100 tokens/s                                      MEASURED
          Device time    71 % kernels, 9 % messages, 20 % dispatch            MEASURED
          Sent per step  nothing                                               COUNTED
          Memory         at the moment when a rank holds most                  COUNTED
            in KiB       weights  gradients  optimizer  activations  workspace  peak
            rank 0           1.5        1.5        1.5          1.5        1.5   7.5
    "#]]
    .assert_eq(&text);
}

#[test]
fn many_different_ranks_fill_no_screen() {
    let memory = (0..64).map(|rank| memory([rank % 16, 1, 1, 1, 1])).collect();
    let text = summary(&Summary { memory, ..quickstart() }, "shardlab", &TERMINAL);
    let table = text.split_once("  Memory").unwrap().1.split_once("\n\n").unwrap().0;
    expect![[r#"
        Memory         at the moment when a rank holds most                  COUNTED
            in MiB       weights  gradients  optimizer  activations  workspace  peak
            4 like rank 0    0.0        0.1        0.1          0.1        0.1   0.4
            4 like rank 1    0.1        0.1        0.1          0.1        0.1   0.5
            4 like rank 2    0.2        0.1        0.1          0.1        0.1   0.6
            4 like rank 3    0.3        0.1        0.1          0.1        0.1   0.7
            4 like rank 4    0.4        0.1        0.1          0.1        0.1   0.8
            4 like rank 5    0.5        0.1        0.1          0.1        0.1   0.9
            4 like rank 6    0.6        0.1        0.1          0.1        0.1   1.0
            4 like rank 7    0.7        0.1        0.1          0.1        0.1   1.1
            … 8 more rows
    "#]]
    .assert_eq(&format!("Memory{table}\n"));
}

#[test]
fn long_lists_go_on_below_and_every_line_keeps_its_badge() {
    let waiting = quickstart().waiting.unwrap();
    let rest = ["+1.5 forward : backward", "+14.7 unequal stages", "+11.0 uneven times"];
    let waiting = Waiting {
        rest: words(&[rest.as_slice(), &["+25.4 messages"]].concat()),
        messages: Some("a rank has 3.1 ms hidden, 0.8 ms exposed".into()),
        ..waiting
    };
    let text = summary(&Summary { waiting: Some(waiting), ..quickstart() }, "shardlab", &TERMINAL);
    let (_, from) = text.split_once("  Waiting").unwrap();
    let (part, _) = from.split_once("  Device").unwrap();
    expect![[r#"
        Waiting        20.3 % of forward + backward, links: free            REPLAYED
                         20.0 % by formula (p−1)/(m+p−1)                       FORMULA
                         the rest: +1.5 forward : backward                    REPLAYED
                         +14.7 unequal stages, +11.0 uneven times             REPLAYED
                         +25.4 messages                                       REPLAYED
          Critical path  71 % on rank 6, 20 % on rank 4, 9 % on others        REPLAYED
          Messages       a rank has 3.1 ms hidden, 0.8 ms exposed             REPLAYED"#]]
    .assert_eq(&format!("Waiting{}", part.trim_end()));
}

#[test]
fn no_line_is_wider_than_eighty_columns() {
    for program in ["shardlab", "cargo run --release --"] {
        let text = summary(&quickstart(), program, &TERMINAL);
        assert!(text.lines().all(|line| width(line) <= 80), "{text}");
    }
}

#[test]
fn a_predicted_step_stands_beside_the_measured_one_with_its_error() {
    for (seconds, shown) in [
        (0.1412, "141.2 ms predicted, 146.4 ms MEASURED (−4 %)"),
        (1.464, "1.46 s predicted, 146.4 ms MEASURED (+900 %)"),
        (0.1464, "146.4 ms predicted, 146.4 ms MEASURED (+0 %)"),
    ] {
        let predicted = Some(Predicted { seconds, measured: 0.1464 });
        let text = summary(&Summary { predicted, ..quickstart() }, "shardlab", &TERMINAL);
        let line = text.lines().find(|line| line.starts_with("  A step ")).unwrap();
        assert!(line.contains(shown) && line.ends_with(" PREDICTED"), "{line}");
    }
    let text = summary(&quickstart(), "shardlab", &TERMINAL);
    assert!(!text.contains("A step"), "nothing is said on a machine that was never measured");
}
