//! The desktop app. Exit codes: 0 the window was closed or the pictures are written, 1 the run or a
//! file failed, 2 usage or a scenario that cannot be used, 3 no window can open or be painted here.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use eframe::egui;
use shardlab::train::DeviceRequest;
use shardlab_visualizer::app::{App, Source, Start};
use shardlab_visualizer::args::{Args, Pictures, Size};
use shardlab_visualizer::export::parts::Part;
use shardlab_visualizer::headless::{self, Painter, Run, ShotError, Shots, Take, Told};
use shardlab_visualizer::output::{self, Unwritten};
use shardlab_visualizer::saved::{self, Saved, View};
use shardlab_visualizer::software::{Software, is_software};
use shardlab_visualizer::style::{Distance, Scheme};
use shardlab_visualizer::{presets, texts};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refusal(code, why)) => {
            output::error(&why);
            ExitCode::from(code)
        }
    }
}

/// Writes the pictures that are asked for, else opens the window.
fn run(args: &Args) -> Result<(), Refusal> {
    match &args.pictures {
        Pictures { screenshot: Some(folder), .. } => return take_pictures(args, folder),
        Pictures { record: Some(path), .. } => return record(args, path),
        _ => {}
    }
    let start = start(args).map_err(Refusal::usage)?;
    if let Some(unset) = missing_display() {
        return Err(Refusal(3, texts::no_display(&unset)));
    }
    show(start).map_err(|error| Refusal(3, why_no_window(&error)))
}

/// What the app starts with: what was asked for, else what was open last.
fn start(args: &Args) -> Result<Start, String> {
    let store = if args.fresh { None } else { saved::path() };
    let last = store.as_deref().filter(|path| path.exists()).map(Saved::read);
    let (last, mut notes) = match last {
        Some(Ok((saved, notes))) => (Some(saved), notes),
        // What cannot be read is told and replaced with the next change.
        Some(Err(why)) => {
            let why = why.replace('\n', "; ");
            (None, vec![format!("What was open last cannot be used: {why}")])
        }
        None => (None, Vec::new()),
    };
    let last = last.unwrap_or_else(|| Saved::new(presets::quickstart()));
    let (asked, left_out) = args.opened()?.unzip();
    notes.extend(left_out.into_iter().flatten());
    let Saved { scenario, view } = asked.unwrap_or_else(|| last.clone());
    let mut view = view.or(last.view).unwrap_or_default();
    if let Some(theme) = args.theme {
        view.scheme = theme.into();
    }
    if args.projector {
        view.distance = Distance::Room;
    }
    notes.truncate(3);
    let options = args.options(DeviceRequest::default());
    Ok(Start { scenario, options, view, store, source: Source::Trained, notes })
}

/// An exit code, and what is said before it.
struct Refusal(u8, String);

impl Refusal {
    fn usage(why: String) -> Self {
        Self(2, why)
    }
}

impl From<ShotError> for Refusal {
    fn from(error: ShotError) -> Self {
        let code = match error {
            ShotError::Trace(_) => 2,
            ShotError::Device(_) => 3,
            _ => 1,
        };
        Self(code, error.to_string())
    }
}

impl From<Unwritten> for Refusal {
    fn from(error: Unwritten) -> Self {
        Self(1, error.to_string())
    }
}

fn take_pictures(args: &Args, folder: &Path) -> Result<(), Refusal> {
    let Pictures { views, format, size, scale, .. } = &args.pictures;
    let parts = Part::named(views).map_err(Refusal::usage)?;
    let run = trained(args)?;
    let size = size.unwrap_or(Size::WINDOW);
    let (format, scale, folder) = (*format, *scale, folder.to_owned());
    let shots = Shots { run, parts, format, size, scale, folder };
    let mut printed = Ok(());
    headless::take(shots, Painter::open(), |told| tell(told, &mut printed))?;
    Ok(printed?)
}

fn record(args: &Args, path: &Path) -> Result<(), Refusal> {
    let size = args.pictures.size.unwrap_or(Size::FILM);
    let take = Take { run: trained(args)?, size, path: path.to_owned() };
    let mut printed = Ok(());
    let bytes = headless::record(take, |told| tell(told, &mut printed))?;
    output::progress(bytes);
    Ok(printed?)
}

/// What is trained for pictures. What was open last has no part in it: the same words give the same
/// pictures.
fn trained(args: &Args) -> Result<Run, Refusal> {
    let asked = args.opened().map_err(Refusal::usage)?;
    let (saved, notes) = asked.unwrap_or_else(|| (Saved::new(presets::quickstart()), Vec::new()));
    notes.iter().for_each(output::progress);
    let Saved { scenario, view } = saved;
    let mut view = view.unwrap_or_else(|| View::new(Scheme::Light, Distance::Desk));
    if let Some(theme) = args.theme {
        view.scheme = theme.into();
    }
    if args.projector {
        view.distance = Distance::Room;
    }
    let options = args.options(DeviceRequest::cpu());
    let (at, trace) = (args.pictures.at, args.pictures.trace.clone());
    output::progress(format_args!("Training {at} steps of {}", scenario.name));
    Ok(Run { scenario, options, view, at, trace })
}

/// Says how far it is; what could not be printed first is kept in `printed`.
fn tell(told: Told<'_>, printed: &mut Result<(), Unwritten>) {
    match told {
        Told::Trained(done, of) => output::progress(format_args!("{done} of {of} steps")),
        Told::Written(path) if printed.is_ok() => *printed = output::print(path.display()),
        Told::NoAdapter(why) => output::progress(format_args!(
            "No adapter paints ({why}): the pictures are made from vector pictures"
        )),
        Told::Estimate(estimate) => output::progress(estimate),
        Told::Painted(done, of) if done % 20 == 0 => {
            output::progress(format_args!("{done} of {of} frames"));
        }
        Told::Written(_) | Told::Painted(..) => {}
    }
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
    let create: eframe::AppCreator<'_> = Box::new(|creation| {
        if let Some(state) = creation.wgpu_render_state.as_ref().filter(|state| is_software(state))
        {
            Software::install(&creation.egui_ctx, state);
        }
        Ok(Box::new(App::new(&creation.egui_ctx, start)))
    });
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
