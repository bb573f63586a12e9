//! The split of a run: how model and batch are cut over the ranks.
//!
//! Every choice is held against the planner at once; what cannot run says why at the control that
//! is to blame, and how to mend it.

use shardlab::config::layout::ZeroStage;
use shardlab::config::{Layout, Recompute, Scenario, ScheduleName};
use shardlab::planner::{self, PlanError, StepSpec, plan_step};
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::Area;

use crate::app::{Choice, Half};
use crate::board::{Board, Control, Style};
use crate::icon::Icon;
use crate::shown::{Command, Popup};
use crate::texts;

/// Height before scaling.
pub(super) const HEIGHT: f32 = 424.0;
const ROW: f32 = 38.0;
/// More ranks than this are not trained in one window on one machine.
const RANKS_MOST: u32 = 256;

/// What a split is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be trained.
    Train,
    /// To be planned, and held against another step.
    Compare(Half),
}

/// The split that is being chosen.
#[derive(Debug)]
pub(super) struct Split {
    purpose: Purpose,
    scenario: Scenario,
    before: Layout,
    refusal: Option<Refusal>,
}

/// Why it cannot run, and which control is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    at: Cut,
    why: String,
}

/// A control of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Data,
    Tensor,
    Pipeline,
    Chunks,
    Microbatches,
    Schedule,
    Whole,
}

impl Split {
    pub(super) fn new(scenario: &Scenario, purpose: Purpose) -> Self {
        let (scenario, before) = (scenario.clone(), scenario.layout.clone());
        let mut split = Self { purpose, scenario, before, refusal: None };
        split.refusal = split.refusal();
        split
    }

    /// Which popup it is.
    pub(super) fn popup(&self) -> Popup {
        match self.purpose {
            Purpose::Train => Popup::Split,
            Purpose::Compare(half) => Popup::SplitOf(half),
        }
    }

    fn refusal(&self) -> Option<Refusal> {
        let layout = &self.scenario.layout;
        let ranks = layout.dp.saturating_mul(layout.tp).saturating_mul(layout.pp);
        if ranks > RANKS_MOST {
            let why =
                format!("{ranks} ranks are too many for one machine. Use {RANKS_MOST} at most");
            return Some(Refusal { at: Cut::Whole, why });
        }
        let spec = match self.scenario.model.resolve() {
            Ok(model) => StepSpec {
                model,
                layout: layout.clone(),
                training: self.scenario.training.clone(),
                purpose: planner::Purpose::Evaluate,
                device_kinds: Vec::new(),
            },
            Err(error) => return Some(Refusal { at: Cut::Whole, why: error.to_string() }),
        };
        let error = plan_step(&spec).err()?;
        Some(Refusal { at: blamed(&error), why: error.to_string() })
    }

    pub(super) fn show(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (heading, rest) = area.cut_top(look.gap(8));
        let title = match self.purpose {
            Purpose::Train => "Split of the run",
            Purpose::Compare(Half::Upper) => "Split of what is above",
            Purpose::Compare(Half::Lower) => "Split of what is below",
        };
        board.write(heading, title, Style::sized(look.heading()));
        let (foot, body) = rest.cut_bottom(look.gap(14));
        let before = self.scenario.layout.clone();
        let mut rows = Rows { rest: body, height: ROW * look.scale };
        let refusal = self.refusal.clone();
        let why = |cut: Cut| refusal.as_ref().filter(|r| r.at == cut).map(|r| r.why.as_str());
        let layout = &mut self.scenario.layout;
        rows.count(
            board,
            "data",
            "copies, each with its share of a batch",
            (&mut layout.dp, why(Cut::Data)),
        );
        rows.count(board, "tensor", "slices of every matrix", (&mut layout.tp, why(Cut::Tensor)));
        rows.count(
            board,
            "pipeline",
            "positions, each with its layers",
            (&mut layout.pp, why(Cut::Pipeline)),
        );
        rows.count(
            board,
            "microbatches",
            "pieces of a rank's batch",
            (&mut layout.microbatches, why(Cut::Microbatches)),
        );
        let zero = ZeroStage::WORDS;
        rows.choice(
            board,
            "ZeRO",
            "cut: 1 optimizer, 2 gradients, 3 weights",
            (zero, None),
            &mut layout.zero,
        );
        let words = ScheduleName::WORDS;
        rows.choice(
            board,
            "schedule",
            "order of forwards and backwards",
            (words, why(Cut::Schedule)),
            &mut layout.schedule,
        );
        if layout.chunks > 1 || why(Cut::Chunks).is_some() {
            rows.count(
                board,
                "chunks",
                "stages of a pipeline position",
                (&mut layout.chunks, why(Cut::Chunks)),
            );
        }
        rows.choice(
            board,
            "recompute",
            "computed again instead of kept",
            (Recompute::WORDS, None),
            &mut layout.recompute,
        );
        let mut sequence = if layout.sequence_parallel { Toggle::On } else { Toggle::Off };
        rows.choice(
            board,
            "sequence",
            "norms cut over the sequence as well",
            (&["off", "on"], None),
            &mut sequence,
        );
        layout.sequence_parallel = sequence == Toggle::On;
        if *layout != before {
            self.refusal = self.refusal();
        }
        self.foot(board, foot)
    }

