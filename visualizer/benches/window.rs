//! What the window costs: a frame of the default view, and the tokens a second that are left to the
//! training behind it.
//!
//! `cargo bench -p shardlab-visualizer --bench window [-- ROUNDS]`, on the adapter that a window would
//! find, a software one first. Frames are laid out, cut into triangles and painted as in a window, but
//! not shown: whatever brings them to a screen comes on top. Training alone and training behind the
//! window take turns; medians are compared. The window is to leave nine tenths. Between them it times
//! what a slider of Plan takes until its step is on the screen. Past either limit it ends with an error.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use eframe::egui;
use eframe::egui_wgpu::{RenderState, RendererOptions, ScreenDescriptor, WgpuConfiguration};
use eframe::wgpu;
use egui_kittest::wgpu::default_wgpu_setup;
use shardlab::train::{Options, Session};
use shardlab_visualizer::app::{App, Control, Source, Start};
use shardlab_visualizer::keys::Action;
use shardlab_visualizer::presets;
use shardlab_visualizer::run::State;
use shardlab_visualizer::saved::View;
use shardlab_visualizer::shown::{Command, Workspace};
use shardlab_visualizer::software::{Software, is_software};
use shardlab_visualizer::style::{Distance, Scheme};

const SIZE: [u32; 2] = [1280, 800];
const FRAMES: u32 = 60;
/// Steps before the clock runs, and while it does.
const WARM: u64 = 8;
const STEPS: u64 = 24;
const SHARE: f64 = 0.9;
/// Milliseconds until a slider has its prediction.
const PREDICTION: f64 = 100.0;

/// Time that all threads of this process have had a core, where the system tells, else the clock.
fn cpu(started: Instant) -> Duration {
    let read = std::fs::read_to_string("/proc/self/stat").ok();
    let ticks = read.and_then(|stat| {
        let fields: Vec<u64> = stat[stat.rfind(')')? + 2..]
            .split(' ')
            .map(|field| field.parse().unwrap_or_default())
            .collect();
        Some(fields.get(11)? + fields.get(12)?)
    });
    ticks.map_or(started.elapsed(), |ticks| Duration::from_millis(ticks * 10))
}

/// The app in a window that nobody sees.
struct Window {
    ctx: egui::Context,
    app: App,
    canvas: Canvas,
    /// When a frame is due that was asked for from outside.
    asked: Receiver<Instant>,
    opened: Instant,
}

/// What frames are painted on.
struct Canvas {
    state: RenderState,
    view: wgpu::TextureView,
}

impl Canvas {
    fn open() -> Result<Self, String> {
        let setup = default_wgpu_setup();
        let instance = pollster::block_on(setup.new_instance());
        let configuration = WgpuConfiguration { wgpu_setup: setup, ..Default::default() };
        let options = RendererOptions::default();
        let opened = RenderState::create(&configuration, &instance, None, options);
        let state = pollster::block_on(opened).map_err(|error| error.to_string())?;
        let [width, height] = SIZE;
        let texture = state.device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: state.target_format,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT,
            view_formats: &[],
        });
        let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
        Ok(Self { state, view })
    }

    fn paint(&self, ctx: &egui::Context, mut output: egui::FullOutput) {
        let RenderState { device, queue, renderer, .. } = &self.state;
        let screen = ScreenDescriptor { pixels_per_point: 1.0, size_in_pixels: SIZE };
        let primitives = ctx.tessellate(output.shapes, 1.0);
        let mut renderer = renderer.write();
        #[expect(clippy::iter_over_hash_type, reason = "textures are loaded in any order")]
        for (id, deltas) in output.textures_delta.set.drain() {
            for delta in deltas {
                renderer.update_texture(device, queue, id, &delta);
            }
        }
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let first = renderer.update_buffers(device, queue, &mut encoder, &primitives, &screen);
        let ops = wgpu::Operations {
            load: wgpu::LoadOp::Clear(wgpu::Color::WHITE),
            store: wgpu::StoreOp::Store,
        };
        let pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &self.view,
                resolve_target: None,
                ops,
                depth_slice: None,
            })],
            ..Default::default()
        });
        renderer.render(&mut pass.forget_lifetime(), &primitives, &screen);
        queue.submit(first.into_iter().chain([encoder.finish()]));
        let wait = wgpu::PollType::Wait { submission_index: None, timeout: None };
        device.poll(wait).expect("the adapter paints");
    }
}

