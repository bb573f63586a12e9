//! The app: one run, one playback, one sight, and the parts of the window that show them.
//!
//! Each frame: events of the run are taken over, time passes, keys act, the parts are drawn from what
//! is known and return commands, and these are obeyed. `draw` is the frame, `obey` the commands,
//! `pace` how often a frame is due; nothing else changes the state of the app.

mod axis;
mod band;
mod breaking;
mod compare;
mod draw;
mod explain;
mod exporting;
mod figures;
mod keeping;
mod obey;
mod pace;
mod picture;
mod plan;
mod starting;
mod tile;
mod timeline;
mod top_bar;
mod transport;
mod watch;
mod window;

pub use compare::{Choice, Choices, Compare, Compared, Difference, Half, Held};
pub use picture::{Paper, Wanted};
pub use plan::{Control, Foreseen, Planning, Refusal, Wish};
pub use top_bar::Anchors;

use std::path::PathBuf;
use std::time::Duration;

use eframe::egui;
use shardlab::config::Scenario;
use shardlab::mesh::Rank;
use shardlab::trace::Trace;
use shardlab::trace::draw::axis::TimeAxis;
use shardlab::trace::draw::playback::Speed;
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::theme::Kind;
use shardlab::train::Options;
use shardlab::train::driver::Event;
use shardlab::train::faults::Fault;
use shardlab::units::Nanos;

use self::axis::SteadyAxis;
use self::exporting::Exporting;
use self::figures::Figures;
use self::keeping::Keeping;
use self::pace::Pace;
use self::starting::Starting;
use self::timeline::TimelinePart;
use crate::audit::Audit;
use crate::board::Desk;
use crate::broken::Broken;
use crate::here::Here;
use crate::keys::Keys;
use crate::over::{Asker, Over, system};
use crate::panels::{self, Panel};
use crate::play::Play;
use crate::run::Run;
use crate::saved::{Saved, View};
use crate::shown::{Command, Notice, Side, Sight, Step};
use crate::style::{Distance, Look, Scheme, fonts};
use crate::texts::Medium;
use crate::zones::{Dividers, Zones};

/// How soon a frame shows what the run has told.
const NEWS: Duration = Duration::from_millis(200);

/// What the app starts with.
#[derive(Debug)]
pub struct Start {
    /// What is trained.
    pub scenario: Scenario,
    /// What runs the ranks, and what each may hold.
    pub options: Options,
    /// What the window looks like.
    pub view: View,
    /// Where view and scenario are kept; nowhere if absent.
    pub store: Option<PathBuf>,
    /// Where the steps come from.
    pub source: Source,
    /// Lines for the person, of what happened before there was a window.
    pub notes: Vec<String>,
}

/// Times of a step that were recorded.
#[derive(Clone, Debug)]
pub struct Times {
    /// As if every rank had its own device.
    pub replayed: Trace,
    /// On the clock of the run, if that was recorded.
    pub measured: Option<Trace>,
}

/// Where steps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They are trained here.
    Trained,
    /// So many are trained here; then the run holds.
    TrainedTo(u64),
    /// They are told by whoever calls [`App::tell`].
    Told,
}

/// The app.
#[derive(Debug)]
pub struct App {
    desk: Desk,
    /// What is drawn just now: the window, or a picture of it.
    medium: Medium,
    keys: Keys,
    source: Source,
    options: Options,
    run: Run,
    broken: Broken,
    play: Play,
    step: Option<Step>,
    /// Times that are shown instead of those of the run.
    times: Option<Times>,
    axis: SteadyAxis,
    sight: Sight,
    view: View,
    keeping: Keeping,
    starting: Starting,
    figures: Figures,
    timeline: TimelinePart,
    compare: Compare,
    planning: Planning,
    here: Here,
    left: Vec<Box<dyn Panel>>,
    right: Vec<Box<dyn Panel>>,
    maximised: Option<Side>,
    /// Where time began to be marked by a key.
    marks_from: Option<Nanos>,
    over: Option<Over>,
    /// Who is asked for paths.
    asker: Asker,
    exporting: Exporting,
    /// A line for the person; gone with the next thing that is done.
    notice: Option<Notice>,
    /// The notice of the last frame, and where the pointer was when it came.
    news: (Option<Notice>, Option<egui::Pos2>),
    /// Whether playback waits for a step that was asked for while paused.
    awaits_step: bool,
    /// Something was broken or mended: the first step that runs so is awaited, which comes after the run
    /// has changed from what it was since this step.
    awaits_change: Option<u64>,
    /// When the first step of the run had ended.
    first_ended: Option<f64>,
    last_input: f64,
    /// How many steps were trained, and when that became so.
    trained_at: (u64, f64),
    pace: Pace,
    anchors: Anchors,
    /// Where everything lay in the last frame.
    zones: Zones,
    now: f64,
}

