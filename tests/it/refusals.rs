//! Goal: what cannot run is refused in words, and nothing else is. Method: one case a refusal, each
//! with the text that a person reads.

use expect_test::{Expect, expect};

use shardlab::config::{CollectiveChoice, Layout, Model, ScheduleName, Training};
use shardlab::planner::{Purpose, StepSpec, plan_step};

fn spec() -> StepSpec {
    StepSpec {
        model: Model::preset("tiny").unwrap(),
        layout: Layout::default(),
        training: Training { batch: 8, seq: 8, ..Training::default() },
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    }
}

fn refused(change: impl FnOnce(&mut StepSpec), text: &Expect) {
    let mut spec = spec();
    change(&mut spec);
    let error = plan_step(&spec).expect_err("this must be refused");
    text.assert_eq(&error.to_string());
}

#[test]
fn a_size_of_zero_is_refused() {
    refused(
        |s| s.layout.dp = 0,
        &expect!["dp is 0, but there must be at least one. Use 1 to leave this axis uncut"],
    );
    refused(
        |s| s.layout.microbatches = 0,
        &expect![
            "microbatches is 0, but there must be at least one. Use 1 to leave this axis uncut"
        ],
    );
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    refused(
        |s| {
            s.model.num_attention_heads = 6;
            s.model.num_key_value_heads = 6;
            s.layout.tp = 4;
        },
        &expect!["6 heads cannot be split over 4 tensor ranks. Use 1, 2, 3 or 6"],
    );
}

#[test]
fn a_dimension_narrower_than_the_tensor_ranks_is_refused() {
    let wide = |s: &mut StepSpec| {
        s.model.num_attention_heads = 16;
        s.model.num_key_value_heads = 16;
        s.layout.tp = 16;
    };
    refused(
        |s| {
            wide(s);
            s.model.intermediate_size = 10;
        },
        &expect![
            "10 ffn columns cannot be split over 16 tensor ranks: each needs at least one. Use 10 at most"
        ],
    );
    refused(
        |s| {
            wide(s);
            s.model.vocab_size = 10;
        },
        &expect![
            "10 tokens cannot be split over 16 tensor ranks: each needs at least one. Use 10 at most"
        ],
    );
    refused(
        |s| {
            wide(s);
            s.layout.sequence_parallel = true;
        },
        &expect![
            "8 positions of the sequence cannot be split over 16 tensor ranks: each needs at least one. Use 8 at most"
        ],
    );
}

#[test]
fn more_microbatches_than_rows_are_refused() {
    refused(
        |s| {
            s.layout.dp = 3;
            s.layout.microbatches = 3;
        },
        &expect![
            "batch 8 over dp 3 leaves 2 rows on a data-parallel rank, too few for 3 microbatches. Use a batch of at least 9, or fewer microbatches or ranks"
        ],
    );
}

#[test]
fn more_stages_than_units_are_refused() {
    refused(
        |s| s.layout.pp = 12,
        &expect![
            "12 stages need 12 units, but the model has 4 (embedding, 2 layers, head). Use fewer pipeline positions or chunks"
        ],
    );
}

#[test]
fn chunks_need_a_schedule_that_knows_them() {
    refused(
        |s| {
            s.layout.pp = 2;
            s.layout.chunks = 2;
        },
        &expect![
            "schedule 1f1b has one stage a pipeline position, but 2 chunks are asked for. Use chunks 1, interleaved-1f1b, looped-bfs, interleaved-zero-bubble, zb-v, dualpipe-v, or a schedule file"
        ],
    );
    for schedule in [ScheduleName::GPipe, ScheduleName::ZbH1, ScheduleName::ZbH2] {
        let mut spec = spec();
        spec.layout = Layout { chunks: 3, schedule, ..spec.layout };
        let words = plan_step(&spec).unwrap_err().to_string();
        assert!(words.contains("has one stage a pipeline position"), "{words}");
        assert!(!words.contains("zb-v"), "a V takes no three chunks: {words}");
    }
}

#[test]
fn a_v_needs_two_chunks() {
    refused(
        |s| s.layout.schedule = ScheduleName::ZbV,
        &expect![
            "schedule zb-v has two stages a pipeline position, in a V, but 1 chunk is asked for. Use chunks 2"
        ],
    );
    refused(
        |s| {
            s.layout.schedule = ScheduleName::DualPipeV;
            s.layout.chunks = 3;
        },
        &expect![
            "schedule dualpipe-v has two stages a pipeline position, in a V, but 3 chunks are asked for. Use chunks 2"
        ],
    );
}

