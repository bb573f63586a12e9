//! `shardlab search`: the fastest layouts of a model on a described cluster, what less memory costs,
//! and the command that predicts the best one again; with `--here` (in `here`) of a scenario on this
//! machine. `table` draws layouts.

mod here;
mod table;

use std::ops::ControlFlow;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use self::table::{LEGEND, Row, table};
use super::args::SearchArgs;
use super::text::{Charset, counted, in_charset, step_time, usable};
use super::{Failure, Outcome, output, progress};
use crate::config::workload::Transformer;
use crate::config::{Cluster, ConfigError};
use crate::exec::cores;
use crate::search::why::Comparison;
use crate::search::{
    Candidate, Counts, Cut, Found, Phase, Progress, Refused, SLOWEST, Search, Space, Tell,
};
use crate::sim::cost::Constants;
use crate::trace::Badge;
use crate::units::Bytes;

/// What is searched if nothing is said.
const MODEL: &str = "llama-3-8b";
const CLUSTER: &str = "h100";
const SEQ: u64 = 4096;

/// The most ranks: an index of a rank needs no more anywhere.
const GPUS: u32 = 1 << 17;

/// Runs the command.
///
/// # Errors
/// If model or cluster cannot be read, or if no layout fits.
pub fn run(args: &SearchArgs) -> Result<Outcome, Failure> {
    if args.here {
        return here::run(args);
    }
    let question = Question::of(args)?;
    let constants = Constants::default();
    let search = Search {
        space: &question.space,
        cluster: &question.cluster,
        constants: &constants,
        threads: cores(),
    };
    let found = with_bar(|tell| search.run(tell));
    if found.is_complete && found.best.is_empty() {
        return Err(question.nothing_fits(&found).into());
    }
    let why = match &*found.best {
        [first, second, ..] => Some(Comparison::of(&search, &first.cut, &second.cut)),
        _ => None,
    };
    let repeat = found.best.first().map(|best| question.repeat(&best.cut));
    let answer = Answer { question: &question, found: &found, why, repeat };
    if args.json {
        output::print_json(&answer.json())?;
    } else {
        output::print(&in_charset(&answer.text(), output::terminal().charset))?;
    }
    Ok(if found.is_complete { Outcome::Success } else { Outcome::Interrupted })
}

