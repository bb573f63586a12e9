//! The real program in a real window: Xvfb is the display, xdotool the hands, xwd the eyes.
//!
//! Where one of them is missing the test says so and passes; with `REQUIRE_DISPLAY=1` it fails. How long
//! the first frame and the first step may take is held with `SHARDLAB_TIMED=1`, on a machine that does
//! nothing else.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SIZE: (usize, usize) = (1280, 800);
/// Fills of forward and backward in the light theme.
const FORWARD: [u8; 3] = [0x1E, 0x49, 0x99];
const BACKWARD: [u8; 3] = [0xDB, 0x97, 0x73];
/// Waiting, and the lines of its hatching.
const WAITING: [u8; 3] = [0xD0, 0xD0, 0xD0];
const HATCH: [u8; 3] = [0x9A, 0x9A, 0xA2];
/// The playhead.
const ACCENT: [u8; 3] = [0xC2, 0x18, 0x5B];
/// A step in the small map below the rows.
const BAR: [u8; 3] = [0x5A, 0x5A, 0x62];
const GROUND: [u8; 3] = [0xF7, 0xF7, 0xF8];
/// Where the window of this size has its parts: the line that explains, the blocks of eight rows, and the
/// small map.
const LINE: Range<usize> = 41..71;
const ROWS: Range<usize> = 156..456;
const TRACK: Range<usize> = 133..1147;
const MAP: usize = 499;
/// How soon after its start the window has a frame, and a whole step.
const FIRST_FRAME: Duration = Duration::from_secs(2);
const FIRST_STEP: Duration = Duration::from_secs(5);
/// How long anything may take before the test gives up: machines of tests are slow.
const PATIENCE: Duration = Duration::from_secs(90);

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A display of its own, and the number that names it.
struct Display {
    _server: Running,
    name: String,
}

impl Display {
    /// `None` if there is no Xvfb.
    fn open() -> Option<Self> {
        let screen = format!("{}x{}x24", SIZE.0, SIZE.1);
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", &screen, "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // It writes the number of a free display when it is ready.
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        Some(Self { _server: Running(server), name: format!(":{}", number.trim()) })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DISPLAY", &self.name).env_remove("WAYLAND_DISPLAY");
        command
    }

    fn press(&self, key: &str) {
        let done = self.command("xdotool").args(["key", key]).status().unwrap();
        assert!(done.success(), "xdotool presses {key}");
    }

    fn resize(&self, (width, height): (usize, usize)) {
        let window = ["search", "--onlyvisible", "--name", "Shardlab", "windowsize"];
        let size = [width.to_string(), height.to_string()];
        let done = self.command("xdotool").args(window).args(size).status().unwrap();
        assert!(done.success(), "xdotool makes the window {width} × {height}");
    }

    /// What is on the screen.
    fn look(&self) -> Picture {
        let dump = self.command("xwd").args(["-root", "-silent"]).output().unwrap();
        assert!(dump.status.success(), "xwd reads the screen");
        Picture::of_dump(&dump.stdout)
    }

    /// Looks until the picture is as wanted.
    fn wait_for(&self, what: &str, wanted: impl Fn(&Picture) -> bool) -> Picture {
        let begin = Instant::now();
        loop {
            let picture = self.look();
            if wanted(&picture) {
                eprintln!("{what}: after {:.1} s more", begin.elapsed().as_secs_f64());
                return picture;
            }
            assert!(begin.elapsed() < PATIENCE, "waited for {what}");
            sleep(Duration::from_millis(100));
        }
    }
}

/// Rows of red, green, blue.
#[derive(PartialEq)]
struct Picture(Vec<Vec<[u8; 3]>>);

impl Picture {
    /// From a dump of X: a header of big-endian words, a palette, rows of blue, green, red, unused.
    fn of_dump(dump: &[u8]) -> Self {
        let word = |index: usize| {
            let bytes = dump[4 * index..][..4].try_into().unwrap();
            u32::from_be_bytes(bytes) as usize
        };
        let (header, width, height) = (word(0), word(4), word(5));
        let (bits, bytes_per_line, colours) = (word(11), word(12), word(19));
        assert_eq!((width, height, bits), (SIZE.0, SIZE.1, 32), "a screen of 32 bits a pixel");
        let pixels = &dump[header + 12 * colours..];
        let row = |y: usize| {
            let line = &pixels[y * bytes_per_line..][..4 * width];
            line.chunks_exact(4).map(|pixel| [pixel[2], pixel[1], pixel[0]]).collect()
        };
        Self((0..height).map(row).collect())
    }

