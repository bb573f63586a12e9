//! Goal: the command does what its manual says: fields, arithmetic, exit codes, texts. Method: runs
//! the real program on a tiny model and reads what it prints.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use shardlab::cli::facts::suggestions;
use shardlab::cli::summary::{Command as Next, Suggestion};
use shardlab::config::{Layout, Recompute, Scenario, ScheduleName, ZeroStage};
use shardlab::plan::Action;
use shardlab::planner::{Purpose, StepSpec, plan_step};
use shardlab::predict::here::{Calibration, Curve, Sizes};
use shardlab::sim::Workers;
use shardlab::units::{Bytes, Nanos};

/// Eight ranks and a model that trains a step in milliseconds.
const TINY: &str = r#"
name = "tiny"
model.preset = "tiny"
[layout]
dp = 2
tp = 2
pp = 2
zero = 1
microbatches = 2
[training]
steps = 4
batch = 4
seq = 8
warmup = 0
"#;

fn shardlab(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardlab"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    // What a person has measured or chosen on this machine is none of a test's business.
    command.env("XDG_CONFIG_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-settings"));
    command
}

/// A folder with `tiny.toml` in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    folder
}

/// Runs a command in a folder on the CPU.
fn run_in(folder: &Path, arguments: &str) -> Output {
    shardlab(arguments).current_dir(folder).output().unwrap()
}