impl Window {
    /// `paints_itself`: whether software adapters are painted on as in the app, or by egui's shader.
    fn open(source: Source, paints_itself: bool) -> Result<Self, String> {
        let canvas = Canvas::open()?;
        let ctx = egui::Context::default();
        if paints_itself && is_software(&canvas.state) {
            Software::install(&ctx, &canvas.state);
        }
        let (ask, asked) = channel();
        ctx.set_request_repaint_callback(move |info| {
            ask.send(Instant::now() + info.delay).ok();
        });
        let view = View { scheme: Scheme::Light, distance: Distance::Desk, ..View::default() };
        let (scenario, options) = (presets::quickstart(), Options::on_cpu());
        let start = Start { scenario, options, view, store: None, source, notes: Vec::new() };
        let app = App::new(&ctx, start);
        Ok(Self { ctx, app, canvas, asked, opened: Instant::now() })
    }

    /// Lays a frame out and paints it; when the next one is due.
    fn frame(&mut self) -> Instant {
        let begin = Instant::now();
        let size = egui::vec2(SIZE[0] as f32, SIZE[1] as f32);
        let input = egui::RawInput {
            screen_rect: Some(egui::Rect::from_min_size(egui::Pos2::ZERO, size)),
            time: Some(self.opened.elapsed().as_secs_f64()),
            ..Default::default()
        };
        let Self { ctx, app, .. } = self;
        let output = ctx.run_ui(input, |ui| app.show(ui));
        let delay = output.viewport_output.values().map(|view| view.repaint_delay).min();
        let seconds = begin.elapsed().as_secs_f32();
        self.app.mind_cost(&self.ctx, seconds, is_software(&self.canvas.state));
        self.canvas.paint(&self.ctx, output);
        begin + delay.unwrap_or_default().min(Duration::from_secs(1))
    }

    /// Shows frames as they are due until so many steps are trained.
    fn watch(&mut self, steps: u64) -> Result<u32, String> {
        let mut frames = 0;
        while self.app.run().trained() < steps {
            if let State::Failed(why) = self.app.run().state() {
                return Err(why.to_string());
            }
            let mut due = self.frame();
            frames += 1;
            while let Ok(asked) =
                self.asked.recv_timeout(due.saturating_duration_since(Instant::now()))
            {
                due = due.min(asked);
            }
        }
        Ok(frames)
    }
}