    /// What it comes to, and the button.
    fn foot(&self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (button, text) = area.cut_right(look.gap(36));
        let layout = &self.scenario.layout;
        let (upper, lower) = text.cut_top(text.height / 2.0);
        if let Some(refusal) = &self.refusal {
            if refusal.at == Cut::Whole {
                board.write(upper, &refusal.why, Style::default().ink(look.theme.error));
            }
            return Vec::new();
        }
        let ranks = layout.mesh().size();
        board.write(
            upper,
            &format!("{ranks} rank{}", if ranks == 1 { "" } else { "s" }),
            Style::default(),
        );
        if let Some(formula) = texts::formula(layout) {
            let text = format!("waiting {:.1} %", 100.0 * formula);
            let small = Style::sized(look.small()).ink(look.theme.faint);
            if let Some(written) = board.write(lower, &text, small) {
                let (_, right) = lower.cut_left(written.width + look.gap(2));
                board.badge(right, Badge::Formula);
            }
        }
        let button = button.shrunk(0.0, look.gap(2));
        let changed = *layout != self.before;
        let (text, hint) = match self.purpose {
            Purpose::Train if changed => ("Train this split", "Starts a new run with these cuts."),
            Purpose::Train => ("Train again", "Starts a new run with these cuts."),
            Purpose::Compare(_) => {
                ("Compare it", "Plans a step with these cuts and lays it out, without running it.")
            }
        };
        if !board.button(button, Control::text("train split", text, hint)) {
            return Vec::new();
        }
        let command = match self.purpose {
            Purpose::Train => Command::Train(Box::new(self.scenario.clone())),
            Purpose::Compare(half) => {
                Command::Choose(half, Choice::Layout(Box::new(layout.clone())))
            }
        };
        vec![command, Command::Close]
    }
}

/// Whether something is on, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Toggle {
    Off,
    On,
}

impl std::fmt::Display for Toggle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::On { "on" } else { "off" })
    }
}

impl std::str::FromStr for Toggle {
    type Err = std::convert::Infallible;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(if word == "on" { Self::On } else { Self::Off })
    }
}

/// Which control a refusal is about.
fn blamed(error: &PlanError) -> Cut {
    match error {
        PlanError::Heads { .. } | PlanError::TooNarrow { .. } => Cut::Tensor,
        PlanError::TooFewRows { .. } => Cut::Microbatches,
        PlanError::TooManyStages { .. }
        | PlanError::StageUnits { .. }
        | PlanError::ScheduleRows { .. } => Cut::Pipeline,
        PlanError::Chunks { .. } => Cut::Chunks,
        PlanError::ScheduleFile { .. } | PlanError::Schedule { .. } => Cut::Schedule,
        _ => Cut::Whole,
    }
}

/// Rows of controls, one below the other.
struct Rows {
    rest: Area,
    height: f32,
}

