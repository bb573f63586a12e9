//! The split of a run: how model and batch are cut over the ranks.
//!
//! Every choice is held against the planner at once; what cannot run says why, and how to mend it, in
//! a place of its own below the controls, so that none of them moves; the one that is to blame is red.

use shardlab::config::layout::ZeroStage;
use shardlab::config::{Layout, Recompute, Scenario, ScheduleName};
use shardlab::planner::{self, PlanError, StepSpec, plan_step};
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::Area;

use super::rows::{Blame, Rows, Said, Sight, line_height};
use crate::app::{Choice, Half};
use crate::board::{Board, Control, Style};
use crate::shown::{Command, Popup};
use crate::style::Look;
use crate::texts;

/// Heights of what stands above and below the rows and of the empty edges, in gaps.
const HEADING: u8 = 8;
const FOOT: u8 = 14;
const PADDING: u8 = 6;
/// What rows take at least, before scaling: the popup has a size before they were drawn.
const ROWS_LEAST: f32 = 400.0;
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
    sight: Sight,
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
        let mut split = Self { purpose, scenario, before, refusal: None, sight: Sight::default() };
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

    /// Height before scaling, in a window of this scale: what the rows took the last time.
    pub(super) fn height(&self, look: &Look) -> f32 {
        let around = HEADING + FOOT + PADDING;
        (self.sight.height.max(ROWS_LEAST * look.scale) + look.gap(around)) / look.scale
    }

    pub(super) fn show(&mut self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (heading, rest) = area.cut_top(look.gap(HEADING));
        let title = match self.purpose {
            Purpose::Train => "Split of the run",
            Purpose::Compare(Half::Upper) => "Split of what is above",
            Purpose::Compare(Half::Lower) => "Split of what is below",
        };
        board.write(heading, title, Style::sized(look.heading()));
        let (foot, body) = rest.cut_bottom(look.gap(FOOT));
        let before = self.scenario.layout.clone();
        let mut sight = self.sight;
        let mut rows = Rows::new(board, body, &mut sight);
        self.cuts(board, &mut rows);
        self.order(board, &mut rows);
        rows.end();
        self.sight = sight;
        if self.scenario.layout != before {
            self.changed(&before);
        }
        self.foot(board, foot)
    }

    /// Something else was chosen. A schedule comes with as many stages a position as it usually has,
    /// where the model has layers for them.
    fn changed(&mut self, before: &Layout) {
        let layout = &mut self.scenario.layout;
        let (stages, chunks) = (layout.schedule.stages(), layout.chunks);
        if layout.schedule != before.schedule {
            layout.chunks = stages.usual(chunks);
        }
        let is_more = layout.chunks != chunks;
        self.refusal = self.refusal();
        if self.refusal.is_some() && is_more && stages.allows(chunks) {
            self.scenario.layout.chunks = chunks;
            self.refusal = self.refusal();
        }
    }

    /// What is said of a control: what it is, and whether it is to blame.
    fn said<'a>(refusal: Option<&Refusal>, at: Cut, name: &'a str, about: &'a str) -> Said<'a> {
        let is_blamed = refusal.is_some_and(|refusal| refusal.at == at);
        Said { name, about, blame: if is_blamed { Blame::Yes } else { Blame::No } }
    }

    /// Into how many pieces model and batch are cut.
    fn cuts(&mut self, board: &mut Board<'_>, rows: &mut Rows<'_>) {
        let (layout, refusal) = (&mut self.scenario.layout, self.refusal.as_ref());
        let counts = [
            (Cut::Data, "data", "copies, each with its share of a batch", &mut layout.dp),
            (Cut::Tensor, "tensor", "slices of every matrix", &mut layout.tp),
            (Cut::Pipeline, "pipeline", "positions, each with its layers", &mut layout.pp),
            (
                Cut::Microbatches,
                "microbatches",
                "pieces of a rank's batch",
                &mut layout.microbatches,
            ),
        ];
        for (at, name, about, value) in counts {
            rows.count(board, Self::said(refusal, at, name, about), value);
        }
    }

    /// In which order the pieces run, and what is kept meanwhile.
    fn order(&mut self, board: &mut Board<'_>, rows: &mut Rows<'_>) {
        let (layout, refusal) = (&mut self.scenario.layout, self.refusal.as_ref());
        let plain = |name, about| Said { name, about, blame: Blame::No };
        let said = plain("ZeRO", "cut: 1 optimizer, 2 gradients, 3 weights");
        rows.choice(board, said, &named(ZeroStage::WORDS), &mut layout.zero);
        let about = "order of forwards and backwards";
        let said = Self::said(refusal, Cut::Schedule, "schedule", about);
        let mut schedules = ScheduleName::NAMED.to_vec();
        if let file @ ScheduleName::File(_) = &layout.schedule {
            schedules.push(file.clone());
        }
        let schedules: Vec<_> =
            schedules.into_iter().map(|name| (name.clone(), name.title())).collect();
        rows.choice(board, said, &schedules, &mut layout.schedule);
        let said = Self::said(refusal, Cut::Chunks, "chunks", "stages of a pipeline position");
        // Where there can be one alone, there is nothing to choose.
        if layout.chunks > 1 || layout.schedule.stages().allows(2) {
            rows.count(board, said, &mut layout.chunks);
        }
        let said = plain("recompute", "computed again instead of kept");
        rows.choice(board, said, &named(Recompute::WORDS), &mut layout.recompute);
        let said = plain("sequence", "norms cut over the sequence as well");
        let values = [(false, "off".to_owned()), (true, "on".to_owned())];
        rows.choice(board, said, &values, &mut layout.sequence_parallel);
    }

    /// What it comes to, and the button.
    fn foot(&self, board: &mut Board<'_>, area: Area) -> Vec<Command> {
        let look = board.look();
        let (button, text) = area.cut_right(look.gap(36));
        let layout = &self.scenario.layout;
        match &self.refusal {
            Some(refusal) => why(board, text, &refusal.why),
            None => whole(board, text, layout),
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
        let why = self.refusal.as_ref().map(|refusal| format!("{}.", refusal.why));
        let control = Control::text("train split", text, hint).unless(why.as_deref());
        if !board.button(button, control) {
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

/// Why the split cannot run, in as many lines as it takes.
fn why(board: &mut Board<'_>, area: Area, why: &str) {
    let look = board.look();
    let style = Style::sized(look.small()).ink(look.theme.error);
    let mut rest = area.cut_right(look.gap(2)).1;
    for line in board.lines(why, look.small(), rest.width) {
        let (place, below) = rest.cut_top(line_height(board));
        rest = below;
        board.write(place, line, style);
    }
}

/// What the split comes to.
fn whole(board: &mut Board<'_>, area: Area, layout: &Layout) {
    let look = board.look();
    let (upper, lower) = area.cut_top(area.height / 2.0);
    let ranks = layout.mesh().size();
    let text = format!("{ranks} rank{}", if ranks == 1 { "" } else { "s" });
    board.write(upper, &text, Style::default());
    if let Some(formula) = texts::formula(layout) {
        let text = format!("waiting {:.1} %", 100.0 * formula);
        let small = Style::sized(look.small()).ink(look.theme.faint);
        if let Some(written) = board.write(lower, &text, small) {
            let (_, right) = lower.cut_left(written.width + look.gap(2));
            board.badge(right, Badge::Formula);
        }
    }
}

/// Values by their words.
fn named<T: std::str::FromStr>(words: &[&str]) -> Vec<(T, String)> {
    let value = |word: &&str| Some((word.parse().ok()?, (*word).to_owned()));
    words.iter().filter_map(value).collect()
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
