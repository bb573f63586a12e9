//! Runs the programs of a whole group on plain vectors, sends buffered, and checks results, bytes
//! and that no message waits for another.

use std::collections::BTreeMap;

use super::*;
use crate::mesh::{Mesh, RankOrder};
use crate::ops::{Args, Kernel, Op, elementwise::Fill};
use crate::plan::check::check;
use crate::plan::{Action, BufferDecl, Instr, Life, Plan, Program, Role};
use crate::planner::memory::{PlaceOptions, place};
use crate::shape::{DType, parts};

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Ring, Algorithm::Tree, Algorithm::Hierarchical, Algorithm::Direct];

/// A group whose members hold `data`, and the programs that they have written so far.
struct Group {
    programs: Vec<RankProgram>,
    seats: Vec<Seat>,
    data: Vec<View>,
}

impl Group {
    fn new(members: usize, node: Option<u32>, len: u32) -> Self {
        // Ranks of a group are rarely 0, 1, 2: a dp group with tp = 2.
        let ranks: Vec<Rank> = (0..members as u32).map(|index| Rank(3 + 2 * index)).collect();
        let mut programs: Vec<_> = ranks.iter().map(|&rank| RankProgram::new(rank)).collect();
        let data = |p: &mut RankProgram| {
            p.declare("data", Role::Gradients, DType::F32, len, Life::Persistent)
        };
        let data = programs.iter_mut().map(data).collect();
        let seat = |me| Seat { ranks: ranks.clone(), me, axis: Axis::Dp, node };
        Self { programs, seats: (0..members).map(seat).collect(), data }
    }

    fn write(&mut self, mut unfold: impl FnMut(&mut RankProgram, &Seat, View)) {
        for ((program, seat), &data) in self.programs.iter_mut().zip(&self.seats).zip(&self.data) {
            unfold(program, seat, data);
        }
    }

    /// Runs all programs and returns what each member's `views` hold in the end.
    fn run(&self, inputs: &[Vec<f32>], views: &[View]) -> Vec<Vec<f32>> {
        let mut runs: Vec<Run<'_>> = self
            .programs
            .iter()
            .zip(inputs)
            .zip(&self.data)
            .map(|((p, input), &data)| Run::new(p, data, input))
            .collect();
        let mut wires = BTreeMap::new();
        while runs.iter().any(|run| run.next < run.program.instrs.len()) {
            let progress = runs.iter_mut().map(|run| run.advance(&mut wires)).max();
            assert!(progress > Some(0), "the group hangs");
        }
        assert!(wires.is_empty(), "messages that nobody received: {:?}", wires.keys());
        runs.iter().zip(views).map(|(run, &view)| run.read(view).to_vec()).collect()
    }

    fn bytes_sent(&self) -> Vec<u64> {
        let bytes = |instr: &Instr| match instr.action {
            Action::Send { view, .. } => u64::from(view.len) * 4,
            _ => 0,
        };
        self.programs.iter().map(|p| p.instrs.iter().map(bytes).sum()).collect()
    }
}

type Wires = BTreeMap<(Rank, Rank, Tag), Vec<f32>>;

/// One member's memory and how far it is.
struct Run<'a> {
    program: &'a RankProgram,
    memory: Vec<Vec<f32>>,
    next: usize,
}

impl<'a> Run<'a> {
    fn new(program: &'a RankProgram, data: View, input: &[f32]) -> Self {
        // Scratch and targets begin as NaN: reading what nobody wrote shows.
        let blank = |decl: &BufferDecl| vec![f32::NAN; decl.len as usize];
        let mut memory: Vec<_> = program.buffers.iter().map(blank).collect();
        memory[data.buffer.0 as usize].copy_from_slice(input);
        Self { program, memory, next: 0 }
    }

    fn read(&self, view: View) -> &[f32] {
        &self.memory[view.buffer.0 as usize][view.offset as usize..][..view.len as usize]
    }

