//! What leaves the app, as a person has chosen it.

use std::path::PathBuf;

use shardlab::trace::Span;
use shardlab::trace::draw::theme::Kind;

use super::parts::Part;

/// One export.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What a picture shows; tables and traces are of all ranks.
    pub part: Part,
    /// Which kind of file.
    pub form: Form,
    /// Colours of a picture.
    pub colours: Colours,
    /// Which part of the step a table or a trace holds.
    pub stretch: Option<Span>,
    /// Where it goes; a folder for a trace of each rank.
    pub path: PathBuf,
    /// What becomes of a file that is there.
    pub existing: Existing,
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Pixels, so many to a point.
    Png(u8),
    /// A vector picture.
    Svg,
    /// An animation.
    Gif,
    /// A table.
    Csv,
    /// A table of objects.
    Jsonl,
    /// A trace of all ranks in one file.
    Trace,
    /// A folder with a trace of each rank.
    TraceOfRanks,
}

impl Form {
    /// All of them, pictures first.
    pub const ALL: [Self; 9] = [
        Self::Png(1),
        Self::Png(2),
        Self::Png(4),
        Self::Svg,
        Self::Gif,
        Self::Csv,
        Self::Jsonl,
        Self::Trace,
        Self::TraceOfRanks,
    ];

    /// What stands on its button.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Png(1) => "PNG",
            Self::Png(2) => "PNG 2×",
            Self::Png(_) => "PNG 4×",
            Self::Svg => "SVG",
            Self::Gif => "GIF",
            Self::Csv => "CSV",
            Self::Jsonl => "JSON Lines",
            Self::Trace => "Perfetto",
            Self::TraceOfRanks => "Perfetto per rank",
        }
    }

    /// What it is, in one line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Png(1) => "Pixels, one to a point.",
            Self::Png(2) => "Pixels, four to a point: for slides.",
            Self::Png(_) => "Pixels, sixteen to a point: for print.",
            Self::Svg => "A vector picture with legend, caption and badge, to be edited.",
            Self::Gif => "An animation of the loop, the marked time, the chosen block or the step.",
            Self::Csv => "A table of all blocks and waits of the step, for a spreadsheet.",
            Self::Jsonl => "The same table, one JSON object a line.",
            Self::Trace => "The step for ui.perfetto.dev, all ranks in one file.",
            Self::TraceOfRanks => "A Kineto file for each rank, in a folder: for analysers.",
        }
    }

    /// How its files end.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Png(_) => "png",
            Self::Svg => "svg",
            Self::Gif => "gif",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Trace => "pt.trace.json",
            Self::TraceOfRanks => "traces",
        }
    }

    /// Whether it is for trace viewers.
    pub const fn is_trace(self) -> bool {
        matches!(self, Self::Trace | Self::TraceOfRanks)
    }

    /// Whether it shows a part of the window.
    pub const fn is_picture(self) -> bool {
        matches!(self, Self::Png(_) | Self::Svg | Self::Gif)
    }
}

/// Colours of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Those of the window.
    AsShown,
    /// Those of a theme.
    Of(Kind),
}

impl Colours {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AsShown, Self::Of(Kind::Light), Self::Of(Kind::Dark), Self::Of(Kind::Print)];

    /// What stands on its button.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsShown => "As shown",
            Self::Of(Kind::Light) => "Slide, light",
            Self::Of(Kind::Dark) => "Slide, dark",
            Self::Of(Kind::Print) => "Print, grey",
        }
    }
}

/// What becomes of a file that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the export is refused.
    Kept,
    /// It is replaced.
    Replaced,
}
