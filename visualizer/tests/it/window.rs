//! The window under test, and recorded runs that it shows: each is trained once.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eframe::egui;
use eframe::egui_wgpu::RenderState;
use egui::accesskit::Role;
use egui::{Key, Modifiers, Pos2, Rect, ViewportId, pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use egui_kittest::wgpu::WgpuTestRenderer;
use shardlab::config::{Layout, Model, ModelSource, Scenario, Training};
use shardlab::exec::{DeviceKind, ExecOptions};
use shardlab::train::Options;
use shardlab::train::driver::{Driver, Event, Setup};
use shardlab::units::Bytes;
use shardlab_visualizer::app::{App, Source, Start};
use shardlab_visualizer::audit::Audit;
use shardlab_visualizer::presets;
use shardlab_visualizer::saved::View;
use shardlab_visualizer::shown::Command;
use shardlab_visualizer::style::{Distance, Scheme};

/// Steps of a recording.
pub(crate) const STEPS: u64 = 12;

/// The quickstart with a tiny model: 8 ranks.
pub(crate) fn eight_ranks() -> Scenario {
    let quickstart = presets::quickstart();
    Scenario {
        model: ModelSource::Sizes(Model::preset("tiny").unwrap()),
        training: Training { steps: STEPS, batch: 16, seq: 16, ..quickstart.training },
        ..quickstart
    }
}

/// 4 × 4 × 4.
pub(crate) fn sixty_four_ranks() -> Scenario {
    let small = eight_ranks();
    let layout = Layout { dp: 4, tp: 4, pp: 4, ..small.layout };
    let training = Training { steps: 3, ..small.training };
    Scenario { name: "64 ranks".into(), layout, training, ..small }
}

/// What a run tells, from its start to its end.
fn record(scenario: Scenario) -> Vec<Event> {
    let driver = Driver::start(Setup::new(scenario, Options::on_cpu()), || {}).unwrap();
    let mut events = Vec::new();
    loop {
        let event = driver.wait_event(Duration::from_secs(60)).expect("the run goes on");
        let is_over = matches!(event, Event::Done { .. });
        assert!(!matches!(event, Event::Failed(_)), "{event:?}");
        events.push(event);
        if is_over {
            return events;
        }
    }
}

/// A recorded run.
pub(crate) fn recording(scenario: &Scenario) -> &'static [Event] {
    static EIGHT: OnceLock<Vec<Event>> = OnceLock::new();
    static SIXTY_FOUR: OnceLock<Vec<Event>> = OnceLock::new();
    let recording = if scenario.layout.dp == 4 { &SIXTY_FOUR } else { &EIGHT };
    recording.get_or_init(|| record(scenario.clone()))
}

/// What a window is opened with.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) size: (f32, f32),
    pub(crate) pixels_per_point: f32,
    pub(crate) scheme: Scheme,
    pub(crate) distance: Distance,
    pub(crate) scenario: Scenario,
    /// What the device of every rank calls itself; the CPU if absent.
    pub(crate) adapter: Option<String>,
    /// What a rank may hold.
    pub(crate) memory_cap: Option<Bytes>,
    /// What paints it; a software adapter if absent.
    pub(crate) painter: Option<RenderState>,
    /// All else that it opens with.
    pub(crate) view: View,
    /// Where it keeps what is done.
    pub(crate) store: Option<PathBuf>,
}

impl Default for Opened {
    fn default() -> Self {
        Self {
            size: (1280.0, 800.0),
            pixels_per_point: 1.0,
            scheme: Scheme::Light,
            distance: Distance::Desk,
            scenario: eight_ranks(),
            adapter: None,
            memory_cap: None,
            painter: None,
            view: View::default(),
            store: None,
        }
    }
}

/// A window whose run is told by the test.
pub(crate) struct Window {
    pub(crate) harness: Harness<'static, Option<App>>,
}

/// A harness that starts the app in its first frame.
pub(crate) fn harness(
    start: Start,
    size: (f32, f32),
    pixels_per_point: f32,
    painter: Option<RenderState>,
) -> Harness<'static, Option<App>> {
    let is_foreign = is_foreign(&start.scenario.name);
    harness_with(start, (size, pixels_per_point), painter, is_foreign)
}

/// Whether a name has letters that the fonts of the app lack.
fn is_foreign(name: &str) -> bool {
    name.chars().any(|letter| letter >= '\u{530}')
}

/// The same, where names may have letters that the fonts of the app lack.
fn harness_with(
    start: Start,
    (size, pixels_per_point): ((f32, f32), f32),
    painter: Option<RenderState>,
    has_foreign_letters: bool,
) -> Harness<'static, Option<App>> {
    let mut start = Some(start);
    let show = move |ui: &mut egui::Ui, app: &mut Option<App>| {
        if let Some(start) = start.take() {
            *app = Some(App::new(ui.ctx(), start));
        }
        app.as_mut().expect("the app has been started").show(ui);
    };
    let mut builder = Harness::builder();
    if let Some(state) = painter {
        builder = builder.renderer(WgpuTestRenderer::from_render_state(state));
    }
    // The texts of the app itself have no sign that its fonts lack; the system has other letters.
    if has_foreign_letters {
        builder = builder.allow_missing_glyphs();
    }
    builder
        .with_size(vec2(size.0, size.1))
        .with_pixels_per_point(pixels_per_point)
        .with_max_steps(1)
        .with_step_dt(1.0 / 60.0)
        .build_ui_state(show, None)
}