/// Milliseconds of a core that a frame costs on the default view, playing.
fn frame_cost(paints_itself: bool) -> Result<(), String> {
    let mut window = Window::open(Source::TrainedTo(4), paints_itself)?;
    while !matches!(window.app.run().state(), State::Held | State::Done) {
        window.app.listen();
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..10 {
        window.frame();
    }
    let before = cpu(window.opened);
    let begin = Instant::now();
    for _ in 0..FRAMES {
        window.frame();
    }
    let spent = (cpu(window.opened) - before).as_secs_f64() * 1e3 / f64::from(FRAMES);
    let clock = begin.elapsed().as_secs_f64() * 1e3 / f64::from(FRAMES);
    let how = if paints_itself { "as the app paints" } else { "with egui's shader" };
    println!("a frame {how}: {spent:.1} ms of a core, {clock:.1} ms by the clock");
    Ok(())
}

/// Milliseconds from a moved slider of Plan to the step that it asks for, on the screen: for 1,024 GPUs.
fn predictions() -> Result<f64, String> {
    let mut window = Window::open(Source::Told, true)?;
    let ask = |window: &mut Window, command: Command| {
        let begin = Instant::now();
        window.app.ask(&window.ctx, command);
        window.frame();
        while window.app.planned().is_predicting() {
            std::thread::sleep(Duration::from_millis(1));
            window.frame();
        }
        begin.elapsed().as_secs_f64() * 1e3
    };
    ask(&mut window, Command::Do(Action::Workspace(Workspace::Plan)));
    let settings = [
        (Control::NetworkBandwidth, 2),
        (Control::Latency, 2),
        (Control::Recompute, 2),
        (Control::Pipeline, 6),
        (Control::SlowRank, 2),
        (Control::Zero, 2),
    ];
    let times = settings.map(|(control, setting)| {
        let before = window.app.planned().wish().setting(control);
        let time = ask(&mut window, Command::Wish(control, setting));
        assert!(window.app.planned().faults().is_empty(), "{} is a step", control.name());
        ask(&mut window, Command::Wish(control, before));
        (control.name(), time)
    });
    let each = times.map(|(name, time)| format!("{name} {time:.0}")).join(", ");
    let middle = median(&mut times.map(|(_, time)| time));
    println!("a slider of Plan, 1,024 GPUs: {middle:.0} ms (limit {PREDICTION}): {each}");
    Ok(middle)
}

/// Tokens a second of training alone.
fn alone() -> Result<f64, String> {
    let told = |error: shardlab::train::TrainError| error.to_string();
    let mut session = Session::start(presets::quickstart(), Options::on_cpu()).map_err(told)?;
    let mut begin = Instant::now();
    for step in 0..WARM + STEPS {
        if step == WARM {
            begin = Instant::now();
        }
        session.step().map_err(told)?;
    }
    Ok(tokens() / begin.elapsed().as_secs_f64())
}

/// Tokens a second of training behind the window, and its frames a second.
fn watched() -> Result<(f64, f64), String> {
    let mut window = Window::open(Source::Trained, true)?;
    window.watch(WARM)?;
    let (first, begin) = (window.app.run().trained(), Instant::now());
    let frames = window.watch(first + STEPS)?;
    let (steps, seconds) = (window.app.run().trained() - first, begin.elapsed().as_secs_f64());
    Ok((tokens() * steps as f64 / STEPS as f64 / seconds, f64::from(frames) / seconds))
}

/// Tokens of the steps that are timed.
fn tokens() -> f64 {
    let training = presets::quickstart().training;
    f64::from(training.batch) * f64::from(training.seq) * STEPS as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), String> {
    let rounds = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(3);
    println!(
        "{} × {} pixels on {}",
        SIZE[0],
        SIZE[1],
        Canvas::open()?.state.adapter.get_info().name
    );
    frame_cost(false)?;
    frame_cost(true)?;
    let prediction = predictions()?;
    let (mut apart, mut behind, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (alone, (watched, frames)) = (alone()?, watched()?);
        println!(
            "alone {alone:.0} tokens/s, behind the window {watched:.0} at {frames:.1} frames a second"
        );
        apart.push(alone);
        behind.push(watched);
        ratios.push(watched / alone);
    }
    let share = median(&mut ratios);
    println!(
        "medians: {:.0} and {:.0} tokens/s; the window leaves {share:.2} (limit {SHARE})",
        median(&mut apart),
        median(&mut behind)
    );
    let mut slow = Vec::new();
    if prediction > PREDICTION {
        slow.push(format!("a slider takes {prediction:.0} ms, more than {PREDICTION}"));
    }
    if share < SHARE {
        slow.push(format!("the window leaves {share:.2} of the training, less than {SHARE}"));
    }
    if slow.is_empty() { Ok(()) } else { Err(slow.join("; ")) }
}
