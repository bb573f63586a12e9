//! What is seen, in one sentence of at most 120 characters: the explanation line, the title of a
//! block in an SVG file, and what a screen reader says are the same text.

use std::cmp::Reverse;

use super::Timeline;
use super::target::{Level, Target};
use crate::mesh::{Axis, Rank};
use crate::ops::Kernel as _;
use crate::plan::{Action, Lane};
use crate::trace::Span;
use crate::trace::cause::{self, Cause};
use crate::trace::draw::blocks::State;
use crate::trace::draw::{Block, Work, block_at, label};
use crate::units::{Bytes, Nanos, grouped};

/// The longest explanation, in characters.
pub const LONGEST: usize = 120;

impl Timeline {
    /// A length of time as it is written: `12.4 ms`, or `2 units`.
    pub fn duration(&self, time: Nanos) -> String {
        let Some(unit) = self.unit else { return time.to_string() };
        let units = time.0 as f64 / unit.0.max(1) as f64;
        match time == unit {
            true => "1 unit".into(),
            false => format!("{} units", (units * 100.0).round() / 100.0),
        }
    }

    /// What a target is, in one sentence.
    pub fn explain(&self, target: &Target) -> String {
        let text = match *target {
            Target::Block { rank, level, .. } => self.explain_block(rank, level, target),
            Target::Wait { rank, before } => self.explain_wait((rank, before), None),
            Target::Rank(rank) => self.explain_rank(rank),
            Target::Position(position) => self.explain_position(position),
            Target::Link { from, to, axis } => self.explain_link(from, to, axis),
        };
        shortened(text)
    }

    /// What happens at an instant: which rank waits longest and for whom.
    pub fn now(&self, at: Nanos) -> String {
        let waits = |rank: &&Rank| {
            let block = block_at(self.blocks(**rank), at);
            block.and_then(Block::cause).is_some_and(|cause| cause != Cause::StepEnd)
        };
        let waiting: Vec<Rank> = self.top_down.iter().filter(waits).copied().collect();
        let count: u32 = waiting.iter().map(|rank| self.weight(*rank)).sum();
        let length = |rank: &Rank| block_at(self.blocks(*rank), at).map(Block::duration);
        // Of equal waits the topmost.
        let longest = waiting.iter().rev().max_by_key(|rank| length(rank)).copied();
        let Some(rank) = longest else { return shortened(self.all_work(at)) };
        let text = match self.target_at(rank, Level::Pass, at) {
            Some(Target::Wait { before, .. }) => {
                let moment = Span { start: at, end: Nanos(at.0 + 1) };
                self.explain_wait((rank, before), Some(moment))
            }
            _ => self.all_work(at),
        };
        let others = match count - self.weight(rank) {
            0 => String::new(),
            1 => " 1 more rank waits.".into(),
            count => format!(" {} more ranks wait.", grouped(count)),
        };
        match text.chars().count() + others.chars().count() <= LONGEST {
            true => text + &others,
            false => shortened(text),
        }
    }

    /// What ranks do when none waits: `All 8 ranks work: F3 on 4, B1 on 4.`
    fn all_work(&self, at: Nanos) -> String {
        let mut found: Vec<(String, u32)> = Vec::new();
        let mut done = 0;
        for &rank in &self.top_down {
            let alike = self.weight(rank);
            match block_at(self.blocks(rank), at) {
                Some(block) if block.work().is_some() => {
                    let name = block.to_string();
                    match found.iter_mut().find(|(other, _)| *other == name) {
                        Some((_, count)) => *count += alike,
                        None => found.push((name, alike)),
                    }
                }
                _ => done += alike,
            }
        }
        let ranks: u32 = self.top_down.iter().map(|rank| self.weight(*rank)).sum();
        if found.is_empty() {
            return format!("The step is over after {}.", self.duration(self.end));
        }
        let all = if done > 0 {
            format!("{} of {ranks} ranks work, the others are done", ranks - done)
        } else if ranks == 1 {
            "The rank works".into()
        } else {
            format!("All {ranks} ranks work")
        };
        let shown = found.iter().take(4).map(|(name, count)| format!("{name} on {count}"));
        let more = if found.len() > 4 { ", and others" } else { "" };
        format!("{all}: {}{more}.", shown.collect::<Vec<_>>().join(", "))
    }

