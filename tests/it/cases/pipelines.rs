//! Goal: stages of any size train the model, and what cannot run is refused before it starts.
//! Method: awkward cuts against one rank; schedules and Plans that hang.

use std::collections::BTreeSet;

use shardlab::config::{CollectiveChoice, Layout, Model, ScheduleName, Training, ZeroStage};
use shardlab::exec::{ExecError, ExecOptions, Executor, StepInput};
use shardlab::ledger::Ledger;
use shardlab::mesh::{Axis, Rank};
use shardlab::plan::check::{FaultKind, check};
use shardlab::plan::{Held, Life, Output, Phase, Plan, text};
use shardlab::planner::{StepSpec, plan_step};

use super::{assert_close, assert_trains_like_one_rank, model, sgd, spec};
use crate::layouts::unsplit;
use crate::machine::{run, same_bits, train};

#[test]
fn switching_the_pipeline_on_changes_no_bit_of_the_weights() {
    for microbatches in [1, 4] {
        let with = |pp| {
            let collective = CollectiveChoice::Direct;
            let layout = Layout { pp, microbatches, collective, ..Layout::default() };
            train(&spec(model(), layout, sgd(8, 6)), 1)
        };
        let off = with(1);
        for pp in [2, 3, 4] {
            assert_eq!(same_bits(&off.weights, &with(pp).weights), Ok(()), "pp {pp}");
        }
    }
}

/// Ranks that hold a piece of the embedding table.
fn holders(plan: &Plan) -> BTreeSet<Rank> {
    let table = plan.tensors.iter().position(|t| t.name == "model.embed_tokens.weight").unwrap();
    let holds = |held, tensor: u32| held == Held::Weight && tensor as usize == table;
    let buffers = plan.buffers.iter();
    let holding = buffers.filter(|decl| decl.pieces.iter().any(|p| holds(p.held, p.tensor)));
    holding.map(|decl| decl.rank).collect()
}

#[test]
fn a_tied_table_stays_the_same_on_the_first_and_last_stage() {
    for pp in [2, 4] {
        let [tied, untied] = [true, false].map(|tie_word_embeddings| {
            let model = Model { tie_word_embeddings, ..model() };
            let layout = Layout { dp: 2, pp, microbatches: 4, ..Layout::default() };
            spec(model, layout, Training { lr: 0.3, clip_norm: 0.5, ..sgd(8, 6) })
        });
        let plan = plan_step(&tied).unwrap();
        let positions: BTreeSet<u32> =
            holders(&plan).iter().map(|rank| plan.mesh.coord(*rank).pp).collect();
        assert_eq!(positions, BTreeSet::from([0, pp - 1]));
        // The extra bytes: the table's gradient there and back, for each of two replicas.
        let bytes = |spec: &StepSpec| Ledger::of(&plan_step(spec).unwrap()).bytes_on(Axis::Pp).0;
        let table = u64::from(tied.model.vocab_size * tied.model.hidden_size) * 4;
        assert_eq!(bytes(&tied) - bytes(&untied), 2 * 2 * table);
        // Ten steps; `run` compares the bits of all copies.
        let steps = |spec: &StepSpec| {
            run(plan_step(spec).unwrap(), spec, 2, ExecOptions::default(), 10).unwrap()
        };
        assert_close(&steps(&unsplit(&tied)), &steps(&tied), &format!("pp {pp}"));
    }
}

#[test]
fn a_stage_of_the_embedding_alone_joins_the_norm_and_the_update() {
    for zero in [ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
        for stage_units in [vec![1, 3], vec![3, 1]] {
            let stage_units = Some(stage_units);
            let layout = Layout { dp: 2, pp: 2, zero, stage_units, ..Layout::default() };
            let training = Training { clip_norm: 0.05, ..sgd(4, 6) };
            assert_trains_like_one_rank(&spec(model(), layout, training), 3);
        }
    }
}

#[test]
fn a_vocabulary_much_larger_than_the_model_leaves_no_stage_empty() {
    let wide = Model { vocab_size: 2000, hidden_size: 8, ..model() };
    let with = |pp| {
        let layout = Layout { pp, microbatches: 4, ..Layout::default() };
        spec(wide.clone(), layout, sgd(4, 6))
    };
    for pp in [2, 3, 4] {
        let plan = plan_step(&with(pp)).unwrap();
        for rank in plan.mesh.ranks() {
            let held = plan.buffers_of(rank).flat_map(|(_, decl)| &decl.pieces);
            assert!(held.filter(|piece| piece.held == Held::Weight).count() > 0, "rank {rank}");
        }
        assert_trains_like_one_rank(&with(pp), 4);
    }
    let refusal = plan_step(&with(5)).unwrap_err().to_string();
    assert!(refusal.contains("5 stages need 5 units, but the model has 4"), "{refusal}");
}

