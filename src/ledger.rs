//! What a Plan costs: bytes per rank, axis and link, memory by role, floating-point operations.
//!
//! All numbers are counted from the instructions, exactly; nothing is measured and no formula of a
//! collective is known here. Time is `sim`'s business.

use std::collections::BTreeMap;
use std::ops::Index;

use serde::{Deserialize, Serialize};

use crate::mesh::{Axis, Rank};
use crate::ops::Kernel as _;
use crate::plan::{Action, Arena, BufferDecl, BufferId, Lane, Life, Phase, Plan, Role};
use crate::units::{Bytes, Flops};

/// The costs of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// What each rank costs; index = rank.
    pub ranks: Vec<RankLedger>,
    /// What crosses between ranks, sorted by (from, to, axis); only links that are used.
    pub links: Vec<Link>,
}

/// The costs of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLedger {
    /// Bytes that the rank sends, by the axis of the lane.
    pub sent: BTreeMap<Axis, Bytes>,
    /// Messages that the rank sends.
    pub messages: u64,
    /// Its memory.
    pub memory: RankMemory,
    /// Floating-point operations by part of the step.
    pub flops: BTreeMap<Phase, Flops>,
    /// Its instructions.
    pub instrs: InstrCounts,
}

/// What one rank sends to another for one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The axis of the lane.
    pub axis: Axis,
    /// Payload.
    pub bytes: Bytes,
    /// Number of messages.
    pub messages: u64,
}

/// The memory of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMemory {
    /// What is live at the moment of the peak.
    pub at_peak: ByRole,
    /// The first instruction at which that much is live.
    pub peak_instr: u32,
    /// Bytes of the arenas as placed: the end of the last buffer of each, added up.
    pub placed: Bytes,
    /// Number of buffers.
    pub buffers: u64,
}

impl RankMemory {
    /// The most that is live at once: the sum of all roles.
    pub fn peak(&self) -> Bytes {
        self.at_peak.total()
    }
}

/// A number of bytes for each role, in the order of [`Role::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByRole([Bytes; Role::ALL.len()]);

impl ByRole {
    /// Numbers of bytes in the order of [`Role::ALL`].
    pub const fn new(bytes: [Bytes; Role::ALL.len()]) -> Self {
        Self(bytes)
    }

    /// The sum of all roles.
    pub fn total(&self) -> Bytes {
        self.0.iter().copied().sum()
    }

    /// Roles and bytes in printing order.
    pub fn iter(&self) -> impl Iterator<Item = (Role, Bytes)> {
        Role::ALL.into_iter().zip(self.0)
    }

    /// Plain numbers of bytes in the order of [`Role::ALL`].
    pub fn bytes(&self) -> [u64; Role::ALL.len()] {
        self.0.map(|bytes| bytes.0)
    }

    /// A buffer is there from now on.
    pub(crate) fn enter(&mut self, decl: &BufferDecl) {
        self.0[decl.role as usize] += decl.bytes();
    }

    /// A buffer is gone from now on.
    pub(crate) fn leave(&mut self, decl: &BufferDecl) {
        let role = &mut self.0[decl.role as usize];
        *role = *role - decl.bytes();
    }
}

impl Index<Role> for ByRole {
    type Output = Bytes;
    fn index(&self, role: Role) -> &Bytes {
        &self.0[role as usize]
    }
}

/// Numbers of instructions by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrCounts {
    /// Kernels.
    pub launches: u64,
    /// Sends.
    pub sends: u64,
    /// Receives.
    pub recvs: u64,
    /// Copies inside the rank.
    pub copies: u64,
}

impl InstrCounts {
    /// All instructions.
    pub fn total(&self) -> u64 {
        self.launches + self.sends + self.recvs + self.copies
    }
}