    fn explain_block(&self, rank: Rank, level: Level, target: &Target) -> String {
        let Some(place) = self.place(target) else {
            return format!("{} does not run this in the shown step.", self.who(rank));
        };
        let instrs = self.instrs(target);
        let Some(&(_, first)) = instrs.first() else {
            return format!("{} does not run this in the shown step.", self.who(rank));
        };
        let what = if level == Level::Instr {
            self.what_instr(rank, first)
        } else {
            self.what_block(rank, first, place.span, &instrs)
        };
        let row = self.row(rank);
        let waiting = row.before(place.span.end).waiting_since(row.before(place.span.start));
        let (who, long) = (self.who(rank), self.duration(place.span.duration()));
        let mut text = format!("{who} {what}: {long}");
        let waits =
            (waiting > Nanos(0)).then(|| format!(", {} of it waiting", self.duration(waiting)));
        let sends = match self.sent(&instrs) {
            (0, _) => None,
            (1, bytes) => Some(format!(", 1 message, {bytes} sent")),
            (count, bytes) => Some(format!(", {count} messages, {bytes} sent")),
        };
        // What does not fit is left out whole: half a number says nothing.
        for part in waits.into_iter().chain(sends) {
            if text.chars().count() + part.chars().count() < LONGEST {
                text += &part;
            }
        }
        text + "."
    }

    /// `runs backward of microbatch 2, layers 2–3`.
    fn what_block(&self, rank: Rank, first: u32, span: Span, instrs: &[(Rank, u32)]) -> String {
        let origin = self.line(rank, first).origin;
        let block = block_at(self.blocks(rank), span.start);
        // A backward may begin with its recompute.
        let work = match (Work::of(origin), block.and_then(Block::work)) {
            (Work::Recompute, Some(work)) if span == block_span(block) => work,
            (work, _) => work,
        };
        let microbatch = origin.microbatch.map_or(String::new(), |m| format!(" of microbatch {m}"));
        let mut text = match work {
            Work::Forward => format!("runs forward{microbatch}"),
            Work::Recompute => format!("runs forward{microbatch} again"),
            Work::Backward => format!("runs backward{microbatch}"),
            Work::InputGrad => format!("computes input gradients{microbatch}"),
            Work::WeightGrad => format!("computes weight gradients{microbatch}"),
            Work::ReduceScatter => "sums gradients (RS)".into(),
            Work::AllReduce => "sums gradients (AR)".into(),
            Work::Norm => "computes the gradient norm".into(),
            Work::Optimizer => "runs the optimizer".into(),
            Work::WeightGather => "shares weights (AG)".into(),
            Work::Other => "runs other work".into(),
        };
        if let Some(stage) = origin.stage.filter(|_| self.has_chunks() && work.is_pass()) {
            text += &format!(" in stage {stage}");
        }
        let layers = instrs.iter().filter_map(|&(rank, i)| self.line(rank, i).origin.layer);
        let (first, last) =
            layers.fold((u32::MAX, 0), |(a, b), layer| (a.min(layer), b.max(layer)));
        match work.is_pass() {
            true if first < last => text += &format!(", layers {first}–{last}"),
            true if first == last => text += &format!(", layer {first}"),
            _ => {}
        }
        text
    }

    /// `runs matmul for B2, layer 3`.
    fn what_instr(&self, rank: Rank, instr: u32) -> String {
        let line = self.line(rank, instr);
        let part = label(Work::of(line.origin), line.origin.microbatch);
        let layer = line.origin.layer.map_or(String::new(), |layer| format!(", layer {layer}"));
        match &line.action {
            Action::Launch { op, .. } => format!("runs {} for {part}{layer}", op.name()),
            Action::Copy { .. } => format!("copies for {part}{layer}"),
            Action::Send { to, .. } => format!("sends {part}{layer} to rank {to}"),
            Action::Recv { from, .. } => format!("receives {part}{layer} from rank {from}"),
        }
    }

    /// How many messages are sent, and their bytes.
    fn sent(&self, instrs: &[(Rank, u32)]) -> (u64, Bytes) {
        let (mut count, mut sum) = (0, Bytes(0));
        for &(rank, instr) in instrs {
            if let Action::Send { view, hops, .. } = self.line(rank, instr).action {
                count += u64::from(hops);
                sum += self.plan.view_bytes(view) * u64::from(hops);
            }
        }
        (count, sum)
    }

    /// `during` is the part of the wait that is asked about; all of it if nothing is said.
    fn explain_wait(&self, (rank, before): (Rank, Option<u32>), during: Option<Span>) -> String {
        let target = Target::Wait { rank, before };
        let Some(place) = self.place(&target) else {
            return format!("{} does not wait here in the shown step.", self.who(rank));
        };
        let who = self.who(rank);
        let long = self.duration(place.span.duration());
        match self.cause_of(&target) {
            Cause::StepEnd => format!("{who} is done; the step ends {long} later."),
            cause => {
                let doing = match cause {
                    Cause::Message { from, .. } => {
                        let doing = self.meanwhile(from, &target, during.unwrap_or(place.span));
                        format!(", {doing}")
                    }
                    _ => String::new(),
                };
                format!("{who} waits {long} {}{doing}.", self.awaited(cause))
            }
        }
    }

