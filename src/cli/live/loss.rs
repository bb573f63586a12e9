//! How training goes in one line: loss, target, step, speed, time left.

use crate::cli::text::{Charset, Line, Style, duration};
use crate::trace::Badge;
use crate::units::grouped;

/// Fewest and most columns of the curve.
const CURVE: (usize, usize) = (5, 24);

/// The loss that a run must get under.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossTarget {
    /// Nats a byte.
    pub loss: f64,
    /// Whether the held-out loss is under it.
    pub reached: bool,
}

/// How training goes.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Steps that have been trained.
    pub step: u64,
    /// Steps that will have been trained at the end.
    pub steps: u64,
    /// Loss of every step so far.
    pub losses: &'a [f64],
    /// What it must get under, if anything.
    pub target: Option<LossTarget>,
    /// Tokens a second, over the last steps.
    pub tokens_per_sec: Option<f64>,
    /// Seconds until the end, as things go.
    pub seconds_left: Option<f64>,
}

/// The loss line of the live view.
pub(super) fn line(progress: &Progress<'_>, columns: usize, charset: Charset) -> Line {
    let fields = Fields::of(progress, charset);
    let fixed = |fields: &[&Line]| fields.iter().map(|field| field.width()).sum::<usize>();
    let Fields { first, last, target, step, speed, left } = &fields;
    // What goes first where it does not fit: the speed, the target, the curve, the time left.
    let tails: [&[&Line]; 5] =
        [&[target, step, speed, left], &[target, step, left], &[step, left], &[step], &[]];
    let mut line = Line::new(charset);
    for tail in &tails[..3] {
        let curve = columns.checked_sub(fixed(tail) + first.width() + last.width() + 2);
        if let Some(curve) = curve.filter(|curve| *curve >= CURVE.0) {
            let curve = curve.min(CURVE.1);
            line.append(first.clone()).text(" ");
            line.text(curve_of(progress, curve, charset)).text(" ").append(last.clone());
            tail.iter().for_each(|field| _ = line.append((*field).clone()));
            return line;
        }
    }
    line.text("loss ").append(last.clone());
    if let Some(tail) = tails.iter().find(|tail| line.width() + fixed(tail) <= columns) {
        tail.iter().for_each(|field| _ = line.append((*field).clone()));
    }
    line
}

/// The parts of the line, each as wide as it will ever be, so that nothing moves.
struct Fields {
    first: Line,
    last: Line,
    target: Line,
    step: Line,
    speed: Line,
    left: Line,
}

impl Fields {
    fn of(progress: &Progress<'_>, charset: Charset) -> Self {
        let field = |text: String| {
            let mut line = Line::new(charset);
            line.text(text);
            line
        };
        let loss = |loss: Option<&f64>| loss.map_or(String::new(), |loss| format!("{loss:.2}"));
        let Progress { step, steps, .. } = progress;
        let mut target = field(String::new());
        if let Some(LossTarget { loss, reached }) = progress.target {
            target.text(format!("  target < {loss:.2} "));
            target.push(Style::Good, if reached { "✓" } else { " " });
        }
        let speed = progress.tokens_per_sec.map_or(String::new(), |speed| {
            format!("  {:>6} tok/s", grouped(speed.max(0.0).round() as u64))
        });
        let left = progress.seconds_left.map_or(String::new(), |left| {
            // Tenths of a second would only flicker.
            let left = if left < 9.5 { format!("{:.0} s", left.max(0.0)) } else { duration(left) };
            format!("  {left:>4} left")
        });
        Self {
            first: field(format!("loss {:>4}", loss(progress.losses.first()))),
            last: field(format!("{:>4}", loss(progress.losses.last()))),
            target,
            step: field(format!("   step {step:>width$}/{steps}", width = steps.to_string().len())),
            speed: field(speed),
            left: field(left),
        }
    }
}

/// The losses as a curve of `columns` characters; the target lies at its bottom.
fn curve_of(progress: &Progress<'_>, columns: usize, charset: Charset) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII_LEVELS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let losses = progress.losses;
    let finite = || losses.iter().copied().filter(|loss| loss.is_finite());
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let low = finite().chain(progress.target.map(|target| target.loss)).fold(high, f64::min);
    let shown = losses.len().min(columns);
    let level = |index: usize| {
        let bucket = &losses[index * losses.len() / shown..(index + 1) * losses.len() / shown];
        let mean = bucket.iter().sum::<f64>() / bucket.len() as f64;
        let level = ((mean - low) / (high - low) * 7.0).round();
        match charset {
            _ if !mean.is_finite() => '!',
            // All losses are equal.
            _ if !level.is_finite() => {
                if charset == Charset::Utf8 {
                    '▁'
                } else {
                    '_'
                }
            }
            Charset::Utf8 => LEVELS[level as usize],
            Charset::Ascii => ASCII_LEVELS[level as usize],
        }
    };
    let curve: String = (0..shown).map(level).collect();
    format!("{curve:<columns$}")
}

/// Whether a run without a terminal tells its progress after `step`: ten times in all.
pub fn tells_progress(step: u64, steps: u64) -> bool {
    step > 0 && (step * 10 / steps.max(1) > (step - 1) * 10 / steps.max(1))
}

/// One line of progress for a log.
///
/// ```
/// use shardlab::cli::live::{Progress, progress_line};
/// let losses = [5.55, 4.1];
/// let progress = Progress {
///     step: 20, steps: 200, losses: &losses, target: None,
///     tokens_per_sec: Some(20_100.0), seconds_left: Some(37.0),
/// };
/// assert_eq!(progress_line(&progress),
///            "step  20/200  loss 4.1000  20,100 tokens/s MEASURED  37 s left");
/// ```
pub fn progress_line(progress: &Progress<'_>) -> String {
    let Progress { step, steps, losses, tokens_per_sec, seconds_left, .. } = progress;
    let mut line = format!("step {step:>width$}/{steps}", width = steps.to_string().len());
    if let Some(loss) = losses.last() {
        line += &format!("  loss {loss:.4}");
    }
    if let Some(speed) = tokens_per_sec {
        let (speed, badge) = (speed.max(0.0).round() as u64, Badge::Measured.word());
        line += &format!("  {} tokens/s {badge}", grouped(speed));
    }
    if let Some(left) = seconds_left.filter(|_| step < steps) {
        line += &format!("  {} left", duration(left));
    }
    line
}
