//! Goal: what costs bytes and memory, and how much. Method: counters of the executor and of the
//! allocator against textbook formulas written here.

use shardlab::config::{Layout, OptimizerKind, Training, ZeroStage};
use shardlab::exec::ExecOptions;
use shardlab::ledger::Ledger;
use shardlab::mesh::Axis;
use shardlab::plan::{Arena, Held, Life, Plan};
use shardlab::planner::plan_step;

use super::{model, sgd, spec};
use crate::machine::run;

#[test]
fn zero_two_communicates_in_every_microbatch_and_zero_one_once() {
    let n = 4;
    let psi = model().parameter_count();
    for microbatches in [1, 4, 16] {
        let crossed = |zero| {
            let layout = Layout { dp: 4, zero, microbatches, ..Layout::default() };
            let spec = spec(model(), layout, sgd(64, 2));
            let plan = plan_step(&spec).unwrap();
            let trained = run(plan, &spec, 1, ExecOptions::default(), 1).unwrap();
            let data = trained.crossed.links.iter().filter(|link| link.2 == Axis::Dp);
            // Without the squared norm: one float, summed over the ranks.
            data.map(|link| link.3).sum::<u64>() - 4 * 2 * (n - 1)
        };
        // All ranks together; each moves 1/N of it.
        let m = u64::from(microbatches);
        assert_eq!(crossed(ZeroStage::Zero0), 4 * 2 * (n - 1) * psi);
        assert_eq!(crossed(ZeroStage::Zero1), 4 * 2 * (n - 1) * psi);
        assert_eq!(crossed(ZeroStage::Zero2), 4 * (m + 1) * (n - 1) * psi);
        assert_eq!(crossed(ZeroStage::Zero3), 4 * 3 * m * (n - 1) * psi);
    }
}

/// Bytes of model state on one of `n` data-parallel ranks (arXiv:1910.02054, figure 1), where a
/// parameter costs so many bytes as weight, gradient and optimizer state.
fn state_bytes(parameters: f64, [weight, gradient, state]: [f64; 3], zero: u8, n: f64) -> f64 {
    let share = |from: u8| if zero >= from { n } else { 1.0 };
    parameters * (weight / share(3) + gradient / share(2) + state / share(1))
}

#[test]
fn the_formula_of_model_state_gives_the_published_numbers() {
    // 16-bit weights and gradients, twelve bytes of 32-bit state; 7.5 billion parameters.
    let published = [
        (4.0, [120.0, 52.5, 41.25, 30.0]),
        (64.0, [120.0, 31.4, 16.6, 1.9]),
        (1024.0, [120.0, 30.1, 15.1, 0.12]),
    ];
    for (n, gigabytes) in published {
        for (zero, expected) in (0..).zip(gigabytes) {
            let bytes = state_bytes(7.5e9, [2.0, 2.0, 12.0], zero, n) / 1e9;
            assert!((bytes - expected).abs() < 0.05, "ZeRO {zero}, {n} ranks: {bytes}");
        }
    }
    // All in 32 bits: 16 bytes a parameter become 8 + 8/d.
    for d in [1.0, 2.0, 8.0] {
        assert_eq!(state_bytes(1.0, [4.0, 4.0, 8.0], 1, d), 8.0 + 8.0 / d);
    }
}

/// Bytes of weights, final gradients and moments that all ranks declare, pieces only.
fn declared(plan: &Plan) -> u64 {
    let decls = plan.buffers.iter().filter(|decl| !decl.pieces.is_empty());
    decls.map(|decl| decl.bytes().0).sum()
}

#[test]
fn predicted_state_is_allocated_to_the_byte_for_every_zero_stage() {
    let psi = model().parameter_count();
    for (number, zero) in
        (0..).zip([ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3])
    {
        for dp in [2, 4] {
            let layout = Layout { dp, zero, ..Layout::default() };
            let training = Training { optimizer: OptimizerKind::AdamW, ..sgd(4, 5) };
            let spec = spec(model(), layout, training);
            let plan = plan_step(&spec).unwrap();
            // Summed over the ranks nothing is rounded.
            let n = f64::from(dp);
            let formula = n * state_bytes(psi as f64, [4.0, 4.0, 8.0], number, n);
            assert_eq!(declared(&plan) as f64, formula, "ZeRO {zero}, dp {dp}");
            // Weights and moments live in the persistent arena: their bytes and nothing else, up to
            // where the next buffer may start.
            for rank in plan.mesh.ranks() {
                let (mut sum, mut end, mut count) = (0, 0, 0);
                for (_, decl) in plan.buffers_of(rank) {
                    if decl.life == Life::Persistent {
                        assert_eq!(decl.place.arena, Arena::Persistent);
                        assert!(decl.pieces.iter().all(|piece| piece.held != Held::Gradient));
                        sum += decl.bytes().0;
                        end = end.max(decl.place.offset + decl.bytes().0);
                        count += 1;
                    }
                }
                assert!(sum <= end && end < sum + 256 * count, "{sum} {end} {count}");
            }
            let ledger = Ledger::of(&plan);
            let trained = run(plan, &spec, 2, ExecOptions::default(), 1).unwrap();
            let placed: Vec<u64> = ledger.ranks.iter().map(|rank| rank.memory.placed.0).collect();
            assert_eq!(trained.allocated, placed, "ZeRO {zero}, dp {dp}");
        }
    }
}
