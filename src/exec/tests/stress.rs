//! Random programs over places that are used again and again, against a reference that runs
//! them one instruction after the other.
//!
//! Whatever the number of threads, and wherever the ranks live, the bits are those of the reference.

use std::sync::Arc;

use super::loopback::{Loopback, Mode};
use super::programs::{add, add_assign, fill, join, programs, scale, view_of};
use super::*;
use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Lane, Plan, Role, Tag, View};
use crate::planner::program::RankProgram;
use crate::shape::DType;

const SLOTS: u32 = 6;

/// A small generator of repeatable random numbers (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(end)) as u32
    }
}

/// A Plan and what the memory of each rank holds after it.
pub(super) struct Case {
    pub(super) plan: Plan,
    want: Vec<Vec<f32>>,
}

/// Writes random programs and runs them as it goes.
struct Writer {
    random: Random,
    programs: Vec<RankProgram>,
    /// The memory of each rank, and views with their place in it.
    memory: Vec<Vec<f32>>,
    views: Vec<Vec<(View, usize)>>,
}

/// Elements between two places that a buffer may have.
const GRAIN: u32 = 64;

impl Case {
    /// `count` random instructions on ranks of `grains` · 64 elements each.
    pub(super) fn new(seed: u64, rank_count: u32, grains: u32, count: u32) -> Self {
        let len = grains * GRAIN;
        let mut writer = Writer {
            random: Random(seed),
            programs: programs(rank_count),
            memory: vec![vec![0.0; len as usize]; rank_count as usize],
            views: vec![Vec::new(); rank_count as usize],
        };
        // The first buffer of each rank is all of its memory, the others lie anywhere in it.
        let mut places = Vec::new();
        for rank in 0..rank_count as usize {
            for slot in 0..SLOTS {
                let start = if slot == 0 { 0 } else { writer.random.below(grains) * GRAIN };
                let size = if slot == 0 { len } else { 1 + writer.random.below(len - start) };
                let program = &mut writer.programs[rank];
                let label = format!("slot{slot}");
                let view = program.buffer(label, Role::Activations, DType::F32, size);
                writer.views[rank].push((view, start as usize));
                places.push(u64::from(start) * 4);
            }
            let (all, _) = writer.views[rank][0];
            writer.programs[rank].launch(fill(len, 0.5 + rank as f32), &[], &[all]);
            writer.memory[rank].fill(0.5 + rank as f32);
        }
        for tag in 0..count {
            writer.instr(tag.into());
        }
        let want = writer.memory;
        let mut plan = join(writer.programs);
        for (decl, offset) in plan.buffers.iter_mut().zip(places) {
            decl.place.offset = offset;
        }
        Self { plan, want }
    }

    /// Asserts that all memory is as in the reference, to the bit.
    pub(super) fn assert_memory(&self, executor: &mut Executor, id: PlanId, what: &str) {
        for (rank, want) in self.want.iter().enumerate() {
            let all = view_of(&self.plan, rank as u32, "slot0");
            let found = executor.read(id, all).unwrap();
            let differs = found.iter().zip(want).position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(differs, None, "{what}: rank {rank} differs");
        }
    }
}

impl Writer {
    /// `N` random views of one length in the memory of a rank, the first apart from the others.
    fn pick<const N: usize>(&mut self, rank: usize) -> [(View, usize); N] {
        loop {
            let slots = [(); N].map(|()| self.random.below(SLOTS) as usize);
            let picked = slots.map(|slot| self.views[rank][slot]);
            let shortest = picked.iter().map(|(view, _)| view.len).min().unwrap();
            let len = 1 + self.random.below(shortest);
            let picked = picked.map(|(view, start)| {
                let offset = self.random.below(view.len - len + 1);
                (view.slice(offset..offset + len), start + offset as usize)
            });
            let (written, end) = (picked[0].1, picked[0].1 + len as usize);
            let apart = |start: usize| start + len as usize <= written || end <= start;
            if picked[1..].iter().all(|&(_, start)| apart(start)) {
                return picked;
            }
        }
    }

