//! Places random and transformer-like programs and checks that nothing overlaps and little is lost.
//!
//! What overlaps is found by brute force from the accesses of the program, not from the lives that
//! the placement computed.

use proptest::prelude::*;

use super::*;
use crate::mesh::{Axis, Mesh, Rank, RankOrder};
use crate::ops::{Op, elementwise::Fill};
use crate::plan::check::cycle;
use crate::plan::{BufferId, Collective, Life, Piece, Plan, Role, Tag, order};
use crate::planner::collective::tests::join;
use crate::planner::schedule::{Act, Pass, Schedule, gpipe::gpipe, one_f_one_b::one_f_one_b};
use crate::shape::DType;

fn program() -> RankProgram {
    RankProgram::new(Rank(0))
}

fn buffer(p: &mut RankProgram, len: u32) -> View {
    let label = format!("b{}", p.buffers.len());
    p.buffer(label, Role::Activations, DType::F32, len)
}

fn touch(p: &mut RankProgram, views: &[View]) {
    p.launch(Op::Fill(Fill { len: 0, value: 0.0 }), &[], views);
}

/// A program in which buffer `i` of `sizes` (elements) is accessed first and last as in `lives`.
fn with_lives(lives: &[(u32, u32)], sizes: &[u32]) -> RankProgram {
    let mut p = program();
    let views: Vec<View> = sizes.iter().map(|&len| buffer(&mut p, len)).collect();
    let mut accesses: Vec<Vec<View>> = Vec::new();
    for (&(first, last), &view) in lives.iter().zip(&views) {
        accesses.resize(accesses.len().max(last as usize + 1), Vec::new());
        accesses[first as usize].push(view);
        accesses[last as usize].push(view);
    }
    for views in accesses {
        touch(&mut p, &views);
    }
    p
}

/// First and last access of each buffer, by brute force.
fn accesses(p: &RankProgram, buffer: BufferId) -> Option<(usize, usize)> {
    let touches = |at: &usize| views(&p.instrs[*at].action).any(|view| view.buffer == buffer);
    let first = (0..p.instrs.len()).find(touches)?;
    Some((first, (0..p.instrs.len()).rev().find(touches)?))
}

fn bytes(decl: &BufferDecl) -> Range<u64> {
    decl.place.offset..decl.place.offset + decl.bytes().0
}

fn arena_bytes(p: &RankProgram, arena: Arena) -> u64 {
    let ends = p.buffers.iter().filter(|decl| decl.place.arena == arena).map(|d| bytes(d).end);
    ends.max().unwrap_or(0)
}

fn assert_apart(p: &RankProgram) {
    let lives: Vec<_> = (0..p.buffers.len() as u32).map(|id| accesses(p, BufferId(id))).collect();
    for (a, life_a) in p.buffers.iter().zip(&lives) {
        assert_eq!(a.place.offset % Place::ALIGN, 0);
        for (b, life_b) in p.buffers.iter().zip(&lives) {
            let (Some(life_a), Some(life_b)) = (life_a, life_b) else { continue };
            let together =
                a.place.arena != Arena::Step || (life_a.0 <= life_b.1 && life_b.0 <= life_a.1);
            let same = a.label == b.label || a.place.arena != b.place.arena;
            let (at, other) = (bytes(a), bytes(b));
            let overlap = at.start < other.end && other.start < at.end;
            assert!(same || !together || !overlap, "{} and {} overlap", a.label, b.label);
        }
    }
}

/// Placed bytes over live peak.
fn ratio(p: &mut RankProgram) -> f64 {
    place(p, PlaceOptions::default());
    arena_bytes(p, Arena::Step) as f64 / live_peak(p).0 as f64
}

