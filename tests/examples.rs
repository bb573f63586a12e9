//! Goal: the examples can be read and trusted. Method: run each as it was built beside this test
//! and hold its numbers; read each source for its size and for where it sends the reader next.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is wrong")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In reading order.
const EXAMPLES: [&str; 12] = [
    "01_plan_by_hand",
    "02_split_gemm",
    "03_all_reduce_step_by_step",
    "04_data_parallel",
    "05_tensor_parallel",
    "06_pipeline_parallel",
    "07_zero",
    "08_all_at_once",
    "09_schedule_from_a_file",
    "10_bubble_against_microbatches",
    "11_same_step_on_three_clusters",
    "12_four_by_four_by_four",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// What an example prints.
fn output(name: &str) -> String {
    // This test is target/PROFILE/deps/examples-HASH.
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    let program = program.with_extension(std::env::consts::EXE_EXTENSION);
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    assert!(
        changed(&program) >= changed(&folder().join(format!("{name}.rs"))),
        "{} is missing or old: run all tests, or `cargo build --examples` first",
        program.display()
    );
    let run = Command::new(&program).output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name} failed: {errors}");
    String::from_utf8(run.stdout).unwrap()
}

/// The lines that start with a word, cut into words.
fn rows<'a>(output: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    let lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.first() == Some(&first)).collect()
}

fn number(word: &str) -> f64 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is a number"))
}

#[test]
fn a_plan_by_hand_is_right_and_its_dropped_message_is_told() {
    let output = output(EXAMPLES[0]);
    assert!(output.contains("Z = X·Wᵀ + B = [1.5, 20.5, 3.5, 40.5]"), "{output}");
    assert!(output.contains("The checker finds 0 faults"), "{output}");
    assert!(output.contains("but rank 0 never sends them"), "{output}");
    assert!(output.contains("the step hangs: rank 1 waits at #1 add"), "{output}");
}

#[test]
fn a_split_product_is_whole_on_every_device() {
    let output = output(EXAMPLES[1]);
    for (split, bytes) in [("columns", "294912"), ("rows", "589824")] {
        let rows: Vec<_> =
            rows(&output, split).into_iter().filter(|words| words.contains(&"=")).collect();
        assert!(!rows.is_empty(), "{output}");
        for words in rows {
            let [error, crossed, _, _, formula] = words[words.len() - 5..] else { panic!() };
            assert!(number(error) < 1e-5, "{words:?}");
            assert_eq!((crossed, formula), (bytes, bytes));
        }
    }
}

#[test]
fn every_step_of_an_all_reduce_is_shown() {
    let output = output(EXAMPLES[2]);
    let chunks = |step: &str| rows(&output, step).into_iter().map(|words| words[2..].join(" "));
    let done = ["1111"; 16].join(" ");
    // The ring's third step completes one chunk on each rank, and so does the first direct one.
    let third = "1111 1011 1001 1000 0100 1111 1101 1100 0110 0010 1111 1110 0111 0011 0001 1111";
    assert_eq!(chunks("3").collect::<Vec<_>>(), [third]);
    assert_eq!(chunks("6").collect::<Vec<_>>(), [done.as_str()]);
    assert_eq!(chunks("2").next_back(), Some(done));
    assert!(output.contains("is an all-reduce: true"), "{output}");
    let table: Vec<_> = output
        .lines()
        .filter(|line| line.contains(" ranks, ") && line.ends_with(char::is_numeric))
        .collect();
    let hops = table.iter().map(|line| line.split_whitespace().last().unwrap());
    assert_eq!(hops.collect::<Vec<_>>(), ["6", "4", "2", "14", "6", "2"]);
    let sent = table.iter().map(|line| line.split_whitespace().nth(3).unwrap());
    let [four, eight] = ["1572864", "1835008"];
    assert_eq!(sent.collect::<Vec<_>>(), [four, four, four, eight, eight, eight]);
}

#[test]
fn data_parallel_gradients_add_up() {
    let output = output(EXAMPLES[3]);
    let sum = number(rows(&output, "sum")[0][1]);
    for rank in ["0", "1", "2", "3"] {
        let after = number(rows(&output, rank)[0].last().unwrap());
        assert!((after - sum).abs() <= 2e-9 && after != 0.0, "{output}");
    }
    let bytes = |first| rows(&output, first)[0].last().copied().map(str::to_owned);
    assert_eq!(bytes("Bytes"), bytes("Formula,"), "{output}");
    assert!(output.contains("That is the same training."), "{output}");
}

