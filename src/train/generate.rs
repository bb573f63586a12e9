//! Text from trained weights: one token after the other, each drawn from what the model expects.
//!
//! The forward pass is the one that training measures held-out losses with, on one rank: its Plan
//! runs in program order up to the logits, which are read there, before their memory is used again.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::TrainError;
use super::session::writing;
use crate::checkpoint::Tensors;
use crate::checkpoint::pieces;
use crate::config::{Layout, Model, Training};
use crate::data::Batches;
use crate::exec::{ExecOptions, Executor, PlanId, StepInput};
use crate::mesh::Rank;
use crate::ops::Op;
use crate::plan::{Action, Held, Plan, View};
use crate::planner::{Purpose, StepSpec, plan_step};
use crate::random::{key, unit};

/// Tells what comes next after some tokens.
#[derive(Debug)]
pub struct Generator {
    executor: Executor,
    plan: PlanId,
    /// The instruction that reads the logits first, and where they lie.
    logits: (u32, View),
    context: u32,
    vocab: u32,
}

impl Generator {
    /// For a model that looks back at `context` tokens at the most.
    ///
    /// # Errors
    /// If the weights are not those of the model, or memory does not suffice.
    ///
    /// # Panics
    /// Never: the Plan of an evaluation ends with the logits of its only rank.
    pub fn new(model: &Model, weights: &Tensors, context: u32) -> Result<Self, TrainError> {
        let spec = StepSpec {
            model: model.clone(),
            layout: Layout::default(),
            training: Training { batch: 1, seq: context, ..Training::default() },
            purpose: Purpose::Evaluate,
            device_kinds: Vec::new(),
        };
        let plan = Arc::new(plan_step(&spec)?);
        let logits = logits_of(&plan).expect("the last stage makes logits");
        let mut executor = Executor::on_host(1, ExecOptions::default());
        let id = executor.load(Arc::clone(&plan))?;
        writing(&mut executor, id, |write| pieces::scatter(&plan, Held::Weight, weights, write))??;
        Ok(Self { executor, plan: id, logits, context, vocab: model.vocab_size })
    }

