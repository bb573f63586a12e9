//! The command line of the app, and how a run is asked for.

use std::path::{Path, PathBuf};

use clap::Parser;
use shardlab::exec::ExecOptions;
use shardlab::train::{DeviceRequest, Options};
use shardlab::units::Bytes;

use crate::presets;
use crate::saved::Saved;
use crate::style::Scheme;

const EXAMPLES: &str = "\
Examples:
  shardlab-visualizer                                the last scenario, or the quickstart
  shardlab-visualizer pipeline --theme dark          a scenario of the menu, by name
  shardlab-visualizer --screenshot out               every view as a picture, without a display
  shardlab-visualizer 64-ranks --screenshot out --view watch --view timeline --at 30
  shardlab-visualizer pipeline --record step.gif     one step in slow motion";

/// Watch a transformer train, split over many ranks.
///
/// Opens a window that trains the quickstart, or the scenario of a file, and shows every block of
/// work, every wait and every byte of the real step. With --screenshot it writes pictures of that
/// window instead, and with --record an animation; neither needs a display.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "shardlab-visualizer", version, about, after_help = EXAMPLES)]
pub struct Args {
    /// A scenario: a file (TOML) or a name of the menu; without it the last one, or the quickstart.
    #[arg(value_name = "SCENARIO")]
    pub positional: Option<String>,
    /// The same by name: a file (TOML) or a name of the menu.
    #[arg(long = "scenario", value_name = "FILE|NAME", conflicts_with = "positional")]
    pub named: Option<String>,
    /// What runs the ranks: auto, cpu, gpu, a name, an index, or a list of these. Without it the
    /// fastest in the window, the CPU for pictures.
    #[arg(long)]
    pub device: Option<DeviceRequest>,
    /// What one rank may hold, as in 8MiB: what does not fit is refused, with cuts that do, and the
    /// Memory tab shows the line.
    #[arg(long, value_name = "BYTES")]
    pub device_memory: Option<Bytes>,
    /// Colours; those of the system if absent, and light for pictures.
    #[arg(long, value_enum)]
    pub theme: Option<Theme>,
    /// Large text for a room.
    #[arg(long)]
    pub projector: bool,
    /// Neither reads nor writes what was open last.
    #[arg(long)]
    pub fresh: bool,
    /// Pictures instead of a window.
    #[command(flatten)]
    pub pictures: Pictures,
}

/// Pictures that are written without a display.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Pictures without a display")]
pub struct Pictures {
    /// Write a picture of every view into this folder; names hold scenario, view and step.
    #[arg(long, value_name = "DIR")]
    pub screenshot: Option<PathBuf>,
    /// Only this view; can be given several times.
    #[arg(long = "view", value_name = "NAME", requires = "screenshot")]
    pub views: Vec<String>,
    /// Write one whole step in slow motion as an animation.
    #[arg(long, value_name = "FILE.gif", conflicts_with = "screenshot",
          value_parser = animation)]
    pub record: Option<PathBuf>,
    /// Pixels, or vector pictures. Where no adapter can paint, both are written from the latter.
    #[arg(long, value_enum, default_value_t, requires = "screenshot")]
    pub format: Format,
    /// Size of the window in points; 1152x720 for an animation.
    #[arg(long, value_name = "WxH", value_parser = size)]
    pub size: Option<Size>,
    /// Pixels a point, 1 to 4.
    #[arg(long, value_name = "N", default_value = "1", value_parser = scale)]
    pub scale: Scale,
    /// The step that is shown, counted from 1; so many are trained.
    #[arg(long, value_name = "STEP", default_value = "24",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub at: u64,
    /// Takes the times of this file (of `shardlab train --trace`) instead of the run's: then the same
    /// words give the same pictures, whatever the machine does meanwhile.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Kinds of pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Pixels.
    #[default]
    Png,
    /// Vector pictures.
    Svg,
}

/// Width and height of a window in points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Across.
    pub width: u16,
    /// Down.
    pub height: u16,
}

impl Size {
    /// Of a window as it opens.
    pub const WINDOW: Self = Self { width: 1280, height: 800 };
    /// Of an animation.
    pub const FILM: Self = Self { width: 1152, height: 720 };
}

/// Pixels a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(pub f32);

impl Default for Scale {
    fn default() -> Self {
        Self(1.0)
    }
}

fn animation(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_gif = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gif"));
    let why = "an animation is a GIF: give a name that ends in .gif, such as step.gif";
    if is_gif { Ok(path) } else { Err(why.to_owned()) }
}

fn size(text: &str) -> Result<Size, String> {
    let sides = text.split_once(['x', 'X', '×']);
    let parsed = sides.and_then(|(width, height)| {
        Some(Size { width: width.trim().parse().ok()?, height: height.trim().parse().ok()? })
    });
    let fits =
        |size: &Size| (800..=7680).contains(&size.width) && (480..=4320).contains(&size.height);
    parsed.filter(fits).ok_or_else(|| "give 800x480 to 7680x4320, such as 1280x800".to_owned())
}

fn scale(text: &str) -> Result<Scale, String> {
    let parsed = text.parse().ok().filter(|scale| (1.0..=4.0).contains(scale));
    parsed.map(Scale).ok_or_else(|| "give a number from 1 to 4".to_owned())
}

/// Colours by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Theme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
    /// Grey on white, for printers without colour.
    Print,
}

impl From<Theme> for Scheme {
    fn from(theme: Theme) -> Self {
        match theme {
            Theme::Light => Self::Light,
            Theme::Dark => Self::Dark,
            Theme::Print => Self::Print,
        }
    }
}

impl Args {
    /// What runs the ranks, and what each may hold; `otherwise` the devices.
    pub fn options(&self, otherwise: DeviceRequest) -> Options {
        let devices = self.device.clone().unwrap_or(otherwise);
        let exec = ExecOptions { memory_cap: self.device_memory, ..ExecOptions::default() };
        Options { devices, exec, ..Options::default() }
    }

    /// The scenario that is asked for, if any, with lines of what was left out of its file.
    ///
    /// # Errors
    /// If the file cannot be read or is no scenario, and no preset has this name.
    pub fn opened(&self) -> Result<Option<(Saved, Vec<String>)>, String> {
        let Some(asked) = self.positional.as_ref().or(self.named.as_ref()) else {
            return Ok(None);
        };
        let path = Path::new(asked);
        if path.exists() {
            return Saved::read(path).map(Some);
        }
        let preset = presets::named(asked).ok_or_else(|| {
            let names = presets::names().join(", ");
            format!(
                "{asked}: is no file, and no scenario of the menu. Give a file or one of: {names}"
            )
        })?;
        Ok(Some((Saved::new(preset), Vec::new())))
    }
}
