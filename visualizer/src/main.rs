//! The desktop app. Exit codes: 0 the window was closed or the pictures are written, 1 the run or a
//! file failed, 2 usage or a scenario that cannot be used, 3 no window can open or be painted here.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use eframe::egui;
use shardlab::train::DeviceRequest;
use shardlab_visualizer::app::{App, Source, Start};
use shardlab_visualizer::args::{Args, Pictures, Theme};
use shardlab_visualizer::export::parts::Part;
use shardlab_visualizer::headless::{self, ShotError, Shots};
use shardlab_visualizer::saved::{self, Saved, View};
use shardlab_visualizer::style::Distance;
use shardlab_visualizer::{presets, texts};

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(folder) = &args.pictures.screenshot {
        return take_pictures(&args, folder);
    }
    let start = match start(&args) {
        Ok(start) => start,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if let Some(unset) = missing_display() {
        eprintln!("{}", texts::no_display(&unset));
        return ExitCode::from(3);
    }
    match show(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", why_no_window(&error));
            ExitCode::from(3)
        }
    }
}

/// What the app starts with: what was asked for, else what was open last.
fn start(args: &Args) -> Result<Start, String> {
    let store = if args.fresh { None } else { saved::path() };
    let (saved, mut notes) = match store.as_deref().map(Saved::read) {
        Some(Ok(read)) => read,
        // What cannot be read is told and replaced with the next change.
        Some(Err(why)) => (Saved::default(), vec![why]),
        None => (Saved::default(), Vec::new()),
    };
    let scenario = args.scenario()?.or(saved.scenario).unwrap_or_else(presets::quickstart);
    let mut view = saved.view;
    if let Some(theme) = args.theme {
        view.scheme = theme.into();
    }
    if args.projector {
        view.distance = Distance::Room;
    }
    notes.truncate(3);
    let devices = args.device.clone().unwrap_or_default();
    Ok(Start { scenario, devices, view, store, source: Source::Trained, notes })
}

/// Writes pictures instead of opening a window.
fn take_pictures(args: &Args, folder: &Path) -> ExitCode {
    let shots = match shots(args, folder) {
        Ok(shots) => shots,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let name = &shots.start.scenario.name;
    eprintln!("Training {} steps of {name}, to show step {}", shots.at, shots.at);
    match headless::take(shots, |path| println!("{}", path.display())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ShotError::Adapter(why)) => {
            eprintln!("{}", texts::no_adapter(&why));
            ExitCode::from(3)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}

/// What pictures are asked for. What was open last has no part in it: the same words give the same
/// pictures.
fn shots(args: &Args, folder: &Path) -> Result<Shots, String> {
    let Pictures { views, size, scale, at, .. } = &args.pictures;
    let parts = Part::named(views)?;
    let scenario = args.scenario()?.unwrap_or_else(presets::quickstart);
    let scheme = args.theme.unwrap_or(Theme::Light).into();
    let distance = if args.projector { Distance::Room } else { Distance::Desk };
    let view = View::new(scheme, distance);
    let devices = args.device.clone().unwrap_or_else(DeviceRequest::cpu);
    let source = Source::TrainedTo(*at);
    let start = Start { scenario, devices, view, store: None, source, notes: Vec::new() };
    let folder = folder.to_owned();
    Ok(Shots { start, at: *at, parts, size: *size, scale: *scale, folder })
}

/// The variables that name a display, where none of them is set.
fn missing_display() -> Option<Vec<&'static str>> {
    if !cfg!(all(unix, not(target_os = "macos"))) {
        return None;
    }
    let names = ["DISPLAY", "WAYLAND_DISPLAY"];
    let unset = |name: &&'static str| std::env::var_os(name).is_none_or(|value| value.is_empty());
    names.iter().all(unset).then(|| names.to_vec())
}

fn show(start: Start) -> eframe::Result {
    let viewport = egui::ViewportBuilder::default()
        .with_title(texts::title(&start.scenario))
        .with_app_id("shardlab-visualizer")
        .with_inner_size([1280.0, 800.0])
        .with_min_inner_size([800.0, 480.0]);
    let options = eframe::NativeOptions {
        viewport,
        renderer: eframe::Renderer::Wgpu,
        ..eframe::NativeOptions::default()
    };
    let create: eframe::AppCreator<'_> =
        Box::new(|creation| Ok(Box::new(App::new(&creation.egui_ctx, start))));
    eframe::run_native("shardlab-visualizer", options, create)
}

fn why_no_window(error: &eframe::Error) -> String {
    match error {
        eframe::Error::Wgpu(error) => texts::no_adapter(&error.to_string()),
        eframe::Error::Winit(_) | eframe::Error::WinitEventLoop(_) => texts::no_display(&[]),
        other => {
            format!("The window cannot open: {other}. The same step in this terminal: shardlab")
        }
    }
}
