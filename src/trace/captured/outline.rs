//! Reads a collective out of a Plan: its members, its chunks, and what every instruction of it does
//! to whose contributions.
//!
//! Two walks over the same instructions in an order that respects messages: the first finds which
//! elements of the data every view stands for, and so the chunks; the second carries along whose
//! contributions lie in each of them. Nothing here knows an algorithm: rounds are found by
//! following what was received before it was sent on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Captured, Cell, Change, Members, Message, Round, Sample, VALUES};
use crate::mesh::Rank;
use crate::ops::{Access, Kernel as _, Op};
use crate::plan::order::Order;
use crate::plan::{Action, BufferId, Origin, Plan, View};

/// The collective that an instruction belongs to.
pub(super) fn outline(plan: &Plan, order: &Order, at: (Rank, u32)) -> Option<Captured> {
    let origin = plan.programs[at.0.index()].instrs[at.1 as usize].origin;
    let (collective, axis) = (origin.collective?, origin.axis?);
    let members = members(plan, at.0, origin);
    if members.len() < 2 {
        return None;
    }
    let source = Source::new(plan, order, &members, origin)?;
    let mut walk = Walk::over(&source);
    let start = walk.start();
    for event in source.events() {
        walk.follow(&event);
    }
    let Walk { mut rounds, samples, chunks, .. } = walk;
    for round in &mut rounds {
        round.messages.sort_by_key(|message| (message.from, message.to, message.chunks.start));
    }
    Some(Captured { collective, axis, origin, members, chunks, start, rounds, samples })
}

/// Whether two instructions belong to the same collective of their group.
fn same(one: Origin, other: Origin) -> bool {
    (one.collective, one.axis) == (other.collective, other.axis)
}

/// The ranks that are joined by messages of a collective, ascending.
fn members(plan: &Plan, first: Rank, origin: Origin) -> Vec<Rank> {
    let (mut found, mut open) = (BTreeSet::from([first]), vec![first]);
    while let Some(rank) = open.pop() {
        let instrs = plan.programs[rank.index()].instrs.iter();
        for instr in instrs.filter(|instr| same(instr.origin, origin)) {
            let (Action::Send { to: other, .. } | Action::Recv { from: other, .. }) = instr.action
            else {
                continue;
            };
            if found.insert(other) {
                open.push(other);
            }
        }
    }
    found.into_iter().collect()
}

/// The views that an addition or a copy makes its output of. What a finished sum is added to is
/// none of them: it lies beside the data.
fn terms(action: &Action) -> Vec<View> {
    match action {
        Action::Launch { op, inputs, outputs } => {
            let updates = op.signature().outputs.first().map(|output| output.1);
            let accumulates = matches!(op, Op::SumRanks(sum) if sum.accumulate);
            let updated = outputs.first().filter(|_| updates == Some(Access::ReadWrite));
            inputs.iter().chain(updated.filter(|_| !accumulates)).copied().collect()
        }
        Action::Copy { .. } | Action::Send { .. } | Action::Recv { .. } => action.reads(),
    }
}

/// What one instruction of the collective does.
enum Event<'a> {
    Send {
        member: usize,
        instr: u32,
        view: View,
    },
    Recv {
        member: usize,
        view: View,
        send: (usize, u32),
    },
    /// Adds views, or copies one.
    Write {
        member: usize,
        instr: u32,
        terms: Vec<View>,
        output: &'a View,
    },
}

/// The instructions of a collective and which elements of the data their views stand for.
struct Source<'a> {
    plan: &'a Plan,
    order: &'a Order,
    members: &'a [Rank],
    /// Its instructions in program order, by member.
    lines: Vec<Vec<u32>>,
    /// Where each member's data begin.
    homes: Vec<(BufferId, u32)>,
    /// Elements of the data.
    len: u32,
}

impl<'a> Source<'a> {
    fn new(plan: &'a Plan, order: &'a Order, members: &'a [Rank], origin: Origin) -> Option<Self> {
        let lines_of = |rank: &Rank| -> Vec<u32> {
            let instrs = (0..).zip(&plan.programs[rank.index()].instrs);
            instrs.filter(|(_, instr)| same(instr.origin, origin)).map(|(index, _)| index).collect()
        };
        let lines: Vec<Vec<u32>> = members.iter().map(lines_of).collect();
        let mut source = Self { plan, order, members, lines, homes: Vec::new(), len: 0 };
        for member in 0..members.len() {
            let (buffer, extent) = source.home(member)?;
            source.homes.push((buffer, extent.start));
            source.len = source.len.max(extent.end - extent.start);
        }
        Some(source)
    }

