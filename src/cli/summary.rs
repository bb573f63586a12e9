//! What a run says at its end, on standard output: what it learned, whether it is exact, how fast
//! it was, what it waited for, sent and kept, and what to try next.
//!
//! Every number comes in through [`Summary`]; this room only lays text out.

use super::live::LossTarget;
use super::text::{Line, Style, Terminal, duration, thousands, width};
use crate::ledger::RankMemory;
use crate::mesh::Axis;
use crate::plan::Role;
use crate::trace::Badge;
use crate::units::Bytes;

/// Where the text of each topic begins, and where badges end.
const INDENT: usize = 17;
const END: usize = 78;
/// Rows of the memory table before the rest is summed up.
const MEMORY_ROWS: usize = 8;

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
    /// How much the ranks waited; `None` for a single rank.
    pub waiting: Option<Waiting>,
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

/// How much the ranks waited between the first forward and the last backward.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Waiting / span, between 0 and 1.
    pub share: f64,
    /// Whose clock it was measured on.
    pub badge: Badge,
    /// The textbook's share for this schedule, where there is one.
    pub formula: Option<Formula>,
    /// What the difference to the formula comes from: `unequal stages`.
    pub rest: Option<String>,
}

/// A share from the textbook.
#[derive(Clone, Debug)]
pub struct Formula {
    /// How it is written: `(p−1)/(m+p−1)`.
    pub expression: String,
    /// Its value, between 0 and 1.
    pub share: f64,
}

/// Memory of one rank at the moment of its peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes by role, in the order of [`Role::ALL`].
    pub by_role: [Bytes; 5],
    /// Their sum.
    pub peak: Bytes,
}

impl From<&RankMemory> for Memory {
    fn from(memory: &RankMemory) -> Self {
        Self { by_role: Role::ALL.map(|role| memory.at_peak[role]), peak: memory.peak() }
    }
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
    lines.extend(page.waiting());
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
            thousands(*steps),
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
        line
    }

    fn learned(&self) -> Vec<Line> {
        let Some(learned) = &self.facts.learned else { return Vec::new() };
        let Learned { before, after, target, entropy } = learned;
        let mut text = format!("held-out loss {before:.2} → {after:.2} nats per byte");
        if let Some(target) = target {
            text += &format!(", target < {:.2}", target.loss);
        }
        let mut lines = vec![self.topic("It learned", text)];
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
            let text = format!("{} tokens/s", thousands(speed.max(0.0).round() as u64));
            self.badged("Speed", &text, Badge::Measured)
        })
    }

    fn waiting(&self) -> Vec<Line> {
        let Some(waiting) = &self.facts.waiting else { return Vec::new() };
        let text = format!("{:.1} % of forward + backward", 100.0 * waiting.share);
        let mut lines = vec![self.badged("Waiting", &text, waiting.badge)];
        let formula = waiting.formula.as_ref().map(|Formula { expression, share }| {
            format!("formula {expression} = {:.1} %", 100.0 * share)
        });
        let rest = waiting.rest.as_ref();
        let rest = rest.map(|rest| match formula {
            Some(_) => format!("the rest: {rest}"),
            None => rest.clone(),
        });
        let text: Vec<String> = formula.into_iter().chain(rest).collect();
        if !text.is_empty() {
            lines.push(self.topic("", text.join("; ")));
        }
        lines
    }

    fn sent(&self) -> Line {
        let axes = Axis::ALL.into_iter().zip(self.facts.sent).filter(|(_, bytes)| bytes.0 > 0);
        let axes: Vec<String> =
            axes.map(|(axis, bytes)| format!("{} {}", axis.word(), megabytes(bytes))).collect();
        let text = if axes.is_empty() { "nothing".into() } else { axes.join("   ") };
        self.badged("Sent per step", &text, Badge::Counted)
    }

    /// The table of memory, equal ranks in one row.
    fn memory(&self) -> Vec<Line> {
        let most = self.facts.memory.iter().map(|memory| memory.peak.0).max().unwrap_or_default();
        let (unit, size) = match most {
            0..1_048_576 => ("KiB", 1u64 << 10),
            1_048_576..10_737_418_240 => ("MiB", 1 << 20),
            _ => ("GiB", 1 << 30),
        };
        let mut columns: Vec<String> = Role::ALL.iter().map(ToString::to_string).collect();
        columns.push("peak".into());
        let mut head = self.line();
        head.text("  ").push(Style::Bold, "Memory").text(format!(", {unit}")).to_column(INDENT);
        head.text(columns.join("  "));
        let mut lines = vec![head];
        for (ranks, figures) in memory_rows(&self.facts.memory, size) {
            let mut line = self.line();
            line.text(format!("    {ranks}"));
            let mut end = INDENT;
            for (column, figure) in columns.iter().zip(&figures) {
                end += width(column);
                line.to_column(end - width(figure).min(end)).text(figure);
                end += 2;
            }
            lines.push(line);
        }
        let hidden = lines.len().saturating_sub(1 + MEMORY_ROWS);
        if hidden > 0 {
            lines.truncate(1 + MEMORY_ROWS);
            let text = format!("    … {hidden} more {}", plural(hidden as u64, "row"));
            let mut line = self.line();
            line.text(text);
            lines.push(line);
        }
        lines
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

/// Rows of the memory table, in the order of their first rank: which ranks, and their figures as
/// printed. Ranks are equal if their figures read the same.
fn memory_rows(memory: &[Memory], unit: u64) -> Vec<(String, Vec<String>)> {
    let mut rows: Vec<(Vec<usize>, Vec<String>)> = Vec::new();
    for (rank, Memory { by_role, peak }) in memory.iter().enumerate() {
        let figures: Vec<String> = by_role
            .iter()
            .chain([peak])
            .map(|bytes| format!("{:.1}", bytes.0 as f64 / unit as f64))
            .collect();
        match rows.iter_mut().find(|row| row.1 == figures) {
            Some(row) => row.0.push(rank),
            None => rows.push((vec![rank], figures)),
        }
    }
    rows.into_iter().map(|(ranks, figures)| (rank_names(&ranks), figures)).collect()
}

/// Ascending ranks in words: `rank 3`, `ranks 0–3`, `ranks 0, 2`.
fn rank_names(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let name = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}–{last}"),
    };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let all = format!("{word} {}", runs.iter().map(name).collect::<Vec<_>>().join(","));
    // The first column of figures ends at the end of "weights".
    if width(&all) <= INDENT { all } else { format!("{} ranks: {}…", ranks.len(), ranks[0]) }
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.into() } else { format!("{word}s") }
}