/// Numbers from 0 to 2^31, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, bound: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// 1F1B at stage `stage` of `depth`: what each layer keeps for backward, scratch, gradients.
fn transformer(layers: u32, microbatches: u32, depth: u32, stage: u32) -> RankProgram {
    // Elements of d_model, times: kept by forward, or used within three instructions.
    const KEPT: [u32; 8] = [1024, 64, 1536, 1024, 64, 2816, 2816, 1024];
    const BRIEF: [u32; 5] = [1024, 2816, 512, 1024, 96];
    let (mut p, mut kept) = (program(), Vec::new());
    let gradients: Vec<View> = (0..layers).map(|_| buffer(&mut p, 12 * 4096)).collect();
    let warm = (depth - stage).min(microbatches);
    let forward = |p: &mut RankProgram, kept: &mut Vec<Vec<Vec<View>>>| {
        p.cell_starts.push(p.instrs.len() as u32);
        kept.push(Vec::new());
        for _ in 0..layers {
            let views: Vec<View> = KEPT.iter().map(|&len| buffer(p, len * 16)).collect();
            for (&view, &len) in views.iter().zip(BRIEF.iter().cycle()) {
                let brief = buffer(p, len * 16);
                touch(p, &[brief, view]);
                touch(p, &[brief]);
            }
            kept.last_mut().unwrap().push(views);
        }
    };
    let backward = |p: &mut RankProgram, kept: Vec<Vec<View>>| {
        p.cell_starts.push(p.instrs.len() as u32);
        for (layer, views) in kept.into_iter().enumerate().rev() {
            for (&view, &len) in views.iter().rev().zip(BRIEF.iter().cycle()) {
                let brief = buffer(p, len * 16);
                touch(p, &[view, brief]);
                touch(p, &[brief, gradients[layer]]);
            }
        }
    };
    (0..warm).for_each(|_| forward(&mut p, &mut kept));
    for microbatch in 0..microbatches {
        backward(&mut p, kept[microbatch as usize].clone());
        if kept.len() < microbatches as usize {
            forward(&mut p, &mut kept);
        }
    }
    touch(&mut p, &gradients);
    p
}

#[test]
fn transformers_are_placed_at_their_live_peak() {
    for (layers, microbatches, depth, stage) in
        [(4, 8, 4, 0), (4, 8, 4, 3), (2, 4, 1, 0), (6, 1, 1, 0), (3, 6, 3, 1)]
    {
        let mut p = transformer(layers, microbatches, depth, stage);
        let ratio = ratio(&mut p);
        assert_apart(&p);
        assert!(ratio < 1.03, "{layers} layers, stage {stage} of {depth}: {ratio}");
    }
}

#[test]
fn random_lives_lose_less_than_a_tenth() {
    let mut dice = Dice(1);
    let mut worst = 0.0_f64;
    for kind in 0..4 {
        for count in [40, 300, 1500, 20_000] {
            let (mut lives, mut sizes) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let start = dice.roll(2 * count);
                let (length, size) = match kind {
                    0 => (dice.roll(2 * count), 1 + dice.roll(100)),
                    1 => (1 + dice.roll(1 + count / 10), 1 + dice.roll(100)),
                    2 => (1 + dice.roll(8), [8, 12, 16, 64, 100][dice.roll(5) as usize]),
                    _ => (1 + count / (1 + dice.roll(count)), 1 << dice.roll(10)),
                };
                lives.push((start, start + length));
                sizes.push(size * 64);
            }
            let mut p = with_lives(&lives, &sizes);
            worst = worst.max(ratio(&mut p));
            if count < 1000 {
                assert_apart(&p);
            }
        }
    }
    assert!(worst <= 1.1, "placed {worst} times the live peak");
}

proptest! {
    #[test]
    fn buffers_that_live_together_lie_apart(
        lives in prop::collection::vec((0u32..40, 0u32..12, 0u32..500), 0..40),
        exclusive_messages: bool,
    ) {
        let spans: Vec<_> = lives.iter().map(|&(first, more, _)| (first, first + more)).collect();
        let sizes: Vec<_> = lives.iter().map(|&(.., size)| size).collect();
        let mut p = with_lives(&spans, &sizes);
        place(&mut p, PlaceOptions { exclusive_messages });
        assert_apart(&p);
    }
}