    /// For what and for whom: `for B2 from rank 4 (pipeline)`.
    fn awaited(&self, cause: Cause) -> String {
        match cause {
            Cause::Message { from, origin } => {
                let (what, axis) = (cause::what(origin), axis_word(origin.axis));
                format!("for {what} from rank {}{axis}", self.number(from))
            }
            Cause::Room { to, origin } => {
                let (what, axis) = (cause::what(origin), axis_word(origin.axis));
                format!("until rank {} takes {what}{axis}", self.number(to))
            }
            Cause::Beside { origin } => format!("for its own {}", cause::what(origin)),
            Cause::Device => "for its turn on the device".into(),
            Cause::StepEnd => "for the end of the step".into(),
        }
    }

    /// Who waits longest at one stretch, and for whom: `Rank 0 waits longest: 18.2 ms for B3 from
    /// rank 4 (pipeline).` `None` where no rank waits before it is done.
    pub fn longest_wait(&self) -> Option<String> {
        let waits = self.top_down.iter().flat_map(|rank| {
            let waits = self.blocks(*rank).iter().filter_map(|block| Some((block, block.cause()?)));
            waits.map(move |(block, cause)| (*rank, block.duration(), cause))
        });
        // Of equal ones the topmost, and of its own the first.
        let (rank, long, cause) = waits
            .filter(|(_, _, cause)| *cause != Cause::StepEnd)
            .reduce(|most, wait| if wait.1 > most.1 { wait } else { most })?;
        let (who, long) = (self.who(rank), self.duration(long));
        Some(shortened(format!("{who} waits longest: {long} {}.", self.awaited(cause))))
    }

    /// What a wait is for.
    pub(super) fn cause_of(&self, wait: &Target) -> Cause {
        let place = self.place(wait);
        let piece = place.and_then(|place| {
            let last = place.pieces.end.checked_sub(1)?;
            Some((place.rank, self.row(place.rank).pieces[last]))
        });
        match piece {
            Some((rank, piece)) if matches!(piece.state, State::Waits(_)) => {
                piece.cause(&self.plan, rank)
            }
            _ => Cause::StepEnd,
        }
    }

    /// What the sender does most of the time that another rank waits for it: `which is computing
    /// B2`. If it waits itself, the waits are followed to a rank that works.
    fn meanwhile(&self, sender: Rank, wait: &Target, span: Span) -> String {
        let sent = self.missing(wait).map(|half| self.span_of(half.other, half.other_instr));
        if sent.is_some_and(|sent| sent.start <= span.start && span.start < sent.end) {
            return "which is on its way".into();
        }
        match self.follow(sender, span).last() {
            Some(&(rank, block)) => match block.work() {
                Some(work) if rank == sender => format!("which {}", doing(work, block)),
                Some(work) => {
                    let rank = self.number(rank);
                    format!("which waits too: rank {rank} {}", doing(work, block))
                }
                None => "which waits too".into(),
            },
            None => "which is late".into(),
        }
    }

    /// What a wait comes from: the wait itself, what the missing rank does most of that time, and,
    /// while that is a wait as well, what it waits for; the last one is a rank that works, if one
    /// does.
    pub fn chain(&self, wait: &Target) -> Vec<Target> {
        let Some(place) = self.place(wait) else { return Vec::new() };
        let hops = match self.cause_of(wait) {
            Cause::Message { from, .. } => self.follow(from, place.span),
            Cause::Room { .. } | Cause::Beside { .. } | Cause::Device | Cause::StepEnd => {
                Vec::new()
            }
        };
        let target = |(rank, block): (Rank, &Block)| self.target_at(rank, Level::Pass, block.start);
        std::iter::once(*wait).chain(hops.into_iter().filter_map(target)).collect()
    }

    /// What a rank does in most of a span; where it waits, what the rank does that it waits for.
    fn follow(&self, rank: Rank, span: Span) -> Vec<(Rank, &Block)> {
        let (mut rank, mut span) = (rank, span);
        let mut hops = Vec::new();
        while let Some(block) = self.most_of(rank, span) {
            hops.push((rank, block));
            let Some(Cause::Message { from, .. }) = block.cause() else { break };
            if hops.len() > self.rows.len() {
                break;
            }
            span = Span { start: span.start.max(block.start), end: span.end.min(block.end) };
            rank = from;
        }
        hops
    }