impl Ledger {
    /// Counts a Plan. A send counts for the axis of its `Out` lane and for all its hops; one
    /// outside such a lane, which is a fault of the Plan, belongs to no axis and is not counted.
    pub fn of(plan: &Plan) -> Self {
        let mut links: BTreeMap<(Rank, Rank, Axis), (Bytes, u64)> = BTreeMap::new();
        let mut ranks = vec![RankLedger::default(); plan.programs.len()];
        for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
            let RankLedger { sent, messages, flops, instrs, .. } = &mut ranks[rank.index()];
            for instr in &program.instrs {
                match (&instr.action, instr.lane) {
                    (Action::Launch { op, .. }, _) => {
                        instrs.launches += 1;
                        *flops.entry(instr.origin.phase).or_default() += op.flops();
                    }
                    (Action::Send { view, to, hops, .. }, lane) => {
                        instrs.sends += 1;
                        let Lane::Out(axis, _) = lane else { continue };
                        let bytes = plan.view_bytes(*view) * u64::from(*hops);
                        *sent.entry(axis).or_default() += bytes;
                        *messages += u64::from(*hops);
                        let link = links.entry((rank, *to, axis)).or_default();
                        link.0 += bytes;
                        link.1 += u64::from(*hops);
                    }
                    (Action::Recv { .. }, _) => instrs.recvs += 1,
                    (Action::Copy { .. }, _) => instrs.copies += 1,
                }
            }
        }
        for (rank, memory) in (0..).map(Rank).zip(memory(plan)) {
            ranks[rank.index()].memory = memory;
        }
        let link = |((from, to, axis), (bytes, messages))| Link { from, to, axis, bytes, messages };
        Self { ranks, links: links.into_iter().map(link).collect() }
    }

    /// Bytes that cross between ranks.
    pub fn bytes(&self) -> Bytes {
        self.links.iter().map(|link| link.bytes).sum()
    }

    /// Bytes that cross between ranks for one axis.
    pub fn bytes_on(&self, axis: Axis) -> Bytes {
        self.links.iter().filter(|link| link.axis == axis).map(|link| link.bytes).sum()
    }

    /// Floating-point operations of all ranks.
    pub fn flops(&self) -> Flops {
        self.ranks.iter().flat_map(|rank| rank.flops.values()).copied().sum()
    }

    /// Instructions of all ranks.
    pub fn instrs(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.instrs.total()).sum()
    }
}

impl RankLedger {
    /// Bytes that the rank sends.
    pub fn bytes_sent(&self) -> Bytes {
        self.sent.values().copied().sum()
    }

    /// Floating-point operations of the rank.
    pub fn flops(&self) -> Flops {
        self.flops.values().copied().sum()
    }
}

/// What is live at every instruction, `[rank][instruction]` in program order: persistent buffers,
/// inputs and outputs all the time, a buffer of the step from its first to its last access.
pub fn live(plan: &Plan) -> Vec<Vec<ByRole>> {
    let lives = lives(plan);
    let ranks = decls(plan).into_iter().zip(&plan.programs);
    let live = |(decls, program): (Vec<(BufferId, &BufferDecl)>, &crate::plan::Program)| {
        let with_life = decls.iter().map(|(id, decl)| (*decl, lives[id.0 as usize]));
        live_of(with_life, program.instrs.len()).1
    };
    ranks.map(live).collect()
}

/// The buffers of every rank.
fn decls(plan: &Plan) -> Vec<Vec<(BufferId, &BufferDecl)>> {
    let mut decls: Vec<Vec<(BufferId, &BufferDecl)>> = vec![Vec::new(); plan.programs.len()];
    for (id, decl) in (0..).map(BufferId).zip(&plan.buffers) {
        if let Some(decls) = decls.get_mut(decl.rank.index()) {
            decls.push((id, decl));
        }
    }
    decls
}

/// First and last access of every buffer of a step by its own rank, as instructions.
fn lives(plan: &Plan) -> Vec<Option<(u32, u32)>> {
    let mut lives: Vec<Option<(u32, u32)>> = vec![None; plan.buffers.len()];
    for rank in (0..plan.programs.len() as u32).map(Rank) {
        each_access(plan, rank, |index, buffer| {
            let life = &mut lives[buffer.0 as usize];
            *life = Some((life.map_or(index, |(first, _)| first), index));
        });
    }
    lives
}

