//! What is on the screen, shared by all parts of the window and changed by none of them.
//!
//! A part reads a [`Shared`] and returns [`Command`]s; the app alone obeys them. So one pointer, one
//! playhead and one selection are the same everywhere, in the same frame.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use shardlab::config::Scenario;
use shardlab::mesh::Rank;
use shardlab::search::Cut;
use shardlab::trace::bubble::{Bubble, bubble};
use shardlab::trace::draw::axis::TimeAxis;
use shardlab::trace::draw::playback::slow_motion;
use shardlab::trace::draw::scene::Point;
use shardlab::trace::draw::shortest_forward;
use shardlab::trace::draw::timeline::{Arrows, Target, Timeline};
use shardlab::trace::{Span, Trace};
use shardlab::train::driver::Facts;
use shardlab::train::faults::Fault;
use shardlab::units::Nanos;

use crate::app::{Choice, Control, Half};
use crate::broken::{Broken, Under};
use crate::export::order::Order;
use crate::keys::Action;
use crate::play::{OnScreen, Play};
use crate::run::Run;
use crate::saved::Saved;
use crate::zones::Dividers;

/// A step that was laid out for the screen.
#[derive(Debug)]
pub struct Step {
    /// All that does not change from step to step.
    pub facts: Arc<Facts>,
    /// Rows of blocks.
    pub timeline: Arc<Timeline>,
    /// How much of it is waiting.
    pub bubble: Bubble,
    /// The steps whose medians it takes, as they were measured, itself the last: kept as long as it is
    /// shown, whatever the run has forgotten meanwhile.
    pub recent: Vec<Arc<Trace>>,
}

impl Step {
    /// Prepares a step of a run.
    pub fn new(facts: &Arc<Facts>, trace: Trace, recent: Vec<Arc<Trace>>) -> Self {
        let memory: Vec<_> = facts.ledger.ranks.iter().map(|rank| rank.memory.at_peak).collect();
        let bubble = bubble(&facts.plan, &trace);
        let plan = Arc::clone(&facts.plan);
        let timeline = Timeline::new(plan, &facts.order, Arc::new(trace), &memory);
        Self { facts: Arc::clone(facts), timeline: Arc::new(timeline), bubble, recent }
    }

    /// The same as it was measured.
    pub fn measured(&self) -> Option<&Arc<Trace>> {
        self.recent.last()
    }

    /// Which step, 0-based.
    pub fn number(&self) -> u64 {
        self.timeline.trace().step
    }

    /// What playback must know of it.
    pub fn on_screen(&self) -> OnScreen {
        let length = self.timeline.end();
        let blocks = self.timeline.ranks().iter().flat_map(|rank| self.timeline.blocks(*rank));
        let shortest = shortest_forward(blocks).unwrap_or(length);
        OnScreen { step: self.number(), length, slow_motion: slow_motion(length, shortest) }
    }
}

/// What the window is for just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workspace {
    /// The run, step by step.
    #[default]
    Watch,
    /// Two steps, one above the other.
    Compare,
    /// A step on a cluster that one does not have.
    Plan,
}

impl Workspace {
    /// All of them, from left to right.
    pub const ALL: [Self; 3] = [Self::Watch, Self::Compare, Self::Plan];

    /// What stands on its tab.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watch => "Watch",
            Self::Compare => "Compare",
            Self::Plan => "Plan",
        }
    }

    /// What it shows, in one line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Watch => "The run, step by step (F2).",
            Self::Compare => "Two steps on one time scale, and their difference (F3).",
            Self::Plan => "A step on a cluster that one does not have, predicted (F4).",
        }
    }
}

/// What is looked at, besides the step itself.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// What the pointer is over.
    pub hover: Option<Target>,
    /// What was chosen.
    pub selection: Option<Target>,
    /// The part of the step that is as wide as the timeline; `None`: all of it.
    pub window: Option<Span>,
    /// A stretch of time that was marked.
    pub marked: Option<Span>,
    /// Pipeline positions whose ranks have rows of their own.
    pub open: BTreeSet<u32>,
    /// Rows that are scrolled away above, in points.
    pub scroll: f32,
    /// What is brought into sight with the next frame, where rows are scrolled.
    pub reveal: Option<Revealed>,
    /// Which dependencies are drawn: all while their key is held.
    pub arrows: Arrows,
}

/// Something that is brought into sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revealed {
    /// The rows of a position, from its heading on.
    Rows(u32),
    /// The row of a rank.
    Rank(Rank),
}

impl Sight {
    /// Opens the rows of a position, or closes them.
    pub fn unfold(&mut self, position: u32) {
        if self.open.remove(&position) {
            self.scroll = 0.0;
        } else {
            self.open.insert(position);
            self.reveal = Some(Revealed::Rows(position));
        }
    }
}

