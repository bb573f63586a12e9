//! What a timeline of a million blocks costs: 64 ranks, 488 microbatches, 16 instructions a pass.
//! Prints how long it takes to open, what a frame costs while the picture is moved and zoomed, and
//! the most memory. Times are those of the thread on its core. A frame is geometry with texts measured
//! from a table: whoever paints it pays on top.
//!
//! `cargo bench --no-default-features --bench draw`

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shardlab::mesh::{Mesh, Rank, RankOrder};
use shardlab::ops::Op;
use shardlab::ops::elementwise::Fill;
use shardlab::plan::order::{self, Order};
use shardlab::plan::{Action, Instr, Lane, Origin, Phase, Plan, Program};
use shardlab::trace::draw::fonts::SansTable;
use shardlab::trace::draw::scene::{Area, Canvas, Sketch};
use shardlab::trace::draw::theme::Theme;
use shardlab::trace::draw::timeline::{Frame, Level, Timeline, draw};
use shardlab::trace::{Badge, Clock, Span, Trace};
use shardlab::units::Nanos;

const MESH: Mesh = Mesh { dp: 4, tp: 4, pp: 4, order: RankOrder::TpDpPp };
const MICROBATCHES: u32 = 488;
/// Layers of a pass, and instructions of a layer.
const LAYERS: u32 = 8;
const INSTRS: u32 = 2;
/// Frames: as many zooms, each by two, and as many places at each of them.
const ZOOMS: u32 = 16;
const PANS: u64 = 40;
/// What the design allows.
const OPEN: Duration = Duration::from_secs(3);
const FRAME: Duration = Duration::from_millis(8);
const MEMORY_MIB: u64 = 400;

/// Passes of unequal length with a wait before every fifth and inside every seventh.
fn step() -> (Plan, Order, Trace) {
    let mut spans = Vec::new();
    let mut programs = Vec::new();
    for rank in MESH.ranks() {
        let stage = MESH.coord(rank).pp;
        let (mut program, mut times) = (Program::default(), Vec::new());
        let mut at = u64::from(stage) * 10_000;
        for pass in 0..2 * MICROBATCHES {
            let microbatch = Some(pass / 2);
            let (phase, long) = match pass % 2 {
                0 => (Phase::Forward, 1_000),
                _ => (Phase::Backward, 2_000),
            };
            at += u64::from(pass % 5 == 0) * 3_000;
            for index in 0..LAYERS * INSTRS {
                at += u64::from(pass % 7 == 0 && index == 5) * 700;
                let takes = long + u64::from((index * 37 + pass * 11 + rank.0 * 5) % 400);
                let layer = Some(stage * LAYERS + index / INSTRS);
                let stage = Some(stage);
                let origin = Origin { phase, stage, layer, microbatch, ..Origin::default() };
                let op = Op::Fill(Fill { len: 1, value: 0.0 });
                let action = Action::Launch { op, inputs: Vec::new(), outputs: Vec::new() };
                program.instrs.push(Instr { lane: Lane::Compute, action, origin });
                times.push(Span { start: Nanos(at), end: Nanos(at + takes) });
                at += takes;
            }
        }
        program.instrs.shrink_to_fit();
        programs.push(program);
        spans.push(times);
    }
    let plan = Plan { mesh: MESH, tensors: Vec::new(), buffers: Vec::new(), programs };
    let order = order::derive(&plan);
    let trace = Trace { clock: Clock::Replayed, step: 0, spans, paths: Vec::new() };
    (plan, order, trace)
}

/// The most memory this process has had, where the system tells.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

/// Time for which this thread has been on a core, where the system tells; else the clock. It is told
/// in slices of some milliseconds: only sums over many frames are exact.
fn cpu_time(started: Instant) -> Duration {
    let read = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = read.and_then(|text| text.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| started.elapsed(), Duration::from_nanos)
}

/// Draws one frame; returns the number of its shapes.
fn frame(timeline: &Timeline, window: (u64, u64), everything: &Everything) -> usize {
    let (from, until) = window;
    let mut frame = Frame::new(everything.area, (Nanos(from), Nanos(until)), Badge::Replayed);
    frame.playhead = Some(Nanos(u64::midpoint(from, until)));
    frame.selected = timeline.target_at(Rank(17), Level::Pass, Nanos(u64::midpoint(from, until)));
    frame.open = &everything.open;
    let canvas = Canvas { theme: &Theme::DARK, measure: &SansTable };
    let mut sketch = Sketch::new(canvas, frame.area);
    draw(&mut sketch, timeline, &frame);
    sketch.scene.shapes.len()
}

/// What all frames of a series have in common.
struct Everything {
    area: Area,
    open: BTreeSet<u32>,
}

fn main() {
    let before = peak_mib();
    let (plan, order, trace) = step();
    let (plan, trace) = (Arc::new(plan), Arc::new(trace));
    let input = peak_mib();
    let started = Instant::now();
    let cpu_before = cpu_time(started);
    let timeline = Timeline::new(plan, &order, trace, &[]);
    let opened = cpu_time(started) - cpu_before;
    let counts = Level::ALL.map(|level| timeline.count(level));
    println!(
        "blocks: {} passes, {} layers, {} instructions and waits",
        counts[0], counts[1], counts[2]
    );
    println!("open: {:.2} s of {:.0} s", opened.as_secs_f64(), OPEN.as_secs_f64());

    let end = timeline.end().0;
    let mut slowest = Duration::ZERO;
    let folded = Everything { area: Area::sized(1280.0, 376.0), open: [].into() };
    let unfolded = Everything { area: Area::sized(1920.0, 1400.0), open: (0..4).collect() };
    for (name, everything) in [("folded, 1280 × 376", &folded), ("open, 1920 × 1400", &unfolded)]
    {
        let (mut worst, mut worst_zoom, mut most) = (Duration::ZERO, 0, 0);
        let before = cpu_time(started);
        for zoom in 0..ZOOMS {
            let width = (end >> zoom).max(1);
            let before = cpu_time(started);
            for pan in 0..PANS {
                let from = (end - width) / PANS * pan;
                most = most.max(frame(&timeline, (from, from + width), everything));
            }
            let mean = (cpu_time(started) - before) / PANS as u32;
            if mean > worst {
                (worst, worst_zoom) = (mean, zoom);
            }
        }
        let mean = (cpu_time(started) - before) / (ZOOMS * PANS as u32);
        slowest = slowest.max(worst);
        println!(
            "{name}: {:.2} ms a frame, {:.2} of {} ms where it costs most (1/{} of the step in sight), \
             at most {most} shapes",
            mean.as_secs_f64() * 1e3,
            worst.as_secs_f64() * 1e3,
            FRAME.as_millis(),
            1_u64 << worst_zoom
        );
    }
    if let (Some(before), Some(input), Some(peak)) = (before, input, peak_mib()) {
        let (step, timeline) = (input - before, peak - input);
        println!(
            "memory: {peak} MiB of {MEMORY_MIB} at most: {step} for the Plan and its Trace, {timeline} on top"
        );
        assert!(peak <= MEMORY_MIB, "too much memory");
    }
    assert!(opened <= OPEN && slowest <= FRAME, "too slow");
}
