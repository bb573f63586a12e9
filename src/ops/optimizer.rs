//! Optimizers with global-norm clipping inside.
//!
//! The clip factor is `min(1, clip_norm / (norm + 1e-6))` as in `torch.nn.utils.clip_grad_norm_`;
//! `clip_norm = 0` switches it off. If the squared norm is not finite nothing is touched: data
//! never branches a Plan.

use serde::{Deserialize, Serialize};

use super::lanes::{part_count, part_units, vectorized};
use super::{Access, Args, Kernel, Scalar, Signature};
use crate::units::Flops;

/// `AdamW` (arXiv:1711.05101) in the order of `torch.optim.AdamW`: `w *= 1 − lr·decay`, moments, then
/// `w −= lr / bias1 · m / (√v / √bias2 + eps)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// Elements.
    pub len: u32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled decay; 0 for one-dimensional tensors.
    pub weight_decay: f32,
    /// Global norm limit; 0: off.
    pub clip_norm: f32,
}

impl Kernel for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("g", self.len)
            .input("squared_norm", 1u32)
            .input("scalars", Scalar::COUNT)
            .output("w", Access::ReadWrite, self.len)
            .output("m", Access::ReadWrite, self.len)
            .output("v", Access::ReadWrite, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(14 * u64::from(self.len))
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let Some(clip) = clip_factor(args.f32(1)[0], self.clip_norm) else { return };
        let scalars = args.f32(2);
        let lr = scalars[Scalar::LearningRate as usize];
        let step_size = lr / scalars[Scalar::BiasCorrection1 as usize];
        let root_of_bias2 = scalars[Scalar::BiasCorrection2 as usize].sqrt();
        let kept = 1.0 - lr * self.weight_decay;
        let (beta2, eps) = (self.beta2, self.eps);
        let (rest1, rest2) = (1.0 - self.beta1, 1.0 - self.beta2);

        let range = part_units(self.len, 1, part);
        let g = &args.f32(0)[range.clone()];
        let w = args.out(0, range.clone());
        let (m, v) = (args.out(1, range.clone()), args.out(2, range));
        vectorized(
            #[inline(always)]
            || {
                for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(g) {
                    let g = g * clip;
                    *m += rest1 * (g - *m);
                    *v = *v * beta2 + rest2 * g * g;
                    let denominator = v.sqrt() / root_of_bias2 + eps;
                    *w = *w * kept - step_size * *m / denominator;
                }
            },
        );
    }
}

/// `w −= lr · clip · g`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// Elements.
    pub len: u32,
    /// Global norm limit; 0: off.
    pub clip_norm: f32,
}

impl Kernel for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }
    fn signature(&self) -> Signature {
        Signature::default()
            .input("g", self.len)
            .input("squared_norm", 1u32)
            .input("scalars", Scalar::COUNT)
            .output("w", Access::ReadWrite, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(2 * u64::from(self.len))
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let Some(clip) = clip_factor(args.f32(1)[0], self.clip_norm) else { return };
        let lr = args.f32(2)[Scalar::LearningRate as usize];
        let range = part_units(self.len, 1, part);
        let g = &args.f32(0)[range.clone()];
        let w = args.out(0, range);
        vectorized(
            #[inline(always)]
            || w.iter_mut().zip(g).for_each(|(w, g)| *w -= lr * (clip * g)),
        );
    }
}

