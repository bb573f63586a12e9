//! The closed list of refusals: what cannot run, and what to do instead.

use super::context::Context;
use super::{PlanError, StepSpec};
use crate::config::CollectiveChoice;
use crate::shape::part;

/// Refuses sizes that cannot be cut, before anything else looks at them.
pub(super) fn check_sizes(spec: &StepSpec) -> Result<(), PlanError> {
    let (model, layout, training) = (&spec.model, &spec.layout, &spec.training);
    let sizes = [
        ("dp", layout.dp),
        ("tp", layout.tp),
        ("pp", layout.pp),
        ("chunks", layout.chunks),
        ("microbatches", layout.microbatches),
        ("batch", training.batch),
        ("seq", training.seq),
    ];
    if let Some((what, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return Err(PlanError::Zero { what });
    }
    // A product that does not fit is too large as well.
    let ranks = layout.dp.saturating_mul(layout.tp).saturating_mul(layout.pp);
    for (what, count, most) in [
        ("ranks", ranks, 1 << 10),
        ("microbatches", layout.microbatches, 1 << 12),
        ("layers", model.num_hidden_layers, (1 << 10) - 2),
    ] {
        if count > most {
            return Err(PlanError::TooMany { what, count, most });
        }
    }
    let tp = layout.tp;
    let heads = model.num_attention_heads;
    if heads % tp != 0 {
        let fits = (1..=heads).filter(|n| heads % n == 0).map(|n| n.to_string()).collect();
        return Err(PlanError::Heads { heads, tp, fits });
    }
    for (what, size) in [("ffn columns", model.intermediate_size), ("tokens", model.vocab_size)] {
        if size < tp {
            return Err(PlanError::TooNarrow { what, size, tp });
        }
    }
    if layout.sequence_parallel && training.seq < tp {
        return Err(PlanError::TooNarrow {
            what: "positions of the sequence",
            size: training.seq,
            tp,
        });
    }
    let fewest = part(training.batch, layout.dp, layout.dp - 1);
    let rows = fewest.end - fewest.start;
    if rows < layout.microbatches {
        let (batch, dp, microbatches) = (training.batch, layout.dp, layout.microbatches);
        return Err(PlanError::TooFewRows { batch, dp, rows, microbatches });
    }
    if layout.collective == CollectiveChoice::Hierarchical
        && layout.node_size.is_none_or(|n| n == 0)
    {
        return Err(PlanError::NoNodeSize);
    }
    Ok(())
}

/// Refuses tensors that a view cannot address.
pub(super) fn check_lengths(context: &Context<'_>) -> Result<(), PlanError> {
    let model = context.model();
    let rows = context.rows(0, 0);
    let tokens = u64::from(context.spec.training.seq) * u64::from(rows.end - rows.start);
    let slice = |size: u32| u64::from(size.div_ceil(context.mesh.tp));
    let heads = slice(model.num_attention_heads) + 2 * u64::from(model.num_key_value_heads);
    let mut tensors = vec![
        ("the matrix of logits of a microbatch", tokens * slice(model.vocab_size)),
        ("an activation", tokens * u64::from(model.hidden_size)),
        ("gate and up", tokens * 2 * slice(model.intermediate_size)),
        ("queries, keys and values", tokens * heads * u64::from(model.head_dim)),
    ];
    for pp in 0..context.mesh.pp {
        let buckets = context.buckets(pp, 0).iter();
        tensors.extend(buckets.map(|bucket| ("a gradient bucket", bucket.elements)));
    }
    match tensors.into_iter().find(|(_, len)| *len > u64::from(u32::MAX)) {
        Some((what, elements)) => Err(PlanError::TooLarge { what, elements }),
        None => Ok(()),
    }
}
