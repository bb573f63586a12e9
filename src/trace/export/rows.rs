//! The lines of the tables: one for each block of a rank's time, or one for each instruction.

use serde::Serialize;

use crate::mesh::{Axis, Rank};
use crate::plan::order::Order;
use crate::plan::{Action, Instr, Origin, Plan, text};
use crate::trace::draw::{Block, BlockKind, Work, blocks, label};
use crate::trace::{Span, Trace};
use crate::units::{Bytes, Nanos};

/// What a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A pass of a microbatch, a part of the step, or a wait with its cause: they cover the time of
    /// each rank without holes.
    Blocks,
    /// One instruction.
    Instructions,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Whose time it is.
    pub rank: Rank,
    /// Pipeline stage.
    pub stage: Option<u32>,
    /// Microbatch.
    pub microbatch: Option<u32>,
    /// Layer of the model.
    pub layer: Option<u32>,
    /// Letters of the work (`F`, `B`, `RS`, …), or `wait`.
    pub phase: &'static str,
    /// What it is: the block's label or the instruction in words.
    pub what: String,
    /// The axis of what is sent or waited for.
    pub axis: Option<Axis>,
    /// Start, from the start of the step.
    pub start_ns: Nanos,
    /// End.
    pub end_ns: Nanos,
    /// Waiting inside.
    pub waiting_ns: Nanos,
    /// What the rank sends in it.
    pub bytes: Bytes,
    /// Why the rank waits; of a wait alone.
    pub cause: Option<String>,
}

/// The lines of a step, by rank and start.
pub fn rows(plan: &Plan, order: &Order, trace: &Trace, detail: Detail) -> Vec<Row> {
    match detail {
        Detail::Blocks => {
            let end = trace.end();
            let of_rank = |blocks: Vec<Block>| {
                let Some(first) = blocks.first() else { return Vec::new() };
                let sent = Sent::of(plan, trace, first.rank);
                let row = |block: &Block| {
                    // What starts with the end of the step belongs to its last block.
                    let until = if block.end == end { Nanos(u64::MAX) } else { block.end };
                    block_row(block, sent.between(block.start, until))
                };
                blocks.iter().map(row).collect()
            };
            blocks(plan, order, trace).into_iter().flat_map(of_rank).collect()
        }
        Detail::Instructions => {
            let ranks = (0..).map(Rank).zip(&plan.programs);
            let mut found: Vec<Row> = ranks
                .flat_map(|(rank, program)| {
                    let instrs = (0..).zip(&program.instrs);
                    instrs.map(move |(index, instr)| instr_row(plan, trace, (rank, index), instr))
                })
                .collect();
            found.sort_by_key(|row| (row.rank, row.start_ns));
            found
        }
    }
}

/// Those of the lines that have time in common with a window, if one is given.
pub fn within(mut rows: Vec<Row>, window: Option<Span>) -> Vec<Row> {
    if let Some(window) = window {
        rows.retain(|row| Span { start: row.start_ns, end: row.end_ns }.touches(window));
    }
    rows
}

/// What a rank sends, by when it begins.
struct Sent {
    starts: Vec<Nanos>,
    /// Bytes of all that begin before the one of this index, and of all.
    sums: Vec<Bytes>,
}

impl Sent {
    fn of(plan: &Plan, trace: &Trace, rank: Rank) -> Self {
        let instrs = plan.programs[rank.index()].instrs.iter().zip(&trace.spans[rank.index()]);
        let sent = instrs.map(|(instr, span)| (span.start, bytes_sent(plan, instr)));
        let mut sent: Vec<(Nanos, Bytes)> = sent.filter(|(_, bytes)| bytes.0 > 0).collect();
        sent.sort_unstable();
        let mut sums = vec![Bytes(0)];
        sums.extend(sent.iter().scan(Bytes(0), |sum, (_, bytes)| {
            *sum += *bytes;
            Some(*sum)
        }));
        Self { starts: sent.into_iter().map(|(start, _)| start).collect(), sums }
    }

    /// What begins at or after an instant and before another one.
    fn between(&self, from: Nanos, until: Nanos) -> Bytes {
        let before = |time: Nanos| self.sums[self.starts.partition_point(|start| *start < time)];
        before(until) - before(from)
    }
}

fn block_row(block: &Block, bytes: Bytes) -> Row {
    let rank = block.rank;
    let (phase, what, cause, axis) = match block.kind {
        BlockKind::Work(work) => (work.letters(), label(work, block.microbatch), None, None),
        BlockKind::Waiting(cause) => {
            ("wait", "waiting".into(), Some(format!("rank {rank} {cause}")), cause.axis())
        }
    };
    Row {
        rank,
        stage: block.stage,
        microbatch: block.microbatch,
        layer: None,
        phase,
        what,
        axis,
        start_ns: block.start,
        end_ns: block.end,
        waiting_ns: block.waiting(),
        bytes,
        cause,
    }
}

fn instr_row(plan: &Plan, trace: &Trace, (rank, index): (Rank, u32), instr: &Instr) -> Row {
    let Origin { stage, microbatch, layer, axis, .. } = instr.origin;
    let span = trace.span(rank, index as usize);
    Row {
        rank,
        stage,
        microbatch,
        layer,
        phase: Work::of(instr.origin).letters(),
        what: text::describe(plan, rank, index),
        axis,
        start_ns: span.start,
        end_ns: span.end,
        waiting_ns: Nanos(0),
        bytes: bytes_sent(plan, instr),
        cause: None,
    }
}

fn bytes_sent(plan: &Plan, instr: &Instr) -> Bytes {
    match instr.action {
        Action::Send { view, .. } => plan.view_bytes(view),
        Action::Launch { .. } | Action::Recv { .. } | Action::Copy { .. } => Bytes(0),
    }
}
