//! Lines that are redrawn in place: no alternate screen, the last frame stays.
//!
//! [`InPlace`] writes to anything and looks at no clock; the caller says what time it is. It hides
//! the cursor while it draws frames and brings it back when it goes, whatever happens.

use std::io::{self, Write};

use super::text::{Terminal, width};
use crate::units::Nanos;

/// Shortest time between two frames: five a second.
const PERIOD: Nanos = Nanos(200_000_000);

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
/// Erases from the cursor to the end of its line, and to the end of the screen.
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// A block of lines at the cursor that is drawn again and again.
#[derive(Debug)]
pub struct InPlace<W: Write> {
    out: W,
    /// Columns of each line of the frame that stands on the screen.
    drawn: Vec<usize>,
    /// When it was drawn.
    last: Option<Nanos>,
    hidden: bool,
}

impl<W: Write> InPlace<W> {
    /// Nothing is written before the first frame.
    pub const fn new(out: W) -> Self {
        Self { out, drawn: Vec::new(), last: None, hidden: false }
    }

    /// Whether enough time has passed for another frame.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.last.is_none_or(|last| now.0.saturating_sub(last.0) >= PERIOD.0)
    }

    /// Draws a frame over the one before if one is due; says whether it did.
    ///
    /// Of a frame that is higher than the terminal the last lines are drawn; one line stays free
    /// for the cursor, else the terminal would scroll and the next frame miss its place.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn draw(&mut self, now: Nanos, lines: &[String], terminal: &Terminal) -> io::Result<bool> {
        if !self.is_due(now) {
            return Ok(false);
        }
        self.draw_now(now, lines, terminal)?;
        Ok(true)
    }

    /// Draws a frame whenever the one before was drawn: for the last one.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn draw_now(
        &mut self,
        now: Nanos,
        lines: &[String],
        terminal: &Terminal,
    ) -> io::Result<()> {
        let first = lines.len().saturating_sub(terminal.height.saturating_sub(1).max(1));
        let lines = &lines[first..];
        let mut frame = String::new();
        if !self.hidden {
            frame.push_str(HIDE_CURSOR);
        }
        frame.push_str(&self.back_to_start(terminal));
        let mut drawn = Vec::with_capacity(lines.len());
        for line in lines {
            let line = cut(line, terminal.width);
            drawn.push(visible_width(line));
            frame.push_str(line);
            // A cut may have lost the end of a style.
            let reset = if line.contains('\x1b') { "\x1b[0m" } else { "" };
            frame.push_str(reset);
            // A full line leaves the cursor on its last character, which must not be erased.
            if visible_width(line) < terminal.width {
                frame.push_str(ERASE_LINE);
            }
            frame.push('\n');
        }
        frame.push_str(ERASE_BELOW);
        // One write, so that no half frame is seen.
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()?;
        self.hidden = true;
        (self.drawn, self.last) = (drawn, Some(now));
        Ok(())
    }

    /// Removes the frame, so that something else can be written; the next frame comes below that.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn clear(&mut self, terminal: &Terminal) -> io::Result<()> {
        let text = self.back_to_start(terminal) + ERASE_BELOW;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        self.drawn.clear();
        self.last = None;
        Ok(())
    }

    /// Moves the cursor to the first line of the frame. A terminal that has become narrower has
    /// broken lines into several.
    fn back_to_start(&self, terminal: &Terminal) -> String {
        let rows = |width: &usize| width.div_ceil(terminal.width.max(1)).max(1);
        let up: usize = self.drawn.iter().map(rows).sum();
        // The cursor cannot go above the top of the screen.
        match up.min(terminal.height.saturating_sub(1)) {
            0 => "\r".into(),
            up => format!("\r\x1b[{up}A"),
        }
    }
}

impl<W: Write> Drop for InPlace<W> {
    fn drop(&mut self) {
        if self.hidden {
            // Nobody is left who could be told that it failed.
            _ = self.out.write_all(SHOW_CURSOR.as_bytes());
            _ = self.out.flush();
        }
    }
}

/// Columns of a line without its styles.
fn visible_width(line: &str) -> usize {
    pieces(line).map(|(style, text)| if style { 0 } else { width(text) }).sum()
}

/// The beginning of a line that fits into `columns`.
fn cut(line: &str, columns: usize) -> &str {
    let (mut left, mut end) = (columns, 0);
    for (style, text) in pieces(line) {
        let shown = if style { text } else { super::text::prefix(text, left) };
        end += shown.len();
        left -= if style { 0 } else { width(shown) };
        if shown.len() < text.len() {
            break;
        }
    }
    &line[..end]
}

/// A line as styles (`true`) and text, in order.
fn pieces(line: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let style = rest.starts_with('\x1b');
        let end = match style {
            true => rest.find('m').map(|at| at + 1),
            false => rest.find('\x1b'),
        };
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some((style, piece))
    })
}

#[cfg(test)]
mod tests {
    //! A tiny terminal plays the bytes back, so that what is tested is the picture.
    use super::super::text::{Charset, Colour};
    use super::*;

    const fn terminal(width: usize, height: usize) -> Terminal {
        Terminal { width, height, charset: Charset::Utf8, colour: Colour::On }
    }

    /// What a screen shows, with everything that scrolled off its top.
    struct Screen {
        width: usize,
        height: usize,
        lines: Vec<String>,
        row: usize,
        column: usize,
        cursor: bool,
    }

    impl Screen {
        fn new(width: usize, height: usize) -> Self {
            let lines = vec![String::new()];
            Self { width, height, lines, row: 0, column: 0, cursor: true }
        }

