//! The transport: play, step, follow; both heads in words; speed; what repeats and what goes on.

use shardlab::trace::draw::scene::{Area, Point};

use crate::board::{Board, Control, Style};
use crate::icon::Icon;
use crate::keys::{Action, Grain, Keys};
use crate::play::{Direction, Mode, WhilePaused};
use crate::shown::{Command, Shared};
use crate::texts;

/// Draws the bar. Every control has room in every window: where it is narrow they say less.
pub(super) fn show(
    board: &mut Board<'_>,
    area: Area,
    shared: &Shared<'_>,
    keys: &Keys,
) -> Vec<Command> {
    let look = board.look();
    let y = area.top;
    board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    let rest = area.shrunk(look.gap(2), (area.height - 36.0 * look.scale) / 2.0);
    let sizes = Sizes::fitting(board, shared, rest.width);
    let mut bar = Bar { rest, sizes, commands: Vec::new(), keys };
    bar.play(board, shared);
    bar.heads(board, shared);
    bar.right(board, shared);
    bar.slider(board, shared);
    bar.commands
}

/// How much the controls say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// All of it.
    All,
    /// The longest one is cut to its first word.
    Few,
    /// Nothing that an icon or a figure says as well.
    Fewest,
}

/// How wide the parts of the bar are.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    words: Words,
    /// One of the five buttons that play and step.
    button: f32,
    live: f32,
    heads: f32,
    /// What makes slower or faster, and the figure between.
    side: f32,
    figure: f32,
    looped: f32,
    keep: f32,
    /// Between two parts.
    gap: f32,
}

impl Sizes {
    /// The most words with which everything has room, the slider as well; else the fewest, without
    /// the slider.
    fn fitting(board: &Board<'_>, shared: &Shared<'_>, width: f32) -> Self {
        let least = board.look().gap(SLIDER_LEAST);
        let [all, few, fewest] =
            [Words::All, Words::Few, Words::Fewest].map(|words| Self::new(board, shared, words));
        let fits = [all, few].into_iter().find(|sizes| sizes.sum() + least <= width);
        fits.unwrap_or_else(|| {
            // Figures without end push no button away.
            let others = fewest.sum() - fewest.heads;
            Self { heads: fewest.heads.min((width - others).max(0.0)), ..fewest }
        })
    }

    fn new(board: &Board<'_>, shared: &Shared<'_>, words: Words) -> Self {
        let look = board.look();
        let is_tight = words == Words::Fewest;
        let side = if is_tight { 26.0 } else { 32.0 } * look.scale;
        let button = if is_tight { 30.0 } else { 36.0 } * look.scale;
        let live = if is_tight { button } else { look.gap(9) + board.width("Live", look.body()) };
        // Room for the longest of this run, so that nothing moves.
        let most = shared.scenario().training.steps.max(shared.run.trained());
        let [upper, lower] = match words {
            Words::All | Words::Few => [format!("step {most} of {most} trained"), String::new()],
            Words::Fewest => [format!("{most} of {most}"), RUNNING.into()],
        };
        let upper = board.width(&upper, look.body());
        let heads = upper.max(board.width(&lower, look.small())).ceil() + look.gap(1);
        Self {
            words,
            button,
            live: live.ceil(),
            heads,
            side,
            figure: board.width("1/4096", look.body()).ceil() + look.gap(1),
            looped: board.button_width(LOOP),
            keep: board.button_width(words.keep()),
            gap: look.gap(if is_tight { 1 } else { 2 }),
        }
    }

    fn speed(&self) -> f32 {
        2.0 * self.side + self.figure
    }

    /// All parts but the slider, with what is between them.
    fn sum(&self) -> f32 {
        5.0 * self.button
            + self.live
            + self.heads
            + self.speed()
            + self.looped
            + self.keep
            + 6.0 * self.gap
    }
}

impl Words {
    /// What stands on the switch of training while paused.
    fn keep(self) -> &'static str {
        match self {
            Self::All => "keep training",
            Self::Few | Self::Fewest => "keep",
        }
    }
}

/// What stands on the switch that plays the selection over and over.
const LOOP: &str = "loop";
/// A step that has run for long, in few words.
const RUNNING: &str = "running…";
/// The least width of the slider, in gaps.
const SLIDER_LEAST: u8 = 12;

struct Bar<'a> {
    rest: Area,
    sizes: Sizes,
    commands: Vec<Command>,
    keys: &'a Keys,
}