#[test]
fn more_chunks_than_units_are_refused() {
    refused(
        |s| {
            s.layout.pp = 2;
            s.layout.chunks = 3;
            s.layout.schedule = ScheduleName::Interleaved1F1B;
        },
        &expect![
            "6 stages need 6 units, but the model has 4 (embedding, 2 layers, head). Use fewer pipeline positions or chunks"
        ],
    );
}

#[test]
fn stage_sizes_that_do_not_add_up_are_refused() {
    refused(
        |s| {
            s.layout.pp = 2;
            s.layout.stage_units = Some(vec![1, 1]);
        },
        &expect![
            "stage sizes [1, 1] do not cut 4 units into 2 stages of at least one unit. Give 2 sizes that add up to 4"
        ],
    );
}

#[test]
fn hierarchical_collectives_need_a_node_size() {
    refused(
        |s| s.layout.collective = CollectiveChoice::Hierarchical,
        &expect![
            "hierarchical collectives need to know how many ranks a node has. Give a node size, or use ring, tree or direct"
        ],
    );
}

#[test]
fn faulty_schedule_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        ScheduleName::File(path)
    };
    let refusal = |schedule: ScheduleName, pp: u32| {
        let mut spec = spec();
        spec.layout = Layout { pp, schedule, microbatches: 2, ..spec.layout };
        let error = plan_step(&spec).expect_err("this must be refused").to_string();
        error.replace(&dir.path().display().to_string(), "DIR")
    };
    let two = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    expect!["the schedule has 2 rows, but there are 3 pipeline positions. Use pp 2"]
        .assert_eq(&refusal(file("rows.csv", two), 3));
    expect![
        "the schedule cannot run: stage 1: microbatch 1 is missing its backward. Mend these cells"
    ]
    .assert_eq(&refusal(file("missing.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n"), 2));
    // A slip of the pen in a stage is no wish for so many stages.
    expect!["the schedule cannot run: stage 2 is in no row: each of the 3 stages must be in exactly one; stage 0: microbatch 0 is missing its forward; row 0: stage 9 does not exist (3 stages: 0–2). Mend these cells"].assert_eq(&refusal(file("slip.csv", "9F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"), 2));
    expect!["the schedule cannot run: stage 2 is in no row: each of the 3 stages must be in exactly one; stage 0: microbatches 0–1 are missing their forward; microbatch 1 is missing its backward; stage 1: microbatch 1 is missing its forward; microbatch 1 is missing its backward; row 0: stage 4294967295 does not exist (3 stages: 0–2). Mend these cells"].assert_eq(&refusal(file("far.csv", "4294967295F0,0B0\n1F0,1B0\n"), 2));
    expect!["the schedule cannot run: row 0: (0F0;0B0)OVERLAP_F_B pairs microbatch 0 with itself: its passes need one another. Pair two microbatches. Mend these cells"].assert_eq(&refusal(file("itself.csv", "(0F0;0B0)OVERLAP_F_B,0F1,0B1\n1F0,1B0,1F1,1B1\n"), 2));
    expect!["schedule DIR/words.csv: row 0, cell 1: `hello` is not an action: expected stage, pass (F, B, I or W) and microbatch, as in 2F5, or a pair of them, as in (0F7;7B3)OVERLAP_F_B. Use a table of cells like 0F0,0F1,0B0, one row a pipeline position"].assert_eq(&refusal(file("words.csv", "0F0,hello\n"), 2));
    assert!(
        refusal(ScheduleName::File("no/such.csv".into()), 2).starts_with("schedule no/such.csv")
    );
}

#[test]
fn tensors_too_large_for_a_view_are_refused() {
    refused(
        |s| {
            s.model.vocab_size = 1 << 30;
            s.training.batch = 1;
        },
        &expect![
            "the matrix of logits of a microbatch of one rank has 8589934592 elements, more than 4,294,967,295. Use a larger tp, or fewer rows in a microbatch"
        ],
    );
}

#[test]
fn more_ranks_than_one_plan_numbers_are_refused_at_once() {
    refused(
        |s| s.layout.dp = 100_000,
        &expect!["100000 ranks are more than 1024, the most that one Plan numbers. Use fewer"],
    );
    refused(
        |s| {
            s.layout.dp = u32::MAX;
            s.layout.pp = 3;
        },
        &expect!["4294967295 ranks are more than 1024, the most that one Plan numbers. Use fewer"],
    );
}

#[test]
fn too_many_microbatches_are_refused() {
    refused(
        |s| {
            s.training.batch = 5000;
            s.layout.microbatches = 5000;
        },
        &expect!["5000 microbatches are more than 4096, the most that one Plan numbers. Use fewer"],
    );
}
