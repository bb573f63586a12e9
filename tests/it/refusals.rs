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
    refused(|s| s.layout.dp = 0, &expect![[""]]);
    refused(|s| s.layout.microbatches = 0, &expect![[""]]);
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    refused(
        |s| {
            s.model.num_attention_heads = 6;
            s.model.num_key_value_heads = 6;
            s.layout.tp = 4;
        },
        &expect![[""]],
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
        &expect![[""]],
    );
    refused(
        |s| {
            wide(s);
            s.model.vocab_size = 10;
        },
        &expect![[""]],
    );
    refused(
        |s| {
            wide(s);
            s.layout.sequence_parallel = true;
        },
        &expect![[""]],
    );
}

#[test]
fn more_microbatches_than_rows_are_refused() {
    refused(
        |s| {
            s.layout.dp = 3;
            s.layout.microbatches = 3;
        },
        &expect![[""]],
    );
}

#[test]
fn more_stages_than_units_are_refused() {
    refused(|s| s.layout.pp = 12, &expect![[""]]);
}

#[test]
fn chunks_need_a_schedule_that_knows_them() {
    refused(
        |s| {
            s.layout.pp = 2;
            s.layout.chunks = 2;
        },
        &expect![[""]],
    );
}

#[test]
fn stage_sizes_that_do_not_add_up_are_refused() {
    refused(
        |s| {
            s.layout.pp = 2;
            s.layout.stage_units = Some(vec![1, 1]);
        },
        &expect![[""]],
    );
}

#[test]
fn hierarchical_collectives_need_a_node_size() {
    refused(|s| s.layout.collective = CollectiveChoice::Hierarchical, &expect![[""]]);
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
    expect![[""]].assert_eq(&refusal(file("rows.csv", two), 3));
    expect![[""]].assert_eq(&refusal(file("missing.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n"), 2));
    expect![[""]].assert_eq(&refusal(file("words.csv", "0F0,hello\n"), 2));
    assert!(refusal(ScheduleName::File("no/such.csv".into()), 2).starts_with("schedule no/such.csv"));
}

#[test]
fn tensors_too_large_for_a_view_are_refused() {
    refused(
        |s| {
            s.model.vocab_size = 1 << 30;
            s.training.batch = 1;
        },
        &expect![[""]],
    );
}

#[test]
fn too_many_microbatches_are_refused() {
    refused(
        |s| {
            s.training.batch = 5000;
            s.layout.microbatches = 5000;
        },
        &expect![[""]],
    );
}