fn run(arguments: &str) -> Output {
    run_in(folder().path(), arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON of a command that ends with `code`.
#[track_caller]
fn json(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command that must fail with `code` says; nothing goes to stdout.
#[track_caller]
fn refusal(arguments: &str, code: i32) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "{arguments} prints data although it fails");
    let error = text(&output.stderr);
    assert!(error.contains("error: "), "{arguments} says `{error}`");
    error
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sum(values: &Value) -> u64 {
    let values: Vec<&Value> = match values {
        Value::Array(values) => values.iter().collect(),
        other => other.as_object().unwrap().values().collect(),
    };
    values.iter().map(|value| value.as_u64().unwrap()).sum()
}

#[test]
fn train_prints_the_fields_of_the_manual_and_their_sums_agree() {
    let report = json(&run("train tiny.toml --device cpu --json"), 0);
    // serde_json keeps keys sorted.
    let fields = [
        "badges",
        "bubble",
        "bytes_per_step",
        "critical_path",
        "devices",
        "devices_spend",
        "idle",
        "layout",
        "limit",
        "links",
        "memory",
        "messages",
        "predicted_step_seconds",
        "steps",
        "tokens_per_second",
        "waiting_parts",
    ];
    assert_eq!(keys(&report), fields);
    assert!(report["predicted_step_seconds"].is_null(), "nobody has measured this machine");
    assert_eq!(report["layout"]["dp"], 2);
    assert_eq!(report["layout"]["microbatches"], 2);
    assert_eq!(report["devices"].as_array().unwrap().len(), 8);

    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 4);
    let mut seconds = 0.0;
    for (index, step) in steps.iter().enumerate() {
        assert_eq!(keys(step), ["grad_norm", "loss", "lr", "seconds", "step"]);
        assert_eq!(step["step"], index);
        assert!(step["loss"].as_f64().unwrap() > 0.0 && step["grad_norm"].as_f64().unwrap() > 0.0);
        seconds += step["seconds"].as_f64().unwrap();
    }
    let speed = report["tokens_per_second"].as_f64().unwrap();
    assert!((speed * seconds / f64::from(4 * 4 * 8) - 1.0).abs() < 1e-9);

    let bytes = &report["bytes_per_step"];
    assert_eq!(keys(bytes), ["by_axis", "by_rank", "total"]);
    assert_eq!(keys(&bytes["by_axis"]), ["dp", "pp", "tp"]);
    let total = bytes["total"].as_u64().unwrap();
    assert!(total > 0);
    assert_eq!((sum(&bytes["by_axis"]), sum(&bytes["by_rank"])), (total, total));
    // One boundary, both directions, two microbatches of [8, 1, 32] floats on 4 lines of ranks.
    assert_eq!(bytes["by_axis"]["pp"].as_u64(), Some(4 * 2 * 2 * 8 * 32 * 4 + 4 * 2 * 4));

    let memory = report["memory"].as_array().unwrap();
    assert_eq!(memory.len(), 8);
    for (rank, entry) in memory.iter().enumerate() {
        let bytes = |field: &str| entry[field].as_u64().unwrap();
        let roles = ["weights", "gradients", "optimizer", "activations", "workspace"];
        assert_eq!(entry["rank"], rank);
        assert_eq!(roles.map(bytes).iter().sum::<u64>(), bytes("peak"));
        assert!(bytes("placed") >= bytes("peak"), "rank {rank} keeps more than it places");
    }

    let bubble = &report["bubble"];
    let ratio = |field: &str| bubble[field].as_f64().unwrap();
    let (span, ideal) = (ratio("waiting_over_span"), ratio("waiting_over_ideal"));
    assert!((0.0..1.0).contains(&span) && (0.0..=1.0).contains(&ratio("idle_of_step")));
    // Waiting over span w and over work i say the same: i = w / (1 − w).
    assert!((ideal - span / (1.0 - span)).abs() < 1e-9);
    assert_eq!(bubble["clock"], "REPLAYED");
    assert_times(&report, "free");
    for (field, badge) in [
        ("seconds", "MEASURED"),
        ("tokens_per_second", "MEASURED"),
        ("bubble", "REPLAYED"),
        ("bytes_per_step", "COUNTED"),
        ("memory", "COUNTED"),
        ("waiting_parts", "REPLAYED"),
        ("idle", "REPLAYED"),
        ("critical_path", "REPLAYED"),
        ("messages", "REPLAYED"),
        ("devices_spend", "MEASURED"),
        ("limit", "MEASURED"),
    ] {
        assert_eq!(report["badges"][field], badge);
    }
}

/// Everything that a report tells of its clocks adds up.
fn assert_times(report: &Value, links: &str) {
    assert_eq!(report["links"], links);
    let step = report["idle"]["step"].as_u64().unwrap();
    for rank in report["idle"]["ranks"].as_array().unwrap() {
        assert_eq!(rank["busy"].as_u64().unwrap() + sum(&rank["idle"]), step, "{rank}");
    }
    let path = &report["critical_path"];
    let rest = ["messages", "ready"].map(|part| path[part].as_u64().unwrap());
    assert_eq!(sum(&path["work"]) + rest[0] + rest[1], step, "{path}");
    assert_eq!(rest[1], 0, "in a replay what is ready runs");
    let shares = &report["devices_spend"];
    let spent: f64 = ["kernels", "messages", "dispatch", "waiting"]
        .map(|share| shares[share].as_f64().unwrap())
        .iter()
        .sum();
    assert!((spent - 1.0).abs() < 1e-9, "{shares}");
    assert!(shares[report["limit"].as_str().unwrap()].as_f64().unwrap() >= 0.25);
    let parts = &report["waiting_parts"];
    assert_eq!(parts["with_links"], report["bubble"]["waiting_over_span"]);
}

#[test]
fn a_replay_has_the_links_that_are_asked_for_and_says_so() {
    let folder = folder();
    let report = |links: &str| {
        let words = format!("train tiny.toml --device cpu --json --links {links}");
        let report = json(&run_in(folder.path(), &words), 0);
        assert_times(&report, links);
        let messages = report["messages"].clone();
        ["hidden", "exposed"].map(|part| messages[part].as_u64().unwrap()).iter().sum::<u64>()
    };
    assert_eq!(report("free"), 0);
    // Each message of a rank takes 5.7 µs at least.
    assert!(report("pcie") > 20 * 5_700);
    let output = run_in(folder.path(), "train tiny.toml --device cpu --links nvlink");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_default();
    assert!(line("Waiting").contains("links: nvlink") && line("Waiting").ends_with("REPLAYED"));
    assert!(line("by formula").ends_with("FORMULA"), "{text}");
    assert!(line("Critical path").ends_with("REPLAYED"), "{text}");
    assert!(line(" hidden, ").ends_with("REPLAYED"), "{text}");
    assert!(line("Device time").ends_with("MEASURED"), "{text}");
    let refused = refusal("train tiny.toml --links pci", 2);
    assert!(refused.contains("`pci` is not known"), "{refused}");
}

#[test]
fn plan_and_train_count_the_same_bytes_and_memory() {
    let folder = folder();
    let flags = "tiny.toml --zero 3 --sequence-parallel --recompute full --json";
    let plan = json(&run_in(folder.path(), &format!("plan {flags}")), 0);
    let train = json(&run_in(folder.path(), &format!("train {flags} --device cpu --steps 1")), 0);
    assert_eq!(plan["bytes_per_step"], train["bytes_per_step"]);
    assert_eq!(plan["memory"], train["memory"]);
    assert_eq!(plan["layout"], train["layout"]);
    assert_eq!(plan["faults"], Value::Array(Vec::new()));
}

#[test]
fn plan_shows_the_schedule_of_the_textbook() {
    let text = text(&run("plan tiny.toml").stdout);
    for line in [
        "  p0  F0 F1 ░░ ░░ B0--- ░░ B1---\n",
        "  p1  ░░ F0 B0--- F1 B1--- ░░ ░░\n",
        "  makespan 9, waiting/span 33.3 %, waiting/ideal 50.0 %\n",
        "  formula (p−1)/(m+p−1) = 33.3 %, (p−1)/m = 50.0 %\n",
        "  p0   keeps 2 microbatches at most; embedding, layer 0\n",
        "  p1   keeps 1 microbatch at most; layer 1, head\n",
        " nodes, 0 faults\n",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    let plan = json(&run("plan --pp 4 --tp 1 --microbatches 8 --json"), 0);
    assert_eq!(plan["makespan"], 33);
    assert_eq!(plan["in_flight_peaks"], serde_json::json!([4, 3, 2, 1]));
    for ratios in [&plan["bubble"], &plan["formula"]] {
        assert!((ratios["waiting_over_span"].as_f64().unwrap() - 3.0 / 11.0).abs() < 1e-12);
        assert!((ratios["waiting_over_ideal"].as_f64().unwrap() - 3.0 / 8.0).abs() < 1e-12);
    }
}

#[test]
fn plan_explains_named_schedules_and_files() {
    let folder = folder();
    let flags = "--pp 3 --tp 1 --dp 1 --microbatches 8 --schedule";
    let shown = text(&run_in(folder.path(), &format!("plan {flags} zb-v")).stdout);
    for line in [
        "pipeline 3 · ZeRO 0 · ZB-V, 2 stages a position · 8 microbatches",
        "  this is ZB-V\n",
        "  makespan 50, waiting/span 4.0 %, waiting/ideal 4.2 %\n",
        "  formula (p−1)/(6m+p−1) = 4.0 %, (p−1)/(6m) = 4.2 %\n",
        "  work of the busiest position 48; holes inside rows 0, of 6 waiting\n",
        "  p0   keeps 6 microbatches at most (stage 0 6, stage 5 1); embedding, head\n",
    ] {
        assert!(shown.contains(line), "no `{line}` in\n{shown}");
    }
    // Its own table, with messages that would hang elsewhere, is known again.
    let csv = text(&run_in(folder.path(), &format!("plan {flags} zb-v --csv")).stdout);
    let with_messages = csv.replacen("0F0,", "0SEND_F2,0F0,2RECV_B0,", 1);
    let with_messages = with_messages.replacen("1F0,", "3SEND_B0,1F0,1RECV_F2,", 1);
    fs::write(folder.path().join("v.csv"), with_messages).unwrap();
    let output = run_in(folder.path(), "plan --tp 1 --dp 1 --schedule v.csv --json");
    let note = text(&output.stderr);
    assert!(note.contains("row 0 stands at 0SEND_F2 for 1RECV_F2"), "{note}");
    let read = json(&output, 0);
    assert_eq!((&read["known"], &read["layout"]["chunks"]), (&"zb-v".into(), &2.into()));
    assert_eq!(read["stage_peaks"], serde_json::json!([6, 5, 4, 3, 2, 1]));
    for (flags, words) in [
        ("--schedule gpipe --chunks 2", "has one stage a pipeline position"),
        ("--schedule zb-v --chunks 3", "has two stages a pipeline position, in a V"),
        ("--schedule interleaved-1f1b --pp 4 --chunks 3", "12 stages need 12 units"),
    ] {
        let error = refusal(&format!("plan --tp 1 {flags}"), 2);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_schedule_goes_out_as_csv_and_comes_back() {
    let folder = folder();
    let written = run_in(folder.path(), "plan --pp 4 --tp 1 --schedule gpipe --csv");
    fs::write(folder.path().join("g.csv"), &written.stdout).unwrap();
    let read = json(&run_in(folder.path(), "plan --tp 1 --schedule g.csv --json"), 0);
    assert_eq!((&read["layout"]["pp"], &read["makespan"]), (&4.into(), &21.into()));
    let again = run_in(folder.path(), "plan --tp 1 --schedule g.csv --csv");
    assert_eq!(again.stdout, written.stdout);

    fs::write(folder.path().join("bad.csv"), "0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n").unwrap();
    let refused = run_in(folder.path(), "plan --schedule bad.csv");
    assert_eq!(refused.status.code(), Some(2));
    let error = text(&refused.stderr);
    assert!(error.contains("stage 0") && error.contains("microbatch 1"), "{error}");
}

#[test]
fn plan_writes_the_schedule_as_a_picture() {
    let folder = folder();
    let flags = "plan --pp 4 --tp 1 --microbatches 8 --svg plan.svg --json";
    let plan = json(&run_in(folder.path(), flags), 0);
    let svg = fs::read_to_string(folder.path().join("plan.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains(&format!("{} units, waiting 27.3 % of them.", plan["makespan"])));
    assert!(svg.contains(">FORMULA</text>") && svg.contains(">B backward</text>"));
    // A title for each pass and each wait of the four rows.
    let passes = svg.matches(" runs forward of microbatch ").count();
    assert_eq!((passes, svg.matches(" runs backward of microbatch ").count()), (32, 32));
    assert!(svg.contains("<title>Rank 0 waits 6 units for B0 from rank 1 (pipeline), "));
    let refused = refusal("plan --svg missing/plan.svg", 2);
    assert!(refused.contains("missing/plan.svg"), "{refused}");
}

#[test]
fn the_text_of_a_rank_is_a_part_of_the_text_of_the_plan() {
    let folder = folder();
    let whole = text(&run_in(folder.path(), "plan tiny.toml --text").stdout);
    let one = text(&run_in(folder.path(), "plan tiny.toml --text --rank 3").stdout);
    assert!(whole.contains("\nrank 7\n") && one.contains("\nrank 3\n"));
    assert!(!one.contains("\nrank 2\n") && !one.contains("\nbuffer 2 "));
    let all: std::collections::BTreeSet<&str> = whole.lines().collect();
    assert!(one.lines().all(|line| all.contains(line)));
    assert!(refusal("plan tiny.toml --text --rank 8", 2).contains("Use 0 to 7"));
}

#[test]
fn verify_passes_with_the_fields_of_the_manual() {
    let fields = [
        "final_rel_max",
        "first_difference",
        "grad_norm_rel_max",
        "grad_rel_max",
        "loss_rel_max",
        "pass",
    ];
    let verified = json(&run("verify tiny.toml --device cpu --json"), 0);
    assert_eq!(keys(&verified), fields);
    assert_eq!((&verified["pass"], &verified["first_difference"]), (&true.into(), &Value::Null));
    assert!(verified["grad_rel_max"].as_f64().unwrap() <= 1e-5);
    let adam = json(&run("verify tiny.toml --optimizer adamw --zero 3 --device cpu --json"), 0);
    assert_eq!(adam["pass"], true);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plain");
    let verified = json(&run(&format!("verify --golden {golden} --tp 2 --device cpu --json")), 0);
    assert_eq!(keys(&verified), fields);
    assert_eq!(verified["pass"], true);
}

/// A reference case whose last weights were changed must be told apart, by name.
#[test]
fn verify_names_the_first_tensor_that_differs_and_exits_with_1() {
    let folder = folder();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sgd-tied-masked");
    let copy = folder.path().join("case");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(golden).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let train: Value = serde_json::from_slice(&fs::read(copy.join("train.json")).unwrap()).unwrap();
    let mut changed = train.clone();
    changed["lr"] = (train["lr"].as_f64().unwrap() * 1.01).into();
    fs::write(copy.join("train.json"), changed.to_string()).unwrap();
    let output = run_in(folder.path(), "verify --golden case --device cpu");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("FAIL: the first that differs is the loss of step 1"), "{shown}");
    let json = json(&run_in(folder.path(), "verify --golden case --device cpu --json"), 1);
    assert_eq!(json["pass"], false);
    assert!(json["first_difference"].as_str().unwrap().starts_with("loss of step 1"));
}

#[test]
fn contradictory_and_illegal_flags_are_refused_with_the_sum() {
    let error = refusal("train --micro-batch-size 2 --microbatches 4", 2);
    let sum = "batch 32 / dp 2 = 16 rows a rank; 16 / micro-batch-size 2 = 8 microbatches, \
               but --microbatches says 4";
    assert!(error.contains(sum), "{error}");
    assert!(refusal("train --tp 3", 2).contains("8 heads cannot be split over 3 tensor ranks"));
    assert!(refusal("plan --pp 7 --tp 1", 2).contains("7 stages need 7 units"));
    assert!(refusal("plan --dp 8 --microbatches 8", 2).contains("too few for 8 microbatches"));
    assert!(refusal("verify --schedule 1f1", 2).contains("Did you mean `1f1b`?"));
    assert!(refusal("train --collective hierarchical", 2).contains("Give a node size"));
    assert!(refusal("plan --dp 0 --tp 0", 2).matches("is 0").count() == 2);
}

#[test]
fn each_class_of_failure_has_its_exit_code() {
    // Usage.
    refusal("train --no-such-flag", 2);
    refusal("trian", 2);
    refusal("train none.toml", 2);
    refusal("train --checkpoint-every 5", 2);
    refusal("verify --golden case --model tiny", 2);
    // Configuration and data.
    assert!(refusal("train --model no/such/folder", 2).contains("config.json"));
    assert!(refusal("train tiny.toml --data none.txt", 2).contains("none.txt: cannot be read"));
    assert!(refusal("train tiny.toml --seq 1000000", 2).contains("hold no row of seq 1000000"));
    assert!(refusal("train --resume nowhere", 2).contains("nowhere"));
    let small = refusal("train tiny.toml --device-memory 70KiB", 2);
    assert!(small.contains("has 70.0 KiB: the step does not fit"), "{small}");
    // A file for results that cannot be opened.
    refusal("train tiny.toml --metrics no/such/folder/m.jsonl", 2);
    // No such device.
    let device = refusal("train tiny.toml --device nosuch", 3);
    assert!(device.contains("no adapter is called nosuch") && device.contains("--device cpu"));
    // Help and version are no failures.
    for arguments in ["--help", "train --help", "--version", "completions bash"] {
        let output = run(arguments);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments}");
    }
}

#[test]
fn a_number_that_is_not_finite_is_named_and_what_was_trained_is_reported() {
    let output = run(
        "train tiny.toml --device cpu --optimizer sgd --clip-norm 0 --lr 1e30 --steps 9 --json",
    );
    let report = json(&output, 4);
    let error = text(&output.stderr);
    for part in ["error: step 1: first non-finite number on rank ", "layer ", "microbatch "] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(report["steps"].as_array().unwrap().len(), 1);
    // On the very first step nothing was trained, and that is still an object.
    let all = "train tiny.toml --device cpu --optimizer sgd --clip-norm 0 --lr 3e38 --json";
    let report = json(&run(all), 4);
    assert!(report["memory"].is_array());
}

/// The summary of the quickstart ends with commands and what they will show.
#[test]
fn what_is_suggested_next_runs_as_it_is_written_and_keeps_its_promise() {
    let next = suggestions(&Scenario::quickstart());
    assert_eq!(next.len(), 4);
    for Suggestion { command, what } in next {
        let Next::Own(arguments) = command else {
            // The window is another program.
            assert_eq!(what, "watch it in a window");
            continue;
        };
        let report = json(&run(&format!("{arguments} --steps 1 --device cpu --json")), 0);
        if arguments.starts_with("verify") {
            assert_eq!(report["pass"], true);
            continue;
        }
        let size = |field: &str| report["layout"][field].as_f64().unwrap();
        let (p, m) = (size("pp"), size("microbatches"));
        let share = 100.0 * (p - 1.0) / (m + p - 1.0);
        assert!(
            what.ends_with(&format!(" to {share:.0} % FORMULA")),
            "{arguments} promises `{what}`"
        );
        assert_eq!(report["steps"].as_array().unwrap().len(), 1);
        assert!(report["steps"][0]["loss"].as_f64().unwrap() > 0.0, "the last stage has the loss");
    }
}

fn losses(path: &Path) -> Vec<(u64, f64, f64)> {
    let text = fs::read_to_string(path).unwrap();
    let line = |line: &str| -> (u64, f64, f64) {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |field: &str| line[field].as_f64().unwrap();
        assert!(number("tokens_per_second") > 0.0 && number("lr") > 0.0);
        (line["step"].as_u64().unwrap(), number("loss"), number("grad_norm"))
    };
    text.lines().map(line).collect()
}

#[test]
fn a_resumed_run_goes_on_with_the_same_bits_and_in_another_layout_nearly() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let run = |arguments: &str| {
        let output = run_in(folder.path(), &format!("train --device cpu {arguments} --json"));
        json(&output, 0)
    };
    run("tiny.toml --steps 6 --metrics whole.jsonl");
    run("tiny.toml --steps 6 --checkpoint six --metrics again.jsonl");
    assert_eq!(losses(&at("whole.jsonl")), losses(&at("again.jsonl")));
    // At a constant rate it does not matter how many steps a run was meant to have.
    fs::write(at("flat.toml"), TINY.replace("warmup = 0", "warmup = 0\nlr-min-ratio = 1.0"))
        .unwrap();
    run("flat.toml --steps 3 --checkpoint three --metrics parts.jsonl");
    run("--resume three --steps 6 --metrics parts.jsonl --checkpoint six");
    run("flat.toml --steps 6 --metrics flat.jsonl");
    assert_eq!(losses(&at("parts.jsonl")), losses(&at("flat.jsonl")));
    run("--resume three --steps 6 --metrics other.jsonl --dp 1 --tp 4 --pp 1 --zero 0");
    let (flat, other) = (losses(&at("flat.jsonl")), losses(&at("other.jsonl")));
    assert_eq!((flat.len(), other.len()), (6, 3));
    for (one, other) in flat[3..].iter().zip(other) {
        assert!((one.1 - other.1).abs() < 1e-4 * one.1, "{one:?} {other:?}");
    }
    let done = run_in(folder.path(), "train --resume six");
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("has trained 6 of 6 steps already"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_step_writes_the_checkpoint_and_reports_what_was_trained() {
    let folder = folder();
    let metrics = folder.path().join("m.jsonl");
    let child = shardlab(
        "train tiny.toml --device cpu --steps 1000000 --checkpoint cut --metrics m.jsonl --json",
    )
    .current_dir(folder.path())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    // Some steps are trained before it is interrupted.
    let trained = || fs::read_to_string(&metrics).unwrap_or_default().lines().count();
    for _ in 0..600 {
        if trained() >= 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let report = json(&output, 130);
    let steps = report["steps"].as_array().unwrap().len();
    assert!(steps >= 3);
    assert_eq!(trained(), steps);
    let next = steps + 1;
    let resume = format!("train --resume cut --device cpu --steps {next} --json");
    let report = json(&run_in(folder.path(), &resume), 0);
    assert_eq!(report["steps"][0]["step"], steps);
}

#[test]
fn a_trace_has_a_span_and_a_name_for_every_instruction() {
    let folder = folder();
    json(&run_in(folder.path(), "train tiny.toml --device cpu --trace t.json --json"), 0);
    let trace: Value =
        serde_json::from_slice(&fs::read(folder.path().join("t.json")).unwrap()).unwrap();
    let names = trace["instructions"].as_array().unwrap();
    assert_eq!(names.len(), 8);
    for (clock, word) in [("measured", "MEASURED"), ("replayed", "REPLAYED")] {
        assert_eq!(trace[clock]["clock"], word);
        for (names, spans) in names.iter().zip(trace[clock]["spans"].as_array().unwrap()) {
            let spans = spans.as_array().unwrap();
            assert_eq!(names.as_array().unwrap().len(), spans.len());
            assert!(spans.iter().all(|span| span["start"].as_u64() <= span["end"].as_u64()));
        }
    }
}

#[test]
fn plan_and_train_name_the_same_need_for_memory() {
    let folder = folder();
    let need = |command: &str| {
        let flags = "tiny.toml --device-memory 1KiB";
        let output = run_in(folder.path(), &format!("{command} {flags}"));
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        let (_, need) = text.split_once(" needs ").unwrap();
        need.split_once(',').unwrap().0.to_owned()
    };
    let planned = need("plan");
    assert_eq!(planned, need("train --device cpu"));
    // So much is enough for training and held-out losses both.
    let (number, unit) = planned.split_once(' ').unwrap();
    let roomy = format!("{}{unit}", number.parse::<f64>().unwrap() + 0.1);
    let train = format!("train tiny.toml --device cpu --device-memory {roomy}");
    assert_eq!(run_in(folder.path(), &train).status.code(), Some(0), "{roomy}");
}

#[test]
fn what_cannot_be_opened_or_is_negative_is_refused_before_anything_runs() {
    let folder = folder();
    for (args, says) in [
        ("train tiny.toml --device cpu --metrics none/x", "none/x: cannot be written"),
        ("train tiny.toml --device cpu --trace none/x", "none/x: cannot be written"),
        ("train tiny.toml --steps -1", "invalid value '-1' for '--steps"),
        ("train tiny.toml --lr -1", "lr: -1 is not"),
        ("plan tiny.toml --device-memory -5", "invalid value '-5' for '--device-memory"),
        ("verify --golden none", "none/config.json: cannot be read"),
    ] {
        let output = run_in(folder.path(), args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {text}");
        assert!(text.contains(says) && output.stdout.is_empty(), "{args}: {text}");
    }
}

/// A wide model of two layers, which few layouts cut: a search takes moments.
const WIDE: &str = "layers = 2\nhidden = 7936\nheads = 62\nkv_heads = 62\nhead_dim = 128\n\
                    ffn = 31744\nvocab = 32000\ngated = true\n";

#[test]
fn a_search_accounts_for_every_layout_and_its_best_one_is_predicted_again() {
    let folder = folder();
    fs::write(folder.path().join("wide.toml"), WIDE).unwrap();
    let search = "search --model wide.toml --cluster a100-40 --gpus 16 --batch 32 --seq 2048";
    let found = json(&run_in(folder.path(), &format!("{search} --json")), 0);
    let counts = &found["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(count("enumerated"), count("refused") + count("bounded") + count("simulated"));
    assert_eq!(count("open"), 0);
    let refused = found["refused"].as_array().unwrap();
    let by_reason: u64 = refused.iter().map(|of| of["count"].as_u64().unwrap()).sum();
    assert_eq!(by_reason, count("refused"));
    assert!(refused.iter().any(|of| of["reason"] == "memory"), "{refused:?}");
    let best = found["best"].as_array().unwrap();
    assert_eq!(best.len(), 10);
    let seconds = |of: &Value| of["step_seconds"].as_f64().unwrap();
    assert!(best.windows(2).all(|pair| seconds(&pair[0]) <= seconds(&pair[1])));
    // The front begins with the fastest, and every point of it is slower and smaller than the last.
    let front = found["front"].as_array().unwrap();
    let memory = |of: &Value| of["memory_bytes"].as_f64().unwrap();
    assert_eq!(front[0], best[0]);
    for pair in front.windows(2) {
        assert!(seconds(&pair[0]) < seconds(&pair[1]) && memory(&pair[0]) > memory(&pair[1]));
    }
    let losses = found["second_loses"].as_array().unwrap();
    let sum: f64 = losses.iter().map(|loss| loss["seconds"].as_f64().unwrap()).sum();
    assert!((sum - (seconds(&best[1]) - seconds(&best[0]))).abs() < 1e-9);
    // The command that is printed at the end.
    let repeat = found["repeat"].as_str().unwrap().strip_prefix("shardlab ").unwrap();
    let again = json(&run_in(folder.path(), &format!("{repeat} --json")), 0);
    assert_eq!(seconds(&again), seconds(&best[0]));
    assert_eq!(again["fits"], true);
    assert_eq!(again["mfu"], best[0]["mfu"]);

    let output = run_in(folder.path(), search);
    let said = text(&output.stdout);
    let line = format!(
        "{} layouts: {} refused, {} bounded away, {} simulated  COUNTED",
        count("enumerated"),
        count("refused"),
        count("bounded"),
        count("simulated")
    );
    assert!(said.contains(&line), "{said}");
    assert!(said.contains(&format!("the best again: shardlab {repeat}\n")), "{said}");
    assert_eq!(said.matches("  PREDICTED\n").count(), 3, "two tables and why: {said}");
    assert!(output.stderr.is_empty(), "no bar where there is no terminal");
}

#[test]
fn a_search_that_finds_nothing_says_what_the_smallest_needs_and_what_to_do() {
    let error = refusal("search --model llama-3-405b --gpus 8", 2);
    assert!(
        error.contains("llama-3-405b on 8 GPUs of h100: no layout fits: the smallest"),
        "{error}"
    );
    assert!(
        error.contains("a step may take 69.3 GiB of a card of 80 GB. Use more --gpus"),
        "{error}"
    );
    let error = refusal("search --model llama-3-8b --gpus 97 --batch 96", 2);
    assert!(error.contains("layouts are refused, most as in:"), "{error}");
    assert!(refusal("search --model llama-3-80b", 2).contains("Did you mean `llama-3-8b`?"));
    assert!(refusal("search --cluster h101", 2).contains("Did you mean `h100`?"));
}

#[test]
fn a_recorded_step_is_exported_for_other_programs() {
    let folder = folder();
    json(&run_in(folder.path(), "train tiny.toml --device cpu --trace t.json --json"), 0);
    let export = |args: &str| {
        let output = run_in(folder.path(), &format!("trace export t.json {args}"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let table = export("--format csv");
    assert!(table.starts_with("rank,stage,microbatch,layer,phase,what,"), "{table}");
    assert!(table.lines().skip(1).all(|line| line.ends_with(",REPLAYED")));
    let lines = export("--format jsonl --clock measured --instructions");
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["clock"], "MEASURED");
    }
    export("--format kineto -o ranks/");
    export("--format kineto -o all.json");
    for rank in 0..8 {
        let file = folder.path().join(format!("ranks/rank{rank}.pt.trace.json"));
        let text = fs::read_to_string(file).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(whole["distributedInfo"]["rank"], rank);
        // Analysers take the first number after this word, and want the space.
        let (_, after) = text.split_once("\"rank\": ").unwrap();
        assert!(after.starts_with(&rank.to_string()), "{}", &after[..20]);
    }
    let refused = run_in(folder.path(), "trace export tiny.toml --format csv");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("train --trace FILE"));
}

#[test]
fn doctor_says_that_the_cpu_can_train_and_how_fast_it_is() {
    let answer = json(&run("doctor --json"), 0);
    assert_eq!(answer["can_train"], true);
    assert!(answer["cpu"]["gemm_gflops"].as_f64().unwrap() > 0.0);
    assert!(answer["cpu"]["copy_gigabytes_per_second"].as_f64().unwrap() > 0.0);
    assert!(answer["cpu"]["cores"].as_u64().unwrap() > 0);
    let adapters = answer["adapters"].as_array().unwrap();
    for (index, adapter) in adapters.iter().enumerate() {
        assert_eq!(adapter["index"], index);
        assert!(adapter["pass"].is_boolean() && !adapter["self_test"].as_str().unwrap().is_empty());
    }
    assert!(!answer["advice"].as_array().unwrap().is_empty());
}

/// A machine on which every unit of work of a scenario takes a nanosecond, also of its other layouts
/// on two ranks, and its file.
fn calibration(folder: &Path) -> PathBuf {
    let scenario = Scenario::read(&folder.join("tiny.toml")).unwrap();
    let spec = StepSpec {
        model: scenario.model.resolve().unwrap(),
        layout: scenario.layout,
        training: scenario.training,
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    };
    let mut plans = vec![plan_step(&spec).unwrap()];
    let mut layout = |layout: Layout| {
        plans.extend(plan_step(&StepSpec { layout, ..spec.clone() }));
    };
    for (dp, tp, pp) in [(2, 1, 1), (1, 2, 1), (1, 1, 2)] {
        for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
            let two = Layout { dp, tp, pp, recompute, microbatches: 2, ..Layout::default() };
            layout(Layout { sequence_parallel: true, ..two.clone() });
            layout(Layout { schedule: ScheduleName::ZbH1, ..two.clone() });
            for zero in [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
                layout(Layout { zero, ..two.clone() });
            }
        }
    }
    let workers = Workers { count: 2, wake: Nanos(0), patience: Nanos(0) };
    let mut calibration = Calibration::new("A machine".into(), &workers, u64::MAX);
    let programs = plans.iter().flat_map(|plan| &plan.programs);
    let launched = programs.flat_map(|program| &program.instrs).filter_map(|instr| {
        let Action::Launch { op, .. } = &instr.action else { return None };
        Sizes::of(op)
    });
    for sizes in launched.chain([Sizes::of_copy(Bytes(4)), Sizes::of_message(Bytes(4))]) {
        let axes = vec![vec![1.0]; sizes.at.len()];
        let curve = Curve { axes, alone: vec![1.0], crowded: vec![1.0] };
        calibration.kernels.insert(sizes.kernel.into(), curve);
    }
    let path = folder.join("machine.toml");
    calibration.write(&path).unwrap();
    path
}

#[test]
fn a_step_is_predicted_from_what_a_machine_was_measured_to_take() {
    let refused = refusal("plan tiny.toml --predict", 2);
    assert!(
        refused.contains("has not been measured. Run `shardlab doctor --calibrate`"),
        "{refused}"
    );
    let folder = folder();
    let path = calibration(folder.path());
    let predict = "plan tiny.toml --predict --calibration machine.toml";
    let answer = json(&run_in(folder.path(), &format!("{predict} --json")), 0);
    assert_eq!(answer["predicted"]["machine"], "A machine");
    assert_eq!(answer["badges"]["predicted"], "PREDICTED");
    let seconds = answer["predicted"]["step_seconds"].as_f64().unwrap();
    assert!(seconds > 0.0);
    let shown = text(&run_in(folder.path(), predict).stdout);
    assert!(shown.contains("A step on 2 cores of A machine"), "{shown}");
    assert!(shown.contains(&format!("  {:.1} ms", seconds * 1e3)), "{shown}");
    assert!(json(&run("plan tiny.toml --json"), 0)["predicted"].is_null(), "not asked for");

    // One worker takes longer than two, and a file of another form is refused.
    let written = fs::read_to_string(&path).unwrap();
    fs::write(&path, written.replace("worker-count = 2", "worker-count = 1")).unwrap();
    let answer = json(&run_in(folder.path(), &format!("{predict} --json")), 0);
    assert!(answer["predicted"]["step_seconds"].as_f64().unwrap() > 1.5 * seconds);
    fs::write(&path, written.replace("form = 1", "form = 9")).unwrap();
    let output = run_in(folder.path(), predict);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("doctor --calibrate"));
}

#[test]
fn this_machine_is_a_cluster_of_simulate_too() {
    let refused = refusal("simulate --cluster here --dp 2 --tp 1 --pp 1", 2);
    assert!(
        refused.contains("has not been measured. Run `shardlab doctor --calibrate`"),
        "{refused}"
    );
    let folder = folder();
    calibration(folder.path());
    let flags = "tiny.toml --dp 2 --tp 1 --pp 1 --calibration machine.toml --json";
    let planned = json(&run_in(folder.path(), &format!("plan --predict {flags}")), 0);
    let simulated = run_in(folder.path(), &format!("simulate --cluster here {flags}"));
    assert_eq!(json(&simulated, 0), planned);
    let refused = refusal("simulate tiny.toml", 2);
    assert!(refused.contains("scenario: is trained on this machine"), "{refused}");
}

#[test]
fn the_best_layout_of_this_machine_is_trained_and_both_are_told_in_one_object() {
    let folder = folder();
    calibration(folder.path());
    let search = "search --here tiny.toml --ranks 2 --calibration machine.toml";
    let found = json(&run_in(folder.path(), &format!("{search} --json")), 0);
    let trained = json(&run_in(folder.path(), &format!("{search} --run --steps 2 --json")), 0);
    for field in ["best", "front", "counts", "refused"] {
        assert_eq!(found[field], trained[field], "{field}");
    }
    assert!(found["training"].is_null());
    let (best, training) = (&trained["best"][0], &trained["training"]);
    assert_eq!(training["steps"].as_array().unwrap().len(), 2);
    assert_eq!(training["predicted_step_seconds"], best["step_seconds"]);
    for size in ["tp", "pp", "dp", "zero", "recompute"] {
        assert_eq!(training["layout"][size], best["cut"][size], "{size}: {training}");
    }
    // What is computed again is searched too, and asked for by the command that trains the best.
    let recomputes = |of: &Value| of["cut"]["recompute"].as_str().unwrap().to_owned();
    let front = found["front"].as_array().unwrap();
    assert!(front.iter().map(recomputes).any(|word| word != "none"), "{front:?}");
    assert!(found["train"].as_str().unwrap().contains(" --recompute "), "{found}");
}

#[test]
fn a_bench_counts_the_plan_and_holds_what_it_measures_against_the_limits() {
    let bench = json(&run("bench tiny.toml --steps 2 --device cpu --threads 1 --json"), 0);
    let plan = json(&run("plan tiny.toml --json"), 0);
    let work = bench["work"].as_array().unwrap();
    // Every instruction is of some kind, and a receive is told with its send.
    let count: f64 = work.iter().map(|of| of["count"].as_f64().unwrap()).sum();
    let sent = work.iter().filter(|of| of["name"].as_str().unwrap().starts_with("message"));
    let messages: f64 = sent.map(|of| of["count"].as_f64().unwrap()).sum();
    assert_eq!(count + messages, plan["instructions"].as_f64().unwrap());
    let limits = &bench["limits"];
    assert_eq!(limits["places"], 1);
    for of in work {
        let share = of["share_of_limit"].as_f64().unwrap();
        assert!(share > 0.0 && share.is_finite(), "{of}");
    }
    let training = &bench["training"];
    let number = |key: &str| training[key].as_f64().unwrap();
    assert_eq!(number("steps"), 2.0);
    // Four rows of eight tokens.
    let tokens = number("tokens_per_second") * number("step_seconds");
    assert!((tokens - 32.0).abs() < 1e-6, "{training}");
    let simulator = &bench["simulator"];
    assert_eq!(simulator["classes"], 16);
    assert!(simulator["instructions_per_second"].as_f64().unwrap() > 0.0);
    for part in ["limits", "work", "training", "simulator"] {
        assert_eq!(bench["badges"][part], "MEASURED");
    }
    let shown = text(&run("bench tiny.toml --steps 1 --device cpu").stdout);
    for words in ["At the most", "matmul_nn", "message, tensor", "tokens/s", "instructions/s"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    // Where characters are bytes, as everywhere.
    let folder = folder();
    let mut plain = shardlab("bench tiny.toml --steps 1 --device cpu");
    let plain = plain.env("LC_ALL", "C").current_dir(folder.path()).output().unwrap();
    assert!(plain.status.success() && plain.stdout.is_ascii(), "{}", text(&plain.stdout));
}

#[test]
fn a_checkpoint_writes_text_from_its_seed_and_its_prompt() {
    let folder = folder();
    let words = "to be, or not to be: that is the question. ".repeat(400);
    fs::write(folder.path().join("words.txt"), &words).unwrap();
    let train = "train --data words.txt --steps 60 --dp 1 --tp 2 --pp 2 --batch 8 --seq 48 \
                 --device cpu --checkpoint run --json";
    json(&run_in(folder.path(), train), 0);
    let generate =
        |flags: &str| json(&run_in(folder.path(), &format!("generate run {flags} --json")), 0);
    // Sixty steps are enough to know these words by heart.
    let likeliest = generate("--prompt that --temperature 0 --tokens 30");
    let written = likeliest["text"].as_str().unwrap();
    assert!(words.contains(&format!("that{written}")), "{written}");
    assert_eq!(likeliest["tokens"].as_array().unwrap().len(), 30);
    assert_eq!(likeliest["trained_steps"], 60);
    let drawn =
        |seed| generate(&format!("--tokens 40 --temperature 3 --seed {seed}"))["tokens"].clone();
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    // The same on a terminal or in a file, with its prompt before it.
    let output = run_in(folder.path(), "generate run --prompt that --temperature 0 --tokens 30");
    assert_eq!(text(&output.stdout), format!("that{written}\n"));
    for (flags, words) in [
        ("generate nowhere", "is no checkpoint"),
        ("generate run --temperature nan", "is not a finite number"),
        ("generate run --temperature -1", "is not a finite number of at least 0"),
    ] {
        let output = run_in(folder.path(), flags);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder();
    let mut child = shardlab("plan tiny.toml --text")
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("panicked"));
}

#[test]
fn the_summary_says_what_came_out_on_stdout_and_progress_on_stderr() {
    let output = run("train tiny.toml --device cpu --steps 10");
    assert_eq!(output.status.code(), Some(0));
    let summary = text(&output.stdout);
    for part in [
        "Trained 10 steps in ",
        "  Not learned    held-out loss 5.",
        "  Speed          ",
        "  Waiting        ",
        "33.3 % by formula (p−1)/(m+p−1)",
        "  Critical path  ",
        "  Device time    ",
        "  Sent per step  data ",
        "COUNTED",
        "MEASURED",
        "REPLAYED",
    ] {
        assert!(summary.contains(part), "no `{part}` in\n{summary}");
    }
    let progress = text(&output.stderr);
    // Before it may stand that it is preparing, on a machine that takes its time.
    let mut lines = progress.lines();
    assert!(lines.any(|line| line.starts_with("shardlab · 8 ranks on the CPU")), "{progress}");
    // One line for every tenth of the steps.
    assert_eq!(progress.lines().filter(|line| line.starts_with("step ")).count(), 10);
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step() {
    let folder = folder();
    fs::create_dir(folder.path().join("letters")).unwrap();
    fs::write(folder.path().join("letters/from-home.txt"), "dear").unwrap();
    for target in ["letters", "letters/from-home.txt/run"] {
        let arguments =
            format!("train tiny.toml --device cpu --metrics steps.jsonl --checkpoint {target}");
        let output = run_in(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{target}: {}", text(&output.stderr));
        let steps = fs::read_to_string(folder.path().join("steps.jsonl")).unwrap_or_default();
        assert!(steps.is_empty(), "{target}: trained before it was refused");
        assert!(text(&output.stderr).contains("--checkpoint"), "{}", text(&output.stderr));
    }
    assert!(folder.path().join("letters/from-home.txt").exists());
}

/// A Python that has Holistic Trace Analysis: that of `HTA_PYTHON`, else `python3`. Without one the
/// test has nothing to do, unless `REQUIRE_HTA=1` says that it must be there.
fn python_with_hta() -> Option<String> {
    let python = std::env::var("HTA_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import hta.trace_analysis"]).output();
    let has_hta = found.is_ok_and(|output| output.status.success());
    let required = std::env::var("REQUIRE_HTA").is_ok_and(|value| value == "1");
    assert!(has_hta || !required, "{python} has no HolisticTraceAnalysis");
    has_hta.then_some(python)
}

/// What Holistic Trace Analysis finds in the files of all ranks.
fn analysed(python: &str, ranks: &Path) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/holistic.py");
    let output = Command::new(python).arg(script).arg(ranks).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn holistic_trace_analysis_finds_the_same_work_and_overlap_in_every_rank() {
    let Some(python) = python_with_hta() else {
        eprintln!("skipped: no Python with HolisticTraceAnalysis");
        return;
    };
    let folder = folder();
    for (layout, ranks) in [("--dp 1 --tp 2 --pp 2", 4), ("--dp 2 --tp 1 --pp 2", 4)] {
        let train =
            format!("train tiny.toml {layout} --device cpu --links pcie --json --trace t.json");
        let report = json(&run_in(folder.path(), &train), 0);
        let export = run_in(folder.path(), "trace export t.json --format kineto -o ranks/");
        assert!(export.status.success(), "{}", text(&export.stderr));
        let found = analysed(&python, &folder.path().join("ranks"));
        assert_eq!(found.len(), ranks, "{layout}");
        for (theirs, ours) in found.iter().zip(report["idle"]["ranks"].as_array().unwrap()) {
            assert_eq!(theirs["rank"], ours["rank"]);
            let micros = |value: &Value| value.as_f64().unwrap() / 1e3;
            let their = |field: &str| theirs[field].as_f64().unwrap();
            let busy = micros(&ours["busy"]);
            let [hidden, exposed] =
                ["hidden", "exposed"].map(|part| micros(&ours["messages"][part]));
            if layout.contains("--dp 1") {
                // A microsecond: they add up decimals.
                assert!((their("compute") - busy).abs() < 1.0, "{theirs} {ours}");
                assert!((their("exposed") - exposed).abs() < 1.0, "{theirs} {ours}");
                let share = 100.0 * hidden / (hidden + exposed);
                assert!((their("overlap_percent") - share).abs() < 0.02, "{theirs} {ours}");
            } else {
                // They take additions of gradients for computation, we for what a rank waits for.
                assert!(their("compute") >= busy - 1.0, "{theirs} {ours}");
                assert!(their("exposed") <= exposed + 1.0, "{theirs} {ours}");
            }
            let sum = their("compute") + their("exposed") + their("idle");
            assert!((sum - their("kernels")).abs() < 1.0, "{theirs}");
            assert!(their("kernels") <= micros(&report["idle"]["step"]) + 1.0, "{theirs}");
        }
    }
}

#[test]
fn simulate_draws_the_step_in_the_terminal_and_in_a_file() {
    let folder = folder();
    let flags = "simulate --gpus 32 --tp 2 --pp 4 --chunks 2 --microbatches 8 --model llama-2-7b";
    let output = run_in(folder.path(), &format!("{flags} --svg step.svg"));
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows: Vec<&str> =
        printed.lines().filter(|line| line.contains(" rank ") && line.contains('░')).collect();
    assert_eq!(rows.len(), 4, "{printed}");
    for (position, row) in rows.iter().enumerate() {
        assert!(row.starts_with(&format!("  p{position} rank ")), "{row}");
        assert!(row.contains('F') && row.contains('B') && row.contains('░'), "{row}");
    }
    let line = |word: &str| printed.lines().find(|line| line.contains(word)).unwrap_or_default();
    assert!(line("F forward").contains("░ waits"), "{printed}");
    for words in ["ranks wait for", "critical path", "hidden communication", "0 ms"] {
        assert!(line(words).ends_with("PREDICTED"), "{words}: {printed}");
    }
    let svg = fs::read_to_string(folder.path().join("step.svg")).unwrap();
    assert!(svg.contains(">PREDICTED</text>") && svg.contains(">F forward</text>"));
    assert!(svg.contains(">second stage of a row</text>"));
    // Two chunks of eight microbatches on four rows.
    assert_eq!(svg.matches(" runs forward of microbatch ").count(), 64);
}

#[test]
fn a_schedule_from_a_file_is_simulated_as_the_named_one_and_a_faulty_one_is_refused() {
    let folder = folder();
    let csv = run_in(folder.path(), "plan --pp 2 --tp 1 --microbatches 4 --schedule zb-h1 --csv");
    fs::write(folder.path().join("own.csv"), &csv.stdout).unwrap();
    let flags = "simulate --model llama-2-7b --json --schedule";
    let [own, named] = ["own.csv", "zb-h1 --pp 2 --microbatches 4"]
        .map(|schedule| json(&run_in(folder.path(), &format!("{flags} {schedule}")), 0));
    assert!(own["step_seconds"].as_f64().unwrap() > 0.1, "{own}");
    for field in ["step_seconds", "bubble", "bytes", "idle", "critical_path", "memory"] {
        assert_eq!(own[field], named[field], "{field}");
    }
    fs::write(folder.path().join("own.csv"), "0F0,0F1,0B0,0B1\n1F1,1B1,1F0\n").unwrap();
    let refused = run_in(folder.path(), &format!("{flags} own.csv"));
    assert_eq!(refused.status.code(), Some(2));
    let error = text(&refused.stderr);
    assert!(error.contains("microbatch 0 is missing its backward"), "{error}");
}

#[test]
fn algorithms_of_a_collective_are_compared_by_steps_bytes_and_latency() {
    let flags = "simulate --explain-collective 100MB --gpus 8 --links 50GB/s,10ns --node-size 4";
    let table = json(&run(&format!("{flags} --json")), 0);
    let rows = table["algorithms"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["algorithm"].as_str().unwrap()).collect();
    assert_eq!(names, ["ring", "tree", "direct", "hierarchical"]);
    for row in rows {
        for field in ["steps", "link_bytes", "latency_share", "seconds"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    for (field, badge) in [("link_bytes", "COUNTED"), ("latency_share", "PREDICTED")] {
        assert_eq!(table["badges"][field], badge);
    }
    let printed = text(&run(flags).stdout);
    assert!(printed.starts_with("All-reduce of 100.0 MB over 8 ranks, links: 50GB/s,10ns\n"));
    assert!(
        printed.contains("ring              14      175.0 MB       175.0 MB      8       3.5 ms")
    );
    let refused = refusal("simulate --explain-collective 100MB --gpus 1", 2);
    assert!(refused.contains("Use 2 to 256"), "{refused}");
}

#[test]
fn a_pair_of_passes_and_a_second_stage_are_seen_in_the_picture_of_a_schedule() {
    let folder = folder();
    let flags = "plan --pp 2 --tp 1 --dp 1 --chunks 2 --microbatches 6 --schedule dualpipe-v";
    let plan = json(&run_in(folder.path(), &format!("{flags} --svg pairs.svg --json")), 0);
    let svg = fs::read_to_string(folder.path().join("pairs.svg")).unwrap();
    assert!(svg.contains(&format!(
        ">A row is a pipeline position: colour works, hatching waits. {} units",
        plan["makespan"]
    )));
    for words in ["a pair: side by side", "second stage of a row"] {
        assert!(svg.contains(&format!(">{words}</text>")), "{words}");
    }
}