/// Searches with a bar on standard error, if that is a terminal; Ctrl-C ends the search.
fn with_bar<T>(search: impl FnOnce(&mut Tell<'_>) -> T) -> T {
    output::listen_for_interrupts();
    let bar = bar();
    let found = search(&mut |progress| {
        show(&bar, progress);
        if output::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    found
}

fn bar() -> ProgressBar {
    let chars = match progress::charset() {
        Charset::Utf8 => "█▌ ",
        Charset::Ascii => "#- ",
    };
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} layouts, {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style.progress_chars(chars))
}

fn show(bar: &ProgressBar, progress: &Progress) {
    let Progress { phase, counts } = progress;
    bar.set_length(counts.enumerated);
    bar.set_position(counts.enumerated - counts.open);
    bar.set_message(match phase {
        Phase::Simulating => format!("{} simulated", counts.simulated),
        Phase::Listing | Phase::Bounding => phase.words().to_owned(),
    });
}

/// What was asked, and how.
struct Question {
    model: String,
    cluster_word: String,
    space: Space,
    cluster: Cluster,
}

impl Question {
    fn of(args: &SearchArgs) -> Result<Self, ConfigError> {
        let model_word = args.model.as_deref().unwrap_or(MODEL);
        let cluster_word = args.cluster.as_deref().unwrap_or(CLUSTER);
        let model = Transformer::read(model_word)?;
        let cluster = Cluster::read(cluster_word)?;
        let seq = args.seq.unwrap_or(SEQ);
        let gpus = args.gpus.unwrap_or(cluster.node.gpus);
        let batch = args.batch.unwrap_or(gpus);
        let sizes =
            [("gpus", u64::from(gpus)), ("batch", args.batch.map_or(1, u64::from)), ("seq", seq)];
        let empty = sizes.iter().filter(|(_, size)| *size == 0);
        let fault = |(what, _): &(&str, u64)| ConfigError::value(*what, "is 0", "Give at least 1");
        let mut faults: Vec<ConfigError> = empty.map(fault).collect();
        if gpus > GPUS {
            let why = format!("{gpus} are more than a search takes");
            faults.push(ConfigError::value("gpus", why, format!("Use at most {GPUS}")));
        }
        ConfigError::collect(faults)?;
        let space = Space { model, gpus, batch, seq, precision: args.precision };
        let (model, cluster_word) = (model_word.to_owned(), cluster_word.to_owned());
        Ok(Self { model, cluster_word, space, cluster })
    }

    /// The command that predicts a layout again.
    fn repeat(&self, cut: &Cut) -> String {
        format!(
            "shardlab simulate --model {} --cluster {} {}",
            quoted(&self.model),
            quoted(&self.cluster_word),
            self.space.flags(cut)
        )
    }

    fn nothing_fits(&self, found: &Found) -> ConfigError {
        let Self { model, space, cluster, .. } = self;
        let what = format!("{model} on {} of {}", counted(space.gpus, "GPU"), cluster.name);
        if let Some((cut, bytes)) = &found.smallest {
            let why = format!(
                "no layout fits: the smallest, {cut}, needs {} of a GPU, and a step may take {}",
                Bytes(*bytes as u64),
                usable(cluster.gpu.memory_gb)
            );
            let remedy = "Use more --gpus, a --cluster with more memory, or a shorter --seq";
            return ConfigError::value(what, why, remedy);
        }
        let most = found.refused.iter().max_by_key(|refused| refused.count);
        let example = most.map_or("", |refused| &refused.example);
        let why =
            format!("all {} layouts are refused, most as in: {example}", found.counts.refused);
        let remedy = "Use --gpus and a --batch that have more divisors";
        ConfigError::value(what, why, remedy)
    }
}

/// A word as it is typed in a command.
fn quoted(word: &str) -> String {
    if word.contains(char::is_whitespace) { format!("\"{word}\"") } else { word.to_owned() }
}

/// What is printed.
struct Answer<'a> {
    question: &'a Question,
    found: &'a Found,
    why: Option<Comparison>,
    repeat: Option<String>,
}

/// A loss of the second best in JSON.
#[derive(Debug, Serialize)]
struct Loss {
    part: &'static str,
    seconds: f64,
}

impl Answer<'_> {
    fn json(&self) -> Value {
        let Found { best, front, counts, refused, is_complete, .. } = self.found;
        let losses = |why: &Comparison| -> Vec<Loss> {
            why.losses().into_iter().map(|(part, seconds)| Loss { part, seconds }).collect()
        };
        json!({
            "model": self.question.model,
            "cluster": self.question.cluster.name,
            "gpus": self.question.space.gpus,
            "batch": self.question.space.batch,
            "seq": self.question.space.seq,
            "counts": counts,
            "refused": refused,
            "best": best,
            "front": front,
            "second_loses": self.why.as_ref().map(losses),
            "repeat": self.repeat,
            "complete": is_complete,
            "badges": {
                "counts": Badge::Counted,
                "step_seconds": Badge::Predicted,
                "memory_bytes": Badge::Predicted,
                "mfu": Badge::Predicted,
                "second_loses": Badge::Predicted,
            },
        })
    }

    fn text(&self) -> String {
        let Question { model, space, cluster, .. } = self.question;
        let Found { best, front, counts, refused, is_complete, .. } = self.found;
        let mut lines = vec![
            format!(
                "{model} on {} of {} · {} of {}",
                counted(space.gpus, "GPU"),
                cluster.name,
                counted(space.batch, "row"),
                space.seq
            ),
            String::new(),
            fates(counts),
        ];
        lines.extend(refused.iter().flat_map(refusal));
        lines.push(String::new());
        if !is_complete {
            lines.push("interrupted: the best so far".into());
        }
        if !best.is_empty() {
            let count = best.len();
            lines.push(format!("the {count} fastest: step, memory of a GPU and MFU  {PREDICTED}"));
            lines.push(LEGEND.into());
            lines.extend(table(best));
            lines.push(String::new());
            lines.extend(front_lines(front));
            lines.push(String::new());
        }
        if let (Some(why), [first, second, ..]) = (&self.why, &**best) {
            lines.push(loses(first, second, why));
        }
        if let Some(repeat) = &self.repeat {
            lines.push(format!("the best again: {repeat}"));
        }
        lines.join("\n") + "\n"
    }
}

const PREDICTED: &str = Badge::Predicted.word();