    fn action(&self, member: usize, instr: u32) -> &'a Action {
        &self.plan.programs[self.members[member].index()].instrs[instr as usize].action
    }

    /// Where a member's data lie: the buffer that it sends from first, or else receives into, and
    /// all of it that the collective touches.
    fn home(&self, member: usize) -> Option<(BufferId, Range<u32>)> {
        let actions = || self.lines[member].iter().map(|&instr| self.action(member, instr));
        let sent = actions().find_map(|action| match action {
            Action::Send { view, .. } => Some(view.buffer),
            _ => None,
        });
        let received = || {
            actions().find_map(|action| match action {
                Action::Recv { view, .. } => Some(view.buffer),
                _ => None,
            })
        };
        let buffer = sent.or_else(received)?;
        let views = actions().flat_map(|action| match action {
            Action::Launch { .. } | Action::Copy { .. } => terms(action),
            Action::Send { view, .. } | Action::Recv { view, .. } => vec![*view],
        });
        let inside = views.filter(|view| view.buffer == buffer && view.len > 0);
        let extent = inside.map(|view| view.offset..view.offset + view.len);
        let whole = extent.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
        Some((buffer, whole))
    }

    /// What is known of each member before the first instruction: its data.
    fn data_places(&self) -> Vec<Places> {
        let own = |&(buffer, offset): &(BufferId, u32)| {
            let mut own = Places::default();
            own.set(View { buffer, offset, len: self.len }, &(0..self.len));
            own
        };
        self.homes.iter().map(own).collect()
    }

    /// All instructions, each after those whose messages it needs.
    fn events(&self) -> Vec<Event<'a>> {
        let mut events = Vec::new();
        let mut next = vec![0; self.members.len()];
        let mut sent: BTreeSet<(usize, u32)> = BTreeSet::new();
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (member, next) in next.iter_mut().enumerate() {
                while let Some(&instr) = self.lines[member].get(*next) {
                    let Some(event) = self.event(member, instr, &sent) else { break };
                    if let Event::Send { .. } = event {
                        sent.insert((member, instr));
                    }
                    events.push(event);
                    *next += 1;
                    moved = true;
                }
            }
        }
        events
    }

    /// `None` for a receive whose message has not been sent.
    fn event(&self, member: usize, instr: u32, sent: &BTreeSet<(usize, u32)>) -> Option<Event<'a>> {
        Some(match self.action(member, instr) {
            Action::Send { view, .. } => Event::Send { member, instr, view: *view },
            Action::Recv { view, .. } => {
                let send = self.peer(member, instr).filter(|send| sent.contains(send))?;
                Event::Recv { member, view: *view, send }
            }
            action @ Action::Copy { to: output, .. } => {
                Event::Write { member, instr, terms: terms(action), output }
            }
            action @ Action::Launch { outputs, .. } => {
                Event::Write { member, instr, terms: terms(action), output: outputs.first()? }
            }
        })
    }

    /// The other half of a message, as (member, instruction).
    fn peer(&self, member: usize, instr: u32) -> Option<(usize, u32)> {
        let (rank, instr) = self.order.peer[self.members[member].index()][instr as usize]?;
        self.members.binary_search(&rank).ok().map(|member| (member, instr))
    }
}

/// Which elements of the data the views of a member stand for.
#[derive(Default)]
struct Places {
    /// First element of the data and length, by where a view begins.
    at: BTreeMap<(BufferId, u32), (u32, u32)>,
}

impl Places {
    fn set(&mut self, view: View, elements: &Range<u32>) {
        self.at.insert((view.buffer, view.offset), (elements.start, view.len));
    }

    fn of(&self, view: View) -> Option<Range<u32>> {
        let first = (view.buffer, 0);
        let before = self.at.range(first..=(view.buffer, view.offset)).next_back();
        let (&(_, offset), &(start, len)) = before?;
        let start = start + (view.offset - offset);
        (view.offset + view.len <= offset + len).then_some(start..start + view.len)
    }
}

/// What lies at a place: a cell, and how many messages it has come through.
#[derive(Clone)]
struct Held {
    cell: Cell,
    depth: usize,
}

