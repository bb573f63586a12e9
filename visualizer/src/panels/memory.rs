//! Memory: the most that every rank holds in the shown step beside what was counted for it, and the
//! chosen rank over the step.

use shardlab::ledger::{ByRole, RankMemory};
use shardlab::mesh::Rank;
use shardlab::trace::draw::memory::{Frame, OverTime, draw};
use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::timeline::Target;
use shardlab::trace::held::Held;

use super::Panel;
use super::picture::{Prepared, before_first, picture, rank_of};
use crate::board::Board;
use crate::shown::{Command, Shared, Step};

/// The panel; keeps the rank that was chosen last, and its memory over the shown step.
#[derive(Debug, Default)]
pub(super) struct Memory {
    rank: Rank,
    held: Prepared<(), Vec<ByRole>>,
    over_time: Prepared<Rank, OverTime>,
}

impl Panel for Memory {
    fn name(&self) -> &'static str {
        "Memory"
    }

    fn about(&self) -> &'static str {
        "The most that each rank holds, by role, with what was predicted; the chosen rank over the step."
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let Some(step) = shared.step else {
            return before_first(board, area, shared, "the memory of every rank");
        };
        self.rank = chosen(step, shared.sight.selection).unwrap_or(self.rank);
        let rank = self.rank;
        let over_time = self.over_time.get(step, rank, || OverTime::new(&step.timeline, rank));
        let trace = step.timeline.trace();
        let held = self.held.get(step, (), || Held::of(&step.facts.plan, trace).peaks());
        let counted: Vec<RankMemory> =
            step.facts.ledger.ranks.iter().map(|rank| rank.memory).collect();
        let frame = Frame {
            timeline: &step.timeline,
            held,
            counted: &counted,
            cap: shared.run.memory_cap(),
            over_time: Some(over_time),
            playhead: Some(shared.play.playhead()),
            selected: shared.sight.selection,
            hovered: shared.sight.hover,
        };
        let (layout, pointer) =
            picture(board, (area, "memory"), |sketch, area| draw(sketch, area, &frame));
        let mut commands = Vec::new();
        let Some(at) = pointer.at else { return commands };
        let target = layout.target_at(at);
        if let Some(target) = target {
            commands.push(Command::Hover(Some(target)));
            if let Some(text) = frame.sentence(&target) {
                board.hint(text);
            }
            if pointer.clicked {
                commands.push(Command::Select(Some(target)));
            }
        }
        if let Some(time) = layout.time_at(at) {
            board.hint(over_time.sentence(&step.timeline, time));
            if pointer.held {
                commands.push(Command::Seek(time));
            }
        }
        commands
    }
}

/// The rank that a selection is about; of a position the one that holds most.
fn chosen(step: &Step, selection: Option<Target>) -> Option<Rank> {
    match selection? {
        Target::Position(position) => {
            let peak = |rank: &Rank| step.facts.ledger.ranks[rank.index()].memory.peak();
            step.timeline
                .position(position)
                .max_by_key(|rank| (peak(rank), std::cmp::Reverse(*rank)))
        }
        target => rank_of(target),
    }
}