impl<'a> From<&'a Candidate> for Row<'a> {
    fn from(candidate: &'a Candidate) -> Self {
        let Candidate { cut, step_seconds, memory_bytes, mfu } = candidate;
        let memory = Bytes(*memory_bytes as u64).to_string();
        Self { cut, seconds: *step_seconds, memory, mfu: Some(*mfu) }
    }
}

/// What less memory costs, and where the list ends.
fn front_lines<'a, T>(front: &'a [T]) -> Vec<String>
where
    Row<'a>: From<&'a T>,
{
    let head = format!("less memory costs time: no other layout beats these in both  {PREDICTED}");
    let end = format!("(the list ends at {SLOWEST} times the step of the best)");
    [head].into_iter().chain(table(front)).chain([end]).collect()
}

/// What has become of all layouts.
fn fates(counts: &Counts) -> String {
    let Counts { enumerated, refused, bounded, simulated, open } = counts;
    let mut line = format!(
        "{enumerated} layouts: {refused} refused, {bounded} bounded away, {simulated} simulated"
    );
    if *open > 0 {
        line += &format!(", {open} not looked at");
    }
    line + "  " + Badge::Counted.word()
}

/// Why layouts were refused, with the first of them beside or below.
fn refusal(refused: &Refused) -> Vec<String> {
    let Refused { reason, count, example } = refused;
    let why = format!("  {count:>9}  {:<29}", reason.words());
    if why.chars().count() + example.chars().count() <= 100 {
        return vec![why + example];
    }
    let (layout, needs) = example.rsplit_once(": ").unwrap_or((example, ""));
    vec![why + needs, format!("{:13}{layout}", "")]
}

/// Why the second of two layouts is the second.
fn loses(first: &Candidate, second: &Candidate, why: &Comparison) -> String {
    let difference = second.step_seconds - first.step_seconds;
    if difference == 0.0 {
        return "the second is as fast; it comes second because it takes no less memory".into();
    }
    let losses = why.losses();
    let all: f64 = losses.iter().map(|(_, seconds)| seconds.abs()).sum();
    // Parts below a percent of what moves are left out.
    let told = losses.iter().filter(|(_, seconds)| seconds.abs() > 0.01 * all);
    let told: Vec<String> = told
        .map(|(part, by)| {
            let sign = if *by < 0.0 { '−' } else { '+' };
            format!("{part} {sign}{}", step_time(by.abs()))
        })
        .collect();
    format!(
        "the second loses {} on a mean rank: {}  {PREDICTED}",
        step_time(difference),
        told.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::args::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    fn question(flags: &str) -> Result<Question, String> {
        let words = ["shardlab", "search"].into_iter().chain(flags.split_whitespace());
        let Some(Command::Search(args)) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("search was asked for")
        };
        Question::of(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_a_node_and_a_row_a_gpu() {
        let space = question("--model llama-3-8b").unwrap().space;
        assert_eq!((space.gpus, space.batch, space.seq), (8, 8, 4096));
        let error = question("--gpus 0 --batch 0").err().unwrap();
        assert_eq!(error.lines().count(), 2, "{error}");
        assert!(error.contains("gpus: is 0. Give at least 1"), "{error}");
        let error = question("--gpus 1000000").err().unwrap();
        assert!(error.contains("Use at most 131072"), "{error}");
    }

    #[test]
    fn what_the_second_loses_adds_up_and_small_parts_are_left_out() {
        use crate::predict::StepParts;
        let cut = |microbatch_rows| Cut {
            tp: 1,
            pp: 1,
            dp: 1,
            chunks: 1,
            microbatch_rows,
            zero: crate::config::ZeroStage::Zero0,
            recompute: crate::config::Recompute::None,
            sequence_parallel: false,
            schedule: crate::config::ScheduleName::OneFOneB,
        };
        let candidate = |rows, step_seconds| Candidate {
            cut: cut(rows),
            step_seconds,
            memory_bytes: 1e9,
            mfu: 0.5,
        };
        let faster = StepParts { compute: 1.0, waiting: 0.5, ..StepParts::default() };
        let slower =
            StepParts { compute: 1.7, waiting: 0.3, optimizer: 0.001, ..StepParts::default() };
        let why = Comparison { faster, slower };
        let line = loses(&candidate(1, 1.5), &candidate(2, 2.001), &why);
        let expected = "the second loses 501.0 ms on a mean rank: compute +700.0 ms, \
                        waiting −200.0 ms  PREDICTED";
        assert_eq!(line, expected);
    }
}