    fn write(&mut self, view: View, values: &[f32]) {
        self.memory[view.buffer.0 as usize][view.offset as usize..][..view.len as usize]
            .copy_from_slice(values);
    }

    /// Runs until a message is missing; returns the number of instructions run.
    fn advance(&mut self, wires: &mut Wires) -> usize {
        let (start, me) = (self.next, self.program.rank);
        while let Some(instr) = self.program.instrs.get(self.next) {
            match &instr.action {
                Action::Send { view, to, tag, .. } => {
                    let old = wires.insert((me, *to, *tag), self.read(*view).to_vec());
                    assert!(old.is_none(), "tag {tag:?} is used twice");
                }
                Action::Recv { view, from, tag, .. } => {
                    let Some(values) = wires.remove(&(*from, me, *tag)) else { break };
                    self.write(*view, &values);
                }
                Action::Copy { from, to } => {
                    let values = self.read(*from).to_vec();
                    self.write(*to, &values);
                }
                Action::Launch { op, inputs, outputs } => self.launch(op, inputs, outputs),
            }
            self.next += 1;
        }
        self.next - start
    }

    fn launch(&mut self, op: &Op, inputs: &[View], outputs: &[View]) {
        let signature = op.signature();
        let lens = |views: &[View]| views.iter().map(|v| u64::from(v.len)).collect::<Vec<_>>();
        assert_eq!(lens(inputs), signature.inputs.iter().map(|s| s.len).collect::<Vec<_>>());
        assert_eq!(lens(outputs), signature.outputs.iter().map(|s| s.0.len).collect::<Vec<_>>());
        let overlap = |a: &View, b: &View| {
            a.buffer == b.buffer && a.offset < b.offset + b.len && b.offset < a.offset + a.len
        };
        assert!(!inputs.iter().any(|input| overlap(input, &outputs[0])), "input over output");
        let inputs: Vec<Vec<f32>> = inputs.iter().map(|&view| self.read(view).to_vec()).collect();
        let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let mut out = self.read(outputs[0]).to_vec();
        Args::with(&inputs, &mut [&mut out], |args| {
            (0..op.parts()).for_each(|part| op.run(part, args));
        });
        self.write(outputs[0], &out);
    }
}

/// Values whose sums round differently in every order.
fn noise(members: usize, len: u32) -> Vec<Vec<f32>> {
    let mut state = 0x9e37_79b9_u32;
    let mut value = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 1e3 - 8e3
    };
    (0..members).map(|_| (0..len).map(&mut value).collect()).collect()
}

/// Whole numbers: their sums are exact in every order.
fn whole(members: usize, len: u32) -> Vec<Vec<f32>> {
    let value = |member: usize, at: u32| ((member + 1) * 100 + at as usize % 89) as f32;
    (0..members).map(|member| (0..len).map(|at| value(member, at)).collect()).collect()
}

