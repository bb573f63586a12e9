//! What is told while training runs: a picture in place, or plain lines where there is no terminal.
//!
//! Training only hands over what a step has measured. A thread of its own lays the last steps out,
//! draws them in slow motion and looks at the clock, so that training never waits for its picture.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::live::{
    self, Header, LiveState, LossTarget, Progress, live, progress_line, tells_progress,
};
use super::output;
use super::screen::InPlace;
use super::text::{Charset, Colour, Terminal};
use crate::exec::Clock;
use crate::plan::Plan;
use crate::plan::order::{Graph, Order};
use crate::sim;
use crate::trace::draw::axis::TimeAxis;
use crate::trace::draw::playback::{Speed, slow_motion, sweep};
use crate::trace::draw::{Block, blocks, shortest_forward};
use crate::trace::{Badge, Trace};
use crate::train::{Session, StepReport};
use crate::units::{Bytes, Nanos};

/// Steps over which the replayed clock takes its medians, and the speed its mean.
const RECENT: usize = 16;
/// Steps whose mean loss is held against the target.
const SMOOTH: usize = 8;
/// Steps after which the first picture is drawn, for the first step is slower than all others;
/// earlier where steps take long.
const SETTLED: usize = 3;
const PATIENCE: Nanos = Nanos(4_000_000_000);
/// How often the picture is looked at; it is drawn when a frame is due.
const TICK: Duration = Duration::from_millis(100);

/// What plain lines are drawn on.
const PAPER: Terminal =
    Terminal { width: 80, height: 24, charset: Charset::Utf8, colour: Colour::Off };

/// Tells how training goes until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    /// The thread that draws; `None` where lines are printed instead.
    painter: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    clock: Clock,
    /// Steps at the end of the run.
    steps: u64,
    target: Option<f64>,
    tokens_per_step: f64,
}

/// What training hands over.
#[derive(Debug, Default)]
struct State {
    /// Steps that are trained, and those that were before this run.
    step: u64,
    first: u64,
    losses: Vec<f64>,
    recent: VecDeque<Arc<Trace>>,
    over: bool,
}

