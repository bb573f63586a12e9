//! Pipeline parallelism: which units form a stage, who holds it, and the hand-over between stages.

use std::ops::Range;

use super::build::{Message, RankWriter, message_id};
use super::collective::message_tag;
use super::context::Unit;
use super::schedule::unit_time::pairs_can_overlap;
use super::schedule::{self, Act, Cell, Pass, Schedule};
use super::{PlanError, Purpose, StepSpec};
use crate::config::Model;
use crate::mesh::{Axis, Rank};
use crate::plan::{Collective, CollectiveKind, Tag, View};

/// How the layers are cut and in which order the stages run.
pub(super) struct Stages {
    pub(super) schedule: Schedule,
    /// Units of each stage.
    pub(super) units: Vec<Range<Unit>>,
    /// Pipeline position of each stage.
    pub(super) owners: Vec<u32>,
}

/// Cuts the units of a model into stages.
///
/// # Errors
/// If there are more stages than units, given sizes do not add up, or the schedule is faulty.
pub(super) fn stages(spec: &StepSpec) -> Result<Stages, PlanError> {
    let layout = &spec.layout;
    let (positions, microbatches) = (layout.pp, layout.microbatches);
    let mut table = schedule::named::table(layout)?;
    let stage_count = table.stage_count();
    if table.rows.len() != positions as usize {
        return Err(PlanError::ScheduleRows { rows: table.rows.len(), positions });
    }
    let units = spec.model.num_hidden_layers + 2;
    // A file may name any stage: a slip is told as one, before the number of stages is.
    let faults = table.check(table.meant_stage_count(), microbatches);
    if !faults.is_empty() {
        let faults = faults.iter().map(ToString::to_string).collect();
        return Err(PlanError::Schedule { faults });
    }
    if stage_count > units {
        return Err(PlanError::TooManyStages { stages: stage_count, units });
    }
    let sizes = match &layout.stage_units {
        Some(sizes) => given_sizes(sizes, stage_count, units)?,
        None => balanced_sizes(&unit_costs(spec), stage_count),
    };
    let mut start = 0;
    let stages = sizes
        .iter()
        .map(|size| {
            start += size;
            start - size..start
        })
        .collect();
    let owners = (0..stage_count)
        .map(|stage| table.owner(stage).expect("checked: every stage has an owner"))
        .collect();
    if spec.purpose == Purpose::Evaluate {
        keep_forwards(&mut table);
    }
    if !pairs_can_overlap(&table) {
        table = table.in_turn();
    }
    Ok(Stages { schedule: table, units: stages, owners })
}

/// The forwards of a training schedule, in their order: what an evaluation runs.
fn keep_forwards(table: &mut Schedule) {
    for row in &mut table.rows {
        let forwards = row.iter().flat_map(|cell| cell.acts());
        *row = forwards.filter(|act| act.pass == Pass::F).map(Cell::One).collect();
    }
}

fn given_sizes(sizes: &[u32], stages: u32, units: u32) -> Result<Vec<u32>, PlanError> {
    let sum: u32 = sizes.iter().sum();
    if sizes.len() != stages as usize || sum != units || sizes.contains(&0) {
        return Err(PlanError::StageUnits { given: sizes.to_vec(), stages, units });
    }
    Ok(sizes.to_vec())
}

/// Cost of each unit for the balance of stages: forward flops of a token.
fn unit_costs(spec: &StepSpec) -> Vec<u64> {
    let Model { vocab_size, hidden_size, intermediate_size, head_dim, .. } = spec.model;
    let d = u64::from(hidden_size);
    let heads = u64::from(spec.model.num_attention_heads) * u64::from(head_dim);
    let kv_heads = u64::from(spec.model.num_key_value_heads) * u64::from(head_dim);
    let projections = d * (2 * heads + 2 * kv_heads);
    let attention = heads * u64::from(spec.training.seq);
    let layer = 2 * (projections + attention + 3 * d * u64::from(intermediate_size));
    let mut costs = vec![layer; spec.model.num_hidden_layers as usize + 2];
    costs[0] = d;
    costs[spec.model.num_hidden_layers as usize + 1] = 2 * d * u64::from(vocab_size);
    costs
}