    /// Logits of the token that follows; of more tokens than the context only the last ones count.
    ///
    /// # Errors
    /// If a device fails.
    ///
    /// # Panics
    /// If there are no tokens, or one is not in the vocabulary.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, TrainError> {
        assert!(
            tokens.iter().all(|token| *token < self.vocab),
            "a token outside of the vocabulary"
        );
        let context = self.context as usize;
        let seen = &tokens[tokens.len().saturating_sub(context)..];
        let last = seen.len().checked_sub(1).expect("something comes before what follows");
        // What comes after the last token is never looked back at.
        let mut input: Vec<i32> = seen.iter().map(|token| *token as i32).collect();
        input.resize(context, 0);
        let mut labels = vec![Batches::IGNORED; context];
        labels[last] = 0;
        let input = StepInput {
            tokens: &input,
            labels: &labels,
            seq: self.context,
            lr: 0.0,
            bias_corrections: [1.0; 2],
        };
        let (at, view) = self.logits;
        let start = last as u32 * self.vocab;
        let row = view.slice(start..start + self.vocab);
        let (plan, mut found) = (self.plan, Vec::new());
        self.executor.run_in_order(plan, 0, &input, &mut |executor, (_, instr)| {
            if instr != at {
                return Ok(ControlFlow::Continue(()));
            }
            found = executor.read(plan, row)?;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

/// The launch that reads the logits first, for the loss, and where they lie.
fn logits_of(plan: &Plan) -> Option<(u32, View)> {
    let instrs = &plan.programs[Rank(0).index()].instrs;
    (0..).zip(instrs).find_map(|(index, instr)| match &instr.action {
        Action::Launch { op: Op::LossStats(_), inputs, .. } => Some((index, *inputs.first()?)),
        _ => None,
    })
}

/// How a token is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it: below 1 likely tokens become likelier; 0 takes the likeliest.
    pub temperature: f64,
    /// Only so many of the likeliest are drawn from; `None`: all.
    pub top: Option<u32>,
    /// Equal seeds draw equal tokens.
    pub seed: u64,
}

impl Sampling {
    /// Draws the `index`-th token. Logits that are not finite are never drawn.
    pub fn draw(&self, logits: &[f32], index: u64) -> u32 {
        let mut tokens: Vec<(u32, f64)> =
            (0..).zip(logits).map(|(token, logit)| (token, f64::from(*logit))).collect();
        tokens.retain(|(_, logit)| logit.is_finite());
        // Of equal ones the earlier token.
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let Some(&(likeliest, most)) = tokens.first() else { return 0 };
        if self.temperature <= 0.0 {
            return likeliest;
        }
        tokens.truncate(self.top.map_or(usize::MAX, |top| top.max(1) as usize));
        let weight = |logit: f64| ((logit - most) / self.temperature).exp();
        let all: f64 = tokens.iter().map(|(_, logit)| weight(*logit)).sum();
        let mut left = unit(key(self.seed, "generate"), index) * all;
        for (token, logit) in &tokens {
            left -= weight(*logit);
            if left < 0.0 {
                return *token;
            }
        }
        likeliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ModelSource, Scenario};
    use crate::train::{DeviceRequest, Options, Session};

    fn trained() -> Session {
        let model = ModelSource::Preset("tiny".into());
        let training = Training { batch: 4, seq: 16, steps: 3, ..Training::default() };
        let scenario =
            Scenario { model, training, layout: Layout::default(), ..Scenario::quickstart() };
        let options = Options { devices: DeviceRequest::cpu(), ..Options::default() };
        let mut session = Session::start(scenario, options).unwrap();
        for _ in 0..3 {
            session.step().unwrap();
        }
        session
    }

    #[test]
    fn logits_give_the_loss_that_training_measures() {
        let mut session = trained();
        let weights = session.tensors(Held::Weight).unwrap();
        let mut generator = Generator::new(session.model(), &weights, 16).unwrap();
        let measured = session.evaluate(1).unwrap();
        let batch = session.batches().held_out(4).next().unwrap();
        let mut sum = 0.0;
        for (row, labels) in batch.tokens.chunks(16).zip(batch.labels.chunks(16)) {
            let row: Vec<u32> = row.iter().map(|token| *token as u32).collect();
            for (last, label) in labels.iter().enumerate() {
                let logits = generator.logits(&row[..=last]).unwrap();
                let most = logits.iter().copied().fold(f32::MIN, f32::max);
                let all: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
                sum += all.ln() + f64::from(most - logits[*label as usize]);
            }
        }
        let mean = sum / batch.labels.len() as f64;
        assert!((mean - measured).abs() < 1e-5 * measured, "{mean} {measured}");
    }

    #[test]
    fn what_lies_beyond_the_context_does_not_count() {
        let mut session = trained();
        let weights = session.tensors(Held::Weight).unwrap();
        let mut generator = Generator::new(session.model(), &weights, 16).unwrap();
        let long: Vec<u32> = (0..40).map(|i| 30 + i % 7).collect();
        assert_eq!(generator.logits(&long).unwrap(), generator.logits(&long[24..]).unwrap());
        assert_ne!(generator.logits(&long).unwrap(), generator.logits(&long[25..]).unwrap());
    }

    #[test]
    fn draws_follow_the_logits_and_the_seed() {
        let logits = [0.0, 2.0_f32.ln(), f32::NAN, f32::NEG_INFINITY, 5.0_f32.ln()];
        let sampling = Sampling { temperature: 1.0, top: None, seed: 7 };
        let mut counts = [0_i32; 5];
        for index in 0..8_000 {
            counts[sampling.draw(&logits, index) as usize] += 1;
            assert_eq!(sampling.draw(&logits, index), sampling.draw(&logits, index));
        }
        // One, two and five of eight.
        for (token, expected) in [(0, 1_000), (1, 2_000), (4, 5_000)] {
            assert!((counts[token] - expected).abs() < 150, "{counts:?}");
        }
        assert_eq!((counts[2], counts[3]), (0, 0));
        let greedy = Sampling { temperature: 0.0, ..sampling };
        let two = Sampling { top: Some(2), ..sampling };
        for index in 0..200 {
            assert_eq!(greedy.draw(&logits, index), 4);
            assert_ne!(two.draw(&logits, index), 0);
        }
    }
}