    fn instr(&mut self, tag: u64) {
        let rank = self.random.below(self.programs.len() as u32) as usize;
        let lane = if self.random.below(3) == 0 { Lane::Reduce } else { Lane::Compute };
        match self.random.below(8) {
            0 | 1 => {
                let [(c, c_at), (a, a_at), (b, b_at)] = self.pick(rank);
                self.programs[rank].launch_on(lane, add(c.len), &[a, b], &[c]);
                for i in 0..c.len as usize {
                    self.memory[rank][c_at + i] =
                        self.memory[rank][a_at + i] + self.memory[rank][b_at + i];
                }
            }
            2 => {
                let [(y, y_at), (x, x_at)] = self.pick(rank);
                self.programs[rank].launch_on(lane, add_assign(y.len), &[x], &[y]);
                for i in 0..y.len as usize {
                    self.memory[rank][y_at + i] += self.memory[rank][x_at + i];
                }
            }
            3 | 4 => {
                let [(x, at)] = self.pick(rank);
                self.programs[rank].launch_on(lane, scale(x.len, 0.3), &[], &[x]);
                self.memory[rank][at..][..x.len as usize].iter_mut().for_each(|x| *x *= 0.3);
            }
            5 => {
                let [(to, to_at), (from, from_at)] = self.pick(rank);
                self.programs[rank].push(lane, Action::Copy { from, to });
                self.memory[rank].copy_within(from_at..from_at + from.len as usize, to_at);
            }
            _ => self.message(rank, tag),
        }
    }

    fn message(&mut self, from: usize, tag: u64) {
        let to = (from + 1) % self.programs.len();
        if from == to {
            return;
        }
        let [(source, source_at)] = self.pick(from);
        let [(target, target_at)] = self.pick(to);
        let len = source.len.min(target.len);
        let (source, target) = (source.slice(0..len), target.slice(0..len));
        self.programs[from].send(Axis::Dp, source, Rank(to as u32), Tag(tag));
        self.programs[to].recv(target, Rank(from as u32), Tag(tag));
        let bytes = self.memory[from][source_at..][..len as usize].to_vec();
        self.memory[to][target_at..][..len as usize].copy_from_slice(&bytes);
    }
}

/// Runs a case a number of times and compares all memory after each.
fn hold(case: &Case, mut executor: Executor, runs: u64, what: &str) {
    let id = executor.load(Arc::new(case.plan.clone())).unwrap();
    for step in 0..runs {
        let out = executor.run(id, step, &nothing()).unwrap();
        assert_eq!(out.instructions, case.plan.instr_count() as u64);
        case.assert_memory(&mut executor, id, &format!("{what}, run {step}"));
    }
}

#[test]
fn random_programs_have_the_bits_of_the_reference_on_any_number_of_threads() {
    for seed in 0..6 {
        let case = Case::new(seed, 4, 16, 400);
        for thread_count in [1, 2, 8] {
            let executor = Executor::on_host(4, threads(thread_count));
            hold(&case, executor, 50, &format!("seed {seed}, {thread_count} threads"));
        }
    }
}

#[test]
fn random_programs_of_large_ops_have_the_bits_of_the_reference() {
    let case = Case::new(77, 2, 2_000, 60);
    for thread_count in [1, 2, 8] {
        let executor = Executor::on_host(2, threads(thread_count));
        hold(&case, executor, 5, &format!("{thread_count} threads"));
    }
}

#[test]
fn random_programs_have_the_same_bits_on_devices_and_on_mixtures() {
    let slots = |names: &[(&str, Mode)]| -> Vec<DeviceSlot> {
        let device = |&(name, mode): &(&str, Mode)| Loopback::new(name, mode).slot();
        let mut slots: Vec<DeviceSlot> = names.iter().map(device).collect();
        slots.push(DeviceSlot::Host);
        slots
    };
    for seed in 0..4 {
        let case = Case::new(100 + seed, 4, 8, 300);
        for mode in [Mode::AtSubmit, Mode::Late(0), Mode::Late(3)] {
            for (placement, devices) in [
                ([0, 0, 0, 0], &[("a", mode)][..]),
                ([0, 1, 0, 1], &[("a", mode)]),
                ([0, 1, 0, 1], &[("a", mode), ("b", Mode::AtSubmit)]),
                ([0, 1, 2, 0], &[("a", mode), ("b", mode)]),
            ] {
                let what = format!("seed {seed}, {mode:?}, {placement:?} of {}", devices.len());
                let executor = Executor::new(slots(devices), placement.to_vec(), threads(2));
                hold(&case, executor.unwrap(), 3, &what);
            }
        }
    }
}

#[test]
fn random_programs_have_the_same_bits_step_by_step_and_in_diagnose_mode() {
    let case = Case::new(5, 4, 8, 300);
    let devices = || vec![Loopback::new("a", Mode::Late(2)).slot(), DeviceSlot::Host];
    for placement in [[1; 4], [0; 4], [0, 1, 0, 1]] {
        let mut executor = Executor::new(devices(), placement.to_vec(), threads(2)).unwrap();
        let id = executor.load(Arc::new(case.plan.clone())).unwrap();
        executor.begin(id, 0, &nothing()).unwrap();
        while executor.advance().unwrap() != Advance::Done {}
        executor.end().unwrap();
        case.assert_memory(&mut executor, id, "step by step");
        assert_eq!(executor.diagnose(id, 1, &nothing()).unwrap(), None);
        case.assert_memory(&mut executor, id, "diagnose");
    }
}
