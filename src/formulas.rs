//! What textbooks say a step costs: waiting of a pipeline, bytes by axis, memory by role.
//!
//! Plain sizes go in, a value comes out together with its formula, in symbols and with the numbers
//! of the case, so that `plan`, summaries and the app all tell the same. Nothing is read from a
//! Plan: what really happens is counted by `ledger`, and the two are held against each other.
//!
//! Symbols: r replicas (data), t tensor ranks, p pipeline positions, m microbatches, L layers,
//! v stages a position, h elements of the residual stream, T tokens of a step, V vocabulary, Ψ parameters.

use crate::config::schedule::Stages;
use crate::config::{Layout, Model, OptimizerKind, Recompute, Training, ZeroStage};
use crate::mesh::Axis;
use crate::plan::Role;
use crate::shape::part;
use crate::trace::bubble::{formula_waiting_over_ideal, formula_waiting_over_span};
pub use crate::trace::draw::numbers::Formula;

/// A share of waiting as a textbook writes it, in p positions, m microbatches and v stages a
/// position.
///
/// ```
/// let waiting = shardlab::formulas::waiting("(p−1)/(m+p−1)", 0.2, [2, 4, 1]);
/// assert_eq!(waiting.numbers, "(2−1)/(4+2−1)");
/// ```
pub fn waiting(symbols: &str, value: f64, [p, m, v]: [u32; 3]) -> Formula {
    let number = |symbol: char| match symbol {
        'p' => p.to_string(),
        'm' => m.to_string(),
        'v' => v.to_string(),
        other => other.to_string(),
    };
    Formula { symbols: symbols.into(), numbers: symbols.chars().map(number).collect(), value }
}

/// Waiting over the span and over the work of a pipeline of equal stages under `GPipe` or 1F1B.
pub fn pipeline_waiting(p: u32, m: u32) -> [Formula; 2] {
    let (span, ideal) = (formula_waiting_over_span(p, m), formula_waiting_over_ideal(p, m));
    [waiting("(p−1)/(m+p−1)", span, [p, m, 1]), waiting("(p−1)/m", ideal, [p, m, 1])]
}

/// Bytes of an f32.
const ELEMENT: u64 = 4;

/// A sum of products, written out while it is added up; terms that are 0 are left out.
#[derive(Default)]
struct Sum {
    symbols: Vec<String>,
    numbers: Vec<String>,
    elements: u64,
}

impl Sum {
    /// Adds a term: factors as (symbol, value).
    fn add(&mut self, factors: &[(&str, u64)]) {
        let product: u64 = factors.iter().map(|(_, value)| value).product();
        if product == 0 {
            return;
        }
        let join = |words: Vec<String>| words.join("·");
        // A bare number is its own symbol.
        let symbol = |(symbol, value): &(&str, u64)| match *symbol {
            "" => value.to_string(),
            symbol => symbol.to_owned(),
        };
        self.symbols.push(join(factors.iter().map(symbol).collect()));
        self.numbers.push(join(factors.iter().map(|(_, value)| value.to_string()).collect()));
        self.elements += product;
    }

    fn bytes(self) -> Formula {
        let whole = |terms: &[String]| match terms {
            [] => "0".to_owned(),
            [term] => format!("4 B·{term}"),
            terms => format!("4 B·({})", terms.join(" + ")),
        };
        Formula {
            symbols: whole(&self.symbols),
            numbers: whole(&self.numbers),
            value: (ELEMENT * self.elements) as f64,
        }
    }
}

