//! Wires: ranks on their mesh, and what flows between them up to the playhead.

use shardlab::trace::draw::scene::Area;
use shardlab::trace::draw::wires::{Frame, Wires as Flows, draw};

use super::Panel;
use super::picture::{Prepared, before_first, picture};
use crate::board::Board;
use crate::play::Mode;
use crate::shown::{Command, Shared};

/// The panel; keeps what flows in the shown step.
#[derive(Debug, Default)]
pub(super) struct Wires {
    flows: Prepared<(), Flows>,
}

impl Panel for Wires {
    fn name(&self) -> &'static str {
        "Wires"
    }

    fn about(&self) -> &'static str {
        "Which rank sends how much to whom: data down, tensor side by side, pipeline to the right."
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn show(&mut self, board: &mut Board<'_>, area: Area, shared: &Shared<'_>) -> Vec<Command> {
        let Some(step) = shared.step else {
            return before_first(board, area, shared, "what flows between ranks");
        };
        let wires = self.flows.get(step, (), || Flows::new(&step.timeline));
        let plays = shared.play.mode() != Mode::Paused;
        let frame = Frame {
            timeline: &step.timeline,
            wires,
            playhead: shared.play.playhead(),
            speed: plays.then(|| shared.play.speed()),
            selected: shared.sight.selection,
            hovered: shared.sight.hover,
        };
        let (layout, pointer) =
            picture(board, (area, "wires"), |sketch, area| draw(sketch, area, &frame));
        let target = pointer.at.and_then(|at| layout.target_at(at));
        let mut commands = Vec::new();
        if let Some(target) = target {
            commands.push(Command::Hover(Some(target)));
        }
        if pointer.clicked {
            commands.push(Command::Select(target));
        }
        if let (true, Some(target)) = (pointer.asked, target) {
            commands.push(Command::Menu(target, pointer.at));
        }
        commands
    }
}