        fn play(&mut self, bytes: &[u8]) {
            let text = std::str::from_utf8(bytes).unwrap();
            let mut rest = text;
            while let Some(c) = rest.chars().next() {
                rest = &rest[c.len_utf8()..];
                match c {
                    '\x1b' => {
                        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                        self.sequence(&rest[1..=end]);
                        rest = &rest[end + 1..];
                    }
                    '\r' => self.column = 0,
                    '\n' => self.down(),
                    c => self.put(c),
                }
            }
        }

        fn sequence(&mut self, sequence: &str) {
            let top = self.lines.len().saturating_sub(self.height);
            match sequence {
                "?25l" => self.cursor = false,
                "?25h" => self.cursor = true,
                "K" => self.erase_line(),
                "J" => {
                    self.erase_line();
                    let below = self.row + 1..self.lines.len();
                    self.lines[below].iter_mut().for_each(String::clear);
                }
                _ if sequence.ends_with('A') => {
                    let up: usize = sequence.trim_end_matches('A').parse().unwrap();
                    self.row = self.row.saturating_sub(up).max(top);
                }
                _ => assert!(sequence.ends_with('m'), "unknown sequence {sequence}"),
            }
        }

        fn erase_line(&mut self) {
            let kept: String = self.lines[self.row].chars().take(self.column).collect();
            self.lines[self.row] = kept;
        }

        fn down(&mut self) {
            self.row += 1;
            self.column = 0;
            if self.row == self.lines.len() {
                self.lines.push(String::new());
            }
        }

        fn put(&mut self, c: char) {
            if self.column == self.width {
                self.down();
            }
            let mut line: Vec<char> = self.lines[self.row].chars().collect();
            line.resize(line.len().max(self.column + 1), ' ');
            line[self.column] = c;
            self.lines[self.row] = line.into_iter().collect();
            self.column += 1;
        }

        fn text(&self) -> Vec<&str> {
            self.lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect()
        }
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn after(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn the_last_frame_stays_below_what_was_there() {
        let mut bytes = Vec::new();
        let terminal = terminal(20, 10);
        let mut in_place = InPlace::new(&mut bytes);
        in_place.draw_now(after(0), &lines(&["one", "two", "three"]), &terminal).unwrap();
        in_place
            .draw_now(after(200), &lines(&["a longer one", "\x1b[1m2\x1b[0m"]), &terminal)
            .unwrap();
        drop(in_place);
        let mut screen = Screen::new(20, 10);
        screen.play(b"$ shardlab\r\n");
        screen.play(&bytes);
        assert_eq!(screen.text(), ["$ shardlab", "a longer one", "2"]);
        assert!(screen.cursor, "the cursor is back");
        assert_eq!((screen.row, screen.column), (3, 0), "what follows comes below");
    }

    #[test]
    fn at_most_five_frames_a_second() {
        let mut bytes = Vec::new();
        let mut in_place = InPlace::new(&mut bytes);
        let drawn: usize = (0..=1_000)
            .step_by(10)
            .map(|ms| in_place.draw(after(ms), &lines(&["x"]), &terminal(20, 10)).unwrap())
            .map(usize::from)
            .sum();
        assert_eq!(drawn, 6, "at 0, 200, … 1000 ms");
    }

    #[test]
    fn a_frame_is_never_higher_or_wider_than_the_terminal() {
        let texts: Vec<String> =
            (0..20).map(|i| format!("\x1b[2mline {i} is long\x1b[0m")).collect();
        for (width, height) in [(80, 24), (10, 5), (7, 1), (3, 2)] {
            let mut bytes = Vec::new();
            let mut in_place = InPlace::new(&mut bytes);
            for frame in 0..3 {
                in_place.draw(after(200 * frame), &texts, &terminal(width, height)).unwrap();
            }
            drop(in_place);
            let mut screen = Screen::new(width, height);
            screen.play(&bytes);
            let shown = screen.text();
            let most = texts.len().min(height.saturating_sub(1).max(1));
            if height > 1 {
                assert_eq!(shown.len(), most, "three frames in the same place: {shown:?}");
            }
            assert!(shown.iter().all(|line| line.chars().count() <= width));
            assert!(shown.last().unwrap().starts_with(&"line 19 is long"[..width.min(15)]));
        }
    }

    #[test]
    fn a_terminal_that_became_narrower_gets_one_frame_and_not_two() {
        let mut bytes = Vec::new();
        let mut in_place = InPlace::new(&mut bytes);
        in_place
            .draw_now(after(0), &lines(&["0123456789abcdef", "short"]), &terminal(16, 9))
            .unwrap();
        in_place.draw_now(after(200), &lines(&["01234567", "short"]), &terminal(8, 9)).unwrap();
        drop(in_place);
        // The terminal broke the first line in two when it became 8 wide.
        let mut screen = Screen::new(8, 9);
        screen.play(&bytes);
        assert_eq!(screen.text(), ["01234567", "short"]);
    }

    #[test]
    fn a_cleared_frame_makes_room_for_a_message() {
        let mut bytes = Vec::new();
        let mut in_place = InPlace::new(&mut bytes);
        in_place.draw_now(after(0), &lines(&["frame 1"]), &terminal(20, 9)).unwrap();
        in_place.clear(&terminal(20, 9)).unwrap();
        writeln!(in_place.out, "warning").unwrap();
        in_place.draw(after(1), &lines(&["frame 2"]), &terminal(20, 9)).unwrap();
        drop(in_place);
        let mut screen = Screen::new(20, 9);
        screen.play(&bytes);
        assert_eq!(screen.text(), ["warning", "frame 2"]);
    }

    #[test]
    fn nothing_is_written_without_a_frame() {
        let mut bytes = Vec::new();
        drop(InPlace::new(&mut bytes));
        assert!(bytes.is_empty());
    }
}
