//! Whether the cut that is planned can be trained here, on the model that is trained already: asked
//! beside the window, because a step of many microbatches takes seconds to be planned.

use std::io;

use eframe::egui;
use shardlab::config::{Layout, Scenario};
use shardlab::planner::{Purpose, StepSpec, plan_step};
use shardlab::train::driver::lower_priority;

use crate::latest::{Cancel, Latest};

/// More ranks than this are not trained from here.
const RANKS_MOST: u32 = 64;

/// Asks whether a cut can be trained here.
#[derive(Debug)]
pub(super) struct Here {
    worker: Latest<Question, Answer>,
    answer: Option<Answer>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    layout: Layout,
    /// What is trained here.
    scenario: Scenario,
}

/// What has come of it: what would be trained, or why it cannot be.
#[derive(Debug)]
struct Answer {
    question: Question,
    outcome: Result<Box<Scenario>, String>,
}

impl Default for Here {
    fn default() -> Self {
        Self { worker: Latest::new(answered), answer: None }
    }
}

impl Here {
    /// Whether an answer is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// Asks for a cut, unless that has been done; ends what was asked for any other.
    pub(super) fn follow(
        &mut self,
        ctx: &egui::Context,
        (layout, scenario): (Option<Layout>, &Scenario),
    ) -> io::Result<()> {
        let layout = layout.filter(|layout| too_many(layout).is_none());
        let wanted = layout.map(|layout| Question { layout, scenario: scenario.clone() });
        self.worker.follow(ctx, wanted)?;
        if let Some(answer) = self.worker.answer(ctx)? {
            self.answer = Some(answer);
        }
        Ok(())
    }

    /// What would be trained with a cut.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn scenario(&self, layout: &Layout) -> Result<&Scenario, String> {
        if let Some(why) = too_many(layout) {
            return Err(why);
        }
        let of = |answer: &&Answer| {
            Some(&answer.question) == self.worker.wanted() && answer.question.layout == *layout
        };
        match self.answer.as_ref().filter(of).map(|answer| &answer.outcome) {
            Some(Ok(scenario)) => Ok(scenario),
            Some(Err(why)) => Err(why.clone()),
            None => Err("Whether it can be trained here is still being checked".into()),
        }
    }
}

/// Why no machine trains so many ranks in one window.
fn too_many(layout: &Layout) -> Option<String> {
    let ranks = layout.mesh().size();
    (ranks > RANKS_MOST)
        .then(|| format!("{ranks} ranks are not trained on one machine: {RANKS_MOST} at most"))
}

fn answered(question: Question, cancel: &Cancel) -> Option<Answer> {
    // It steps back behind the window and what it predicts.
    lower_priority();
    if cancel.is_asked() {
        return None;
    }
    let outcome = trainable(&question);
    Some(Answer { question, outcome })
}

/// The cut for what is trained here, if it can be trained.
fn trainable(Question { layout, scenario }: &Question) -> Result<Box<Scenario>, String> {
    let mut scenario = scenario.clone();
    scenario.layout = Layout {
        bucket_bytes: scenario.layout.bucket_bytes,
        chunk_bytes: scenario.layout.chunk_bytes,
        ..layout.clone()
    };
    // A row for each microbatch at least.
    let least = layout.dp * layout.microbatches;
    scenario.training.batch = scenario.training.batch.max(least);
    let spec = StepSpec {
        model: scenario.model.resolve().map_err(|error| error.to_string())?,
        layout: scenario.layout.clone(),
        training: scenario.training.clone(),
        purpose: Purpose::Evaluate,
        device_kinds: Vec::new(),
    };
    match plan_step(&spec) {
        Ok(_) => Ok(Box::new(scenario)),
        Err(error) => Err(format!("The model here: {error}")),
    }
}