#[test]
fn persistent_and_io_buffers_lie_in_order_of_declaration_whatever_the_program() {
    let mut p = program();
    let declare = |p: &mut RankProgram, label: &str, life, len| {
        p.declare(label, Role::Weights, DType::F32, len, life)
    };
    declare(&mut p, "a", Life::Persistent, 65);
    declare(&mut p, "tokens", Life::Input(crate::plan::Input::Scalars), 4);
    declare(&mut p, "b", Life::Persistent, 0);
    declare(&mut p, "c", Life::Persistent, 64);
    declare(&mut p, "norm", Life::Output(crate::plan::Output::SquaredNorm), 1);
    declare(&mut p, "d", Life::Persistent, 1);
    place(&mut p, PlaceOptions::default());
    let offsets: Vec<u64> = p.buffers.iter().map(|decl| decl.place.offset).collect();
    assert_eq!(offsets, [0, 0, 512, 512, 256, 768]);
}

#[test]
fn final_gradients_live_to_the_end() {
    let mut p = program();
    let (gradient, later) = (buffer(&mut p, 64), buffer(&mut p, 64));
    let (rows, cols, flat) = (0..64, 0..1, 0..64);
    let held = Held::Gradient;
    p.piece(gradient, Piece { tensor: 0, held, rows, cols, flat, offset: 0, owned: true });
    touch(&mut p, &[gradient]);
    touch(&mut p, &[later]);
    assert_eq!(live_peak(&p), Bytes(512));
    place(&mut p, PlaceOptions::default());
    assert_ne!(p.buffers[0].place.offset, p.buffers[1].place.offset);
}

/// `x` is received in the second cell; `old` is used in the first, `older` in the one before.
fn receiving() -> (RankProgram, [View; 3]) {
    let mut p = program();
    // Room for 1.1 × peak: one large buffer beside three small ones.
    let (big, older, old, x) =
        (buffer(&mut p, 1 << 16), buffer(&mut p, 64), buffer(&mut p, 64), buffer(&mut p, 64));
    for view in [older, old] {
        p.cell_starts.push(p.instrs.len() as u32);
        touch(&mut p, &[view, big]);
    }
    p.cell_starts.push(p.instrs.len() as u32);
    p.recv(x, Rank(1), Tag(0));
    touch(&mut p, &[x, big]);
    (p, [older, old, x])
}

#[test]
fn a_receive_between_stages_can_be_posted_one_cell_early() {
    let (mut p, [older, old, x]) = receiving();
    place(&mut p, PlaceOptions::default());
    let offset = |view: View| p.buffers[view.buffer.0 as usize].place.offset;
    assert_ne!(offset(x), offset(old));
    // It does not reach back further than it must.
    assert!(offset(x) == offset(older) || offset(old) == offset(older));
}

#[test]
fn exclusive_messages_share_their_place_with_nobody() {
    let (mut p, [older, old, x]) = receiving();
    place(&mut p, PlaceOptions { exclusive_messages: true });
    let offset = |view: View| p.buffers[view.buffer.0 as usize].place.offset;
    assert_ne!(offset(x), offset(old));
    assert_ne!(offset(x), offset(older));
    assert_eq!(offset(old), offset(older));
}

#[test]
fn backward_does_not_wait_for_the_sums_of_gradient_collectives() {
    let mut p = program();
    let big = buffer(&mut p, 1 << 16);
    let (term, gradient, next) = (buffer(&mut p, 64), buffer(&mut p, 64), buffer(&mut p, 64));
    let kind = CollectiveKind::ReduceScatter;
    p.cell_starts.push(0);
    touch(&mut p, &[big, gradient]);
    p.origin.collective = Some(Collective { kind, id: 0 });
    p.send(Axis::Dp, gradient, Rank(1), Tag(0));
    p.recv(term, Rank(1), Tag(0));
    p.launch_on(Lane::Reduce, Op::Fill(Fill { len: 0, value: 0.0 }), &[term], &[gradient]);
    p.origin.collective = None;
    touch(&mut p, &[big, next]);
    place(&mut p, PlaceOptions::default());
    let offsets: Vec<u64> = p.buffers.iter().map(|decl| decl.place.offset).collect();
    // In program order `term` and `gradient` are dead when `next` begins.
    assert!(offsets[3] != offsets[1] && offsets[3] != offsets[2], "{offsets:?}");
}