    /// The block of a rank that takes most of a span; of equal ones the first.
    fn most_of(&self, rank: Rank, span: Span) -> Option<&Block> {
        let row = self.blocks(rank);
        let first = row.partition_point(|block| block.end <= span.start);
        let overlapping = row[first..].iter().take_while(|block| block.start < span.end);
        let shared = |block: &Block| block.end.min(span.end) - block.start.max(span.start);
        overlapping.max_by_key(|block| (shared(block), Reverse(block.start)))
    }

    fn explain_rank(&self, rank: Rank) -> String {
        if self.rows.get(rank.index()).is_none() {
            return format!("There is no rank {rank}.");
        }
        let busy: Nanos = self.blocks(rank).iter().map(Block::busy).sum();
        let who = match self.has_alike() {
            true => self.who(rank),
            false => format!("Rank {rank} ({})", self.plan.mesh.coord(rank)),
        };
        let (works, waits) = (self.duration(busy), self.duration(self.end - busy));
        let memory = match self.memory(rank) {
            Some(memory) => format!(" Peak memory {}.", memory.total()),
            None => String::new(),
        };
        format!("{who} works {works} of the step and waits {waits}.{memory}")
    }

    fn explain_position(&self, position: u32) -> String {
        let Some(slowest) = self.slowest(position) else {
            return format!("There is no pipeline position {position}.");
        };
        let count = self.ranks_at(position);
        let busy = |rank: Rank| {
            let busy: Nanos = self.blocks(rank).iter().map(Block::busy).sum();
            busy * u64::from(self.weight(rank))
        };
        let busy: Nanos = self.position(position).map(busy).sum();
        let waits = self.duration(Nanos(self.end.0 - busy.0 / u64::from(count)));
        let at =
            format!("{} ranks at pipeline position {position} wait {waits} each", grouped(count));
        if let (Some(capacity), Some(memory)) = (self.capacity, self.memory(slowest)) {
            return format!("{at} and hold {} of {capacity}.", memory.total());
        }
        let (slowest, done) = (self.number(slowest), self.duration(self.done(slowest)));
        format!("{at} on average; the slowest, rank {slowest}, ends at {done}.")
    }

    fn explain_link(&self, from: Rank, to: Rank, axis: Axis) -> String {
        let messages = self.instrs(&Target::Link { from, to, axis });
        let (count, bytes) = self.sent(&messages);
        let mut works: Vec<Work> = Vec::new();
        for &(rank, instr) in &messages {
            let work = Work::of(self.line(rank, instr).origin);
            if !works.contains(&work) {
                works.push(work);
            }
        }
        works.sort_unstable();
        let works: Vec<&str> = works.iter().take(4).map(|work| work.letters()).collect();
        let what = if works.is_empty() { String::new() } else { format!(": {}", works.join(", ")) };
        let word = axis.word();
        match count {
            0 => format!("Rank {from} → {to}, {word}: nothing is sent this step."),
            1 => format!("Rank {from} → {to}, {word}: {bytes} this step in 1 message{what}."),
            _ => {
                format!("Rank {from} → {to}, {word}: {bytes} this step in {count} messages{what}.")
            }
        }
    }

    /// Whether an instruction is sent over a lane of its own.
    pub(super) fn axis_of(&self, rank: Rank, instr: u32) -> Option<Axis> {
        match self.line(rank, instr).lane {
            Lane::Out(axis, _) => Some(axis),
            Lane::Compute | Lane::Reduce | Lane::Posted => None,
        }
    }
}

/// `is computing B2`.
fn doing(work: Work, block: &Block) -> String {
    match work {
        Work::Optimizer => "runs the optimizer".into(),
        Work::Norm => "computes the gradient norm".into(),
        work if work.is_pass() => format!("is computing {block}"),
        _ => format!("is in {block}"),
    }
}

fn block_span(block: Option<&Block>) -> Span {
    block.map_or(Span::default(), |block| Span { start: block.start, end: block.end })
}

fn axis_word(axis: Option<Axis>) -> String {
    axis.map_or(String::new(), |axis| format!(" ({})", axis.word()))
}

/// At most 120 characters: what is too much goes from the end.
fn shortened(text: String) -> String {
    if text.chars().count() <= LONGEST {
        return text;
    }
    let mut kept: String = text.chars().take(LONGEST - 1).collect();
    kept.push('…');
    kept
}
