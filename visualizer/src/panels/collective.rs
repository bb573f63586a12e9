//! Collective: one reduce-scatter, all-gather or all-reduce of the step, message by message, with
//! the true numbers of a step that really ran.
//!
//! What happens is known from the Plan at once; the numbers come when the run has captured it in a
//! step. While it trains, that is the next one; otherwise a button runs one.

use shardlab::mesh::Rank;
use shardlab::trace::captured::{Captured, first};
use shardlab::trace::draw::Work;
use shardlab::trace::draw::collective::{Frame, Part, draw};
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::timeline::Target;

use super::Panel;
use super::picture::{before_first, empty, picture};
use crate::board::{Board, Control};
use crate::icon::Icon;
use crate::run::State;
use crate::shown::{Command, Shared, Step};

/// The panel; keeps which collective is open, and how far it has been stepped through.
#[derive(Debug, Default)]
pub(super) struct Collective {
    /// An instruction of it, and what is known of it from the Plan.
    open: Option<((Rank, u32), Captured)>,
    /// The selection that was looked at last.
    seen: Option<Target>,
    /// How many of its rounds are over.
    over: usize,
    hovered: Option<Part>,
    /// Whether its numbers were asked for.
    asked: bool,
}

impl Panel for Collective {
    fn name(&self) -> &'static str {
        "Collective"
    }

    fn about(&self) -> &'static str {
        "One collective step by step: who sends which chunk, whose sums it holds, its first numbers."
    }

    fn show_example(&mut self, step: &Step) -> Option<(Rank, u32)> {
        let at = first(&step.facts.plan, &step.facts.order)?;
        self.open(step, at);
        self.open.as_ref().map(|(at, _)| *at)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let Some(step) = shared.step else {
            return before_first(board, area, shared, "its collectives");
        };
        let selection = shared.sight.selection;
        if selection != self.seen {
            self.seen = selection;
            if let Some(at) = selection.and_then(|target| collective_of(step, &target)) {
                self.open(step, at);
            }
        }
        let Some((at, outline)) = &self.open else {
            return self.nothing(board, area, step);
        };
        let at = *at;
        let captured = shared.run.captured(at).map_or(outline, AsRef::as_ref);
        let has_numbers = captured.samples.iter().any(|sample| !sample.values.is_empty());
        let mut commands = Vec::new();
        if !has_numbers && !self.asked && matches!(shared.run.state(), State::Training) {
            self.asked = true;
            commands.push(Command::Capture(at));
        }
        let rounds = captured.rounds.len();
        self.over = self.over.min(rounds);
        let width = board.button_width("Run a step for its numbers").min(area.width / 3.0);
        let width = if has_numbers { board.look().gap(19) } else { width };
        let (side, left) = area.cut_right(width + board.look().gap(3));
        let frame = Frame { captured, over: self.over, hovered: self.hovered };
        let (layout, pointer) =
            picture(board, (left, "collective"), |sketch, area| draw(sketch, area, &frame));
        let part = pointer.at.and_then(|at| layout.part_at(at));
        if let Some(text) = part.and_then(|part| frame.sentence(part)) {
            board.hint(text);
        }
        self.hovered = part;
        match part {
            Some(Part::Round(round)) if pointer.clicked => self.over = round,
            _ => self.over = buttons(board, side, self.over, rounds),
        }
        let offers = !has_numbers && !matches!(shared.run.state(), State::Training);
        if offers && numbers_button(board, side) {
            commands.push(Command::Capture(at));
        }
        commands
    }
}

impl Collective {
    fn open(&mut self, step: &Step, at: (Rank, u32)) {
        if let Some(captured) = Captured::of(&step.facts.plan, &step.facts.order, at) {
            (self.over, self.hovered, self.asked) = (0, None, false);
            self.open = Some((at, captured));
        }
    }

    fn nothing(&mut self, board: &mut Board<'_>, area: Area, step: &Step) -> Vec<Command> {
        let Some(at) = first(&step.facts.plan, &step.facts.order) else {
            return empty(
                board,
                area,
                "This layout has no collective: nothing is summed over ranks",
                None,
            );
        };
        let look = board.look();
        let middle = area.shrunk(look.gap(3), ((area.height - look.gap(18)) / 2.0).max(0.0));
        let text = "Click a RS, AG or AR block to step through it";
        let (line, below) = middle.cut_top(look.gap(7));
        let style = crate::board::Style::sized(look.small()).middle().ink(look.theme.faint);
        board.write(line, text, style);
        let name = "Show the first one";
        let width = board.button_width(name).min(below.width);
        let button = below.cut_top(look.gap(8)).0;
        let button = button.shrunk((button.width - width) / 2.0, 0.0);
        let hint = "Opens the first collective that sums gradients.";
        if board.button(button, Control::text("first collective", name, hint)) {
            self.open(step, at);
        }
        Vec::new()
    }
}

/// Back and on; how many rounds are over then.
fn buttons(board: &mut Board<'_>, side: Area, over: usize, rounds: usize) -> usize {
    let look = board.look();
    let row = side.cut_top(look.gap(1)).1.cut_top(look.gap(8)).0.cut_right(look.gap(2)).1;
    let (on, rest) = row.cut_right(look.gap(8));
    let back = rest.cut_right(look.gap(1)).1.cut_right(look.gap(8)).0;
    let hint = "One round of the collective back.";
    if board.button(back, Control::icon("collective back", Icon::Back, hint)) {
        return over.saturating_sub(1);
    }
    let hint = "One round of the collective on.";
    if board.button(on, Control::icon("collective on", Icon::Forward, hint)) {
        return (over + 1).min(rounds);
    }
    over
}

fn numbers_button(board: &mut Board<'_>, side: Area) -> bool {
    let look = board.look();
    let row = side.cut_top(look.gap(10)).1.cut_top(look.gap(8)).0.cut_right(look.gap(2)).1;
    let hint = "Trains one more step and reads the first numbers of every chunk in it.";
    board.button(row, Control::text("collective numbers", "Run a step for its numbers", hint))
}

/// An instruction of the collective that a block shows.
fn collective_of(step: &Step, target: &Target) -> Option<(Rank, u32)> {
    let Target::Block { rank, .. } = *target else { return None };
    let facts = &step.facts;
    let sends = |&(owner, instr): &(Rank, u32)| {
        let origin = facts.plan.programs[owner.index()].instrs[instr as usize].origin;
        let has_peer = facts.order.peer[owner.index()][instr as usize].is_some();
        owner == rank && origin.collective.is_some() && has_peer && !Work::of(origin).is_pass()
    };
    let own = step.timeline.instrs(target);
    own.iter().copied().find(sends).or_else(|| {
        // A block may hold additions alone: their messages run beside it.
        let origin = |(owner, instr): (Rank, u32)| {
            facts.plan.programs[owner.index()].instrs[instr as usize].origin
        };
        let wanted = own
            .iter()
            .map(|at| origin(*at))
            .find(|origin| origin.collective.is_some() && !Work::of(*origin).is_pass())?;
        let lines = (0..).zip(&facts.plan.programs[rank.index()].instrs);
        let same = lines.filter(|(_, line)| line.origin.collective == wanted.collective);
        same.map(|(instr, _)| (rank, instr))
            .find(|at| facts.order.peer[at.0.index()][at.1 as usize].is_some())
    })
}