/// The sizes that the formulas are made of.
struct Sizes {
    r: u64,
    t: u64,
    p: u64,
    m: u64,
    /// Boundaries between stages on different positions, in symbols and their number.
    boundaries: (&'static str, u64),
    /// Whether embedding and head lie on one position.
    together: bool,
    layers: u64,
    h: u64,
    tokens: u64,
    table: u64,
    tied: bool,
    /// Parameters of the matrices and norms of one layer on all tensor ranks together.
    layer: u64,
    /// Query, key and value weights of one layer on all tensor ranks together.
    qkv: u64,
    /// Σ over the key heads of a layer that several ranks hold, of what summing them sends.
    shared_heads: u64,
    sequence: bool,
    zero: ZeroStage,
}

impl Sizes {
    fn of(model: &Model, layout: &Layout, training: &Training) -> Self {
        let [r, t, p, m] = [layout.dp, layout.tp, layout.pp, layout.microbatches].map(u64::from);
        let [h, k, f, vocab] =
            [model.hidden_size, model.head_dim, model.intermediate_size, model.vocab_size]
                .map(u64::from);
        let (heads, key_heads) = (model.num_attention_heads, model.num_key_value_heads);
        let (holders, held) = key_heads_held(heads, key_heads, layout.tp);
        let shared_heads = holders.iter().map(|&count| 2 * (count - 1) * 2 * k * h).sum();
        let qkv = (u64::from(heads) + 2 * held) * k * h;
        let layer = qkv + u64::from(heads) * k * h + 3 * f * h + 2 * t * h;
        let v = u64::from(layout.chunks);
        let (boundaries, together) = match layout.schedule.stages() {
            _ if p == 1 => (("(p−1)", 0), true),
            Stages::V => (("2(p−1)", 2 * (p - 1)), true),
            // A file places its stages as it likes; most go round.
            Stages::Loop | Stages::Given if v > 1 => (("(p·v−1)", p * v - 1), false),
            Stages::One | Stages::Loop | Stages::Given => (("(p−1)", p - 1), false),
        };
        Self {
            r,
            t,
            p,
            m,
            boundaries,
            together,
            layers: u64::from(model.num_hidden_layers),
            h,
            tokens: u64::from(training.batch) * u64::from(training.seq),
            table: vocab * h,
            tied: model.tie_word_embeddings,
            layer,
            qkv,
            shared_heads,
            sequence: layout.sequence_parallel && t > 1,
            zero: if r == 1 { ZeroStage::Zero0 } else { layout.zero },
        }
    }

