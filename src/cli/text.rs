//! Text for a terminal: columns, styles, and what stands in where there is no UTF-8.
//!
//! A [`Line`] is built from left to right in columns and rendered once. It never becomes wider than
//! its terminal, with or without colour.

use crate::predict::memory::USABLE;
use crate::trace::Badge;
use crate::trace::draw::Work;
use crate::units::Bytes;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
    /// How characters are encoded.
    pub charset: Charset,
    /// Whether colours and brightness are used.
    pub colour: Colour,
}

/// Which characters a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// All of them.
    Utf8,
    /// Only the 95 of ASCII.
    Ascii,
}

/// Whether text has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// ANSI colours, bold and faint.
    On,
    /// Plain text.
    Off,
}

/// How a piece of text looks where colours are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As the terminal writes.
    Plain,
    /// Bold.
    Bold,
    /// Faint.
    Dim,
    /// On the ground of a kind of work.
    Work(Work),
    /// A check that holds.
    Good,
    /// A check that fails.
    Bad,
}

impl Style {
    /// Parameters of the ANSI sequence that switches it on; the sixteen colours of the terminal, so
    /// that they fit its background.
    const fn ansi(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Work(work) => match work {
                Work::Forward => "97;44",
                Work::Recompute => "30;46",
                Work::Backward => "30;43",
                Work::InputGrad => "30;42",
                Work::WeightGrad => "30;102",
                Work::ReduceScatter | Work::AllReduce | Work::WeightGather => "97;45",
                Work::Norm | Work::Optimizer | Work::Other => "30;47",
            },
            Self::Good => "1;32",
            Self::Bad => "1;31",
        }
    }
}

/// One line, built from left to right.
#[derive(Clone, Debug)]
pub struct Line {
    charset: Charset,
    spans: Vec<(Style, String)>,
}

impl Line {
    /// An empty line.
    pub const fn new(charset: Charset) -> Self {
        Self { charset, spans: Vec::new() }
    }

    /// Appends text; without UTF-8 in plainer characters.
    pub fn push(&mut self, style: Style, text: impl AsRef<str>) -> &mut Self {
        let text = in_charset(text.as_ref(), self.charset);
        match self.spans.last_mut() {
            Some((last, before)) if *last == style => before.push_str(&text),
            _ if text.is_empty() => {}
            _ => self.spans.push((style, text)),
        }
        self
    }

    /// Appends text as the terminal writes it.
    pub fn text(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.push(Style::Plain, text)
    }

    /// Appends another line.
    pub fn append(&mut self, other: Self) -> &mut Self {
        for (style, text) in other.spans {
            self.push(style, text);
        }
        self
    }

    /// Appends spaces up to a column.
    pub fn to_column(&mut self, column: usize) -> &mut Self {
        self.text(" ".repeat(column.saturating_sub(self.width())))
    }

    /// Appends text that ends at a column, at least two spaces away from what is there; nothing if
    /// there is no room.
    pub fn flush_right(&mut self, style: Style, text: &str, column: usize) -> &mut Self {
        let start = column.saturating_sub(width(&in_charset(text, self.charset)));
        if start >= self.width() + 2 {
            self.to_column(start).push(style, text);
        }
        self
    }

    /// Columns that it takes.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|(_, text)| width(text)).sum()
    }

    /// The line as characters, cut to `columns`.
    pub fn render(&self, columns: usize, colour: Colour) -> String {
        let mut line = String::new();
        let ellipsis = match self.width() > columns {
            true => in_charset("…", self.charset),
            false => String::new(),
        };
        let ellipsis = if width(&ellipsis) <= columns { ellipsis } else { String::new() };
        let mut left = columns - width(&ellipsis);
        for (style, text) in &self.spans {
            let shown = prefix(text, left);
            left -= width(shown);
            if colour == Colour::On && *style != Style::Plain && !shown.trim().is_empty() {
                line.push_str(&format!("\x1b[{}m{shown}\x1b[0m", style.ansi()));
            } else {
                line.push_str(shown);
            }
            if shown.len() < text.len() {
                break;
            }
        }
        line.push_str(&ellipsis);
        line.truncate(line.trim_end().len());
        line
    }
}

/// Columns that a text without control characters takes.
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Columns of one character: two for East Asian scripts and pictures.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x200B..=0x200D | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1FAFF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// The longest beginning of a text that fits.
pub fn prefix(text: &str, columns_left: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += columns(c);
        if used > columns_left {
            return &text[..at];
        }
    }
    text
}