impl App {
    /// Starts the app and its run.
    pub fn new(ctx: &egui::Context, start: Start) -> Self {
        let Start { scenario, options, view, store, source, notes } = start;
        let keys = Keys::default();
        ctx.add_plugin(keys.clone());
        ctx.set_fonts(fonts());
        ctx.options_mut(|options| {
            // Zooming text by Ctrl and + would be a second size beside the projector's.
            options.zoom_with_keyboard = false;
        });
        let look = Look::new(kind(ctx, view.scheme), view.distance);
        look.apply(ctx);
        let run = begin(ctx, scenario, &options, Vec::new(), source);
        let mut app = Self {
            desk: Desk::new(look, Audit::default()),
            medium: Medium::Window,
            keys,
            source,
            options,
            run,
            broken: Broken::default(),
            play: Play::default(),
            step: None,
            times: None,
            axis: SteadyAxis::default(),
            sight: Sight::default(),
            view: View::default(),
            keeping: Keeping::at(store),
            starting: Starting::default(),
            figures: Figures::default(),
            timeline: TimelinePart::default(),
            compare: Compare::default(),
            planning: Planning::default(),
            here: Here::default(),
            left: panels::left(),
            right: panels::right(),
            maximised: None,
            marks_from: None,
            over: None,
            asker: system,
            exporting: Exporting::default(),
            notice: (!notes.is_empty()).then(|| notes.join("; ").into()),
            news: (None, None),
            awaits_step: false,
            awaits_change: None,
            first_ended: None,
            last_input: 0.0,
            trained_at: (0, 0.0),
            pace: Pace::default(),
            anchors: Anchors::default(),
            zones: Zones::of(Area::default(), Dividers::default(), 1.0),
            now: 0.0,
        };
        app.look_as(view);
        app
    }

    /// Takes over an event of a run that is told.
    pub fn tell(&mut self, event: Event) {
        self.run.absorb(event);
    }

    /// Takes over what the run and the judges have told, without a frame.
    pub fn listen(&mut self) {
        self.run.listen();
        self.broken.listen();
    }

    /// One frame: time passes, keys act, everything is drawn into `ui`.
    pub fn show(&mut self, ui: &mut egui::Ui) {
        self.advance(ui.ctx());
        self.frame(ui);
    }

    /// Shows these times in every step instead of those of the run: they must be of its Plan.
    pub fn freeze(&mut self, times: Times) {
        self.times = Some(times);
        self.bring(self.step.as_ref().map(Step::number));
    }

    /// Takes what was measured of this machine from a file.
    pub fn calibrate_from(&mut self, path: PathBuf) {
        self.here.calibrate_from(path);
    }

