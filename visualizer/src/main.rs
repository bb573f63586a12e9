//! The desktop app. Exit codes: 0 the window was closed, 2 usage or a scenario that cannot be used,
//! 3 no window can open here.

use std::process::ExitCode;

use clap::Parser as _;
use eframe::egui;
use shardlab_visualizer::app::{App, Source, Start};
use shardlab_visualizer::args::Args;
use shardlab_visualizer::saved::{self, Saved};
use shardlab_visualizer::style::Distance;
use shardlab_visualizer::{presets, texts};

fn main() -> ExitCode {
    let args = Args::parse();
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
    let asked = args.scenario().map_err(|error| error.to_string())?;
    let scenario = asked.or(saved.scenario).unwrap_or_else(presets::quickstart);
    let mut view = saved.view;
    if let Some(theme) = args.theme {
        view.scheme = theme.into();
    }
    if args.projector {
        view.distance = Distance::Room;
    }
    notes.truncate(3);
    let devices = args.device.clone();
    Ok(Start { scenario, devices, view, store, source: Source::Trained, notes })
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
