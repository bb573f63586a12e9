//! Goal: the bytes of a Plan equal textbook formulas that are written here, independently of the
//! planner. Method: sum the sends of drawn Plans by axis and rank and compare exactly.

use std::collections::BTreeMap;

use shardlab::config::{Layout, Recompute, ScheduleName, ZeroStage};
use shardlab::formulas;
use shardlab::ledger::Ledger;
use shardlab::mesh::Axis;
use shardlab::plan::{Action, Lane, Plan, Role};
use shardlab::planner::{StepSpec, plan_step};
use shardlab::units::Bytes;

use crate::layouts::draw_spec;

/// Bytes sent by all ranks, by axis.
fn sent(plan: &Plan) -> BTreeMap<Axis, u64> {
    let mut bytes: BTreeMap<Axis, u64> = Axis::ALL.map(|axis| (axis, 0)).into();
    for instr in plan.programs.iter().flat_map(|program| &program.instrs) {
        if let (Lane::Out(axis, _), Action::Send { view, .. }) = (instr.lane, &instr.action) {
            *bytes.get_mut(&axis).unwrap() += plan.view_bytes(*view).0;
        }
    }
    bytes
}

/// Sizes `total` cut into `parts`, the first ones larger: written again on purpose.
fn cut(total: u64, parts: u64) -> Vec<u64> {
    (0..parts).map(|i| total / parts + u64::from(i < total % parts)).collect()
}

/// Elements of the parameters that each tensor-parallel rank holds of each unit (embedding,
/// layers…, head), tied table not repeated at the head; and of the key and value heads that
/// several ranks hold, Σ over ranks of (holders − 1)·2 / holders.
struct Sizes {
    table: Vec<u64>,
    layer: Vec<u64>,
    norms: u64,
    /// Σ over key heads with h holders of 2(h−1) heads' weights, key and value, per layer.
    shared_kv: u64,
    /// Elements of queries, keys and values of a layer on all tensor-parallel ranks.
    qkv: u64,
}

fn sizes(spec: &StepSpec) -> Sizes {
    let (model, tp) = (&spec.model, u64::from(spec.layout.tp));
    let d = u64::from(model.hidden_size);
    let k = u64::from(model.head_dim);
    let (heads, kv) = (u64::from(model.num_attention_heads), u64::from(model.num_key_value_heads));
    let per_rank = heads / tp;
    let group = heads / kv;
    let kv_of = |t: u64| {
        let (first, last) = (t * per_rank, (t + 1) * per_rank - 1);
        first / group..last / group + 1
    };
    let ffn = cut(u64::from(model.intermediate_size), tp);
    let layer = (0..tp)
        .map(|t| {
            let kv_heads = kv_of(t).count() as u64;
            2 * d + 2 * per_rank * k * d + 2 * kv_heads * k * d + 3 * ffn[t as usize] * d
        })
        .collect();
    let holders = |head: u64| (0..tp).filter(|&t| kv_of(t).contains(&head)).count() as u64;
    let shared_kv = (0..kv).map(|head| 2 * (holders(head) - 1) * 2 * k * d).sum();
    let table = cut(u64::from(model.vocab_size), tp).iter().map(|rows| rows * d).collect();
    let kv_held: u64 = (0..tp).map(|t| kv_of(t).count() as u64).sum();
    let qkv = (heads + 2 * kv_held) * k * d;
    Sizes { table, layer, norms: d, shared_kv, qkv }
}

/// The position of each stage: in a loop, or there and back.
fn owners(layout: &Layout) -> Vec<u32> {
    let stages = layout.pp * layout.chunks;
    let folds = matches!(layout.schedule, ScheduleName::ZbV | ScheduleName::DualPipeV);
    let owner = |stage: u32| if folds { stage.min(stages - 1 - stage) } else { stage % layout.pp };
    (0..stages).map(owner).collect()
}

