//! What a run says at its end, on standard output: what it learned, whether it is exact, how fast
//! it was, what it waited for, sent and kept, and what to try next.
//!
//! Every number comes in through [`Summary`]; this room only lays text out.

mod memory;
#[cfg(test)]
mod tests;

pub use memory::Memory;

use super::live::LossTarget;
use super::text::{Line, Style, Terminal, duration, step_time, width};
use crate::mesh::Axis;
use crate::trace::Badge;
use crate::units::{Bytes, grouped};

/// Where the text of each topic begins, and where badges end.
const INDENT: usize = 17;
const END: usize = 78;
/// The facts of a finished run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Steps that were trained.
    pub steps: u64,
    /// Wall clock of the training.
    pub seconds: f64,
    /// What ran the ranks: `the CPU`.
    pub device: String,
    /// How ranks and devices were matched.
    pub sharing: Sharing,
    /// Number of ranks.
    pub ranks: u32,
    /// What was learned; `None` where nothing was held out.
    pub learned: Option<Learned>,
    /// The comparison with an unsplit run, where one was made.
    pub exact: Option<Exact>,
    /// Tokens a second over the whole training.
    pub tokens_per_sec: f64,
    /// The step as it was predicted, and as it was; `None` on a machine that was never measured.
    pub predicted: Option<Predicted>,
    /// How much the ranks waited; `None` for a single rank.
    pub waiting: Option<Waiting>,
    /// What the devices spend their time on: `71 % kernels`, `20 % dispatch`; empty without a step.
    pub devices_spend: Vec<String>,
    /// Bytes that crossed in a step, by axis in the order of [`Axis::ALL`].
    pub sent: [Bytes; 3],
    /// Memory of each rank; index = rank.
    pub memory: Vec<Memory>,
    /// What to try next.
    pub next: Vec<Suggestion>,
}

/// How ranks and devices were matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The ranks shared this many cores.
    Cores(u32),
    /// The ranks took turns on this many devices, fewer than there are ranks.
    Devices(u32),
    /// Each rank had a device of its own.
    Own,
}

/// What was learned: mean losses over the held-out text.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    /// Before the first step, nats a byte.
    pub before: f64,
    /// After the last step.
    pub after: f64,
    /// What it must get under, and whether it did.
    pub target: Option<LossTarget>,
    /// What the losses mean, where the data were measured.
    pub entropy: Option<Entropy>,
}

/// Losses of models that only count, from the data themselves, nats a byte.
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    /// Number of different symbols: knowing nothing costs its logarithm.
    pub symbols: u32,
    /// How often each letter occurs.
    pub letters: f64,
    /// How often each letter follows each other one.
    pub pairs: f64,
}

/// The comparison of the layout with one rank.
#[derive(Clone, Debug)]
pub struct Exact {
    /// Steps that were compared, plain SGD.
    pub steps: u32,
    /// Largest difference relative to the largest value.
    pub largest: f64,
    /// What is allowed.
    pub allowed: f64,
    /// The first tensor that differs by more, if any.
    pub first_difference: Option<String>,
}

impl Exact {
    /// Whether the two agree.
    pub fn holds(&self) -> bool {
        self.largest <= self.allowed && self.first_difference.is_none()
    }
}

/// A step that was predicted before it ran, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// On this machine's cores, from kernels that were measured one by one.
    pub seconds: f64,
    /// The median of those that ran.
    pub measured: f64,
}

/// How much the ranks waited between the first forward and the last backward.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Waiting / span, between 0 and 1.
    pub share: f64,
    /// Whose clock it was measured on.
    pub badge: Badge,
    /// The textbook's share for this schedule, where there is one.
    pub formula: Option<Formula>,
    /// Links of that clock: `free`.
    pub links: String,
    /// What the difference to the formula comes from: `+2.1 unequal stages`.
    pub rest: Vec<String>,
    /// Who decides the length of the step: `71 % on rank 6`, `3 % messages`.
    pub path: Vec<String>,
    /// How much communication hides behind work; `None` over free links.
    pub messages: Option<String>,
}

/// A share from the textbook.
#[derive(Clone, Debug)]
pub struct Formula {
    /// How it is written: `(p−1)/(m+p−1)`.
    pub expression: String,
    /// Its value, between 0 and 1.
    pub share: f64,
}

/// A command that is worth trying.
#[derive(Clone, Debug)]
pub struct Suggestion {
    /// What to type.
    pub command: Command,
    /// What it does or shows.
    pub what: String,
}

/// What to type.
#[derive(Clone, Debug)]
pub enum Command {
    /// Arguments of this program: `train --pp 4`.
    Own(String),
    /// A command line as it stands.
    Whole(String),
}