    /// The squared norm: one float, summed over each group along an axis.
    fn scalar(&self, axis: Axis) -> [(&'static str, u64); 3] {
        let &Self { r, t, p, .. } = self;
        match axis {
            Axis::Dp => [("2(r−1)", 2 * (r - 1)), ("t", t), ("p", p)],
            Axis::Tp => [("2(t−1)", 2 * (t - 1)), ("r", r), ("p", p)],
            Axis::Pp => [("2(p−1)", 2 * (p - 1)), ("r", r), ("t", t)],
        }
    }
}

/// How many tensor ranks hold each key head, and how many key heads all of them hold together.
fn key_heads_held(heads: u32, key_heads: u32, t: u32) -> (Vec<u64>, u64) {
    let group = heads / key_heads.max(1);
    let mut holders = vec![0; key_heads as usize];
    for rank in 0..t {
        let queries = part(heads, t, rank);
        let last = queries.end.saturating_sub(1) / group.max(1);
        for head in queries.start / group.max(1)..=last {
            if let Some(count) = holders.get_mut(head as usize) {
                *count += 1;
            }
        }
    }
    let held = holders.iter().sum();
    (holders.into_iter().filter(|&count| count > 0).collect(), held)
}

/// Bytes that cross for an axis in a step, over all ranks.
pub fn bytes(axis: Axis, model: &Model, layout: &Layout, training: &Training) -> Formula {
    let sizes = Sizes::of(model, layout, training);
    match axis {
        Axis::Dp => data_bytes(&sizes),
        Axis::Tp => tensor_bytes(&sizes, layout),
        Axis::Pp => pipeline_bytes(&sizes),
    }
}

/// 2 all-reduces of T·h forward and 2 backward a layer, 2 more where forward is run again, 1 for
/// the embedding and 1 for the head; 3 floats a row for the loss. Sequence parallel moves the same
/// bytes, and sums the gradients of norms once a step.
fn tensor_bytes(sizes: &Sizes, layout: &Layout) -> Formula {
    let &Sizes { r, t, layers, h, tokens, .. } = sizes;
    let all_reduce = ("2(t−1)", 2 * (t - 1));
    let times = if layout.recompute == Recompute::Full { 6 } else { 4 };
    let mut sum = Sum::default();
    sum.add(&[all_reduce, ("", times), ("L", layers), ("T", tokens), ("h", h)]);
    sum.add(&[all_reduce, ("", 2), ("T", tokens), ("h", h)]);
    sum.add(&[("t(t−1)", t * (t - 1)), ("", 3), ("T", tokens)]);
    let norms = if sizes.sequence { 2 * layers + 1 } else { 0 };
    sum.add(&[("r", r), all_reduce, ("(2L+1)", norms), ("h", h)]);
    sum.add(&[("r", r), ("L", layers), ("shared key heads", sizes.shared_heads)]);
    sum.add(&sizes.scalar(Axis::Tp));
    sum.bytes()
}

/// T·h a boundary and direction, from every tensor rank, or once under sequence parallel; a tied
/// table is summed over its two stages.
fn pipeline_bytes(sizes: &Sizes) -> Formula {
    let &Sizes { r, t, h, tokens, boundaries, .. } = sizes;
    let copies = if sizes.sequence { 1 } else { t };
    let mut sum = Sum::default();
    sum.add(&[("", 2), boundaries, ("T", tokens), ("h", h), ("t", copies)]);
    if sizes.tied && !sizes.together {
        sum.add(&[("r", r), ("", 2), ("V·h", sizes.table)]);
    }
    sum.add(&sizes.scalar(Axis::Pp));
    sum.bytes()
}

/// Ψ parameters summed over the replicas and shared again: 2Ψ; with sharded gradients they are
/// summed once a microbatch, with sharded weights gathered twice a microbatch as well.
fn data_bytes(sizes: &Sizes) -> Formula {
    let &Sizes { r, t, m, layers, h, table, tied, together, .. } = sizes;
    // The last norm lies on every tensor rank.
    let rest = layers * sizes.layer + t * h;
    let tables = if tied && together { table } else { 2 * table };
    let psi = rest + tables;
    // What other ranks of a replica complete is summed over the replicas once a step.
    let norms = if sizes.sequence { t * (2 * layers + 1) * h } else { 0 };
    let heads = if sizes.shared_heads > 0 { layers * sizes.qkv } else { 0 };
    let once = if tied { tables } else { 0 } + norms + heads;
    let over = ("(r−1)", r - 1);
    let mut sum = Sum::default();
    match sizes.zero {
        ZeroStage::Zero0 | ZeroStage::Zero1 => sum.add(&[over, ("", 2), ("Ψ", psi)]),
        ZeroStage::Zero2 => {
            sum.add(&[over, ("m", m), ("Ψ'", psi - once)]);
            sum.add(&[over, ("Ψ''", once)]);
            sum.add(&[over, ("Ψ", psi)]);
        }
        ZeroStage::Zero3 => {
            // A tied table is gathered for each of its two uses.
            sum.add(&[over, ("", 2), ("m", m), ("Ψ", rest + 2 * table)]);
            sum.add(&[over, ("m", m), ("Ψ'", psi - once)]);
            sum.add(&[over, ("Ψ''", once)]);
        }
    }
    sum.add(&sizes.scalar(Axis::Dp));
    sum.bytes()
}

/// Bytes of persistent memory of a role over all ranks; `None` where no formula is known:
/// activations and workspace depend on the order of the step, and gathered weights on its slots.
pub fn memory(role: Role, model: &Model, layout: &Layout, training: &Training) -> Option<Formula> {
    let sizes = Sizes::of(model, layout, training);
    let &Sizes { r, t, layers, h, table, tied, together, .. } = &sizes;
    let tables = if tied && together { table } else { 2 * table };
    let psi = layers * sizes.layer + t * h + tables;
    let mut sum = Sum::default();
    match role {
        Role::Weights if sizes.zero < ZeroStage::Zero3 => sum.add(&[("r", r), ("Ψ", psi)]),
        Role::Optimizer => {
            let moments = match training.optimizer {
                OptimizerKind::AdamW => 2,
                OptimizerKind::Sgd => 0,
            };
            let copies = if sizes.zero == ZeroStage::Zero0 { r } else { 1 };
            sum.add(&[("r", copies), ("", moments), ("Ψ", psi)]);
        }
        Role::Weights | Role::Gradients | Role::Activations | Role::Workspace => return None,
    }
    Some(sum.bytes())
}