impl Bar<'_> {
    fn left(&mut self, width: f32) -> Area {
        let (place, rest) = self.rest.cut_left(width);
        self.rest = rest;
        place
    }

    fn hint(&self, text: &str, action: Action) -> String {
        format!("{text} ({}).", self.keys.of(action))
    }

    fn play(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let look = board.look();
        let paused = shared.play.mode() == Mode::Paused;
        let middle = if paused { Icon::Play } else { Icon::Pause };
        let play_text = if paused { "Play on" } else { "Pause, training as well" };
        let buttons = [
            ("first", Icon::First, "Start of the step", Action::First),
            ("back", Icon::Back, "Previous block", Action::Step(Grain::Block, Direction::Back)),
            ("play", middle, play_text, Action::PlayPause),
            (
                "forward",
                Icon::Forward,
                "Next block",
                Action::Step(Grain::Block, Direction::Forward),
            ),
            ("last", Icon::Last, "Newest step", Action::Last),
        ];
        for (id, icon, text, action) in buttons {
            let place = self.left(self.sizes.button);
            let hint = self.hint(text, action);
            let control = Control::icon(id, icon, &hint);
            let pressed = match action {
                Action::PlayPause => board.button(place, control),
                _ => board.flat_button(place.shrunk(2.0, 0.0), control),
            };
            if pressed {
                self.commands.push(Command::Do(action));
            }
        }
        self.left(self.sizes.gap);
        let live = shared.play.mode() == Mode::Live;
        let dot = if live { look.theme.accent } else { look.theme.faint };
        let place = self.left(self.sizes.live);
        let hint = self.hint("Follow training: show the newest finished step", Action::Live);
        let text = if self.sizes.words == Words::Fewest { "" } else { "Live" };
        let control = Control {
            icon: Some(Icon::Dot(dot)),
            ..Control::text("live", text, &hint).chosen(live)
        };
        if board.button(place, control) {
            self.commands.push(Command::Do(Action::Live));
        }
        self.left(self.sizes.gap);
    }

    /// Both heads, always both: which step is shown and how many are trained.
    fn heads(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let look = board.look();
        let shown = shared.play.shown().map(|shown| shown.step);
        let trained = shared.run.trained();
        let (step, how) = match self.sizes.words {
            Words::All | Words::Few => {
                let text = texts::heads(shown, trained, shared.play.speed());
                let (step, how) = text.split_once(", ").unwrap_or((&text, ""));
                let running = shared.running.map(texts::running);
                (step.to_owned(), running.unwrap_or_else(|| how.to_owned()))
            }
            Words::Fewest => {
                let step =
                    shown.map_or(trained.to_string(), |step| format!("{} of {trained}", step + 1));
                (step, shared.running.map_or("trained", |_| RUNNING).to_owned())
            }
        };
        let place = self.left(self.sizes.heads);
        let (upper, lower) = place.cut_top(place.height * 0.55);
        board.write(upper, &step, Style::default());
        board.write(lower, &how, Style::sized(look.small()).ink(look.theme.faint));
        self.left(self.sizes.gap);
    }

    /// From the right: training while paused, loop, speed.
    fn right(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let Sizes { words, keep, looped, .. } = self.sizes;
        let place = self.right_of(keep);
        let hint = self.hint("Training goes on while you look at a step", Action::KeepTraining);
        let on = shared.play.while_paused() == WhilePaused::Train;
        if board.button(place, Control::text("keep", words.keep(), &hint).chosen(on)) {
            self.commands.push(Command::Do(Action::KeepTraining));
        }
        let place = self.right_of(looped);
        let hint = self.hint("Play the selection over and over", Action::Loop);
        let on = shared.play.section().is_some();
        if board.button(place, Control::text("loop", LOOP, &hint).chosen(on)) {
            self.commands.push(Command::Do(Action::Loop));
        }
        let place = self.right_of(self.sizes.speed());
        self.speed(board, shared, place);
    }

    fn speed(&mut self, board: &mut Board<'_>, shared: &Shared<'_>, place: Area) {
        let look = board.look();
        let (minus, rest) = place.cut_left(self.sizes.side);
        let (plus, figure) = rest.cut_right(self.sizes.side);
        let steps = [
            (minus, "slower", Icon::Minus, "Slower", Action::Speed(Direction::Back)),
            (plus, "faster", Icon::Plus, "Faster", Action::Speed(Direction::Forward)),
        ];
        for (place, id, icon, text, action) in steps {
            let hint = self.hint(text, action);
            if board.button(place, Control::icon(id, icon, &hint)) {
                self.commands.push(Command::Do(action));
            }
        }
        let hint = self.hint("Speed of the playhead; press for the best one", Action::SlowMotion);
        let control = Control { text: "", ..Control::text("speed", "", &hint) };
        if board.interact(figure, control).clicked() {
            self.commands.push(Command::Do(Action::SlowMotion));
        }
        let ink = if shared.play.speed_is_chosen() { look.theme.ink } else { look.theme.faint };
        board.write(figure, &shared.play.speed().to_string(), Style::default().middle().ink(ink));
    }

    fn right_of(&mut self, width: f32) -> Area {
        let (place, rest) = self.rest.cut_right(width);
        self.rest = rest.cut_right(self.sizes.gap).1;
        place
    }

    fn slider(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let steps = shared.run.steps();
        let (Some(newest), Some(shown)) = (steps.newest, shared.play.shown()) else { return };
        if self.rest.width < board.look().gap(SLIDER_LEAST) {
            return;
        }
        let span = (newest - steps.oldest).max(1) as f32;
        let at = shown.step.saturating_sub(steps.oldest) as f32 / span;
        let value = format!(
            "Step {} of {} to {} that can be shown again: drag to another.",
            shown.step + 1,
            steps.oldest + 1,
            newest + 1
        );
        let place = self.rest.shrunk(board.look().gap(2), 0.0);
        if let Some(at) = board.slider(place, "steps", at, &value) {
            let step = steps.oldest + (at * span).round() as u64;
            if step != shown.step {
                self.commands.push(Command::SeekStep(step));
            }
        }
    }
}