/// The rank that a target is about.
pub fn rank_of(target: Target) -> Option<Rank> {
    match target {
        Target::Link { from, .. } => Some(from),
        other => other.rank(),
    }
}

/// All that the parts of the window may read.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// The run.
    pub run: &'a Run,
    /// Playback.
    pub play: &'a Play,
    /// The step on the screen; `None` before the first.
    pub step: Option<&'a Step>,
    /// Its time axis.
    pub axis: TimeAxis,
    /// Pointer, selection and window of time.
    pub sight: &'a Sight,
    /// The step that runs, 0-based, once it has run for so long that it should be seen.
    pub running: Option<u64>,
    /// Whole seconds that are spent on what is being prepared, while the run starts.
    pub starting: Option<u64>,
    /// What is broken on purpose.
    pub broken: &'a Broken,
    /// The step as it is predicted for this machine, if it is.
    pub predicted: Option<&'a Trace>,
}

impl<'a> Shared<'a> {
    /// What is spoken of: under the pointer, else chosen.
    pub fn target(&self) -> Option<Target> {
        self.sight.hover.or(self.sight.selection)
    }

    /// The name of the scenario.
    pub fn scenario(&self) -> &'a Scenario {
        self.run.scenario()
    }
}

/// What a part of the window asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// An action that a key does as well.
    Do(Action),
    /// The playhead at an instant of the shown step.
    Seek(Nanos),
    /// Another step on the screen.
    SeekStep(u64),
    /// The pointer is over something, or nothing.
    Hover(Option<Target>),
    /// Something is chosen, or nothing.
    Select(Option<Target>),
    /// A stretch of time is marked, or none.
    Mark(Option<Span>),
    /// This part of the step as wide as the timeline; `None`: all of it.
    Window(Option<Span>),
    /// The rows of a pipeline position are opened or closed.
    Unfold(u32),
    /// Rows are scrolled to so many points.
    Scroll(f32),
    /// A divider was dragged.
    Divide(Dividers),
    /// A tab on the left, by its number.
    OpenLeft(usize),
    /// A tab on the right, by its number.
    OpenRight(usize),
    /// A tab as large as the window has room for, or as before.
    Maximise(Side),
    /// The numbers of the collective to which an instruction belongs, from the step that runs next.
    Capture((Rank, u32)),
    /// Another run.
    Train(Box<Scenario>),
    /// The run and the view of a file, with lines of what was left out of it.
    Open(Box<Saved>, Vec<String>),
    /// Something is broken on purpose, in place of what is broken in the same way.
    Break(Fault),
    /// What is broken in the same way is mended; `None`: everything.
    Mend(Option<Fault>),
    /// The optimizer under which faults are looked at.
    Under(Under),
    /// What can be done to something in a picture, at this point; `None`: wherever there is room.
    Menu(Target, Option<Point>),
    /// What is over the window is opened, or closed if it is open already.
    Toggle(Popup),
    /// What is over the window is closed.
    Close,
    /// A line for the person.
    Tell(String),
    /// A file for other programs or people.
    Export(Box<Order>),
    /// The path of the last export, to be pasted elsewhere.
    CopyPath,
    /// What was asked for in one of the two timelines that are compared.
    Within(Half, Box<Self>),
    /// Something else in one of them.
    Choose(Half, Choice),
    /// What was asked for in the predicted timeline.
    Foreseen(Box<Self>),
    /// A control of Plan that keys change from now on.
    Control(Control),
    /// A layout of the front in Plan.
    Cut(Box<Cut>),
    /// Another setting of a control of Plan.
    Wish(Control, usize),
    /// A schedule from a file: checked and explained.
    OpenSchedule(PathBuf),
}

/// News for the person, in the line that explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What is said.
    pub text: String,
    /// How it is meant.
    pub tone: Tone,
}

/// How something is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Plain,
    /// Not as it was asked for.
    Warning,
    /// It failed.
    Error,
}

impl Notice {
    /// Something has failed.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Error }
    }
}

impl<T: Into<String>> From<T> for Notice {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }
}

/// A side of the lower band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Wires, memory and what else has the wide part.
    Left,
    /// Loss and details.
    Right,
}

/// What can lie over the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popup {
    /// The list of scenarios.
    Scenarios,
    /// The split of the run.
    Split,
    /// All actions by name.
    Palette,
    /// All keys.
    Help,
    /// A path to open.
    Open,
    /// A path to save to.
    Save,
    /// An export.
    Export,
    /// What can be broken in a rank or a wire.
    Break,
    /// What one of the two timelines can show that are compared.
    Half(Half),
    /// A layout for one of them.
    SplitOf(Half),
    /// The path of a schedule to open.
    OpenSchedule,
    /// A schedule that was opened.
    Schedule,
}