impl Window {
    pub(crate) fn empty(opened: Opened) -> Self {
        let Opened {
            size,
            pixels_per_point,
            scheme,
            distance,
            scenario,
            adapter,
            memory_cap,
            painter,
            view,
            store,
        } = opened;
        let is_foreign = [Some(&scenario.name), adapter.as_ref()]
            .into_iter()
            .flatten()
            .any(|name| is_foreign(name));
        let exec = ExecOptions { memory_cap, ..ExecOptions::default() };
        let start = Start {
            scenario,
            options: Options { exec, ..Options::on_cpu() },
            view: View { scheme, distance, ..view },
            store,
            source: Source::Told,
            notes: Vec::new(),
        };
        let harness = harness_with(start, (size, pixels_per_point), painter, is_foreign);
        let mut window = Self { harness };
        window.audit().switch_on();
        // What somebody has measured of this machine changes no test.
        window.app_mut().calibrate_from("no calibration".into());
        window
    }

    /// A window that has been told a whole run, and shows its last step.
    pub(crate) fn open(opened: Opened) -> Self {
        let events = recording(&opened.scenario);
        let (name, adapter) = (opened.scenario.name.clone(), opened.adapter.clone());
        let mut window = Self::empty(opened);
        for event in events {
            window.tell(named(event.clone(), &name, adapter.as_deref()));
        }
        window.frames(3);
        assert!(window.app().step().is_some(), "a step is shown");
        window
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.app_mut().tell(event);
    }

    /// Does what a part of the window could ask for.
    pub(crate) fn ask(&mut self, command: Command) {
        let ctx = self.harness.ctx.clone();
        self.app_mut().ask(&ctx, command);
    }

    /// The record of texts.
    pub(crate) fn audit(&mut self) -> &mut Audit {
        self.app_mut().audit()
    }

    pub(crate) fn app_mut(&mut self) -> &mut App {
        self.harness.state_mut().as_mut().expect("started in the first frame")
    }

    pub(crate) fn frames(&mut self, count: usize) {
        self.harness.run_steps(count);
    }

    pub(crate) fn app(&self) -> &App {
        self.harness.state().as_ref().expect("started in the first frame")
    }

    /// Holds that nothing moves for so many frames and that none is asked for.
    #[track_caller]
    pub(crate) fn assert_stands_still(&mut self, frames: usize) {
        // Figures change four times a second at most: the last change comes late.
        self.frames(20);
        let delay = self.harness.output().viewport_output[&ViewportId::ROOT].repaint_delay;
        assert_eq!(delay, Duration::MAX, "no frame is asked for");
        let before = self.harness.render().unwrap().into_raw();
        self.frames(frames);
        assert!(self.harness.render().unwrap().into_raw() == before, "the picture is the same");
    }

    /// Presses a key and lets go.
    pub(crate) fn press(&mut self, modifiers: Modifiers, key: Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.frames(2);
    }

    pub(crate) fn hover(&mut self, x: f32, y: f32) {
        self.harness.hover_at(pos2(x, y));
        self.frames(2);
    }

    pub(crate) fn click(&mut self, at: Pos2) {
        self.harness.hover_at(at);
        self.harness.drag_at(at);
        self.harness.drop_at(at);
        self.frames(2);
    }

    /// Where all controls of a part of the window are.
    pub(crate) fn controls(&self, within: Rect) -> Vec<(Role, Rect)> {
        let nodes = self.harness.query_all_by(|node| {
            matches!(node.role(), Role::Button | Role::Slider | Role::ScrollBar)
        });
        let places = nodes.map(|node| (node.accesskit_node().role(), node.rect()));
        places.filter(|(_, rect)| within.contains_rect(*rect)).collect()
    }

    /// Whether a button can be pressed, by its name.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        !self.harness.get_by_role_and_label(Role::Button, name).accesskit_node().is_disabled()
    }

    /// Points at a button by its name; what the line that explains says of it.
    pub(crate) fn said_of(&mut self, name: &str) -> String {
        let at = self.harness.get_by_role_and_label(Role::Button, name).rect().center();
        self.hover(at.x, at.y);
        self.explanation()
    }

    /// The line that explains.
    pub(crate) fn explanation(&mut self) -> String {
        let written = self.audit().written().to_vec();
        let line: Vec<_> = written.iter().filter(|text| text.zone == "explanation").collect();
        // Buttons stand at its end; the line itself begins at its left edge.
        let first = line.iter().min_by(|a, b| a.label.area.left.total_cmp(&b.label.area.left));
        first.expect("the line is always there").label.full.clone()
    }
}

/// The same event of a run with another name, on another device.
fn named(event: Event, name: &str, adapter: Option<&str>) -> Event {
    match event {
        Event::Ready(facts) => {
            let mut facts = (*facts).clone();
            facts.scenario.name = name.to_owned();
            for device in facts.devices.iter_mut() {
                if let Some(adapter) = adapter {
                    (device.name, device.kind) = (adapter.to_owned(), DeviceKind::Discrete);
                }
            }
            Event::Ready(Arc::new(facts))
        }
        other => other,
    }
}