/// What gradients are multiplied by; `None` if the step must not change anything.
fn clip_factor(squared_norm: f32, clip_norm: f32) -> Option<f32> {
    if !squared_norm.is_finite() {
        None
    } else if clip_norm > 0.0 {
        Some((clip_norm / (squared_norm.sqrt() + 1e-6)).min(1.0))
    } else {
        Some(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, bits, run, wide};

    const ADAMW: AdamW =
        AdamW { len: 5001, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip_norm: 0.0 };

    /// `[w, m, v]` after a step, in double precision.
    fn adamw_reference(
        op: &AdamW,
        t: i32,
        lr: f64,
        clip: f64,
        state: &mut [Vec<f64>; 3],
        g: &[f32],
    ) {
        let (beta1, beta2) = (f64::from(op.beta1), f64::from(op.beta2));
        let [w, m, v] = state;
        for i in 0..g.len() {
            let g = f64::from(g[i]) * clip;
            w[i] *= 1.0 - lr * f64::from(op.weight_decay);
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            let m_hat = m[i] / (1.0 - beta1.powi(t));
            let v_hat = v[i] / (1.0 - beta2.powi(t));
            w[i] -= lr * m_hat / (v_hat.sqrt() + f64::from(op.eps));
        }
    }

    fn scalars(op: &AdamW, t: i32, lr: f64) -> [f32; 4] {
        let correction = |beta: f32| (1.0 - f64::from(beta).powi(t)) as f32;
        [lr as f32, correction(op.beta1), correction(op.beta2), f32::NAN]
    }

    #[test]
    fn adamw_follows_its_definition_over_several_steps() {
        for clip_norm in [0.0, 1.5, 1e6] {
            let op = AdamW { clip_norm, ..ADAMW };
            let mut random = Random::new(4);
            let mut state = vec![random.floats(5001), vec![0.0; 5001], vec![0.0; 5001]];
            let mut expected = [wide(&state[0]), wide(&state[1]), wide(&state[2])];
            for t in 1..=5 {
                let lr = 1e-2 / f64::from(t);
                let g = random.floats(5001);
                let squared: f64 = g.iter().map(|&g| f64::from(g).powi(2)).sum();
                let clip = match clip_norm {
                    0.0 => 1.0,
                    limit => (f64::from(limit) / (squared.sqrt() + 1e-6)).min(1.0),
                };
                adamw_reference(&op, t, lr, clip, &mut expected, &g);
                let before: Vec<&[f32]> = state.iter().map(Vec::as_slice).collect();
                let inputs = [g.as_slice(), &[squared as f32], &scalars(&op, t, lr)];
                state = run(&op, &inputs, &before);
            }
            for ((x, expected), what) in state.iter().zip(&expected).zip(["w", "m", "v"]) {
                assert_close(x, expected, 1e-6, what);
            }
        }
    }

    #[test]
    fn sgd_subtracts_the_clipped_gradient() {
        let mut random = Random::new(5);
        let (w, g) = (random.floats(40_000), random.floats(40_000));
        for (clip_norm, clip) in [(0.0, 1.0), (2.0, 0.5), (9.0, 1.0)] {
            let op = Sgd { len: 40_000, clip_norm };
            let after = run(&op, &[&g, &[16.0], &[0.1, 1.0, 1.0, 1.0]], &[&w]);
            let expected: Vec<f64> =
                w.iter().zip(&g).map(|(&w, &g)| f64::from(w) - 0.1 * clip * f64::from(g)).collect();
            assert_close(&after[0], &expected, 1e-6, "w");
        }
    }

    #[test]
    fn without_clipping_the_norm_does_not_matter() {
        let mut random = Random::new(6);
        let (w, g) = (random.floats(100), random.floats(100));
        let step = |norm: f32| {
            let op = Sgd { len: 100, clip_norm: 0.0 };
            bits(&run(&op, &[&g, &[norm], &[0.1, 1.0, 1.0, 1.0]], &[&w])[0])
        };
        assert_eq!(step(0.0), step(1e30));
    }

    #[test]
    fn a_norm_that_is_not_finite_touches_nothing() {
        let mut random = Random::new(7);
        let g = random.floats(5001);
        let state = [random.floats(5001), random.floats(5001), random.floats(5001)];
        let before = [state[0].as_slice(), &state[1], &state[2]];
        for norm in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for clip_norm in [0.0, 1.0] {
                let scalars = scalars(&ADAMW, 1, 0.1);
                let op = AdamW { clip_norm, ..ADAMW };
                let after = run(&op, &[&g, &[norm], &scalars], &before);
                for (after, before) in after.iter().zip(before) {
                    assert_eq!(bits(after), bits(before));
                }
                let op = Sgd { len: 5001, clip_norm };
                let after = run(&op, &[&g, &[norm], &scalars], &before[..1]);
                assert_eq!(bits(&after[0]), bits(before[0]));
            }
        }
    }

    #[test]
    fn an_update_does_not_depend_on_where_the_shard_was_cut() {
        let mut random = Random::new(8);
        let (g, w) = (random.floats(5001), random.floats(5001));
        let (m, v) = (random.floats(5001), vec![0.3; 5001]);
        let scalars = scalars(&ADAMW, 3, 0.1);
        let whole = run(&ADAMW, &[&g, &[2.0], &scalars], &[&w, &m, &v]);
        for cut in [1, 13, 4999] {
            let op = AdamW { len: 5001 - cut as u32, ..ADAMW };
            let part = run(&op, &[&g[cut..], &[2.0], &scalars], &[&w[cut..], &m[cut..], &v[cut..]]);
            for (part, whole) in part.iter().zip(&whole) {
                assert_eq!(bits(part), bits(&whole[cut..]));
            }
        }
    }
}