/// The sum from the left in rank order.
fn sum_in_rank_order(inputs: &[Vec<f32>]) -> Vec<f32> {
    let sum = |at: usize| inputs[1..].iter().fold(inputs[0][at], |sum, input| sum + input[at]);
    (0..inputs[0].len()).map(sum).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn style(algorithm: Algorithm, chunk_len: u32) -> Style {
    Style { algorithm, lane: Lane::Reduce, chunk_len, id: 7 }
}

/// Node sizes to try for a group, with and without effect.
fn nodes(members: usize) -> Vec<Option<u32>> {
    let fits = |node: &u32| members.is_multiple_of(*node as usize);
    [None].into_iter().chain((1..=members as u32).filter(fits).map(Some)).collect()
}

/// Even pieces, and all in the last but one, and growing ones.
fn cuts(members: usize, len: u32) -> Vec<Vec<Range<u32>>> {
    let count = members as u32;
    let heavy = (count - 1).max(1) - 1;
    let one = (0..count).map(|i| {
        if i < heavy {
            0..0
        } else if i == heavy {
            0..len
        } else {
            len..len
        }
    });
    let steps = count * (count + 1) / 2;
    let at = |i: u32| len * (i * (i + 1) / 2) / steps;
    let growing = (0..count).map(|i| at(i)..at(i + 1));
    vec![parts(len, count), one.collect(), growing.collect()]
}

/// Calls `check` for every algorithm, group size up to 9, node size, ragged length and chunk size.
fn for_all(mut check: impl FnMut(Algorithm, usize, Option<u32>, u32, u32)) {
    for algorithm in ALGORITHMS {
        for members in 1..=9 {
            for len in [0, 1, 3, 19, 1000] {
                for chunk_len in [1, 7, 64, u32::MAX] {
                    if len == 1000 && chunk_len == 1 {
                        continue;
                    }
                    let nodes = match algorithm {
                        Algorithm::Hierarchical => nodes(members),
                        _ => vec![None],
                    };
                    for node in nodes {
                        check(algorithm, members, node, len, chunk_len);
                    }
                }
            }
        }
    }
}

#[test]
fn all_reduce_equals_the_sum_on_every_rank() {
    for_all(|algorithm, members, node, len, chunk_len| {
        let inputs = whole(members, len);
        let expected = sum_in_rank_order(&inputs);
        for pieces in cuts(members, len) {
            let mut group = Group::new(members, node, len);
            let style = style(algorithm, chunk_len);
            group.write(|p, seat, data| all_reduce(p, seat, style, data, &pieces));
            for held in group.run(&inputs, &group.data) {
                assert_eq!(held, expected, "{algorithm:?}, {members} members, nodes of {node:?}");
            }
            let total: u64 = group.bytes_sent().iter().sum();
            assert_eq!(total, 2 * (members as u64 - 1) * 4 * u64::from(len), "{algorithm:?}");
        }
    });
}

#[test]
fn reduce_scatter_leaves_each_member_its_piece_in_place_assigned_or_added() {
    for_all(|algorithm, members, node, len, chunk_len| {
        let inputs = whole(members, len);
        let expected = sum_in_rank_order(&inputs);
        for (cut, pieces) in cuts(members, len).iter().enumerate() {
            let mut group = Group::new(members, node, len);
            let style = style(algorithm, chunk_len);
            let mut views = Vec::new();
            group.write(|p, seat, data| {
                let piece = pieces[seat.me].clone();
                let target = p.buffer("target", Role::Gradients, DType::F32, piece.len() as u32);
                let into = [Into::Place, Into::Assign(target), Into::Add(target)][cut];
                if cut == 2 && target.len > 0 {
                    let fill = Action::Copy { from: data.slice(piece.clone()), to: target };
                    p.push(Lane::Compute, fill);
                }
                views.push(if cut == 0 { data.slice(piece) } else { target });
                reduce_scatter(p, seat, style, data, pieces, into);
            });
            let held = group.run(&inputs, &views);
            for (me, held) in held.iter().enumerate() {
                let range = pieces[me].start as usize..pieces[me].end as usize;
                let before = |at: usize| if cut == 2 { inputs[me][at] } else { 0.0 };
                let expected: Vec<f32> = range.map(|at| before(at) + expected[at]).collect();
                assert_eq!(*held, expected, "{algorithm:?}, {members} members, nodes {node:?}");
            }
            let total: u64 = group.bytes_sent().iter().sum();
            assert_eq!(total, (members as u64 - 1) * 4 * u64::from(len), "{algorithm:?}");
        }
    });
}

#[test]
fn all_gather_after_reduce_scatter_is_all_reduce_bit_for_bit() {
    for_all(|algorithm, members, node, len, chunk_len| {
        if algorithm == Algorithm::Tree && !members.is_power_of_two() {
            return; // The binary tree has no reduce-scatter of its own.
        }
        let (inputs, pieces) = (noise(members, len), parts(len, members as u32));
        let style = style(algorithm, chunk_len);
        let mut whole = Group::new(members, node, len);
        whole.write(|p, seat, data| all_reduce(p, seat, style, data, &pieces));
        let mut halves = Group::new(members, node, len);
        halves.write(|p, seat, data| {
            reduce_scatter(p, seat, style, data, &pieces, Into::Place);
            all_gather(p, seat, style, data, &pieces);
        });
        let held = whole.run(&inputs, &whole.data);
        let again = halves.run(&inputs, &halves.data);
        for (a, b) in held.iter().zip(&again) {
            assert_eq!(bits(a), bits(b), "{algorithm:?}, {members} members");
            assert_eq!(bits(a), bits(&held[0]), "replicas differ");
        }
    });
}

#[test]
fn all_gather_brings_every_piece_to_every_rank() {
    for_all(|algorithm, members, node, len, chunk_len| {
        let inputs = noise(members, len);
        for pieces in cuts(members, len) {
            let mut expected = vec![0.0; len as usize];
            for (piece, input) in pieces.iter().zip(&inputs) {
                let range = piece.start as usize..piece.end as usize;
                expected[range.clone()].copy_from_slice(&input[range]);
            }
            let mut group = Group::new(members, node, len);
            let style = style(algorithm, chunk_len);
            group.write(|p, seat, data| all_gather(p, seat, style, data, &pieces));
            for held in group.run(&inputs, &group.data) {
                assert_eq!(held, expected, "{algorithm:?}, {members} members");
            }
        }
    });
}

#[test]
fn broadcast_brings_the_first_members_data_to_all() {
    for_all(|algorithm, members, node, len, chunk_len| {
        let inputs = noise(members, len);
        let mut group = Group::new(members, node, len);
        group.write(|p, seat, data| broadcast(p, seat, style(algorithm, chunk_len), data));
        for held in group.run(&inputs, &group.data) {
            assert_eq!(held, inputs[0], "{algorithm:?}, {members} members");
        }
        let total: u64 = group.bytes_sent().iter().sum();
        assert_eq!(total, (members as u64 - 1) * 4 * u64::from(len));
    });
}

#[test]
fn direct_adds_in_rank_order_bit_for_bit_for_any_cut() {
    for members in 1..=8 {
        for len in [1, 3, 19, 1000] {
            let inputs = noise(members, len);
            let expected = bits(&sum_in_rank_order(&inputs));
            for pieces in cuts(members, len) {
                for chunk_len in [3, 64, 1000] {
                    let mut group = Group::new(members, None, len);
                    let style = style(Algorithm::Direct, chunk_len);
                    group.write(|p, seat, data| all_reduce(p, seat, style, data, &pieces));
                    for held in group.run(&inputs, &group.data) {
                        assert_eq!(bits(&held), expected, "{members} members, chunks {chunk_len}");
                    }
                }
            }
        }
    }
    // The values do tell orders apart: the ring begins elsewhere.
    let (inputs, pieces) = (noise(8, 1000), parts(1000, 8));
    let mut ring = Group::new(8, None, 1000);
    ring.write(|p, seat, data| all_reduce(p, seat, style(Algorithm::Ring, 64), data, &pieces));
    assert_ne!(bits(&ring.run(&inputs, &ring.data)[0]), bits(&sum_in_rank_order(&inputs)));
}

#[test]
fn a_mebibyte_costs_the_known_bytes() {
    // (members, bytes a rank, bytes of all)
    const KNOWN: [(usize, u64, u64); 4] = [
        (2, 1_048_576, 2_097_152),
        (4, 1_572_864, 6_291_456),
        (8, 1_835_008, 14_680_064),
        (16, 1_966_080, 31_457_280),
    ];
    let len = (1 << 20) / 4;
    for algorithm in ALGORITHMS {
        for (members, each, all) in KNOWN {
            let mut group = Group::new(members, Some(2), len);
            let pieces = parts(len, members as u32);
            let style = style(algorithm, 1 << 12);
            group.write(|p, seat, data| all_reduce(p, seat, style, data, &pieces));
            assert_eq!(group.bytes_sent(), vec![each; members], "{algorithm:?}");
            assert_eq!(group.bytes_sent().iter().sum::<u64>(), all);
            let mut half = Group::new(members, Some(2), len);
            half.write(|p, seat, data| reduce_scatter(p, seat, style, data, &pieces, Into::Place));
            assert_eq!(half.bytes_sent(), vec![each / 2; members], "{algorithm:?}");
        }
    }
}

#[test]
fn uneven_pieces_cost_within_one_piece_of_the_mean() {
    let len = (1 << 20) / 4;
    for (members, algorithm) in [
        (3, Algorithm::Ring),
        (3, Algorithm::Direct),
        (7, Algorithm::Ring),
        (6, Algorithm::Hierarchical),
        (8, Algorithm::Tree),
    ] {
        let mut group = Group::new(members, Some(2), len);
        let pieces = parts(len, members as u32);
        let style = style(algorithm, 1 << 12);
        group.write(|p, seat, data| all_reduce(p, seat, style, data, &pieces));
        let (n, whole) = (members as u64, 4 * u64::from(len));
        let piece = 4 * u64::from(len).div_ceil(n);
        let mean = 2 * (n - 1) * whole / n;
        assert_eq!(group.bytes_sent().iter().sum::<u64>(), 2 * (n - 1) * whole);
        for sent in group.bytes_sent() {
            assert!(sent.abs_diff(mean) <= piece, "{algorithm:?}: {sent} instead of {mean}");
        }
    }
}

#[test]
fn a_ring_takes_twice_n_minus_1_steps_and_talks_to_one_neighbour() {
    let mut group = Group::new(5, None, 100);
    let pieces = parts(100, 5);
    group.write(|p, seat, data| all_reduce(p, seat, style(Algorithm::Ring, 100), data, &pieces));
    for (program, seat) in group.programs.iter().zip(&group.seats) {
        let next = seat.ranks[(seat.me + 1) % 5];
        let sends: Vec<Lane> = program
            .instrs
            .iter()
            .filter(|instr| matches!(instr.action, Action::Send { .. }))
            .map(|instr| instr.lane)
            .collect();
        assert_eq!(sends, vec![Lane::Out(Axis::Dp, next); 2 * (5 - 1)]);
    }
}

#[test]
fn chunks_bound_messages_and_origins_are_set_and_restored() {
    let mut group = Group::new(4, None, 1000);
    let pieces = parts(1000, 4);
    group.write(|p, seat, data| {
        p.origin.layer = Some(2);
        let before = p.origin;
        all_reduce(p, seat, style(Algorithm::Direct, 64), data, &pieces);
        assert_eq!(p.origin, before);
    });
    let kind = CollectiveKind::AllReduce;
    for instr in group.programs.iter().flat_map(|p| &p.instrs) {
        assert_eq!(instr.origin.collective, Some(Collective { kind, id: 7 }));
        assert_eq!((instr.origin.axis, instr.origin.layer), (Some(Axis::Dp), Some(2)));
        if let Action::Send { view, .. } | Action::Recv { view, .. } = instr.action {
            assert!((1..=64).contains(&view.len));
        }
        if let Action::Launch { .. } = instr.action {
            assert_eq!(instr.lane, Lane::Reduce);
        }
    }
}

/// Several collectives in cells that compute too, placed and joined to a Plan.
fn busy_plan(members: usize, node: Option<u32>, style: Style) -> Plan {
    let len = 100_000; // Too much to be placed apart: memory is reused.
    let pieces = parts(len, members as u32);
    let ranks: Vec<Rank> = (0..members as u32).map(Rank).collect();
    let mesh = Mesh { dp: members as u32, tp: 1, pp: 1, order: RankOrder::TpDpPp };
    let mut plan = Plan { mesh, tensors: Vec::new(), buffers: Vec::new(), programs: Vec::new() };
    for me in 0..members {
        let mut p = RankProgram::new(ranks[me]);
        let seat = Seat { ranks: ranks.clone(), me, axis: Axis::Dp, node };
        for id in 0..6 {
            p.cell_starts.push(p.instrs.len() as u32);
            let style = Style { id, lane: [Lane::Compute, Lane::Reduce][id as usize % 2], ..style };
            let data = p.buffer(format!("data{id}"), Role::Gradients, DType::F32, len);
            let fill = |len| Op::Fill(Fill { len, value: 1.0 });
            p.launch(fill(len), &[], &[data]);
            match id {
                0 | 1 => all_reduce(&mut p, &seat, style, data, &pieces),
                2 | 3 => {
                    let piece = pieces[me].len() as u32;
                    let sum = p.buffer(format!("sum{id}"), Role::Gradients, DType::F32, piece);
                    p.launch(fill(piece), &[], &[sum]);
                    reduce_scatter(&mut p, &seat, style, data, &pieces, Into::Add(sum));
                }
                4 => all_gather(&mut p, &seat, style, data, &pieces),
                _ => broadcast(&mut p, &seat, style, data),
            }
        }
        place(&mut p, PlaceOptions::default());
        join(&mut plan, p);
    }
    plan
}

/// Appends a rank's program to a Plan.
pub(in crate::planner) fn join(plan: &mut Plan, program: RankProgram) {
    let first = plan.buffers.len() as u32;
    let mut instrs = program.instrs;
    for instr in &mut instrs {
        match &mut instr.action {
            Action::Launch { inputs, outputs, .. } => {
                inputs.iter_mut().chain(outputs).for_each(|view| view.buffer.0 += first);
            }
            Action::Send { view, .. } | Action::Recv { view, .. } => view.buffer.0 += first,
            Action::Copy { from, to } => {
                from.buffer.0 += first;
                to.buffer.0 += first;
            }
        }
    }
    plan.buffers.extend(program.buffers);
    plan.programs.push(Program { instrs });
}

#[test]
fn collectives_in_reused_memory_pass_check_and_cannot_hang() {
    for algorithm in ALGORITHMS {
        for members in 1..=9 {
            for node in nodes(members) {
                for chunk_len in [3000, 100_000] {
                    let plan = busy_plan(members, node, style(algorithm, chunk_len));
                    assert_eq!(check(&plan), [], "{algorithm:?}, {members}, node {node:?}");
                }
            }
        }
    }
}

#[test]
fn tags_tell_ids_steps_and_chunks_apart() {
    let ids = [0, 1, (1 << 36) - 1];
    let (steps, chunks) = ([0, 1, GATHER, 2 * GATHER - 1], [0, 1, (1 << 17) - 1]);
    let mut tags = Vec::new();
    for id in ids {
        for step in steps {
            tags.extend(chunks.map(|chunk| message_tag(id, step, chunk)));
        }
    }
    let count = tags.len();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), count);
}