/// Every access of a rank to a buffer of its own, in program order: instruction and buffer.
pub(crate) fn each_access(plan: &Plan, rank: Rank, mut accesses: impl FnMut(u32, BufferId)) {
    for (index, instr) in (0u32..).zip(&plan.programs[rank.index()].instrs) {
        let reads = instr.action.reads();
        for view in reads.iter().chain(instr.action.writes()).filter(|view| view.len > 0) {
            if plan.buffer(view.buffer).rank == rank {
                accesses(index, view.buffer);
            }
        }
    }
}

/// What is live before the first instruction, and at every one.
fn live_of<'a>(
    decls: impl Iterator<Item = (&'a BufferDecl, Option<(u32, u32)>)>,
    instrs: usize,
) -> (ByRole, Vec<ByRole>) {
    let mut always = ByRole::default();
    let mut enter = vec![ByRole::default(); instrs];
    let mut leave = vec![ByRole::default(); instrs];
    for (decl, life) in decls {
        match (decl.life, life) {
            (Life::Step, Some((first, last))) => {
                enter[first as usize].enter(decl);
                leave[last as usize].enter(decl);
            }
            (Life::Step, None) => {}
            (Life::Persistent | Life::Input(_) | Life::Output(_), _) => always.enter(decl),
        }
    }
    let mut now = always;
    let step = |(enter, leave): (ByRole, ByRole)| {
        for (now, enter) in now.0.iter_mut().zip(enter.0) {
            *now += enter;
        }
        let at = now;
        for (now, leave) in now.0.iter_mut().zip(leave.0) {
            *now = *now - leave;
        }
        at
    };
    (always, enter.into_iter().zip(leave).map(step).collect())
}

