//! What must hold of a Plan before its memory is touched: views, arguments and messages fit.
//!
//! This guards memory, not meaning: [`crate::plan::check`] says whether a Plan is right. A Plan
//! that waits for itself passes here on purpose; it is run and its hang reported.

use crate::mesh::Rank;
use crate::ops::{Access, Kernel, Slot};
use crate::plan::order::Order;
use crate::plan::{Action, Arena, Instr, Lane, Life, Place, Plan, View};
use crate::shape::DType;

/// More faults than this are only counted.
const FAULTS_MAX: usize = 20;

/// All reasons why the memory of this Plan cannot be handed to its instructions.
pub(super) fn faults(plan: &Plan) -> Vec<String> {
    let mut faults = Vec::new();
    if plan.programs.len() != plan.mesh.size() as usize {
        let (programs, ranks) = (plan.programs.len(), plan.mesh.size());
        return vec![format!("{programs} programs for a mesh of {ranks} ranks")];
    }
    buffers(plan, &mut faults);
    // Nothing else can be judged while buffers are not right.
    if faults.is_empty() {
        for (rank, program) in plan.mesh.ranks().zip(&plan.programs) {
            for (index, instr) in program.instrs.iter().enumerate() {
                let at = At { plan, rank, index };
                at.instr(instr, &mut faults);
            }
        }
    }
    shorten(faults)
}

/// Messages whose halves do not fit together.
pub(super) fn message_faults(plan: &Plan, order: &Order) -> Vec<String> {
    let mut faults = Vec::new();
    for (rank, program) in plan.mesh.ranks().zip(&plan.programs) {
        for (index, instr) in program.instrs.iter().enumerate() {
            let (Action::Send { view, to, .. }, Some((_, recv))) =
                (&instr.action, order.peer[rank.index()][index])
            else {
                continue;
            };
            let other = &plan.programs[to.index()].instrs[recv as usize].action;
            let Action::Recv { view: arrives, .. } = other else { continue };
            let of = |view: View| (view.len, plan.buffer(view.buffer).dtype);
            if of(*view) != of(*arrives) {
                let ((sent, is), (room, wanted)) = (of(*view), of(*arrives));
                faults.push(format!(
                    "rank {rank} #{index} sends {sent} × {is} to rank {to} #{recv}, which \
                     receives {room} × {wanted}"
                ));
            }
        }
    }
    shorten(faults)
}

fn shorten(mut faults: Vec<String>) -> Vec<String> {
    let more = faults.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        faults.truncate(FAULTS_MAX);
        faults.push(format!("and {more} more"));
    }
    faults
}

fn buffers(plan: &Plan, faults: &mut Vec<String>) {
    for decl in &plan.buffers {
        let (rank, label, place) = (decl.rank, &decl.label, decl.place);
        if rank.0 >= plan.mesh.size() {
            faults.push(format!("buffer {label} belongs to rank {rank}, which does not exist"));
        }
        if !place.offset.is_multiple_of(Place::ALIGN)
            || place.offset.checked_add(decl.bytes().0).is_none()
        {
            faults.push(format!("rank {rank}: buffer {label} cannot lie at {}", place.offset));
        }
        let arena = match decl.life {
            Life::Persistent => Arena::Persistent,
            Life::Input(_) | Life::Output(_) => Arena::Io,
            Life::Step => Arena::Step,
        };
        if place.arena != arena {
            let found = place.arena;
            faults.push(format!("rank {rank}: buffer {label} lies in {found:?}, not {arena:?}"));
        }
        if matches!(decl.life, Life::Output(_)) && (decl.len == 0 || decl.dtype != DType::F32) {
            faults.push(format!("rank {rank}: output {label} does not hold a float"));
        }
    }
}

/// An instruction under judgement.
struct At<'a> {
    plan: &'a Plan,
    rank: Rank,
    index: usize,
}