/// Cuts units into `stages` consecutive non-empty runs: the largest cost as small as possible,
/// then the sum of squares as small as possible, then early stages as large as possible.
fn balanced_sizes(costs: &[u64], stages: u32) -> Vec<u32> {
    let (units, stages) = (costs.len(), stages as usize);
    // best[s][u]: (largest cost, sum of squares, cut before the last stage) of the first `u` units
    // in `s` stages.
    let mut best = vec![vec![None::<(u64, u128, usize)>; units + 1]; stages + 1];
    best[0][0] = Some((0, 0, 0));
    for stage in 1..=stages {
        for end in stage..=units {
            for cut in (stage - 1..end).rev() {
                let Some((largest, squares, _)) = best[stage - 1][cut] else { continue };
                let cost: u64 = costs[cut..end].iter().sum();
                let square = u128::from(cost) * u128::from(cost);
                let found = (largest.max(cost), squares + square, cut);
                if best[stage][end].is_none_or(|kept| (found.0, found.1) < (kept.0, kept.1)) {
                    best[stage][end] = Some(found);
                }
            }
        }
    }
    let mut sizes = Vec::new();
    let mut end = units;
    for stage in (1..=stages).rev() {
        let (_, _, cut) = best[stage][end].expect("at least one unit a stage");
        sizes.push(u32::try_from(end - cut).expect("fewer than 2^32 units"));
        end = cut;
    }
    sizes.reverse();
    sizes
}

impl RankWriter<'_> {
    /// The rank that holds a stage for this rank's batch and slices.
    pub(super) fn stage_rank(&self, stage: u32) -> Rank {
        self.context.rank(self.at.with(Axis::Pp, self.context.owners[stage as usize]))
    }

    /// Hands an activation (or its gradient) to the stage `to`; its owner calls
    /// [`RankWriter::take_over`]. Stages of one rank hand over without a message.
    pub(super) fn hand_over(&mut self, act: Act, view: View, to: u32) {
        let peer = self.stage_rank(to);
        if peer == self.program.rank {
            self.handed.insert((act.pass == Pass::F, to, act.microbatch), view);
            return;
        }
        let tag = self.hand_over_tag(act.pass == Pass::F, to, act.microbatch);
        self.as_point_to_point(tag, |writer| writer.program.send(Axis::Pp, view, peer, tag));
    }

    /// Takes what the stage `from` hands to the stage of `act`.
    pub(super) fn take_over(&mut self, act: Act, from: u32) -> View {
        let peer = self.stage_rank(from);
        let forward = act.pass == Pass::F;
        if peer == self.program.rank {
            let handed = self.handed.remove(&(forward, act.stage, act.microbatch));
            return handed.expect("a checked schedule hands over before it takes");
        }
        self.posted.remove(&(forward, act.stage, act.microbatch)).unwrap_or_else(|| {
            let view = self.handed_over(act);
            self.receive(act, peer, view);
            view
        })
    }

    /// Receives what a later pass takes over.
    pub(super) fn post(&mut self, act: Act) {
        let forward = act.pass == Pass::F;
        let from = if forward { act.stage - 1 } else { act.stage + 1 };
        let peer = self.stage_rank(from);
        let view = self.handed_over(act);
        self.receive(act, peer, view);
        self.posted.insert((forward, act.stage, act.microbatch), view);
    }

    fn receive(&mut self, act: Act, peer: Rank, view: View) {
        let tag = self.hand_over_tag(act.pass == Pass::F, act.stage, act.microbatch);
        self.as_point_to_point(tag, |writer| writer.program.recv(view, peer, tag));
    }

    fn hand_over_tag(&self, forward: bool, to: u32, microbatch: u32) -> Tag {
        let purpose = if forward { Message::HandForward } else { Message::HandBackward };
        message_tag(message_id(purpose, to, microbatch), 0, 0)
    }

    fn as_point_to_point(&mut self, tag: Tag, push: impl FnOnce(&mut Self)) {
        let origin = self.program.origin;
        self.program.origin.axis = Some(Axis::Pp);
        self.program.origin.collective =
            Some(Collective { kind: CollectiveKind::PointToPoint, id: tag.0 });
        push(self);
        self.program.origin = origin;
    }
}

#[cfg(test)]
mod tests {
    use super::balanced_sizes;

    #[test]
    fn stages_are_balanced_by_cost_and_never_empty() {
        assert_eq!(balanced_sizes(&[1, 100, 100, 100, 100, 20], 2), [3, 3]);
        assert_eq!(balanced_sizes(&[1, 100, 100, 100, 100, 20], 4), [2, 1, 1, 2]);
        // A vocabulary far larger than the layers: the head is a stage of its own.
        assert_eq!(balanced_sizes(&[1, 10, 10, 5000], 4), [1, 1, 1, 1]);
        assert_eq!(balanced_sizes(&[1, 10, 10, 10, 5000], 2), [4, 1]);
        assert_eq!(balanced_sizes(&[1; 9], 1), [9]);
    }
}