/// The summary, lines ended by `\n`. `program` is how this program was started, `shardlab` or
/// `cargo run --release --`; the terminal's sizes do not matter.
pub fn summary(facts: &Summary, program: &str, terminal: &Terminal) -> String {
    let page = Page { facts, terminal };
    let mut lines = vec![page.title(), page.line()];
    lines.extend(page.learned());
    lines.extend(page.exact());
    lines.extend(page.speed());
    lines.extend(page.predicted());
    lines.extend(page.waiting());
    lines.extend(page.devices_spend());
    lines.push(page.sent());
    lines.extend(page.memory());
    if !facts.next.is_empty() {
        lines.push(page.line());
        lines.extend(page.next(program));
    }
    let rendered = lines.iter().map(|line| line.render(usize::MAX, terminal.colour) + "\n");
    rendered.collect()
}

/// The page while it is written.
struct Page<'a> {
    facts: &'a Summary,
    terminal: &'a Terminal,
}

impl Page<'_> {
    fn line(&self) -> Line {
        Line::new(self.terminal.charset)
    }

    /// A line of a topic: its name or nothing, then text.
    fn topic(&self, name: &str, text: impl AsRef<str>) -> Line {
        let mut line = self.line();
        line.text("  ").push(Style::Bold, name).to_column(INDENT).text(text);
        line
    }

    fn title(&self) -> Line {
        let Summary { steps, seconds, device, sharing, ranks, .. } = self.facts;
        let mut line = self.line();
        line.text(format!(
            "Trained {} {} in {} on {device}",
            grouped(*steps),
            plural(*steps, "step"),
            duration(*seconds)
        ));
        let named = format!("{ranks} {}", plural(u64::from(*ranks), "rank"));
        line.text(match *sharing {
            Sharing::Cores(cores) => {
                let verb = if *ranks == 1 { "used" } else { "shared" };
                format!("; {named} {verb} {cores} {}.", plural(u64::from(cores), "core"))
            }
            Sharing::Devices(count) => {
                format!("; {named} took turns on {count} {}.", plural(u64::from(count), "device"))
            }
            Sharing::Own if *ranks == 1 => ".".into(),
            Sharing::Own => format!("; {named}, each with its own device."),
        });
        line.flush_right(Style::Dim, Badge::Measured.word(), END);
        line
    }

    fn learned(&self) -> Vec<Line> {
        let Some(learned) = &self.facts.learned else { return Vec::new() };
        let Learned { before, after, target, entropy } = learned;
        let mut text = format!("held-out loss {before:.2} → {after:.2} nats per byte");
        if let Some(target) = target {
            text += &format!(", target < {:.2}", target.loss);
        }
        // What has not learned yet is not said to have learned.
        let has_learned = target.is_none_or(|target| target.reached);
        let name = if has_learned { "It learned" } else { "Not learned" };
        let mut lines = vec![self.topic(name, text)];
        if let Some(target) = target {
            self.mark(&mut lines[0], target.reached);
        }
        if let Some(Entropy { symbols, letters, pairs }) = entropy {
            let text = format!(
                "{:.2} knows nothing (ln {symbols}), {letters:.2} letters, {pairs:.2} letter pairs",
                f64::from(*symbols).ln()
            );
            lines.push(self.topic("", text));
        }
        lines
    }

    fn exact(&self) -> Vec<Line> {
        let Some(exact) = &self.facts.exact else { return Vec::new() };
        let text = format!(
            "{} SGD {} against an unsplit run:",
            exact.steps,
            plural(u64::from(exact.steps), "step")
        );
        let mut first = self.topic("It is exact", text);
        self.mark(&mut first, exact.holds());
        let text = format!(
            "largest relative difference {:.1e} (allowed {:.0e})",
            exact.largest, exact.allowed
        );
        let mut lines = vec![first, self.topic("", text)];
        if let Some(tensor) = &exact.first_difference {
            lines.push(self.topic("", format!("first difference: {tensor}")));
        }
        lines
    }

    fn speed(&self) -> Option<Line> {
        let speed = self.facts.tokens_per_sec;
        speed.is_finite().then(|| {
            let text = format!("{} tokens/s", grouped(speed.max(0.0).round() as u64));
            self.badged("Speed", &text, Badge::Measured)
        })
    }

    fn predicted(&self) -> Option<Line> {
        let Predicted { seconds, measured } = self.facts.predicted?;
        let error = (100.0 * (seconds / measured - 1.0)).round();
        // A minus that is as wide as a plus.
        let sign = if error < 0.0 { "−" } else { "+" };
        let measured_word = Badge::Measured.word();
        let text = format!(
            "{} predicted, {} {measured_word} ({sign}{:.0} %)",
            step_time(seconds),
            step_time(measured),
            error.abs()
        );
        Some(self.badged("A step", &text, Badge::Predicted))
    }

    fn waiting(&self) -> Vec<Line> {
        let Some(waiting) = &self.facts.waiting else { return Vec::new() };
        let Waiting { share, badge, links, formula, rest, path, messages } = waiting;
        let text = format!("{:.1} % of forward + backward, links: {links}", 100.0 * share);
        let mut lines = vec![self.badged("Waiting", &text, *badge)];
        if let Some(Formula { expression, share }) = formula {
            let text = format!("{:.1} % by formula {expression}", 100.0 * share);
            lines.push(self.badged("", &text, Badge::Formula));
        }
        let mut rest = rest.clone();
        if let (Some(first), Some(_)) = (rest.first_mut(), formula) {
            *first = format!("the rest: {first}");
        }
        lines.extend(self.listed("", &rest, *badge));
        lines.extend(self.listed("Critical path", path, *badge));
        lines.extend(messages.as_ref().map(|text| self.badged("Messages", text, *badge)));
        lines
    }

    fn devices_spend(&self) -> Vec<Line> {
        self.listed("Device time", &self.facts.devices_spend, Badge::Measured)
    }

    /// Words with commas between, on as many lines as leave room for the badge.
    fn listed(&self, name: &str, words: &[String], badge: Badge) -> Vec<Line> {
        let room = END - INDENT - 2 - badge.word().len();
        let mut texts: Vec<String> = Vec::new();
        for word in words {
            match texts.last_mut().filter(|text| width(text) + 2 + width(word) <= room) {
                Some(text) => *text = format!("{text}, {word}"),
                None => texts.push(word.clone()),
            }
        }
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        names.zip(&texts).map(|(name, text)| self.badged(name, text, badge)).collect()
    }

    fn sent(&self) -> Line {
        let axes = Axis::ALL.into_iter().zip(self.facts.sent).filter(|(_, bytes)| bytes.0 > 0);
        let axes: Vec<String> =
            axes.map(|(axis, bytes)| format!("{} {}", axis.word(), megabytes(bytes))).collect();
        let text = if axes.is_empty() { "nothing".into() } else { axes.join("   ") };
        self.badged("Sent per step", &text, Badge::Counted)
    }

    /// Suggestions with their reasons beside them, or below where that is too wide.
    fn next(&self, program: &str) -> Vec<Line> {
        let commands: Vec<(String, &String)> = self
            .facts
            .next
            .iter()
            .map(|Suggestion { command, what }| match command {
                Command::Own(arguments) => (format!("{program} {arguments}"), what),
                Command::Whole(line) => (line.clone(), what),
            })
            .collect();
        // The widest commands that leave room for every reason set the column; where that holds
        // for less than half of them, reasons come below.
        let most = commands.iter().map(|command| width(command.1)).max().unwrap_or_default();
        let mut fitting: Vec<usize> =
            commands.iter().map(|command| width(&command.0) + 4).collect();
        fitting.retain(|column| column + most <= END + 2);
        let column = fitting.iter().max().filter(|_| 2 * fitting.len() >= commands.len());
        let mut title = self.line();
        title.push(Style::Bold, "Try next");
        let mut lines = vec![title];
        for (command, what) in &commands {
            let mut line = self.line();
            line.text("  ").text(command);
            match column {
                Some(column) if (line.width() + 2).max(*column) + width(what) <= END + 2 => {
                    line.text("  ").to_column(*column).text(what);
                    lines.push(line);
                }
                _ => {
                    let mut below = self.line();
                    below.text("      ").push(Style::Dim, what);
                    lines.extend([line, below]);
                }
            }
        }
        lines
    }

    fn mark(&self, line: &mut Line, holds: bool) {
        let (style, mark) = if holds { (Style::Good, "✓") } else { (Style::Bad, "✗") };
        line.flush_right(style, mark, END);
    }

    fn badged(&self, name: &str, text: &str, badge: Badge) -> Line {
        let mut line = self.topic(name, text);
        line.flush_right(Style::Dim, badge.word(), END);
        line
    }
}

/// Bytes in MiB where that reads well, else in the unit that does.
fn megabytes(bytes: Bytes) -> String {
    const MIB: u64 = 1 << 20;
    match bytes.0 {
        104_858..MIB => format!("{:.1} MiB", bytes.0 as f64 / MIB as f64),
        _ => bytes.to_string(),
    }
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.into() } else { format!("{word}s") }
}