impl At<'_> {
    fn instr(&self, instr: &Instr, faults: &mut Vec<String>) {
        let found = match &instr.action {
            Action::Launch { op, inputs, outputs } => {
                let signature = op.signature();
                let written = signature.outputs.iter().map(|(slot, _)| slot);
                self.lane(instr.lane, &[Lane::Compute, Lane::Reduce])
                    .and_then(|()| self.arguments("inputs", inputs, signature.inputs.iter()))
                    .and_then(|()| self.arguments("outputs", outputs, written))
                    .and_then(|()| self.are_apart(outputs, inputs))
            }
            Action::Copy { from, to } => self
                .lane(instr.lane, &[Lane::Compute, Lane::Reduce])
                .and_then(|()| self.view("source", *from))
                .and_then(|()| self.view("destination", *to))
                .and_then(|()| self.is_one_length(*from, *to))
                .and_then(|()| self.are_apart(&[*to], &[*from])),
            Action::Send { view, to, hops, .. } => self
                .peer(*to, *hops)
                .and_then(|()| match instr.lane {
                    Lane::Out(_, peer) if peer == *to => Ok(()),
                    lane => Err(format!("a send to rank {to} stands in lane {lane:?}")),
                })
                .and_then(|()| self.view("message", *view)),
            Action::Recv { view, from, hops, .. } => self
                .peer(*from, *hops)
                .and_then(|()| self.lane(instr.lane, &[Lane::Posted]))
                .and_then(|()| self.view("message", *view)),
        };
        if let Err(fault) = found {
            faults.push(format!("rank {} #{}: {fault}", self.rank, self.index));
        }
    }

    fn lane(&self, lane: Lane, allowed: &[Lane]) -> Result<(), String> {
        if allowed.contains(&lane) { Ok(()) } else { Err(format!("it stands in lane {lane:?}")) }
    }

    fn peer(&self, peer: Rank, hops: u32) -> Result<(), String> {
        if peer.0 >= self.plan.mesh.size() {
            return Err(format!("its message names rank {peer}, which does not exist"));
        }
        if peer == self.rank {
            return Err("its message goes to the rank itself; use a copy".into());
        }
        if hops != 1 {
            return Err(format!("its message stands for {hops} hops; such a Plan is simulated"));
        }
        Ok(())
    }

    fn view(&self, name: &str, view: View) -> Result<(), String> {
        let Some(decl) = self.plan.buffers.get(view.buffer.0 as usize) else {
            return Err(format!("{name}: buffer {} does not exist", view.buffer.0));
        };
        if decl.rank != self.rank {
            return Err(format!("{name}: {} belongs to rank {}", decl.label, decl.rank));
        }
        if view.offset.checked_add(view.len).is_none_or(|end| end > decl.len) {
            let (View { offset, len, .. }, label) = (view, &decl.label);
            return Err(format!("{name}: {offset} + {len} elements of {label}, of {}", decl.len));
        }
        Ok(())
    }

    fn arguments<'s>(
        &self,
        what: &str,
        views: &[View],
        slots: impl ExactSizeIterator<Item = &'s Slot>,
    ) -> Result<(), String> {
        if views.len() != slots.len() {
            return Err(format!("{} {what} where {} are due", views.len(), slots.len()));
        }
        for (&view, slot) in views.iter().zip(slots) {
            self.view(slot.name, view)?;
            let decl = self.plan.buffer(view.buffer);
            if u64::from(view.len) != slot.len || decl.dtype != slot.dtype {
                return Err(format!(
                    "{}: {} × {} of {} where {} × {} are due",
                    slot.name, view.len, decl.dtype, decl.label, slot.len, slot.dtype
                ));
            }
        }
        Ok(())
    }

    fn is_one_length(&self, from: View, to: View) -> Result<(), String> {
        let of = |view: View| (view.len, self.plan.buffer(view.buffer).dtype);
        if of(from) == of(to) { Ok(()) } else { Err("it copies between two lengths".into()) }
    }

    /// Each of `written` lies apart from the others and from all of `read`.
    fn are_apart(&self, written: &[View], read: &[View]) -> Result<(), String> {
        let overlaps = |a: View, b: View| {
            let ((arena_a, a), (arena_b, b)) = (self.plan.view_place(a), self.plan.view_place(b));
            arena_a == arena_b && a.start.max(b.start) < a.end.min(b.end)
        };
        for (index, &view) in written.iter().enumerate() {
            let others = written[index + 1..].iter().chain(read);
            if let Some(other) = others.copied().find(|&other| overlaps(view, other)) {
                let label = |view: View| &self.plan.buffer(view.buffer).label;
                return Err(format!(
                    "what it writes in {} overlaps what it touches in {}",
                    label(view),
                    label(other)
                ));
            }
        }
        Ok(())
    }
}

/// The first launch whose op has no kernel: those on 16-bit floats are for predictions.
pub(super) fn without_kernel(plan: &Plan) -> Option<(Rank, usize, String)> {
    let is_wide = |slot: &Slot| slot.dtype.size() == 4;
    plan.mesh.ranks().zip(&plan.programs).find_map(|(rank, program)| {
        program.instrs.iter().enumerate().find_map(|(index, instr)| {
            let Action::Launch { op, .. } = &instr.action else { return None };
            let signature = op.signature();
            let outputs = signature.outputs.iter().map(|(slot, _): &(Slot, Access)| slot);
            let runs = signature.inputs.iter().chain(outputs).all(is_wide);
            (!runs).then(|| (rank, index, op.to_string()))
        })
    })
}

/// Differences between the persistent buffers of two Plans of one run.
pub(super) fn persistent_faults(first: &Plan, plan: &Plan) -> Vec<String> {
    if first.mesh.size() != plan.mesh.size() {
        return vec![format!(
            "{} ranks, the first Plan has {}",
            plan.mesh.size(),
            first.mesh.size()
        )];
    }
    let mut faults = Vec::new();
    for rank in plan.mesh.ranks() {
        let list = |plan: &Plan| {
            let decls = plan.buffers_of(rank).filter(|(_, decl)| decl.life == Life::Persistent);
            let facts = decls.map(|(_, d)| (d.label.clone(), d.dtype, d.len, d.place));
            facts.collect::<Vec<_>>()
        };
        let (before, now) = (list(first), list(plan));
        if before != now {
            let same = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
            let label = |list: &[(String, DType, u32, Place)]| {
                list.get(same).map_or_else(|| "nothing".into(), |decl| decl.0.clone())
            };
            faults.push(format!(
                "rank {rank}: persistent buffer {same} is {}, in the first Plan {}",
                label(&now),
                label(&before)
            ));
        }
    }
    shorten(faults)
}