    /// Pixels of a colour in one line.
    fn count(&self, y: usize, colour: [u8; 3]) -> usize {
        self.0[y].iter().filter(|pixel| **pixel == colour).count()
    }

    /// How many bands of at least ten lines hold a stretch of the colour: rows of blocks.
    fn rows_with(&self, colour: [u8; 3]) -> usize {
        let lines: Vec<bool> = (0..SIZE.1).map(|y| self.count(y, colour) > 30).collect();
        lines.chunk_by(|a, b| a == b).filter(|band| band[0] && band.len() >= 10).count()
    }

    /// Where the transport says which step is shown and how many are trained.
    fn heads(&self) -> Vec<Vec<[u8; 3]>> {
        let lines = &self.0[SIZE.1 - 48..SIZE.1 - 26];
        lines.iter().map(|line| line[270..440].to_vec()).collect()
    }

    /// What is seen somewhere.
    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        self.0[y][x]
    }

    /// How many of the eight rows are filled: most of the track, from its beginning to the end of the step,
    /// is work or waiting.
    fn filled_rows(&self) -> usize {
        let height = (ROWS.end - ROWS.start) / 8;
        let is_filled = |row: &usize| {
            let y = ROWS.start + row * height + height / 4;
            let painted = TRACK.filter(|x| self.at(*x, y) != GROUND).count();
            // The axis is at most a third longer than its step.
            painted * 10 >= TRACK.len() * 7 && self.at(TRACK.start + 1, y) != GROUND
        };
        (0..8).filter(is_filled).count()
    }

    /// How many waits have a text on them: a stretch of hatching with letters on a plate in its middle.
    fn labelled_waits(&self) -> usize {
        let height = (ROWS.end - ROWS.start) / 8;
        let of_row = |row: usize| {
            let (top, bottom) =
                (ROWS.start + row * height + 4, ROWS.start + (row + 1) * height - 8);
            // Between pale grey and the hatching, all of them without a hue.
            let is_pale = |x: usize, y: usize| {
                let [red, green, blue] = self.at(x, y);
                let is_grey = red.abs_diff(green) <= 2 && green.abs_diff(blue) <= 10;
                is_grey && (HATCH[0]..=WAITING[0]).contains(&red)
            };
            let columns: Vec<bool> =
                TRACK.map(|x| is_pale(x, top) && is_pale(x, top + 1)).collect();
            let mut left = TRACK.start;
            let mut found = 0;
            for stretch in columns.chunk_by(|a, b| a == b) {
                let across = left..left + stretch.len();
                left = across.end;
                let dark = |y: usize| across.clone().filter(move |x| self.at(*x, y)[1] < 0x50);
                let letters: usize = (top..bottom).map(|y| dark(y).count()).sum();
                found += usize::from(stretch[0] && stretch.len() >= 30 && letters >= 15);
            }
            found
        };
        (0..8).map(of_row).sum()
    }

    /// How many losses are in the small map, or a few less: each is four pixels wide.
    fn losses(&self) -> usize {
        TRACK.filter(|x| self.at(*x, MAP) == BAR).count() / 4
    }

    /// Where the playhead stands.
    fn playhead(&self) -> Option<usize> {
        let accent = |x: usize| ROWS.filter(|y| self.at(x, *y) == ACCENT).count();
        TRACK.max_by_key(|x| accent(*x)).filter(|x| accent(*x) > ROWS.len() / 2)
    }

    /// Whether one line of text stands where it is explained what is seen.
    fn is_explained(&self) -> bool {
        let is_ink = |y: usize| self.0[y].iter().filter(|pixel| pixel[1] < 0x50).count();
        let lines: Vec<bool> = LINE.map(|y| is_ink(y) > 0).collect();
        let texts = lines.chunk_by(|a, b| a == b).filter(|lines| lines[0]);
        let letters: usize = LINE.map(is_ink).sum();
        // Dots and accents stand a little above the letters.
        letters > 300 && texts.map(<[bool]>::len).sum::<usize>() <= 20
    }

    fn is_drawn(&self) -> bool {
        self.0.iter().flatten().any(|pixel| *pixel != self.0[0][0])
    }
}

