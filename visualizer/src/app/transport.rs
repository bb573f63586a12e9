//! The transport: play, step, follow; both heads in words; speed; what repeats and what goes on.

use shardlab::trace::draw::scene::{Area, Point};

use crate::board::{Board, Control, Style};
use crate::icon::Icon;
use crate::keys::{Action, Grain, Keys};
use crate::play::{Direction, Mode, WhilePaused};
use crate::shown::{Command, Shared};
use crate::texts;

/// Draws the bar. Where it is narrow, what has a key of its own goes first; playing never goes.
pub(super) fn show(
    board: &mut Board<'_>,
    area: Area,
    shared: &Shared<'_>,
    keys: &Keys,
) -> Vec<Command> {
    let look = board.look();
    let y = area.top;
    board.rule(Point { x: area.left, y }, Point { x: area.right(), y });
    let gap = look.gap(2);
    let mut bar = Bar {
        rest: area.shrunk(gap, (area.height - 36.0 * look.scale) / 2.0),
        commands: Vec::new(),
        keys,
    };
    bar.play(board, shared);
    bar.heads(board, shared);
    bar.right(board, shared);
    bar.slider(board, shared);
    bar.commands
}

struct Bar<'a> {
    rest: Area,
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
            let place = self.left(36.0 * look.scale);
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
        self.left(look.gap(2));
        let live = shared.play.mode() == Mode::Live;
        let dot = if live { look.theme.accent } else { look.theme.faint };
        let width = look.gap(9) + board.width("Live", look.body());
        let place = self.left(width);
        let hint = self.hint("Follow training: show the newest finished step", Action::Live);
        let control = Control {
            icon: Some(Icon::Dot(dot)),
            ..Control::text("live", "Live", &hint).chosen(live)
        };
        if board.button(place, control) {
            self.commands.push(Command::Do(Action::Live));
        }
        self.left(look.gap(3));
    }

    /// Both heads, always both: which step is shown and how many are trained.
    fn heads(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let look = board.look();
        let shown = shared.play.shown().map(|shown| shown.step);
        let trained = shared.run.trained();
        let text = texts::heads(shown, trained, shared.play.speed());
        let (step, how) = text.split_once(", ").unwrap_or((&text, ""));
        let running = shared.running.map(texts::running);
        let how = running.as_deref().unwrap_or(how);
        // Room for the longest of this run, so that nothing moves.
        let most = shared.scenario().training.steps.max(trained);
        let widest = format!("step {most} of {most} trained");
        let width = board.width(&widest, look.body()).ceil() + look.gap(1);
        let place = self.left(width.min(self.rest.width));
        let (upper, lower) = place.cut_top(place.height * 0.55);
        board.write(upper, step, Style::default());
        board.write(lower, how, Style::sized(look.small()).ink(look.theme.faint));
        self.left(look.gap(2));
    }

    /// From the right: speed, loop, training while paused; what finds no room has a key.
    fn right(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let look = board.look();
        let gap = look.gap(1);
        let least = look.gap(24);
        let keep = "keep training";
        let keep_width = board.button_width(keep);
        let loop_width = board.button_width("loop");
        let side = 32.0 * look.scale;
        let figure = board.width("1/4096", look.body()).ceil() + gap;
        let speed_width = 2.0 * side + figure;
        let mut room = self.rest.width - least;
        let mut fits = |width: f32| {
            let fits = room >= width + 2.0 * gap;
            room -= if fits { width + 2.0 * gap } else { 0.0 };
            fits
        };
        let (speed, keeps, loops) = (fits(speed_width), fits(keep_width), fits(loop_width));
        if keeps {
            let place = self.right_of(keep_width, gap);
            let hint = self.hint("Training goes on while you look at a step", Action::KeepTraining);
            let on = shared.play.while_paused() == WhilePaused::Train;
            if board.button(place, Control::text("keep", keep, &hint).chosen(on)) {
                self.commands.push(Command::Do(Action::KeepTraining));
            }
        }
        if loops {
            let place = self.right_of(loop_width, gap);
            let hint = self.hint("Play the selection over and over", Action::Loop);
            let on = shared.play.section().is_some();
            if board.button(place, Control::text("loop", "loop", &hint).chosen(on)) {
                self.commands.push(Command::Do(Action::Loop));
            }
        }
        if speed {
            let place = self.right_of(speed_width, 2.0 * gap);
            self.speed(board, shared, place, side);
        }
    }

    fn speed(&mut self, board: &mut Board<'_>, shared: &Shared<'_>, place: Area, side: f32) {
        let look = board.look();
        let (minus, rest) = place.cut_left(side);
        let (plus, figure) = rest.cut_right(side);
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

    fn right_of(&mut self, width: f32, gap: f32) -> Area {
        let (place, rest) = self.rest.cut_right(width);
        self.rest = rest.cut_right(gap).1;
        place
    }

    fn slider(&mut self, board: &mut Board<'_>, shared: &Shared<'_>) {
        let steps = shared.run.steps();
        let (Some(newest), Some(shown)) = (steps.newest, shared.play.shown()) else { return };
        if self.rest.width < board.look().gap(12) {
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