/// The memory of every rank.
fn memory(plan: &Plan) -> Vec<RankMemory> {
    let lives = lives(plan);
    let memory_of = |(decls, program): (Vec<(BufferId, &BufferDecl)>, &crate::plan::Program)| {
        let with_life = decls.iter().map(|(id, decl)| (*decl, lives[id.0 as usize]));
        let (always, live) = live_of(with_life, program.instrs.len());
        let (mut at_peak, mut peak_instr) = (always, 0);
        for (instr, at) in (0u32..).zip(live) {
            if at.total() > at_peak.total() {
                (at_peak, peak_instr) = (at, instr);
            }
        }
        let end = |arena: Arena| {
            let inside =
                decls.iter().map(|(_, decl)| decl).filter(|decl| decl.place.arena == arena);
            Bytes(inside.map(|decl| decl.place.offset + decl.bytes().0).max().unwrap_or(0))
        };
        let placed = Arena::ALL.into_iter().map(end).sum();
        RankMemory { at_peak, peak_instr, placed, buffers: decls.len() as u64 }
    };
    decls(plan).into_iter().zip(&plan.programs).map(memory_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::sample::{Pass, Sample, WIDTH, gpipe, one_f_one_b, pipeline, random_program};
    use proptest::prelude::*;

    #[test]
    fn roles_index_their_own_place() {
        assert_eq!(Role::ALL.map(|role| role as usize), [0, 1, 2, 3, 4]);
    }

    const ACTIVATION: u64 = WIDTH as u64 * 4;

    #[test]
    fn a_pipeline_sends_one_activation_per_boundary_microbatch_and_direction() {
        for (p, m) in [(1u64, 3u64), (2, 4), (4, 8)] {
            let rows = one_f_one_b(u32::try_from(p).unwrap(), u32::try_from(m).unwrap());
            let plan = pipeline(&rows);
            let ledger = Ledger::of(&plan);
            assert_eq!(ledger.bytes(), Bytes(2 * (p - 1) * m * ACTIVATION));
            assert_eq!(ledger.bytes_on(Axis::Pp), ledger.bytes());
            assert_eq!(ledger.bytes_on(Axis::Dp), Bytes(0));
            assert_eq!(ledger.links.len() as u64, 2 * (p - 1));
            for link in &ledger.links {
                assert_eq!((link.bytes, link.messages), (Bytes(m * ACTIVATION), m));
            }
            let sent: Bytes = ledger.ranks.iter().map(RankLedger::bytes_sent).sum();
            assert_eq!(sent, ledger.bytes());
            assert_eq!(ledger.instrs(), plan.instr_count() as u64);
        }
    }

    #[test]
    fn flops_are_counted_by_phase() {
        let ledger = Ledger::of(&pipeline(&one_f_one_b(2, 3)));
        let width = u64::from(WIDTH);
        for rank in &ledger.ranks {
            assert_eq!(rank.flops[&Phase::Forward], Flops(3 * width));
            // An Add for each microbatch, and the second and third sum.
            assert_eq!(rank.flops[&Phase::Backward], Flops(3 * width + 2 * width));
            assert_eq!(rank.flops[&Phase::Optimizer], Flops(2 * width + 2 * width));
            assert_eq!(rank.flops(), Flops(12 * width));
        }
        assert_eq!(ledger.flops(), Flops(24 * u64::from(WIDTH)));
    }

    /// Outputs of the forward that wait for their backward, at the most.
    fn kept(rows: &[Vec<Pass>], rank: usize) -> u64 {
        let ledger = Ledger::of(&pipeline(rows));
        ledger.ranks[rank].memory.at_peak[Role::Activations].0 / ACTIVATION
    }

    #[test]
    fn the_first_stage_keeps_p_microbatches_under_1f1b_and_all_under_gpipe() {
        // Beside the kept ones the first stage holds what arrives and what it makes of it.
        assert_eq!(kept(&gpipe(4, 16), 0), 16 + 2);
        assert_eq!(kept(&one_f_one_b(4, 16), 0), 4 + 2);
        assert_eq!(kept(&one_f_one_b(4, 8), 0), 4 + 2);
    }

    #[test]
    fn the_peak_is_the_sum_of_the_roles_at_its_moment() {
        let mut sample = Sample::new(1);
        let w = sample.weight(0, "w", 100);
        let [a, b, c] = [("a", 10), ("b", 30), ("c", 20)].map(|(l, len)| sample.step(0, l, len));
        sample.step(0, "unused", 1000);
        sample.fill(0, a);
        sample.fill(0, b); // a is used again, so a and b are live: 40
        sample.fill(0, a);
        sample.fill(0, c); // c alone
        let memory = Ledger::of(&sample.plan).ranks[0].memory;
        assert_eq!(memory.at_peak[Role::Weights], Bytes(u64::from(w.len) * 4));
        assert_eq!(memory.at_peak[Role::Activations], Bytes(40 * 4));
        assert_eq!((memory.peak(), memory.peak_instr), (Bytes(140 * 4), 1));
        // 100 floats, then four buffers of the step at multiples of 256 bytes.
        assert_eq!(memory.placed, Bytes(400 + 3 * 256 + 4000));
        assert_eq!(memory.buffers, 5);
        let live: Vec<u64> = live(&sample.plan)[0].iter().map(|at| at.total().0).collect();
        assert_eq!(live, [110 * 4, 140 * 4, 110 * 4, 120 * 4]);
    }

    proptest! {
        #[test]
        fn the_peak_equals_a_count_at_every_instruction(plan in random_program()) {
            let instrs = &plan.programs[0].instrs;
            let touches = |instr: usize, id: BufferId| {
                let action = &instrs[instr].action;
                let mut views = action.reads();
                views.extend(action.writes());
                views.iter().any(|view| view.buffer == id && view.len > 0)
            };
            let live_at = |instr: usize, id: BufferId| {
                (0..=instr).any(|i| touches(i, id)) && (instr..instrs.len()).any(|i| touches(i, id))
            };
            let at = |instr: usize| -> u64 {
                let live = plan.buffers_of(Rank(0)).filter(|(id, _)| live_at(instr, *id));
                live.map(|(_, decl)| decl.bytes().0).sum()
            };
            let naive = (0..instrs.len()).map(at).max().unwrap_or(0);
            prop_assert_eq!(Ledger::of(&plan).ranks[0].memory.peak(), Bytes(naive));
        }
    }
}