#[cfg(test)]
mod tests {
    //! The summary as golden text, whole and with its parts missing.
    use expect_test::expect;

    use super::super::text::{Charset, Colour};
    use super::*;

    const TERMINAL: Terminal =
        Terminal { width: 80, height: 24, charset: Charset::Utf8, colour: Colour::Off };

    fn mib(tenths: u64) -> Bytes {
        Bytes(tenths * 104_858)
    }

    fn memory(tenths: [u64; 5]) -> Memory {
        Memory { by_role: tenths.map(mib), peak: mib(tenths.iter().sum()) }
    }

    fn own(arguments: &str, what: &str) -> Suggestion {
        Suggestion { command: Command::Own(arguments.into()), what: what.into() }
    }

    fn quickstart() -> Summary {
        let [low, high] = [memory([5, 5, 5, 19, 4]), memory([5, 5, 5, 13, 4])];
        Summary {
            steps: 200,
            seconds: 41.3,
            device: "the CPU".into(),
            sharing: Sharing::Cores(2),
            ranks: 8,
            learned: Some(Learned {
                before: 5.551,
                after: 2.43,
                target: Some(LossTarget { loss: 2.4901, reached: true }),
                entropy: Some(Entropy { symbols: 256, letters: 3.304, pairs: 2.4901 }),
            }),
            exact: Some(Exact { steps: 3, largest: 2.4e-7, allowed: 1e-5, first_difference: None }),
            tokens_per_sec: 20_100.4,
            waiting: Some(Waiting {
                share: 0.2034,
                badge: Badge::Replayed,
                formula: Some(Formula { expression: "(p−1)/(m+p−1)".into(), share: 0.2 }),
                rest: Some("unequal stages".into()),
            }),
            sent: [mib(10), mib(60), mib(5)],
            memory: vec![low, low, low, low, high, high, high, high],
            next: vec![
                own("train --pp 4 --tp 1", "4 stages: waiting grows to 43 %"),
                own("train --microbatches 16", "smaller pieces: waiting falls to 6 %"),
                own("verify --dp 2 --tp 2 --pp 2", "prove it equals one rank"),
                Suggestion {
                    command: Command::Whole("cargo run --release -p shardlab-visualizer".into()),
                    what: "watch it in a window".into(),
                },
            ],
        }
    }