#[test]
fn tensor_parallel_layers_cost_two_and_two_all_reduces() {
    let output = output(EXAMPLES[4]);
    let tensor = "Forward 2 all-reduce, Backward 2 all-reduce";
    assert!(output.contains(tensor), "{output}");
    assert_eq!(
        rows(&output, "3")[0][1..],
        ["6", "to", "7", "3", "48", "to", "63", "192", "to", "255"]
    );
    let [one, tensor, sequence] =
        ["one", "tensor", "sequence"].map(|first| rows(&output, first).pop().unwrap());
    let loss = |words: &[&str]| number(words.last().unwrap());
    assert!(
        (loss(&one) - loss(&tensor)).abs() < 1e-5 && (loss(&one) - loss(&sequence)).abs() < 1e-5,
        "{output}"
    );
    // Sequence parallel sums the gradients of norms once a step: 2(N−1) of 5 norms of 32 floats.
    assert_eq!(number(sequence[5]) - number(tensor[5]), 6.0 * 5.0 * 32.0 * 4.0);
}

#[test]
fn both_schedules_wait_alike_and_keep_differently() {
    let output = output(EXAMPLES[5]);
    assert_eq!(output.matches("27.3 %").count(), 3, "{output}");
    assert!(output.contains("[8, 8, 8, 8]") && output.contains("[4, 3, 2, 1]"), "{output}");
    assert!(
        output.contains("rank 3  · · · F0B0──F1B1──F2B2──F3B3──F4B4──F5B5──F6B6──F7B7──"),
        "{output}"
    );
    assert!(output.contains("Same weights to the last bit: true"), "{output}");
}

#[test]
fn zero_saves_memory_for_bytes_and_changes_no_bit() {
    let output = output(EXAMPLES[6]);
    let times: Vec<&str> = output
        .lines()
        .filter_map(|line| line.split("= ").nth(1)?.strip_suffix("·(N−1)·Ψ"))
        .collect();
    assert_eq!(times, ["2", "2", "2", "3", "2", "2", "5", "12"], "{output}");
    let same: Vec<_> =
        output.lines().filter_map(|line| line.split("after 2 steps: ").nth(1)).collect();
    assert_eq!(
        same,
        [
            "0 and 1 equal, 2 and 3 equal, 1 and 2 equal",
            "0 and 1 equal, 2 and 3 equal, 1 and 2 other bits"
        ]
    );
}

#[test]
fn all_axes_at_once_learn_what_one_rank_learns() {
    let output = output(EXAMPLES[7]);
    let losses: Vec<f64> = rows(&output, "step").iter().map(|words| number(words[3])).collect();
    assert!(losses.len() > 4 && losses[losses.len() - 1] < losses[0] - 1.0, "{output}");
    for axis in ["data", "tensor", "pipeline"] {
        let row = &rows(&output, axis)[0];
        assert!(row[1] == row[3] && number(row[1]) > 0.0, "{output}");
    }
    assert!(output.contains(": the same training."), "{output}");
}

#[test]
fn a_schedule_from_a_file_is_checked_explained_and_trained() {
    let output = output(EXAMPLES[8]);
    for part in [
        "a pass twice: stage 0: microbatch 1 is missing its backward; microbatch 0 runs backward again",
        "no row for a stage: stage 1 is in no row",
        "a circle: rows wait for one another: row 0 stands at 0B0 for 1B0",
        "no pass: row 0, cell 1: `hello` is not an action",
        "own.csv      no known schedule  makespan 14 of 12 work",
        "1f1b         1F1B               makespan 15 of 12 work",
        "zb-h1        ZB-H1              makespan 13 of 12 work",
        "Same weights to the last bit: true.",
    ] {
        assert!(output.contains(part), "no `{part}` in\n{output}");
    }
}

