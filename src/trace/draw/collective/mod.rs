//! A collective step by step: a ring of ranks with the messages of the round, and beside it who
//! holds which chunk with whose contributions, and its first true numbers.
//!
//! A pure function of a [`Captured`] and the number of rounds that are over; going on and back is
//! nothing but another number.

mod cells;
mod ring;
#[cfg(test)]
mod tests;

use super::pen::On;
use super::scene::{Align, Area, Point, Sketch};
use crate::trace::Badge;
use crate::trace::captured::Captured;

/// Members that are drawn; of a larger group the first ones.
const MOST_MEMBERS: usize = 16;

/// What is shown of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The collective.
    pub captured: &'a Captured,
    /// How many of its rounds are over, from 0 to all.
    pub over: usize,
    /// What the pointer is on.
    pub hovered: Option<Part>,
}

/// Something in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A chunk at a member.
    Cell {
        /// Which member.
        member: usize,
        /// Which chunk.
        chunk: usize,
    },
    /// A member.
    Member(usize),
    /// A round in the bar of rounds: so many are over then.
    Round(usize),
}

/// Where things lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// What can be pointed at.
    pub parts: Vec<(Area, Part)>,
}

impl Layout {
    /// What lies at a point.
    pub fn part_at(&self, at: Point) -> Option<Part> {
        self.parts.iter().find(|(area, _)| area.contains(at)).map(|(_, part)| *part)
    }
}

impl Frame<'_> {
    /// The members that are drawn.
    fn members(&self) -> usize {
        self.captured.members.len().min(MOST_MEMBERS)
    }

    /// What this round of the collective does: `after round 2 of 6, reduce-scatter`.
    pub fn state(&self) -> String {
        let (over, all) = (self.over.min(self.captured.rounds.len()), self.captured.rounds.len());
        let half = match self.half(over) {
            Some(half) => format!(", {half}"),
            None => String::new(),
        };
        match over {
            0 => format!("before round 1 of {all}"),
            _ => format!("after round {over} of {all}{half}"),
        }
    }

    /// Which half a round belongs to, where there are two.
    fn half(&self, over: usize) -> Option<&'static str> {
        half(over, self.captured.summing_rounds(), self.captured.rounds.len())
    }

    /// A part in one sentence.
    pub fn sentence(&self, part: Part) -> Option<String> {
        let captured = self.captured;
        match part {
            Part::Cell { member, chunk } => {
                let elements = captured.chunks.get(chunk)?;
                let rank = captured.members.get(member)?;
                let cells = captured.cells(self.over);
                let holds = match cells[member][chunk] {
                    Some(cell) => {
                        format!("{}{}", captured.tag(cell), numbers(captured.values(cell)))
                    }
                    None => "nothing yet".into(),
                };
                let (first, last) = (elements.start, elements.end.saturating_sub(1));
                Some(format!("Rank {rank}, chunk {chunk} (elements {first}–{last}): {holds}."))
            }
            Part::Member(member) => {
                let rank = captured.members.get(member)?;
                let traffic = captured.traffic(self.over)[member];
                let (sent, received) = (traffic.sent, traffic.received);
                Some(format!(
                    "Rank {rank} has sent {sent} and received {received} {}.",
                    self.state()
                ))
            }
            Part::Round(round) => {
                let frame = Frame { over: round, ..*self };
                let round = round.checked_sub(1).and_then(|round| captured.rounds.get(round));
                let messages = round.map_or(0, |round| round.messages.len());
                Some(format!("{captured}: {}, {messages} messages.", frame.state()))
            }
        }
    }
}

/// Which half a round belongs to, where there are two.
fn half(over: usize, summing: usize, all: usize) -> Option<&'static str> {
    let has_two = summing > 0 && summing < all;
    (has_two && over > 0).then_some(if over <= summing { "reduce-scatter" } else { "all-gather" })
}

