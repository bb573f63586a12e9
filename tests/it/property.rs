//! Goal: no combination of axes trains another model, moves other bytes, or takes other memory than
//! it says. Method: drawn layouts on the host pool against one rank, the ledger, the formulas.
//!
//! `SHARDLAB_DRAWS=200 cargo test property` draws more; a failing seed is replayed with
//! `SHARDLAB_SEED=17 cargo test property`.

use std::collections::BTreeMap;

use shardlab::ledger::Ledger;
use shardlab::mesh::Axis;
use shardlab::planner::plan_step;

use crate::formulas::formula;
use crate::layouts::{draw_spec, unsplit};
use crate::machine::{difference, train};

/// The seeds to draw: one that is asked for, or the first so many.
pub(crate) fn seeds(draws: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SHARDLAB_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SHARDLAB_DRAWS").unwrap_or(draws),
    }
}

#[test]
fn every_drawn_layout_trains_like_one_rank_and_costs_what_it_says() {
    for seed in seeds(60) {
        let spec = draw_spec(seed, 16);
        let context = format!("SHARDLAB_SEED={seed}: {:?} {:?}", spec.layout, spec.model);
        let (one, many) = (train(&unsplit(&spec), seed), train(&spec, seed));
        for (a, b) in one.scalars.iter().zip(&many.scalars) {
            assert!((a - b).abs() <= 1e-5 * a.abs(), "{a} is not {b}; {context}");
        }
        let (gradient, name) = difference(&one.gradients, &many.gradients);
        assert!(gradient <= 1e-5, "gradient of {name}: {gradient:e}; {context}");
        let (weight, name) = difference(&one.weights, &many.weights);
        assert!(weight <= 1e-5, "{name}: {weight:e}; {context}");

        let plan = plan_step(&spec).unwrap();
        let ledger = Ledger::of(&plan);
        let mut crossed: BTreeMap<Axis, u64> = Axis::ALL.map(|axis| (axis, 0)).into();
        for (_, _, axis, bytes) in &many.crossed.links {
            *crossed.get_mut(axis).unwrap() += bytes;
        }
        for axis in Axis::ALL {
            assert_eq!(crossed[&axis], ledger.bytes_on(axis).0, "{axis} ledger; {context}");
        }
        assert_eq!(crossed, formula(&spec), "formula; {context}");
        let links: Vec<_> =
            ledger.links.iter().map(|l| (l.from, l.to, l.axis, l.bytes.0)).collect();
        assert_eq!(many.crossed.links, links, "links; {context}");
        let placed: Vec<u64> = ledger.ranks.iter().map(|rank| rank.memory.placed.0).collect();
        assert_eq!(many.allocated, placed, "memory; {context}");
        assert_eq!(many.instructions, plan.instr_count() as u64, "instructions; {context}");
        for rank in &ledger.ranks {
            let memory = &rank.memory;
            let allowed = memory.peak().0 as f64 * 1.1 + 256.0 * memory.buffers as f64;
            assert!(memory.placed.0 as f64 <= allowed, "placed {:?}; {context}", memory);
        }
    }
}