#[test]
fn the_best_cut_depends_on_the_wires() {
    let output = output(EXAMPLES[10]);
    let clusters: Vec<&str> = output.split("\n\n").skip(1).take(3).collect();
    let rows = |cluster: &str| -> Vec<(f64, f64)> {
        let lines = cluster.lines().filter(|line| line.contains(" step "));
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "step").unwrap();
            (number(words[at + 1]), number(words[at + 3]))
        };
        lines.map(row).collect()
    };
    let best = |cluster: &str| cluster.lines().last().unwrap().trim().to_owned();
    for cluster in &clusters {
        let rows = rows(cluster);
        assert_eq!(rows.len(), 3, "{output}");
        // The same work in every row, as far as rounded figures tell.
        let fastest = rows.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        for (seconds, tflops) in rows {
            let off = seconds * tflops / (fastest.0 * fastest.1) - 1.0;
            assert!(off.abs() < 0.5 / tflops + 0.02, "{seconds} s at {tflops}: {output}");
        }
    }
    // Slower wires are slower for every cut, and most of all where tensor ranks talk over them.
    let [fast, _, slow] = [0, 1, 2].map(|index| rows(clusters[index]));
    for (a, b) in fast.iter().zip(&slow) {
        assert!(b.0 > a.0, "{output}");
    }
    let loss = |cut: usize| slow[cut].0 / fast[cut].0;
    assert!(loss(0) > loss(1) && loss(0) > loss(2), "{output}");
    assert_ne!(best(clusters[0]), best(clusters[2]), "{output}");
}

#[test]
fn sixty_four_ranks_are_in_three_groups_of_four_each() {
    let output = output(EXAMPLES[11]);
    for (axis, stride) in [("data", "4"), ("tensor", "1"), ("pipeline", "16")] {
        let lines = rows(&output, axis);
        assert_eq!(lines[0][1..4], ["16", "4", stride], "{output}");
        assert!(lines[1][1] == lines[1][3] && number(lines[1][1]) > 0.0, "{output}");
    }
    assert!(output.contains("shares a group with 9 others"), "{output}");
    assert!(output.contains("on 64 ranks, 0 faults"), "{output}");
    assert!(output.contains("\n4 classes of ranks that are alike"), "{output}");
    assert_eq!(output.matches("PREDICTED").count(), 1, "{output}");
}

#[test]
fn more_microbatches_wait_less_with_every_schedule() {
    let output = output(EXAMPLES[9]);
    let shares = |first: &str| -> Vec<f64> {
        let line = output.lines().find(|line| line.starts_with(first)).unwrap();
        let words = line[24..].split_whitespace().take(6);
        words.map(|word| number(word.trim_end_matches('*'))).collect()
    };
    assert_eq!(shares("1F1B "), [60.0, 42.9, 27.3, 15.8, 8.6, 4.5]);
    assert_eq!(shares("interleaved 1F1B "), [55.6, 27.3, 15.8, 8.6, 4.5, 2.3]);
    assert_eq!(shares("ZB-H1 "), [45.5, 20.0, 11.1, 5.9, 3.0, 1.5]);
    for name in ["GPipe", "looped BFS", "ZB-H2", "interleaved zero bubble", "ZB-V", "DualPipe-V"] {
        let shares = shares(name);
        assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "{name}: {shares:?}");
    }
    let holes =
        |first: &str| output.lines().rfind(|line| line.starts_with(first)).unwrap().to_owned();
    assert!(holes("ZB-V").ends_with(" 6       0"), "{output}");
}

#[test]
fn sources_are_short_and_lead_from_one_to_the_next() {
    let mut files: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, EXAMPLES.map(|name| format!("{name}.rs")).to_vec());
    for (index, name) in EXAMPLES.iter().enumerate() {
        let text = fs::read_to_string(folder().join(format!("{name}.rs"))).unwrap();
        let intro: String = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
        assert!(intro.matches('.').count() >= 3, "{name} opens with what it shows");
        let code =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        assert!(code.count() < 80, "{name} has 80 lines or more");
        let next = match EXAMPLES.get(index + 1) {
            Some(next) => {
                format!("\\nNext: cargo run --release --example {next}\");\n    Ok(())\n}}\n")
            }
            None => "\\nNext: cargo run --release, which".into(),
        };
        assert!(text.contains(&next), "{name} ends with {next}");
    }
}