/// `: −0.13, 0.02, 1.1 …`
fn numbers(values: &[f32]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = values.iter().map(|value| number(*value)).collect();
    format!(": {} …", shown.join(", "))
}

/// A number with two digits that count.
fn number(value: f32) -> String {
    let size = value.abs();
    let text = if value == 0.0 {
        "0".to_owned()
    } else if !value.is_finite() {
        if value.is_nan() { "NaN".into() } else { format!("{value}") }
    } else if (0.000_95..999.5).contains(&size) {
        let digits = (1.0 - f64::from(size).log10().floor()).clamp(0.0, 6.0) as usize;
        format!("{value:.digits$}")
    } else {
        format!("{value:.1e}")
    };
    text.replace('-', "−")
}

/// Draws the collective.
pub fn draw(sketch: &mut Sketch<'_>, area: Area, frame: &Frame<'_>) -> Layout {
    let line = sketch.line_of_text();
    let mut layout = Layout::default();
    let (head, rest) = area.cut_top(line + 4.0);
    title(sketch, head, frame);
    let (rounds, rest) = rest.cut_top(line + 10.0);
    round_bar(sketch, rounds, frame, &mut layout);
    let body = rest.cut_top(6.0).1;
    // The ring needs room for its nodes; where there is none, the cells say all.
    let side = body.height.min(body.width * 0.36).min(300.0 * sketch.zoom());
    let has_ring = side >= 5.0 * line && frame.captured.members.len() <= MOST_MEMBERS;
    let (left, right) = body.cut_left(if has_ring { side + 16.0 } else { 0.0 });
    if has_ring {
        ring::draw(sketch, left.cut_right(16.0).1, frame, &mut layout);
    }
    cells::draw(sketch, right, frame, &mut layout);
    layout
}

fn title(sketch: &mut Sketch<'_>, head: Area, frame: &Frame<'_>) {
    let rest = sketch.badge(head, Badge::Counted);
    let on = sketch.plain();
    let captured = frame.captured;
    let count = captured.members.len();
    let more =
        if count > MOST_MEMBERS { format!(", first {MOST_MEMBERS} shown") } else { String::new() };
    let bytes = captured.bytes();
    let text = format!("{captured} · {count} ranks{more} · {bytes} · {}", frame.state());
    sketch.write(rest, &text, Align::Left, on);
}

/// One field a round, in two halves where an all-reduce has them.
fn round_bar(sketch: &mut Sketch<'_>, bar: Area, frame: &Frame<'_>, layout: &mut Layout) {
    let theme = sketch.theme();
    let captured = frame.captured;
    let all = captured.rounds.len();
    let summing = captured.summing_rounds();
    let bar = bar.shrunk(0.0, 2.0);
    let width = (bar.width / (all + 1) as f32).min(110.0 * sketch.zoom());
    for round in 0..=all {
        let gap = if round > summing && summing > 0 && summing < all { 8.0 } else { 0.0 };
        let field =
            Area::new(bar.left + width * round as f32 + gap, bar.top, width - 3.0, bar.height);
        if field.right() > bar.right() {
            break;
        }
        let done = round <= frame.over;
        let paint = theme.work(crate::trace::draw::Work::AllReduce);
        let ground = if done { paint.fill } else { theme.track };
        let on = On { ink: if done { paint.ink } else { theme.ink }, ground };
        sketch.fill(field, ground);
        let half = half(round, summing, all);
        let short = if round == 0 { "start".to_owned() } else { round.to_string() };
        let long = match half {
            Some(half) if round == 1 || round == summing + 1 => format!("{round} {half}"),
            _ => short.clone(),
        };
        let inner = field.shrunk(3.0, 0.0);
        if sketch.write_whole(inner, &long, Align::Middle, on).is_none() {
            sketch.write_whole(inner, &short, Align::Middle, on);
        }
        if round == frame.over {
            sketch.fill(Area::new(field.left, field.bottom(), field.width, 3.0), theme.accent);
        }
        layout.parts.push((field, Part::Round(round)));
    }
}
