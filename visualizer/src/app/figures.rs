//! The four figures: loss, waiting, bytes, memory. They stand still: fixed places, fixed digits,
//! at most four changes a second. A press on one opens the tab that tells more of it.

use shardlab::mesh::Axis;
use shardlab::trace::Badge;
use shardlab::trace::bubble::Bubble;
use shardlab::trace::draw::scene::{Area, Point};
use shardlab::units::Bytes;

use super::tile;
use crate::board::Board;
use crate::panels;
use crate::run::Run;
use crate::shown::{Command, Side};
use crate::texts;

/// Least time between two changes, in seconds.
const CHANGE_EVERY: f64 = 0.25;

/// The figures of the training head as they are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    tiles: Vec<Tile>,
    changed_at: f64,
    /// The share of waiting of the newest step that was laid out, and which step that was.
    waiting: Option<(u64, f64)>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
struct Tile {
    name: &'static str,
    figure: String,
    /// The widest that the figure usually is: so that what follows stands still.
    widest: &'static str,
    /// Written smaller behind it.
    remark: String,
    badge: Option<Badge>,
    hint: String,
    /// The tab that tells more of it.
    opens: (Side, usize),
}

impl Figures {
    /// Takes over the waiting of a step, if it is the newest one that was laid out.
    pub(super) fn take(&mut self, step: u64, bubble: &Bubble) {
        if self.waiting.is_none_or(|(known, _)| known <= step) {
            self.waiting = Some((step, bubble.waiting_over_span));
        }
    }

    /// Forgets everything: another run.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes the figures anew, unless that was done a moment ago: then, in how many seconds they
    /// should be.
    pub(super) fn refresh(&mut self, run: &Run, now: f64) -> Option<f64> {
        let tiles = vec![loss(run), waiting(run, self.waiting), sent(run), memory(run)];
        if tiles == self.tiles {
            return None;
        }
        let due = self.changed_at + CHANGE_EVERY;
        if !self.tiles.is_empty() && now < due {
            return Some(due - now);
        }
        (self.changed_at, self.tiles) = (now, tiles);
        None
    }

    /// Draws the figures: all four, or the first two where there is no room.
    pub(super) fn show(&self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let count = if area.width < 1100.0 * look.scale { 2 } else { self.tiles.len() };
        let mut rest = area;
        let mut commands = Vec::new();
        for (index, tile) in self.tiles.iter().take(count).enumerate() {
            let (place, right) = rest.cut_left(area.width / count as f32);
            rest = right;
            let control = crate::board::Control::text(tile.name, tile.name, &tile.hint);
            if board.interact(place, control).clicked() {
                commands.push(match tile.opens {
                    (Side::Left, tab) => Command::OpenLeft(tab),
                    (Side::Right, tab) => Command::OpenRight(tab),
                });
            }
            let origin = tile.badge.map_or(String::new(), |badge| badge.word().to_owned());
            let shown = tile::Tile {
                name: tile.name.to_owned(),
                origin,
                figure: tile.figure.clone(),
                widest: tile.widest,
                remark: tile.remark.clone(),
                tone: tile::Tone::Plain,
            };
            shown.show(board, place, look.figure());
            if index > 0 {
                let (x, inset) = (place.left, look.gap(3));
                board.rule(
                    Point { x, y: place.top + inset },
                    Point { x, y: place.bottom() - inset },
                );
            }
        }
        let y = area.bottom();
        board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
        commands
    }
}

fn loss(run: &Run) -> Tile {
    let losses = run.losses();
    // The mean of the last steps: single batches differ by more than a step learns.
    let recent = &losses[losses.len().saturating_sub(8)..];
    let now = recent.iter().map(|(_, loss)| loss).sum::<f64>() / recent.len() as f64;
    let (figure, remark) = match losses.first() {
        Some((_, first)) => {
            let way = if now <= *first { "↓" } else { "↑" };
            let [from, to] = [recent.first(), recent.last()].map(|s| s.map_or(0, |s| s.0 + 1));
            let steps =
                if from == to { format!("step {to}") } else { format!("steps {from}–{to}") };
            (format!("{now:.2}"), format!("{way} from {first:.2}, mean of {steps}"))
        }
        None => ("–".into(), String::new()),
    };
    let marks = run.facts().and_then(|facts| facts.marks);
    let unit = texts::loss_unit(marks);
    let hint = match marks {
        Some(marks) => format!(
            "Training loss of the newest steps, {unit}. Letter pairs alone give {:.2}: lower has learned more.",
            marks.pairs
        ),
        None => format!("Training loss of the newest steps, {unit}. Lower has learned more."),
    };
    let opens = (Side::Right, panels::LOSS);
    Tile { name: "Loss", figure, widest: "0.00", remark, badge: None, hint, opens }
}

fn waiting(run: &Run, waiting: Option<(u64, f64)>) -> Tile {
    let figure = match waiting {
        Some((_, share)) => format!("{:.1} %", 100.0 * share),
        None => "–".into(),
    };
    let formula = texts::formula(&run.scenario().layout);
    let remark = match formula {
        Some(share) => format!("{:.1} % {}", 100.0 * share, Badge::Formula.word()),
        None => String::new(),
    };
    let hint = match formula {
        Some(_) => {
            "Share of forward + backward in which ranks wait. FORMULA (p−1)/(m+p−1); the rest: unequal stages."
        }
        None => {
            "Share of the time from the first forward to the last backward in which ranks wait."
        }
    };
    Tile {
        name: "Waiting",
        figure,
        widest: "00.0 %",
        remark,
        badge: Some(Badge::Replayed),
        hint: hint.into(),
        opens: (Side::Left, panels::NUMBERS),
    }
}

fn sent(run: &Run) -> Tile {
    let (figure, hint) = match run.facts() {
        Some(facts) => {
            let on = |axis: Axis| format!("{} {}", axis.word(), facts.ledger.bytes_on(axis));
            let axes = Axis::ALL.map(on).join(", ");
            (
                facts.ledger.bytes().to_string(),
                format!("Bytes that cross between ranks in a step: {axes}."),
            )
        }
        None => ("–".into(), String::new()),
    };
    let remark = if figure == "–" { String::new() } else { "a step".into() };
    let opens = (Side::Left, panels::WIRES);
    Tile { name: "Sent", figure, widest: "", remark, badge: Some(Badge::Counted), hint, opens }
}

fn memory(run: &Run) -> Tile {
    let peaks: Vec<Bytes> = run
        .facts()
        .map(|facts| facts.ledger.ranks.iter().map(|rank| rank.memory.peak()).collect())
        .unwrap_or_default();
    let most = peaks.iter().copied().max();
    let figure = most.map_or("–".into(), |most| most.to_string());
    let hint = match (peaks.iter().min(), most) {
        (Some(least), Some(most)) if *least != most => {
            format!("Most that a rank holds at once: {most} the fullest, {least} the emptiest.")
        }
        _ => "Most that a rank holds at once.".into(),
    };
    let remark = if peaks.len() > 1 { "the fullest rank".into() } else { String::new() };
    let badge = Some(Badge::Counted);
    let opens = (Side::Left, panels::MEMORY);
    Tile { name: "Peak memory", figure, widest: "", remark, badge, hint, opens }
}