impl Watch {
    /// Begins to tell about a session that goes on to `steps` steps.
    pub(super) fn start(session: &Session, steps: u64, target: Option<f64>) -> Self {
        let training = &session.scenario().training;
        let first = session.next_step();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { step: first, first, ..State::default() }),
            changed: Condvar::new(),
            clock: Clock::start(),
            steps,
            target,
            tokens_per_step: f64::from(training.batch) * f64::from(training.seq),
        });
        let painter = terminal().and_then(|_| {
            let painter = Painter::new(session, Arc::clone(&shared));
            Builder::new().name("picture".into()).spawn(move || painter.run()).ok()
        });
        if painter.is_none() {
            // What the picture would say above its rows.
            let (state, header) = (shared.lock(), header(session));
            let lines = shared.with_progress(&state, |progress| {
                live(&LiveState { header: &header, peaks: &[], shown: None, progress }, &PAPER)
            });
            lines.iter().take(2).for_each(output::progress);
        }
        Self { shared, painter }
    }

    /// Takes over what a step has measured.
    pub(super) fn step(&self, report: &StepReport) {
        let mut state = self.shared.lock();
        state.step = report.step + 1;
        state.losses.push(report.loss);
        if state.recent.len() == RECENT {
            state.recent.pop_front();
        }
        state.recent.push_back(Arc::clone(&report.trace));
        if self.painter.is_some() {
            self.shared.changed.notify_one();
        } else if tells_progress(state.step, self.shared.steps) {
            self.shared.with_progress(&state, |progress| output::progress(progress_line(progress)));
        }
    }

    /// Says a line, unless there is a picture that it would tear.
    pub(super) fn say(&self, line: &str) {
        if self.painter.is_none() {
            output::progress(line);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(painter) = self.painter.take() {
            painter.join().ok(); // a picture that failed is missed by nobody
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_progress<T>(&self, state: &State, tell: impl FnOnce(&Progress<'_>) -> T) -> T {
        let recent: f64 = state.recent.iter().map(|trace| trace.end().as_secs()).sum();
        let done = (state.step - state.first) as f64;
        let elapsed = Nanos(self.clock.now()).as_secs();
        let last = &state.losses[state.losses.len().saturating_sub(SMOOTH)..];
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        tell(&Progress {
            step: state.step,
            steps: self.steps,
            losses: &state.losses,
            target: self.target.map(|loss| LossTarget { loss, reached: mean < loss }),
            tokens_per_sec: (recent > 0.0)
                .then(|| self.tokens_per_step * state.recent.len() as f64 / recent),
            seconds_left: (done > 0.0)
                .then(|| elapsed / done * self.steps.saturating_sub(state.step) as f64),
        })
    }
}

/// The thread that draws.
struct Painter {
    shared: Arc<Shared>,
    header: Header,
    peaks: Vec<Bytes>,
    plan: Arc<Plan>,
    order: Arc<Order>,
    graph: Arc<Graph>,
    wires: sim::Wires,
    axis: Option<TimeAxis>,
}

/// A step on the screen.
struct Showing {
    /// Which step, 0-based.
    step: u64,
    length: Nanos,
    blocks: Vec<Vec<Block>>,
    speed: Speed,
    since: Nanos,
}

impl Painter {
    fn new(session: &Session, shared: Arc<Shared>) -> Self {
        let ledger = session.ledger();
        Self {
            shared,
            header: header(session),
            peaks: ledger.ranks.iter().map(|rank| rank.memory.peak()).collect(),
            plan: Arc::clone(session.plan()),
            order: Arc::clone(session.order()),
            graph: Arc::clone(session.graph()),
            wires: session.wires(),
            axis: None,
        }
    }

    fn run(mut self) {
        let mut screen = InPlace::new(io::stderr());
        let mut showing: Option<Showing> = None;
        loop {
            let (recent, over) = self.wait();
            let now = Nanos(self.shared.clock.now());
            showing = self.next(showing, &recent, over, now);
            let Some(terminal) = terminal() else { return };
            if !(over || screen.is_due(now)) {
                continue;
            }
            let lines = self.draw(showing.as_ref(), now, &terminal);
            // A terminal that is gone is looked at by nobody.
            if screen.draw_now(now, &lines, &terminal).is_err() || over {
                return;
            }
        }
    }

    /// Waits a moment; the last measured steps, and whether training is over.
    fn wait(&self) -> (Vec<Arc<Trace>>, bool) {
        let state = self.shared.lock();
        let waited = match state.over {
            true => state,
            false => {
                let waited = self.shared.changed.wait_timeout(state, TICK);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        (waited.recent.iter().map(Arc::clone).collect(), waited.over)
    }

    /// What is shown from now on: the same until its end, then the newest step; at the end of
    /// training the last one.
    fn next(
        &mut self,
        showing: Option<Showing>,
        recent: &[Arc<Trace>],
        over: bool,
        now: Nanos,
    ) -> Option<Showing> {
        let newest = recent.last()?.step;
        let settled = over || recent.len() >= SETTLED || now >= PATIENCE;
        match showing {
            None if !settled => None,
            Some(shown) if over && shown.step == newest => Some(shown),
            Some(shown)
                if !over && sweep(shown.speed, shown.length, now - shown.since).is_some() =>
            {
                Some(shown)
            }
            Some(shown) if shown.step == newest => Some(Showing { since: now, ..shown }),
            _ => self.lay_out(recent, now),
        }
    }

    /// The newest step, replayed with the medians of the last ones.
    fn lay_out(&mut self, recent: &[Arc<Trace>], now: Nanos) -> Option<Showing> {
        let traces: Vec<&Trace> = recent.iter().map(AsRef::as_ref).collect();
        let step = traces.last()?.step;
        let trace = sim::replay_medians(&self.plan, &self.graph, &traces, &self.wires);
        let blocks = blocks(&self.plan, &self.order, &trace);
        let length = trace.end();
        // The axis grows at once; it shrinks only where half of it would stay empty.
        let holds = |axis: TimeAxis| (length.0..=2 * length.0).contains(&axis.end.0);
        if !self.axis.is_some_and(holds) {
            self.axis = Some(TimeAxis::holding(length));
        }
        let speed =
            slow_motion(length, shortest_forward(blocks.iter().flatten()).unwrap_or(length));
        Some(Showing { step, length, blocks, speed, since: now })
    }

    fn draw(&self, showing: Option<&Showing>, now: Nanos, terminal: &Terminal) -> Vec<String> {
        let shown = showing.zip(self.axis).map(|(shown, axis)| live::Shown {
            step: shown.step + 1,
            badge: Badge::Replayed,
            speed: shown.speed,
            blocks: &shown.blocks,
            axis,
            sweep: sweep(shown.speed, shown.length, now - shown.since).unwrap_or(shown.length),
        });
        let state = self.shared.lock();
        self.shared.with_progress(&state, |progress| {
            let (header, peaks) = (&self.header, self.peaks.as_slice());
            live(&LiveState { header, peaks, shown, progress }, terminal)
        })
    }
}

/// What is being trained.
fn header(session: &Session) -> Header {
    let layout = &session.scenario().layout;
    let (device, why) = super::doctor::device_and_why(session);
    Header {
        mesh: layout.mesh(),
        device,
        why,
        zero: layout.zero,
        schedule: layout.schedule.title(),
        microbatches: layout.microbatches,
        params: session.model().parameter_count(),
    }
}

/// What stderr can show; `None` where it is no terminal that can be drawn on.
pub(super) fn terminal() -> Option<Terminal> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if !io::stderr().is_terminal() || variable("TERM") == "dumb" {
        return None;
    }
    let (width, height) = terminal_size::terminal_size_of(io::stderr())?;
    let colour = if variable("NO_COLOR").is_empty() { Colour::On } else { Colour::Off };
    Some(Terminal { width: width.0.into(), height: height.0.into(), charset: charset(), colour })
}

/// How this machine encodes characters: the first of the locale's variables that is set decides.
pub(super) fn charset() -> Charset {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .map(|name| std::env::var(name).unwrap_or_default())
        .into_iter()
        .find(|value| !value.is_empty());
    let utf8 = |locale: String| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    };
    // Without a locale: Windows and macOS write UTF-8, and so do files that are read later.
    if locale.is_none_or(utf8) { Charset::Utf8 } else { Charset::Ascii }
}