impl Rows {
    fn next(&mut self, board: &mut Board<'_>, name: &str, about: &str, why: Option<&str>) -> Area {
        let look = board.look();
        let (row, rest) = self.rest.cut_top(self.height);
        self.rest = rest;
        let (label, right) = row.cut_left(look.gap(24));
        board.write(label, name, Style::default());
        let (controls, text) = right.cut_left((look.gap(58)).min(right.width * 0.55));
        let small = Style::sized(look.small());
        match why {
            Some(why) => self.refused(board, text, why),
            None => {
                board.write(text, about, small.ink(look.theme.faint));
            }
        }
        controls.shrunk(0.0, look.gap(1))
    }

    /// Two lines of red, broken at a word.
    fn refused(&self, board: &mut Board<'_>, area: Area, why: &str) {
        let look = board.look();
        let style = Style::sized(look.small()).ink(look.theme.error);
        let lines = board.lines(why, look.small(), area.width);
        let first = lines.first().map_or(0, |line| line.len());
        let (upper, lower) = area.cut_top(area.height / 2.0);
        match why.get(first..).unwrap_or_default().trim() {
            "" => board.write(area, why, style),
            second => {
                board.write(upper, &why[..first], style);
                board.write(lower, second, style)
            }
        };
    }

    /// − a number +.
    fn count(
        &mut self,
        board: &mut Board<'_>,
        name: &str,
        about: &str,
        (value, why): (&mut u32, Option<&str>),
    ) {
        let controls = self.next(board, name, about, why);
        let side = controls.height;
        let (minus, rest) = controls.cut_left(side);
        let (figure, rest) = rest.cut_left(board.look().gap(12));
        let (plus, _) = rest.cut_left(side);
        let hint = format!("Fewer: {about}.");
        let id = format!("{name} fewer");
        if board.button(minus, Control::icon(&id, Icon::Minus, &hint)) {
            *value = value.saturating_sub(1).max(1);
        }
        board.write(figure, &value.to_string(), Style::default().middle());
        let hint = format!("More: {about}.");
        let id = format!("{name} more");
        if board.button(plus, Control::icon(&id, Icon::Plus, &hint)) {
            *value += 1;
        }
    }

    /// One of several words.
    fn choice<T: std::fmt::Display + std::str::FromStr>(
        &mut self,
        board: &mut Board<'_>,
        name: &str,
        about: &str,
        (words, why): (&[&str], Option<&str>),
        value: &mut T,
    ) {
        let controls = self.next(board, name, about, why);
        let look = board.look();
        let chosen = value.to_string();
        // As wide as their words, or narrower where they must all fit.
        let wanted: Vec<f32> =
            words.iter().map(|word| board.width(word, look.body()) + look.gap(4)).collect();
        let gaps = look.gap(1) * (words.len() - 1) as f32;
        let shrink = ((controls.width - gaps) / wanted.iter().sum::<f32>()).min(1.0);
        let mut rest = controls;
        for (word, width) in words.iter().zip(wanted) {
            let (place, right) = rest.cut_left(width * shrink);
            rest = right.cut_left(look.gap(1)).1;
            let id = format!("{name} {word}");
            let hint = format!("{name} {word}: {about}.");
            let control = Control::text(&id, word, &hint).chosen(*word == chosen);
            if board.button(place, control)
                && let Ok(parsed) = word.parse()
            {
                *value = parsed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn refused(change: impl Fn(&mut Layout)) -> Option<Refusal> {
        let mut scenario = presets::quickstart();
        change(&mut scenario.layout);
        Split::new(&scenario, Purpose::Train).refusal
    }

    #[test]
    fn what_cannot_run_is_said_at_the_control_that_is_to_blame() {
        assert_eq!(refused(|_| {}), None);
        let heads = refused(|layout| layout.tp = 3).unwrap();
        assert_eq!(heads.at, Cut::Tensor);
        assert!(heads.why.contains("8 heads cannot be split over 3 tensor ranks"));
        assert_eq!(refused(|layout| layout.pp = 7).unwrap().at, Cut::Pipeline);
        assert_eq!(refused(|layout| layout.microbatches = 17).unwrap().at, Cut::Microbatches);
        assert_eq!(refused(|layout| layout.chunks = 2).unwrap().at, Cut::Chunks);
        let many = refused(|layout| (layout.dp, layout.tp, layout.pp) = (32, 8, 2)).unwrap();
        assert_eq!(many.at, Cut::Whole);
    }
}