#[test]
fn seven_layers_are_cut_into_any_two_stages_and_the_cost_is_seen() {
    let seven = Model { num_hidden_layers: 7, ..model() };
    let with = |stage_units| {
        let layout = Layout { pp: 2, microbatches: 4, stage_units, ..Layout::default() };
        spec(seven.clone(), layout, Training { lr: 0.1, ..sgd(8, 5) })
    };
    let flops = |spec: &StepSpec| -> Vec<u64> {
        let ledger = Ledger::of(&plan_step(spec).unwrap());
        let passes = [Phase::Forward, Phase::Backward];
        ledger
            .ranks
            .iter()
            .map(|rank| passes.map(|phase| rank.flops[&phase].0).iter().sum())
            .collect()
    };
    let whole =
        flops(&StepSpec { layout: Layout { microbatches: 4, ..Layout::default() }, ..with(None) });
    // Given as embedding + 4 layers and 3 layers + head, at both extremes, and cut by cost.
    let mut shares = Vec::new();
    for units in [Some(vec![5, 4]), Some(vec![1, 8]), Some(vec![8, 1]), None] {
        let spec = with(units);
        let ranks = flops(&spec);
        assert_eq!(ranks.iter().sum::<u64>(), whole[0], "a cut adds no work");
        shares.push(ranks[0] as f64 / whole[0] as f64);
        assert_trains_like_one_rank(&spec, 5);
    }
    assert!(shares[1] < 0.01 && shares[2] > 0.8, "{shares:?}");
    assert!((0.4..0.6).contains(&shares[3]), "{shares:?}");
}

#[test]
fn a_stage_that_no_position_owns_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zbv.csv");
    // Stage 2 of four is on no row.
    let rows = "0F0,3F0,3B0,0B0\n1F0,1B0\n";
    std::fs::write(&path, rows).unwrap();
    let schedule = ScheduleName::File(path);
    let layout = Layout { pp: 2, chunks: 2, schedule, ..Layout::default() };
    let refusal = plan_step(&spec(model(), layout, sgd(4, 6))).unwrap_err().to_string();
    assert!(refusal.contains("stage 2"), "{refusal}");
}

/// Two ranks that each send before they receive; where the message arrives is to be filled in.
fn both_send_first(arrives: &str) -> Plan {
    let mut text = String::from("mesh dp=1 tp=1 pp=2 order=tp-dp-pp\n");
    for rank in 0..2 {
        text += &format!("buffer {rank} x workspace f32[8] Step step+0\n");
        text += &format!("buffer {rank} y workspace f32[8] Step step+256\n");
    }
    for (rank, peer) in [(0, 1), (1, 0)] {
        text += &format!("rank {rank}\n  0 compute Fill(len=8 value=1.0) -> x\n");
        text += &format!("  1 pp>{peer} send x to {peer} tag {rank}\n");
        text += &format!("  2 posted recv {arrives} from {peer} tag {peer}\n");
    }
    text::parse(&text).unwrap()
}

#[test]
fn two_ranks_that_both_send_first_hang_only_if_the_message_has_no_place() {
    let step = |plan: Plan| {
        let mut executor = Executor::on_host(2, ExecOptions::default());
        let id = executor.load(plan.into()).unwrap();
        let input =
            StepInput { tokens: &[], labels: &[], seq: 1, lr: 0.0, bias_corrections: [1.0; 2] };
        executor.run(id, 0, &input).map(|output| output.instructions)
    };
    // Receives are posted, so each send finds its receive.
    let sound = both_send_first("y");
    assert_eq!(check(&sound), []);
    assert_eq!(step(sound).unwrap(), 6);
    // The receive waits for the place that the own send reads: the verifier prints the cycle.
    let faulty = both_send_first("x");
    let faults = check(&faulty);
    let [fault] = &faults[..] else { panic!("one fault: {faults:?}") };
    let FaultKind::Cycle { lines, .. } = &fault.kind else { panic!("a cycle: {fault}") };
    assert_eq!(lines.len(), 2, "one wait a rank: {lines:?}");
    let words = fault.to_string();
    for part in
        ["rank 0 #2 recv x from rank 1", "rank 1 #2 recv x from rank 0", "#1 send x to rank 0"]
    {
        assert!(words.contains(part), "{words}");
    }
    let error = step(faulty).unwrap_err();
    let ExecError::Hang { waiting } = &error else { panic!("a hang: {error}") };
    assert_eq!(waiting.len(), 2, "{error}");
}

#[test]
fn the_loss_lives_on_the_last_stage_and_is_reported_whole() {
    for (tp, pp) in [(1, 4), (2, 2)] {
        let layout = Layout { tp, pp, microbatches: 2, ..Layout::default() };
        let spec = spec(model(), layout, sgd(4, 6));
        let plan = plan_step(&spec).unwrap();
        let mut counted = 0;
        for decl in &plan.buffers {
            if let Life::Output(Output::LossSum { counted: counts }) = decl.life {
                assert_eq!(plan.mesh.coord(decl.rank).pp, pp - 1, "{}", decl.label);
                counted += u32::from(counts);
            }
        }
        assert_eq!(counted, 1, "the tensor ranks of a replica see the same labels");
        assert_trains_like_one_rank(&spec, 6);
    }
}