    /// Opens something of the shown step in a tab; an instruction whose numbers it lacks, if any.
    pub fn show_example(&mut self, side: Side, tab: usize) -> Option<(Rank, u32)> {
        let tabs = match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        };
        tabs.get_mut(tab)?.show_example(self.step.as_ref()?)
    }

    /// Asks for paths here instead of in a dialogue of the system.
    pub fn ask_for_paths(&mut self, asker: Asker) {
        self.asker = asker;
    }

    /// Does what a part of the window could ask for.
    pub fn ask(&mut self, ctx: &egui::Context, command: Command) {
        self.obey(ctx, command);
    }

    /// The run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What is broken on purpose.
    pub fn broken(&self) -> &Broken {
        &self.broken
    }

    /// What was chosen to be trained: what is broken on purpose may train it in another way.
    pub fn scenario(&self) -> &Scenario {
        self.broken.whole().unwrap_or(self.run.scenario())
    }

    /// Playback.
    pub fn play(&self) -> &Play {
        &self.play
    }

    /// The step on the screen.
    pub fn step(&self) -> Option<&Step> {
        self.step.as_ref()
    }

    /// Pointer, selection and window of time.
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// Choices that are kept.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What is compared.
    pub fn compared(&self) -> &Compare {
        &self.compare
    }

    /// What is planned.
    pub fn planned(&self) -> &Planning {
        &self.planning
    }

    /// Whether something is under way beside the window whose outcome will be shown.
    pub fn is_busy(&self) -> bool {
        self.compare.is_busy() || self.planning.is_busy() || self.here.is_busy()
    }

    /// What lies over the window.
    pub fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// Where everything lay in the last frame.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The time axis of the shown step.
    pub fn time_axis(&self) -> TimeAxis {
        self.axis.axis()
    }

    /// The side of the lower band that has all the room, if one has.
    pub fn maximised(&self) -> Option<Side> {
        self.maximised
    }

    /// Colours and sizes.
    pub fn look(&self) -> &Look {
        &self.desk.look
    }

    /// The record of texts; [`Audit::switch_on`] begins it.
    pub fn audit(&mut self) -> &mut Audit {
        &mut self.desk.audit
    }

    /// Scenario and view as a file keeps them.
    pub fn saved(&self) -> Saved {
        let view = View {
            while_paused: self.play.while_paused(),
            speed: self.play.chosen_speed().map(Speed::power),
            window: self.sight.window,
            marked: self.sight.marked,
            selection: self.sight.selection,
            unfolded: self.sight.open.clone(),
            compare: self.compare.choices(),
            plan: self.planning.wish().clone(),
            ..self.view.clone()
        };
        Saved { scenario: self.scenario().clone(), view: Some(view) }
    }

    /// Looks as a view says.
    fn look_as(&mut self, view: View) {
        if self.play.while_paused() != view.while_paused {
            self.play.toggle_while_paused();
        }
        self.play.choose_speed(view.speed.map(Speed::new));
        let (window, marked, selection) = (view.window, view.marked, view.selection);
        let open = view.unfolded.clone();
        self.sight = Sight { window, marked, selection, open, ..Sight::default() };
        self.compare.restore(view.compare.clone());
        self.planning.wish_for(view.plan.clone());
        self.view = view;
    }

    /// Trains the scenario of a file and looks at it as the file says.
    fn open(&mut self, ctx: &egui::Context, saved: Saved, left_out: &[String]) {
        self.train(ctx, saved.scenario);
        if let Some(view) = saved.view {
            self.look_as(view);
            self.dress(ctx);
        }
        self.notice = (!left_out.is_empty()).then(|| left_out.join("; ").into());
        self.keep();
    }

    /// Opens a file that was dropped onto the window.
    fn open_dropped(&mut self, ctx: &egui::Context) {
        let dropped = ctx.input_mut(|input| std::mem::take(&mut input.raw.dropped_files));
        let Some(file) = dropped.first() else { return };
        if file.path().extension().is_some_and(|end| end.eq_ignore_ascii_case("csv")) {
            let path = file.path().to_owned();
            self.obey(ctx, Command::OpenSchedule(path));
            return;
        }
        match Saved::read(file.path()) {
            Ok((saved, left_out)) => self.open(ctx, saved, &left_out),
            Err(why) => self.notice = Some(Notice::failure(why.replace('\n', "; "))),
        }
    }
}

/// Begins a run.
fn begin(
    ctx: &egui::Context,
    scenario: Scenario,
    options: &Options,
    faults: Vec<Fault>,
    source: Source,
) -> Run {
    let first = match source {
        Source::Trained => None,
        Source::TrainedTo(steps) => Some(steps),
        Source::Told => return Run::told(scenario).capped(options.exec.memory_cap),
    };
    let ctx = ctx.clone();
    // Soon enough: while a step plays, the next frame is due anyway, and no event adds one.
    let wake = move || ctx.request_repaint_after(NEWS);
    Run::start(scenario, Options { faults, ..options.clone() }, first, wake)
}

/// The theme that a scheme means here and now.
fn kind(ctx: &egui::Context, scheme: Scheme) -> Kind {
    match scheme {
        Scheme::Light => Kind::Light,
        Scheme::Dark => Kind::Dark,
        Scheme::Print => Kind::Print,
        Scheme::System => match ctx.system_theme() {
            Some(egui::Theme::Dark) => Kind::Dark,
            Some(egui::Theme::Light) | None => Kind::Light,
        },
    }
}

/// The other distance.
fn other(distance: Distance) -> Distance {
    match distance {
        Distance::Desk => Distance::Room,
        Distance::Room => Distance::Desk,
    }
}
