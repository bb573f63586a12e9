//! Details of what is chosen: when, what it is made of, what it sends, and why a rank waits.
//!
//! The facts are lines of name and value, gathered from Plan and Trace by [`facts`], a pure function;
//! the panel only writes them below one another.

use std::collections::BTreeMap;

use shardlab::mesh::{Axis, Rank};
use shardlab::plan::Action;
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::timeline::{Target, Timeline};
use shardlab::units::{Bytes, Nanos};

use super::Panel;
use crate::board::{Board, Control, Style};
use crate::keys::Action as Do;
use crate::shown::{Command, Shared, Step};

/// The panel; keeps how far it is scrolled and for what.
#[derive(Debug, Default)]
pub(super) struct Details {
    scroll: f32,
    of: Option<Target>,
}

/// A line of facts.
#[derive(Clone, Debug, PartialEq)]
enum Fact {
    /// A heading, and where the numbers below it come from.
    Heading(String, Option<Badge>),
    /// A sentence, broken into lines.
    Sentence(String),
    /// A name and its value.
    Value(String, String),
}

impl Panel for Details {
    fn name(&self) -> &'static str {
        "Details"
    }

    fn about(&self) -> &'static str {
        "What is chosen: when it runs, what it is made of, what it sends, why a rank waits."
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let look = board.look();
        let target = shared.sight.selection.or(shared.sight.hover);
        let (Some(step), Some(target)) = (shared.step, target) else {
            return self.nothing(board, area, shared);
        };
        if self.of != Some(target) {
            (self.of, self.scroll) = (Some(target), 0.0);
        }
        let inner = area.shrunk(look.gap(3), look.gap(1));
        let facts = facts(step, &target);
        let height = draw(board, inner, &facts, self.scroll);
        let over = board.ui().rect_contains_pointer(crate::paint::rect(area));
        if over {
            let wheel = board.ctx().input(|input| input.smooth_scroll_delta.y);
            let most = (height - inner.height).max(0.0);
            self.scroll = (self.scroll - wheel).clamp(0.0, most);
        }
        Vec::new()
    }
}

impl Details {
    fn nothing(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let look = board.look();
        self.of = None;
        let middle = area.shrunk(look.gap(3), ((area.height - look.gap(18)) / 2.0).max(0.0));
        let (line, below) = middle.cut_top(look.gap(7));
        let text = "Click a block, a wait or a rank to see what it is made of";
        board.write(line, text, Style::sized(look.small()).middle().ink(look.theme.faint));
        if shared.step.is_none() {
            return Vec::new();
        }
        let name = "Show what runs now";
        let width = board.button_width(name).min(below.width);
        let (button, _) = below.cut_top(look.gap(8));
        let button = button.shrunk((button.width - width) / 2.0, 0.0);
        let hint = "Chooses what rank 0 does at the playhead.";
        if board.button(button, Control::text("details first", name, hint)) {
            return vec![Command::Do(Do::Select)];
        }
        Vec::new()
    }
}

/// Writes facts from the top, scrolled up; how high they are together.
fn draw(board: &mut Board<'_>, area: Area, facts: &[Fact], scroll: f32) -> f32 {
    let look = board.look();
    let small = (look.small() * 1.5).ceil();
    let mut y = area.top - scroll;
    let mut line =
        |board: &mut Board<'_>, height: f32, write: &mut dyn FnMut(&mut Board<'_>, Area)| {
            let place = Area::new(area.left, y, area.width, height);
            y += height;
            // Half a line is no line.
            if place.is_inside(area) {
                write(board, place);
            }
        };
    for fact in facts {
        match fact {
            Fact::Heading(text, badge) => line(board, look.gap(7), &mut |board, place| {
                let written = board.write(place, text, Style::default());
                if let (Some(badge), Some(written)) = (badge, written) {
                    let (_, right) = place.cut_left(written.width + look.gap(2));
                    board.badge(right, *badge);
                }
            }),
            Fact::Sentence(text) => {
                for part in lines(board, text, area.width, look.small()) {
                    line(board, small, &mut |board, place| {
                        board.write(place, &part, Style::sized(look.small()));
                    });
                }
            }
            Fact::Value(name, value) => line(board, small, &mut |board, place| {
                let (left, right) = place.cut_left((place.width * 0.36).min(look.gap(40)));
                let style = Style::sized(look.small());
                board.write(left.cut_right(look.gap(1)).1, name, style.ink(look.theme.faint));
                board.write(right, value, style);
            }),
        }
    }
    y + scroll - area.top
}