/// The second walk.
struct Walk<'a> {
    source: &'a Source<'a>,
    places: Vec<Places>,
    chunks: Vec<Range<u32>>,
    held: Vec<BTreeMap<(BufferId, u32), Held>>,
    /// What is on the way, by its send.
    sent: BTreeMap<(usize, u32), (Range<usize>, Vec<Held>)>,
    rounds: Vec<Round>,
    samples: Vec<Sample>,
}

impl<'a> Walk<'a> {
    /// Finds the chunks: where any view begins or ends, in elements of the data.
    fn over(source: &'a Source<'a>) -> Self {
        let mut places = source.data_places();
        let mut cuts = BTreeSet::from([0, source.len]);
        let mut cut = |elements: &Range<u32>| cuts.extend([elements.start, elements.end]);
        let mut sent: BTreeMap<(usize, u32), Range<u32>> = BTreeMap::new();
        for event in source.events() {
            match event {
                Event::Send { member, instr, view } => {
                    let Some(elements) = places[member].of(view) else { continue };
                    cut(&elements);
                    sent.insert((member, instr), elements);
                }
                Event::Recv { member, view, send } => {
                    let Some(elements) = sent.get(&send) else { continue };
                    if view.buffer != source.homes[member].0 {
                        places[member].set(view, elements);
                    }
                }
                Event::Write { member, terms, output, .. } => {
                    let Some(elements) = terms.iter().find_map(|term| places[member].of(*term))
                    else {
                        continue;
                    };
                    cut(&elements);
                    if output.buffer != source.homes[member].0 {
                        places[member].set(*output, &elements);
                    }
                }
            }
        }
        let cuts: Vec<u32> = cuts.into_iter().collect();
        let chunks = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        // Scratch is used again for other elements, so the second walk finds it anew.
        let places = source.data_places();
        let held = vec![BTreeMap::new(); places.len()];
        let (rounds, samples) = (Vec::new(), Vec::new());
        Self { source, places, chunks, held, sent: BTreeMap::new(), rounds, samples }
    }

    /// The chunks that a view of a member covers, and where each begins in its buffer.
    fn covered(&self, member: usize, view: View) -> Vec<(usize, View)> {
        let Some(elements) = self.places[member].of(view) else { return Vec::new() };
        let first = self.chunks.partition_point(|chunk| chunk.end <= elements.start);
        let inside = self.chunks[first..].iter().take_while(|chunk| chunk.start < elements.end);
        let place = |(index, chunk): (usize, &Range<u32>)| {
            let at = chunk.start - elements.start;
            (first + index, view.slice(at..at + (chunk.end - chunk.start)))
        };
        inside.enumerate().map(place).collect()
    }

    /// What members hold before the first message: what is read before the collective wrote it.
    fn start(&mut self) -> Vec<Vec<Option<Cell>>> {
        let count = self.source.members.len();
        let mut start = vec![vec![None; self.chunks.len()]; count];
        for (member, row) in start.iter_mut().enumerate() {
            for (chunk, touched) in self.reads_first(member) {
                let (at, instr) = touched;
                let after = self.written_before(member, at, instr);
                let cell = Cell { summed: Members::one(member), sample: self.sample(after, at) };
                let held = Held { cell: cell.clone(), depth: 0 };
                self.held[member].insert((at.buffer, at.offset), held);
                row[chunk] = Some(cell);
            }
        }
        start
    }

    /// The chunks of its data that a member reads before it writes them: where, and what reads.
    fn reads_first(&self, member: usize) -> BTreeMap<usize, (View, u32)> {
        let home = self.source.homes[member].0;
        let (mut found, mut written) = (BTreeMap::new(), BTreeSet::new());
        for &instr in &self.source.lines[member] {
            let action = self.source.action(member, instr);
            for view in action.reads().into_iter().filter(|view| view.buffer == home) {
                for (chunk, at) in self.covered(member, view) {
                    if !written.contains(&chunk) {
                        found.entry(chunk).or_insert((at, instr));
                    }
                }
            }
            for view in action.writes().iter().filter(|view| view.buffer == home) {
                written.extend(self.covered(member, *view).iter().map(|(chunk, _)| *chunk));
            }
        }
        found
    }