#[test]
fn a_window_opens_trains_without_a_click_pauses_and_steps() {
    let tools = ["Xvfb", "xdotool", "xwd"];
    let is_there = |tool: &&str| Command::new(tool).arg("-help").output().is_ok();
    let display = Display::open().filter(|_| tools.iter().all(is_there));
    let Some(display) = display else {
        assert!(std::env::var_os("REQUIRE_DISPLAY").is_none(), "{tools:?} must be installed");
        eprintln!("{tools:?} are not all installed: nothing is tested");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let app = display
        .command(env!("CARGO_BIN_EXE_shardlab-visualizer"))
        .args(["--fresh", "--theme", "light", "--device", "cpu"])
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut app, started) = (Running(app), Instant::now());
    let is_timed = std::env::var_os("SHARDLAB_TIMED").is_some();
    let in_time = |what: &str, limit: Duration| {
        let took = started.elapsed();
        assert!(!is_timed || took <= limit, "{what} after {:.1} s", took.as_secs_f64());
    };

    display.wait_for("the first frame", Picture::is_drawn);
    in_time("the first frame", FIRST_FRAME);
    let eight =
        |picture: &Picture| picture.rows_with(FORWARD) == 8 && picture.rows_with(BACKWARD) == 8;
    let first = display.wait_for("a whole step in eight rows", eight);
    in_time("a whole step", FIRST_STEP);
    after_ten_seconds_without_input(&display, is_timed);
    display.wait_for("the playhead to move", |picture| *picture != first);

    // No window manager gives the window the keyboard.
    let focus = ["search", "--onlyvisible", "--name", "Shardlab", "windowfocus"];
    assert!(display.command("xdotool").args(focus).status().unwrap().success(), "it has a title");
    display.press("space");
    // The step that runs is finished first.
    let paused = display.wait_for("a picture that stands still", |picture| {
        sleep(Duration::from_secs(2));
        display.look() == *picture
    });
    sleep(Duration::from_secs(5));
    assert!(display.look() == paused, "paused, nothing on the screen moves");

    display.press("Right");
    let stepped = display.wait_for("a step to the next block", |picture| *picture != paused);
    display.press("Left");
    display.wait_for("the step back", |picture| *picture != stepped);
    display.press("space");
    display.wait_for("playing again", |picture| *picture != paused);

    // More than enough steps for what follows.
    display.press("g");
    let before = display.look().heads();
    display.resize((1, 1));
    // Longer than a step takes.
    sleep(Duration::from_secs(4));
    assert!(app.0.try_wait().unwrap().is_none(), "a window of one pixel is no reason to end");
    display.resize(SIZE);
    let back = display.wait_for("the whole window again", eight).heads();
    assert!(back != before, "training went on in a window that nobody could see");
    display.wait_for("the next step", |picture| picture.heads() != back);
    assert!(app.0.try_wait().unwrap().is_none(), "the app runs on");
}

/// What is seen ten seconds after the first step by somebody who has not touched anything.
fn after_ten_seconds_without_input(display: &Display, is_timed: bool) {
    sleep(Duration::from_secs(10));
    let picture = match is_timed {
        true => display.look(),
        // A machine with other things to do trains fewer steps.
        false => display.wait_for("ten losses", |picture| picture.losses() >= 10),
    };
    sleep(Duration::from_secs(1));
    let later = display.look();
    assert!(picture.losses() >= 10, "{} losses", picture.losses());
    assert_eq!(picture.filled_rows(), 8, "rows are filled");
    assert!(picture.labelled_waits() >= 1, "no wait has a text");
    assert!(picture.is_explained(), "nothing is explained");
    let [before, after] = [&picture, &later].map(Picture::playhead);
    assert!(before.is_some() && after.is_some(), "the playhead is seen: {before:?}, {after:?}");
    assert_ne!(before, after, "the playhead moves");
}
