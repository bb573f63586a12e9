//! Goal: the exact promises, bit for bit. Method: drawn layouts with direct collectives and no
//! clipping; each promise varies what must not matter and compares weights and gradients.

use shardlab::config::{
    CollectiveChoice, Layout, Model, OptimizerKind, Recompute, ScheduleName, ZeroStage,
};
use shardlab::exec::ExecOptions;
use shardlab::mesh::RankOrder;
use shardlab::plan::check::check;
use shardlab::planner::{StepSpec, plan_step};

use crate::cases::{assert_close, model, sgd, spec};
use crate::layouts::{Draw, draw_schedule, draw_spec};
use crate::machine::{Trained, run, same_bits, train};
use crate::property::seeds;

/// A drawn layout to which the promises apply.
fn direct(seed: u64) -> StepSpec {
    let mut spec = draw_spec(seed, 8);
    spec.layout.collective = CollectiveChoice::Direct;
    if spec.layout.schedule == ScheduleName::LoopedBfs {
        spec.layout.schedule = ScheduleName::Interleaved1F1B;
    }
    spec
}

/// The schedules whose weight gradients of a stage run in ascending order of microbatches.
fn ascending() -> Vec<ScheduleName> {
    let names = ScheduleName::NAMED.into_iter();
    names.filter(|name| *name != ScheduleName::LoopedBfs).collect()
}

fn assert_same(a: &Trained, b: &Trained, context: &str) {
    if let Err(name) = same_bits(&a.gradients, &b.gradients) {
        panic!("gradient of {name} has other bits; {context}");
    }
    if let Err(name) = same_bits(&a.weights, &b.weights) {
        panic!("{name} has other bits; {context}");
    }
}

#[test]
fn what_must_not_matter_changes_no_bit() {
    for seed in seeds(24) {
        let spec = direct(seed);
        let first = train(&spec, seed);
        let mut draw = Draw(seed ^ 0x77);
        for _ in 0..3 {
            let units = spec.model.num_hidden_layers + 2;
            let pp = draw.of(&[1, 2, 3, 4]).min(units);
            let (schedule, chunks) = draw_schedule(&mut draw, pp, units, &ascending());
            let layout = Layout {
                pp,
                chunks,
                schedule,
                overlap: draw.below(2) == 0,
                recompute: draw.of(&[Recompute::None, Recompute::Selective, Recompute::Full]),
                bucket_bytes: draw.of(&[1, 3000, 1 << 20]),
                chunk_bytes: draw.of(&[100, 5000, 1 << 20]),
                rank_order: draw.of(&[RankOrder::TpDpPp, RankOrder::TpPpDp]),
                ..spec.layout.clone()
            };
            let other = StepSpec { layout, ..spec.clone() };
            let context = format!("seed {seed}: {:?} is not {:?}", other.layout, spec.layout);
            assert_same(&first, &train(&other, seed), &context);
        }
    }
}

#[test]
fn zero_stages_differ_only_in_where_bytes_live() {
    for seed in seeds(24) {
        let mut spec = direct(seed);
        spec.layout.dp = 2 + u32::try_from(seed % 2).unwrap();
        spec.layout.pp = spec.layout.pp.min(2);
        spec.layout.tp = if spec.layout.tp > 2 { 1 } else { spec.layout.tp };
        if seed % 3 == 0 {
            spec.layout.microbatches = 1;
        }
        spec.training.batch = spec.layout.dp * spec.layout.microbatches + 1;
        let stages = [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3];
        let trained = stages.map(|zero| {
            let layout = Layout { zero, ..spec.layout.clone() };
            train(&StepSpec { layout, ..spec.clone() }, seed)
        });
        let context = format!("seed {seed}: {:?} {:?}", spec.layout, spec.model);
        assert_same(&trained[0], &trained[1], &format!("ZeRO 0 and 1; {context}"));
        assert_same(&trained[2], &trained[3], &format!("ZeRO 2 and 3; {context}"));
        if spec.layout.microbatches == 1 {
            assert_same(&trained[0], &trained[2], &format!("ZeRO 0 and 2, m 1; {context}"));
        }
    }
}

#[test]
fn every_schedule_trains_the_same_weights_and_looped_bfs_up_to_rounding() {
    let model = Model { num_hidden_layers: 4, ..model() };
    for (tied, zero, microbatches) in
        [(true, ZeroStage::Zero1, 3), (false, ZeroStage::Zero3, 2), (true, ZeroStage::Zero2, 5)]
    {
        let model = Model { tie_word_embeddings: tied, ..model.clone() };
        let collective = CollectiveChoice::Direct;
        let base = Layout { dp: 2, zero, microbatches, collective, ..Layout::default() };
        let with = |pp, chunks, schedule| {
            let layout = Layout { pp, chunks, schedule, ..base.clone() };
            train(&spec(model.clone(), layout, sgd(2 * microbatches, 5)), 7)
        };
        let first = with(1, 1, ScheduleName::OneFOneB);
        for name in ScheduleName::NAMED {
            for (pp, chunks) in [(3, 1), (3, 2), (2, 3)] {
                if !name.stages().allows(chunks) {
                    continue;
                }
                let context = format!("{name}, pp {pp}, chunks {chunks}, ZeRO {zero}");
                let other = with(pp, chunks, name.clone());
                if name == ScheduleName::LoopedBfs {
                    assert_close(&first, &other, &context);
                    // Two numbers have one sum.
                    let same = same_bits(&first.gradients, &other.gradients).is_ok();
                    assert_eq!(same, microbatches == 2, "{context}");
                } else {
                    assert_same(&first, &other, &context);
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for seed in seeds(8) {
        let spec = draw_spec(seed, 16);
        let on = |threads| {
            let options = ExecOptions { threads: Some(threads), ..ExecOptions::default() };
            run(plan_step(&spec).unwrap(), &spec, seed, options, 2).unwrap()
        };
        let first = on(1);
        for threads in [2, 5] {
            assert_same(&first, &on(threads), &format!("seed {seed}, {threads} threads"));
        }
    }
}

#[test]
fn ranks_on_another_kind_of_device_receive_what_one_of_them_updates() {
    let mut mixed = 0;
    for seed in seeds(24) {
        let mut spec = draw_spec(seed, 8);
        let mut draw = Draw(seed ^ 0x3d);
        for optimizer in [OptimizerKind::Sgd, OptimizerKind::AdamW] {
            spec.training.optimizer = optimizer;
            let ranks = spec.layout.mesh().size();
            spec.device_kinds = (0..ranks).map(|_| u32::from(draw.below(2) == 0)).collect();
            let plan = plan_step(&spec).unwrap();
            assert_eq!(check(&plan), [], "seed {seed}: {:?}", spec.layout);
            let others = spec.layout.dp > 1 || spec.layout.tp > 1;
            mixed +=
                u32::from(others && spec.device_kinds.iter().any(|k| *k != spec.device_kinds[0]));
            // All ranks are on the host here, so equal kinds have the same bits; `train` compares
            // those of all copies, also of the moments that ranks keep.
            let alike = StepSpec { device_kinds: Vec::new(), ..spec.clone() };
            assert_same(&train(&alike, seed), &train(&spec, seed), &format!("seed {seed}"));
        }
    }
    assert!(mixed > 20 || seeds(24).count() < 24, "{mixed} draws mix kinds");
}