    /// The last instruction before `instr` that wrote the first element of a view; the send, if it
    /// came from another rank.
    fn written_before(&self, member: usize, view: View, instr: u32) -> Option<(Rank, u32)> {
        let rank = self.source.members[member];
        let program = &self.source.plan.programs[rank.index()].instrs[..instr as usize];
        let writes = |action: &Action| {
            let over = |written: &View| {
                let range = written.offset..written.offset + written.len;
                written.buffer == view.buffer && range.contains(&view.offset)
            };
            action.writes().iter().any(over)
        };
        let last = program.iter().rposition(|instr| writes(&instr.action))?;
        let peer = self.source.order.peer[rank.index()][last];
        Some(peer.unwrap_or((rank, u32::try_from(last).ok()?)))
    }

    fn sample(&mut self, after: Option<(Rank, u32)>, view: View) -> usize {
        let view = View { len: view.len.min(VALUES), ..view };
        self.samples.push(Sample { after, view, values: Vec::new() });
        self.samples.len() - 1
    }

    fn round(&mut self, index: usize) -> &mut Round {
        if self.rounds.len() <= index {
            self.rounds.resize(index + 1, Round::default());
        }
        &mut self.rounds[index]
    }

    fn held(&self, member: usize, at: View) -> Option<&Held> {
        self.held[member].get(&(at.buffer, at.offset))
    }

    fn follow(&mut self, event: &Event<'_>) {
        match event {
            Event::Send { member, instr, view } => {
                let covered = self.covered(*member, *view);
                let held: Option<Vec<Held>> =
                    covered.iter().map(|(_, at)| self.held(*member, *at).cloned()).collect();
                if let (Some(held), Some((first, _)), Some((last, _))) =
                    (held, covered.first(), covered.last())
                {
                    self.sent.insert((*member, *instr), (*first..*last + 1, held));
                }
            }
            Event::Recv { member, view, send } => self.receive(*member, *view, *send),
            Event::Write { member, instr, terms, output } => {
                self.write(*member, *instr, terms, **output);
            }
        }
    }

    fn receive(&mut self, member: usize, view: View, send: (usize, u32)) {
        let Some((chunks, held)) = self.sent.remove(&send) else { return };
        let depth = held.iter().map(|held| held.depth).max().unwrap_or(0);
        let cells: Vec<Cell> = held.iter().map(|held| held.cell.clone()).collect();
        let in_place = view.buffer == self.source.homes[member].0;
        if !in_place {
            let elements = self.chunks[chunks.start].start..self.chunks[chunks.end - 1].end;
            self.places[member].set(view, &elements);
        }
        let covered = self.covered(member, view);
        let bytes = self.source.plan.view_bytes(view);
        for ((chunk, at), cell) in covered.into_iter().zip(&cells) {
            let held = Held { cell: cell.clone(), depth: depth + 1 };
            self.held[member].insert((at.buffer, at.offset), held);
            if in_place {
                let change = Change { member, chunk, cell: cell.clone(), adds: false };
                self.round(depth).changes.push(change);
            }
        }
        let (from, send) = (send.0, (self.source.members[send.0], send.1));
        let message = Message { from, to: member, chunks, bytes, cells, send };
        self.round(depth).messages.push(message);
    }

    fn write(&mut self, member: usize, instr: u32, terms: &[View], output: View) {
        let rank = self.source.members[member];
        let inputs: Vec<_> = terms.iter().map(|term| self.covered(member, *term)).collect();
        if output.buffer != self.source.homes[member].0 {
            let known = terms.iter().find_map(|term| self.places[member].of(*term));
            let Some(elements) = known else { return };
            self.places[member].set(output, &elements);
        }
        for (index, (chunk, at)) in self.covered(member, output).into_iter().enumerate() {
            let mut summed = Members::default();
            let mut depth = 0;
            for input in &inputs {
                let Some(held) = input.get(index).and_then(|(_, at)| self.held(member, *at)) else {
                    continue;
                };
                summed.join(&held.cell.summed);
                depth = depth.max(held.depth);
            }
            let cell = Cell { summed, sample: self.sample(Some((rank, instr)), at) };
            let held = Held { cell: cell.clone(), depth };
            self.held[member].insert((at.buffer, at.offset), held);
            let adds = terms.len() > 1;
            self.round(depth.saturating_sub(1)).changes.push(Change { member, chunk, cell, adds });
        }
    }
}