    #[test]
    fn a_summary_tells_what_was_learned_and_what_it_cost() {
        expect![[r#"
            Trained 200 steps in 41 s on the CPU; 8 ranks shared 2 cores.

              It learned     held-out loss 5.55 → 2.43 nats per byte, target < 2.49      ✓
                             5.55 knows nothing (ln 256), 3.30 letters, 2.49 letter pairs
              It is exact    3 SGD steps against an unsplit run:                         ✓
                             largest relative difference 2.4e-7 (allowed 1e-5)
              Speed          20,100 tokens/s                                      MEASURED
              Waiting        20.3 % of forward + backward                         REPLAYED
                             formula (p−1)/(m+p−1) = 20.0 %; the rest: unequal stages
              Sent per step  data 1.0 MiB   tensor 6.0 MiB   pipeline 0.5 MiB      COUNTED
              Memory, MiB    weights  gradients  optimizer  activations  workspace  peak
                ranks 0–3        0.5        0.5        0.5          1.9        0.4   3.8
                ranks 4–7        0.5        0.5        0.5          1.3        0.4   3.2

            Try next
              shardlab train --pp 4 --tp 1          4 stages: waiting grows to 43 %
              shardlab train --microbatches 16      smaller pieces: waiting falls to 6 %
              shardlab verify --dp 2 --tp 2 --pp 2  prove it equals one rank
              cargo run --release -p shardlab-visualizer  watch it in a window
        "#]]
        .assert_eq(&summary(&quickstart(), "shardlab", &TERMINAL));
    }

    #[test]
    fn started_by_cargo_the_suggestions_can_be_copied() {
        let text = summary(&quickstart(), "cargo run --release --", &TERMINAL);
        let next = text.split_once("Try next\n").unwrap().1;
        expect![[r#"
              cargo run --release -- train --pp 4 --tp 1
                  4 stages: waiting grows to 43 %
              cargo run --release -- train --microbatches 16
                  smaller pieces: waiting falls to 6 %
              cargo run --release -- verify --dp 2 --tp 2 --pp 2
                  prove it equals one rank
              cargo run --release -p shardlab-visualizer
                  watch it in a window
        "#]]
        .assert_eq(next);
    }

    #[test]
    fn a_failed_run_of_one_rank_says_so_without_utf8() {
        let facts = Summary {
            steps: 1,
            sharing: Sharing::Own,
            ranks: 1,
            learned: Some(Learned {
                after: 3.1,
                target: Some(LossTarget { loss: 2.49, reached: false }),
                ..quickstart().learned.unwrap()
            }),
            exact: Some(Exact {
                largest: f64::NAN,
                first_difference: Some("step 2, gradient of lm_head.weight".into()),
                ..quickstart().exact.unwrap()
            }),
            waiting: None,
            sent: [Bytes(0); 3],
            memory: vec![Memory { by_role: [Bytes(1536); 5], peak: Bytes(7680) }],
            next: Vec::new(),
            ..quickstart()
        };
        let text = summary(&facts, "shardlab", &Terminal { charset: Charset::Ascii, ..TERMINAL });
        assert!(text.is_ascii());
        expect![[r#"
            Trained 1 step in 41 s on the CPU.

              It learned     held-out loss 5.55 -> 3.10 nats per byte, target < 2.49    NO
                             5.55 knows nothing (ln 256), 3.30 letters, 2.49 letter pairs
              It is exact    3 SGD steps against an unsplit run:                        NO
                             largest relative difference NaN (allowed 1e-5)
                             first difference: step 2, gradient of lm_head.weight
              Speed          20,100 tokens/s                                      MEASURED
              Sent per step  nothing                                               COUNTED
              Memory, KiB    weights  gradients  optimizer  activations  workspace  peak
                rank 0           1.5        1.5        1.5          1.5        1.5   7.5
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn many_different_ranks_fill_no_screen() {
        let memory = (0..64).map(|rank| memory([rank % 16, 1, 1, 1, 1])).collect();
        let text = summary(&Summary { memory, ..quickstart() }, "shardlab", &TERMINAL);
        let table = text.split_once("  Memory").unwrap().1.split_once("\n\n").unwrap().0;
        expect![[r#"
              Memory, MiB    weights  gradients  optimizer  activations  workspace  peak
                ranks 0,16,32,48 0.0        0.1        0.1          0.1        0.1   0.4
                ranks 1,17,33,49 0.1        0.1        0.1          0.1        0.1   0.5
                ranks 2,18,34,50 0.2        0.1        0.1          0.1        0.1   0.6
                ranks 3,19,35,51 0.3        0.1        0.1          0.1        0.1   0.7
                ranks 4,20,36,52 0.4        0.1        0.1          0.1        0.1   0.8
                ranks 5,21,37,53 0.5        0.1        0.1          0.1        0.1   0.9
                ranks 6,22,38,54 0.6        0.1        0.1          0.1        0.1   1.0
                ranks 7,23,39,55 0.7        0.1        0.1          0.1        0.1   1.1
                … 8 more rows
        "#]]
        .assert_eq(&format!("  Memory{table}\n"));
    }

    #[test]
    fn ranks_are_named_shortly() {
        assert_eq!(rank_names(&[3]), "rank 3");
        assert_eq!(rank_names(&[0, 1, 2, 3]), "ranks 0–3");
        assert_eq!(rank_names(&[0, 2, 4, 5]), "ranks 0,2,4–5");
        assert_eq!(rank_names(&[0, 2, 4, 6, 8, 10]), "6 like rank 0");
    }

    #[test]
    fn no_line_is_wider_than_eighty_columns() {
        for program in ["shardlab", "cargo run --release --"] {
            let text = summary(&quickstart(), program, &TERMINAL);
            assert!(text.lines().all(|line| width(line) <= 80), "{text}");
        }
    }
}