/// `text` in lines that fit into `width`.
pub(super) fn lines(board: &Board<'_>, text: &str, width: f32, size: f32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if board.width(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// All that is known of a target in a step.
fn facts(step: &Step, target: &Target) -> Vec<Fact> {
    let timeline = &step.timeline;
    let mut facts = vec![Fact::Sentence(timeline.explain(target))];
    match *target {
        Target::Block { rank, .. } => {
            facts.extend(time(timeline, target));
            facts.extend(work(timeline, target, rank));
            facts.extend(messages(timeline, target, rank));
        }
        Target::Wait { .. } => {
            facts.extend(time(timeline, target));
            facts.extend(chain(timeline, target));
        }
        Target::Rank(rank) => facts.extend(rank_facts(step, &[rank])),
        Target::Position(position) => {
            let ranks: Vec<Rank> = timeline.position(position).collect();
            facts.extend(rank_facts(step, &ranks));
        }
        Target::Link { from, .. } => facts.extend(messages(timeline, target, from)),
    }
    facts
}

fn value(name: &str, value: impl Into<String>) -> Fact {
    Fact::Value(name.into(), value.into())
}

/// When it begins, ends and how long it takes.
fn time(timeline: &Timeline, target: &Target) -> Vec<Fact> {
    let Some((_, span)) = timeline.span(target) else {
        return vec![Fact::Sentence("In this step it takes no time.".into())];
    };
    let at = |time: Nanos| timeline.duration(time);
    vec![
        Fact::Heading("Time".into(), Some(Badge::from(timeline.trace().clock))),
        value("takes", at(span.duration())),
        value("from, to", format!("{}, {}", at(span.start), at(span.end))),
    ]
}

/// What it runs: kernels by how long they take.
fn work(timeline: &Timeline, target: &Target, rank: Rank) -> Vec<Fact> {
    let plan = timeline.plan();
    let mut kernels: BTreeMap<String, (usize, Nanos)> = BTreeMap::new();
    for (owner, index) in timeline.instrs(target) {
        let instr = &plan.programs[owner.index()].instrs[index as usize];
        if let (Action::Launch { op, .. }, true) = (&instr.action, owner == rank) {
            let entry = kernels.entry(op.to_string()).or_default();
            entry.0 += 1;
            entry.1 += timeline.trace().span(owner, index as usize).duration();
        }
    }
    if kernels.is_empty() {
        return Vec::new();
    }
    let badge = Badge::from(timeline.trace().clock);
    let launches: usize = kernels.values().map(|(count, _)| count).sum();
    let mut facts = vec![Fact::Heading(format!("{launches} kernels"), Some(badge))];
    let mut sorted: Vec<_> = kernels.into_iter().collect();
    sorted.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for (name, (count, time)) in sorted {
        facts.push(value(&name, format!("{} in {count}", timeline.duration(time))));
    }
    facts
}

/// What it sends and receives, by peer.
fn messages(timeline: &Timeline, target: &Target, rank: Rank) -> Vec<Fact> {
    let plan = timeline.plan();
    let mut peers: BTreeMap<(Axis, &'static str, Rank), (usize, Bytes)> = BTreeMap::new();
    for (owner, index) in timeline.instrs(target) {
        let instr = &plan.programs[owner.index()].instrs[index as usize];
        let (way, peer, view) = match instr.action {
            Action::Send { view, to, .. } if owner == rank => ("to", to, view),
            Action::Recv { view, from, .. } if owner == rank => ("from", from, view),
            _ => continue,
        };
        let axis = instr.origin.axis.unwrap_or(Axis::Pp);
        let entry = peers.entry((axis, way, peer)).or_default();
        entry.0 += 1;
        entry.1 += plan.view_bytes(view);
    }
    if peers.is_empty() {
        return Vec::new();
    }
    let mut facts = vec![Fact::Heading("Messages".into(), Some(Badge::Counted))];
    for ((axis, way, peer), (count, bytes)) in peers {
        let name = format!("{way} rank {peer}");
        facts.push(value(&name, format!("{bytes} in {count}, {}", axis.word())));
    }
    facts
}

/// What a wait comes from, followed back over the ranks.
fn chain(timeline: &Timeline, target: &Target) -> Vec<Fact> {
    let hops = timeline.chain(target);
    let sentences = hops.iter().skip(1).map(|hop| Fact::Sentence(timeline.explain(hop)));
    let sentences: Vec<Fact> = sentences.collect();
    match sentences.is_empty() {
        true => sentences,
        false => [Fact::Heading("Meanwhile".into(), None)].into_iter().chain(sentences).collect(),
    }
}

/// What ranks do in the whole step, send and hold.
fn rank_facts(step: &Step, ranks: &[Rank]) -> Vec<Fact> {
    let timeline = &step.timeline;
    let ledger = &step.facts.ledger;
    let [mut busy, mut waiting] = [Nanos(0); 2];
    for block in ranks.iter().flat_map(|rank| timeline.blocks(*rank)) {
        busy += block.busy();
        waiting += block.waiting();
    }
    let whole = (busy + waiting).0.max(1) as f64;
    let share = |part: Nanos| {
        let mean = Nanos(part.0 / ranks.len().max(1) as u64);
        format!("{}, {:.1} %", timeline.duration(mean), 100.0 * part.0 as f64 / whole)
    };
    let badge = Badge::from(timeline.trace().clock);
    let mut facts = vec![
        Fact::Heading("Time".into(), Some(badge)),
        value("works", share(busy)),
        value("waits", share(waiting)),
        Fact::Heading("Sent in a step".into(), Some(Badge::Counted)),
    ];
    for axis in Axis::ALL {
        let bytes: Bytes = ranks
            .iter()
            .filter_map(|rank| ledger.ranks[rank.index()].sent.get(&axis).copied())
            .sum();
        facts.push(value(axis.word(), bytes.to_string()));
    }
    let fullest = ranks.iter().max_by_key(|rank| ledger.ranks[rank.index()].memory.peak());
    if let Some(fullest) = fullest {
        let memory = &ledger.ranks[fullest.index()].memory;
        let heading = match ranks {
            [_] => "Memory at its peak".to_owned(),
            _ => format!("Memory of the fullest, rank {fullest}"),
        };
        facts.push(Fact::Heading(heading, Some(Badge::Counted)));
        for (role, bytes) in memory.at_peak.iter() {
            facts.push(value(&role.to_string(), bytes.to_string()));
        }
        facts.push(value("together", memory.peak().to_string()));
    }
    facts
}
