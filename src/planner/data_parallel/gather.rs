//! `ZeRO` 3: brings the weights of a unit together in one of two slots, used in turn.

use super::Bucket;

use crate::config::ZeroStage;
use crate::mesh::Axis;
use crate::plan::{Lane, Phase, Role};
use crate::planner::build::{Message, RankWriter, message_id};
use crate::planner::collective::{self};
use crate::planner::context::Unit;
use crate::planner::schedule::Pass;
use crate::shape::{DType, parts};

impl RankWriter<'_> {
    /// Elements that the gathered weights of a unit take.
    fn gathered_len(&self, unit: Unit) -> u32 {
        self.buckets_to_gather(unit).iter().map(|&index| self.my_buckets()[index].len()).sum()
    }

    /// Buckets that hold the weights of a unit.
    fn buckets_to_gather(&self, unit: Unit) -> Vec<usize> {
        let holds = |bucket: &Bucket| bucket.entries.iter().any(|entry| entry.unit == unit);
        let all = self.my_buckets().iter().enumerate().filter(|(_, bucket)| holds(bucket));
        all.map(|(index, bucket)| bucket.alias_of.unwrap_or(index)).collect()
    }

    /// ZeRO 3: declares the two slots that gathered units use in turn.
    pub(in crate::planner) fn declare_slots(&mut self) {
        if self.context.zero == ZeroStage::Zero3 {
            let units = self.my_units();
            let len = units.into_iter().map(|unit| self.gathered_len(unit)).max().unwrap_or(0);
            let mut slot = |name| self.program.buffer(name, Role::Weights, DType::F32, len);
            self.slots = Some([slot("w.slot0"), slot("w.slot1")]);
        }
    }

    /// ZeRO 3: gathers the weights of a unit into the slot whose turn it is. Nothing to do else.
    pub(in crate::planner) fn gather_weights(&mut self, unit: Unit, pass: Pass) {
        let Some(slots) = self.slots else { return };
        let turn = self.gather_count % 2;
        self.gather_count += 1;
        // The slot's last unit is forgotten; the other slot's stays.
        self.gathered.retain(|(_, _, view)| view.buffer != slots[turn].buffer);
        let mut start = 0;
        for (number, index) in (0..).zip(self.buckets_to_gather(unit)) {
            let bucket = &self.my_buckets()[index];
            let view = slots[turn].slice(start..start + bucket.len());
            start += bucket.len();
            let stored = self.states[index].weights.expect("an alias was resolved");
            let pieces = parts(bucket.len(), self.context.mesh.dp);
            let microbatch = self.program.origin.microbatch.unwrap_or_default();
            let id = message_id(Message::GatherUnit(pass, number), unit, microbatch);
            let seat = self.seat(Axis::Dp);
            let style = self.dp_style(&seat, view, id);
            let mine = view.slice(self.shard_of(bucket));
            self.in_phase(Phase::WeightGather, |writer| {
                writer.copy_on(Lane::Reduce, stored, mine);
                collective::all_gather(&mut writer.program, &seat, style, view, &pieces);
            });
            self.gathered.push((unit, index, view));
        }
    }
}