#[test]
fn labels_are_unique_within_a_rank() {
    for algorithm in ALGORITHMS {
        let mut group = Group::new(8, Some(2), 100);
        let pieces = parts(100, 8);
        group.write(|p, seat, data| all_reduce(p, seat, style(algorithm, 5), data, &pieces));
        for program in &group.programs {
            let mut labels: Vec<_> = program.buffers.iter().map(|decl| &decl.label).collect();
            labels.sort();
            labels.dedup();
            assert_eq!(labels.len(), program.buffers.len(), "{algorithm:?}");
        }
    }
}

#[test]
fn auto_goes_by_nodes_then_by_size() {
    let auto = |bytes, members, node| choose(CollectiveChoice::Auto, bytes, members, node);
    assert_eq!(auto(1 << 30, 8, None), Algorithm::Direct);
    assert_eq!(auto(1 << 30, 9, None), Algorithm::Ring);
    assert_eq!(auto(4, 64, None), Algorithm::Direct);
    assert_eq!(auto(1 << 30, 16, Some(8)), Algorithm::Hierarchical);
    assert_eq!(auto(1 << 30, 8, Some(8)), Algorithm::Direct);
    assert_eq!(auto(1 << 30, 12, Some(8)), Algorithm::Ring);
    assert_eq!(choose(CollectiveChoice::Tree, 4, 2, None), Algorithm::Tree);
}