/// A number of things: `1 GPU`, `1024 GPUs`.
pub fn counted(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// What a step may take of a GPU that is sold with so many gigabytes: `69.3 GiB of a card of 80 GB`.
pub fn usable(memory_gb: f64) -> String {
    format!("{} of a card of {memory_gb} GB", Bytes((USABLE * memory_gb * 1e9) as u64))
}

/// Bytes in powers of a thousand, as links and cards are sold: `512 B`, `49.2 KB`, `175.0 MB`.
pub fn decimal_bytes(bytes: f64) -> String {
    const UNITS: [(&str, f64); 4] = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];
    // What rounds up to a thousand of a unit is one of the next.
    match UNITS.iter().find(|(_, size)| bytes >= 0.99995 * size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes / size),
        None => format!("{bytes:.0} B"),
    }
}

/// A text in the characters of a terminal.
pub fn in_charset(text: &str, charset: Charset) -> String {
    if charset == Charset::Utf8 || text.is_ascii() {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => plain.push(c),
            '·' => plain.push('|'),
            '×' => plain.push('x'),
            '→' => plain.push_str("->"),
            '–' | '−' => plain.push('-'),
            '…' => plain.push_str("..."),
            'µ' => plain.push('u'),
            '✓' => plain.push_str("ok"),
            '✗' => plain.push_str("NO"),
            '░' => plain.push('.'),
            '█' => plain.push('#'),
            '▲' => plain.push('^'),
            _ => plain.push('?'),
        }
    }
    plain
}

/// A heading with its badge on the right.
pub(super) fn titled(heading: &str, badge: Badge) -> String {
    format!("{heading:<68}{:>10}", badge.word())
}

/// A large number in words: `950`, `12.3 K`, `0.8 M`.
pub fn count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..100_000 => format!("{:.1} K", number as f64 / 1e3),
        100_000..1_000_000_000 => format!("{:.1} M", number as f64 / 1e6),
        _ => format!("{:.1} B", number as f64 / 1e9),
    }
}

/// A duration in the two figures that matter: `0.4 s`, `41 s`, `3 min`, `2 h 05 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        _ if seconds < 9.95 => format!("{:.1} s", seconds.max(0.0)),
        0..100 => format!("{whole} s"),
        100..6_000 => format!("{} min", (whole + 30) / 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// The time of a step: `146.2 ms`, `2.31 s`.
pub fn step_time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::grouped;

    #[test]
    fn a_line_is_cut_to_its_terminal_with_and_without_colour() {
        let mut line = Line::new(Charset::Utf8);
        line.push(Style::Bold, "shardlab").text(" · 8 ranks").push(Style::Good, " ✓");
        assert_eq!(line.width(), 20);
        assert_eq!(line.render(20, Colour::Off), "shardlab · 8 ranks ✓");
        assert_eq!(line.render(12, Colour::Off), "shardlab · …");
        assert_eq!(line.render(9, Colour::On), "\x1b[1mshardlab\x1b[0m…");
        assert_eq!(line.render(0, Colour::On), "");
        for columns in 0..25 {
            assert!(width(&line.render(columns, Colour::Off)) <= columns);
        }
    }

    #[test]
    fn without_utf8_only_ascii_is_left() {
        let mut line = Line::new(Charset::Ascii);
        line.text("data 2 × tensor 2 · 5.55 → 2.43 ✓ 3 µs ░░▲ … (p−1) 0–3 é");
        let text = line.render(99, Colour::Off);
        assert_eq!(text, "data 2 x tensor 2 | 5.55 -> 2.43 ok 3 us ..^ ... (p-1) 0-3 ?");
        line.flush_right(Style::Good, "✓", 80);
        assert_eq!(width(&line.render(80, Colour::Off)), 80);
    }

    #[test]
    fn flush_right_keeps_its_distance_or_says_nothing() {
        let mut line = Line::new(Charset::Utf8);
        line.text("left").flush_right(Style::Plain, "right", 10);
        assert_eq!(line.render(80, Colour::Off), "left");
        line.flush_right(Style::Plain, "right", 11);
        assert_eq!(line.render(80, Colour::Off), "left  right");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1_000, 20_100, 1_234_567_u64].map(grouped).join(" "),
            "0 999 1,000 20,100 1,234,567"
        );
        assert_eq!(
            [950, 804_000, 1_100_000, 7_240_000_000].map(count).join(" "),
            "950 0.8 M 1.1 M 7.2 B"
        );
        let times = [0.36, 9.96, 41.2, 99.7, 180.0, 7_500.0].map(duration).join(", ");
        assert_eq!(times, "0.4 s, 10 s, 41 s, 2 min, 3 min, 2 h 05 min");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("模型a"), 5);
        assert_eq!(prefix("模型a", 3), "模");
    }
}