/// The formulas of the design, in elements over all ranks.
pub(crate) fn formula(spec: &StepSpec) -> BTreeMap<Axis, u64> {
    let (model, layout, training) = (&spec.model, &spec.layout, &spec.training);
    let [dp, tp, pp] = [layout.dp, layout.tp, layout.pp].map(u64::from);
    let layers = u64::from(model.num_hidden_layers);
    let m = u64::from(layout.microbatches);
    let (d, tokens) = (u64::from(model.hidden_size), u64::from(training.batch * training.seq));
    let Sizes { table, layer, norms, shared_kv, qkv } = sizes(spec);
    let tied = model.tie_word_embeddings;
    let table_all: u64 = table.iter().sum();
    let zero = if dp == 1 { ZeroStage::Zero0 } else { layout.zero };

    // Tensor parallel: 2 all-reduces of b·s·h forward and 2 backward a layer, 2 more with full
    // recompute, 1 for the embedding, 1 for the head's backward; 3 floats a row gathered for the
    // loss. Sequence parallel moves the same bytes. All microbatches and replicas together see all
    // tokens.
    let full = u64::from(layout.recompute == Recompute::Full);
    let per_token = (4 + 2 * full) * layers * d + 2 * d;
    let mut tensor = 2 * (tp - 1) * per_token * tokens + tp * (tp - 1) * 3 * tokens;
    // Once a step and replica: norms under sequence parallel, and key heads that several ranks hold.
    let sequence = u64::from(layout.sequence_parallel && tp > 1);
    tensor += dp * sequence * 2 * (tp - 1) * (2 * layers + 1) * norms;
    tensor += dp * layers * shared_kv;
    // The squared norm: one float over each axis.
    let world = dp * tp * pp;
    let scalar = |n: u64| world / n * 2 * (n - 1);
    tensor += scalar(tp);

    // Pipeline: b·s·h a direction and boundary between positions; every tensor rank sends its own whole
    // copy, or its part under sequence parallel.
    let copies = if sequence == 1 { 1 } else { tp };
    let owners = owners(layout);
    let boundaries = owners.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    let mut pipeline = 2 * boundaries * tokens * d * copies + scalar(pp);
    let together = owners[0] == owners[owners.len() - 1];
    if tied && !together {
        pipeline += dp * 2 * table_all;
    }

    // Data parallel: Ψ of a position. A tied table lies at both stages, or is gathered for each of
    // its two uses where both are on one rank; its gradient is summed once a step.
    let rest = layers * layer.iter().sum::<u64>() + tp * norms;
    let (once, twice) = (table_all, 2 * table_all);
    let copies_of_table = if tied && together { once } else { twice };
    let weights = rest + copies_of_table;
    // What other ranks of the replica complete is summed over the replicas once a step.
    let late = if tied { copies_of_table } else { 0 }
        + sequence * tp * (2 * layers + 1) * norms
        + if shared_kv > 0 { layers * qkv } else { 0 };
    let summed_once = late;
    let summed_often = weights - summed_once;
    let data = (dp - 1)
        * match zero {
            ZeroStage::Zero0 | ZeroStage::Zero1 => 2 * weights,
            ZeroStage::Zero2 => m * summed_often + summed_once + weights,
            ZeroStage::Zero3 => 2 * m * (rest + twice) + m * summed_often + summed_once,
        }
        + scalar(dp);
    BTreeMap::from([(Axis::Dp, 4 * data), (Axis::Tp, 4 * tensor), (Axis::Pp, 4 * pipeline)])
}

#[test]
fn bytes_of_drawn_plans_equal_the_formulas() {
    for seed in 0..400 {
        let spec = draw_spec(seed, 16);
        let plan = plan_step(&spec).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(sent(&plan), formula(&spec), "seed {seed}: {:?} {:?}", spec.layout, spec.model);
    }
}

#[test]
fn formulas_that_are_shown_equal_those_written_here() {
    for seed in 0..400 {
        let spec = draw_spec(seed, 16);
        let expected = formula(&spec);
        for axis in Axis::ALL {
            let shown = formulas::bytes(axis, &spec.model, &spec.layout, &spec.training);
            let what = format!("seed {seed}, {axis}: {shown:?}");
            assert_eq!(shown.value, expected[&axis] as f64, "{what}");
            assert_eq!(evaluated(&shown.numbers), shown.value, "{what}");
        }
    }
}

/// `4 B·(2·3 + 5)`, which is a sum of products, calculated.
fn evaluated(numbers: &str) -> f64 {
    let sum = numbers.strip_prefix("4 B·").unwrap_or(numbers).trim_matches(['(', ')']);
    let product = |term: &str| term.split('·').map(|f| f.parse::<f64>().unwrap()).product::<f64>();
    let bytes = if numbers.starts_with("4 B") { 4.0 } else { 1.0 };
    bytes * sum.split(" + ").map(product).sum::<f64>()
}

#[test]
fn memory_that_stays_is_what_formulas_say() {
    let mut compared = 0;
    for seed in 0..200 {
        let spec = draw_spec(seed, 16);
        let ledger = Ledger::of(&plan_step(&spec).unwrap());
        for role in [Role::Weights, Role::Optimizer] {
            let Some(shown) = formulas::memory(role, &spec.model, &spec.layout, &spec.training)
            else {
                continue;
            };
            let held: Bytes = ledger.ranks.iter().map(|rank| rank.memory.at_peak[role]).sum();
            assert_eq!(held.0 as f64, shown.value, "seed {seed}, {role}: {:?}", spec.layout);
            compared += usize::from(held.0 > 0);
        }
    }
    assert!(compared > 100, "{compared} were compared");
}