#[test]
fn stretching_gives_way_to_memory() {
    // Many cells of one large message each: stretched, two would live at a time.
    let mut p = program();
    for _ in 0..8 {
        p.cell_starts.push(p.instrs.len() as u32);
        let x = buffer(&mut p, 1 << 16);
        p.recv(x, Rank(1), Tag(0));
        touch(&mut p, &[x]);
    }
    assert!(ratio(&mut p) <= 1.1);
    assert_apart(&p);
}

#[test]
fn placement_is_deterministic() {
    let (mut a, mut b) = (transformer(2, 4, 2, 0), transformer(2, 4, 2, 0));
    place(&mut a, PlaceOptions::default());
    place(&mut b, PlaceOptions::default());
    assert_eq!(a.buffers, b.buffers);
}

#[test]
fn an_empty_program_is_placed() {
    let mut p = program();
    buffer(&mut p, 3);
    place(&mut p, PlaceOptions::default());
    assert_eq!((p.buffers[0].place.offset, live_peak(&p)), (0, Bytes(0)));
}

/// A pipeline of one op a pass: stage `r` of rank `r` receives, keeps, computes, sends.
fn pipeline(schedule: &Schedule, len: u32, kept_count: usize, options: PlaceOptions) -> Plan {
    let depth = schedule.rows.len() as u32;
    let mesh = Mesh { dp: 1, tp: 1, pp: depth, order: RankOrder::TpDpPp };
    let mut plan = Plan { mesh, tensors: vec![], buffers: vec![], programs: vec![] };
    for r in 0..depth {
        let mut p = RankProgram::new(Rank(r));
        let mut kept = std::collections::BTreeMap::new();
        for Act { pass, microbatch, .. } in schedule.acts(r as usize) {
            p.cell_starts.push(p.instrs.len() as u32);
            let (from, to) = match pass {
                Pass::F => (r.checked_sub(1), Some(r + 1)),
                Pass::B | Pass::I | Pass::W => (Some(r + 1), r.checked_sub(1)),
            };
            let tag = Tag((pass as u64) << 32 | u64::from(microbatch));
            let (x, y) = (buffer(&mut p, len), buffer(&mut p, len));
            match from.filter(|&from| from < depth) {
                Some(from) => p.recv(x, Rank(from), tag),
                None => touch(&mut p, &[x]),
            }
            let mut inputs = vec![x];
            if pass == Pass::F {
                let saved: Vec<View> = (0..kept_count).map(|_| buffer(&mut p, len)).collect();
                touch(&mut p, &saved);
                kept.insert(microbatch, [saved, vec![x]].concat());
            } else {
                inputs.extend(kept.remove(&microbatch).unwrap());
            }
            p.launch(Op::Fill(Fill { len, value: 0.0 }), &inputs, &[y]);
            if let Some(to) = to.filter(|&to| to < depth) {
                p.send(Axis::Pp, y, Rank(to), tag);
            }
        }
        place(&mut p, options);
        let slack = Place::ALIGN * p.buffers.len() as u64;
        let most = live_peak(&p).0 * 11 / 10 + slack;
        assert!(options.exclusive_messages || arena_bytes(&p, Arena::Step) <= most);
        join(&mut plan, p);
    }
    plan
}

#[test]
fn pipelines_in_reused_memory_cannot_hang() {
    for (depth, microbatches) in [(2, 2), (2, 5), (3, 5), (4, 8), (4, 2)] {
        for schedule in [gpipe(depth, microbatches), one_f_one_b(depth, microbatches)] {
            // From messages that dominate memory to messages that hardly count.
            for (len, kept_count) in [(64, 0), (1 << 14, 0), (1 << 14, 1), (1 << 14, 8)] {
                for exclusive_messages in [false, true] {
                    let options = PlaceOptions { exclusive_messages };
                    let plan = pipeline(&schedule, len, kept_count, options);
                    let graph = order::graph(&plan, &order::derive(&plan));
                    assert_eq!(cycle::shortest(&graph), None, "{schedule}{len} × {kept_count}");
                }
            }
        }
    }
}
