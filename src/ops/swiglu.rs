//! Gated activation (arXiv:2002.05202): a row of `gate_up` is `[gate | up]`, `act = silu(gate) · up`.

use serde::{Deserialize, Serialize};

use super::exp::exp;
use super::lanes::{Fma, elements, part_count, part_units, vectorized_fma};
use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;

/// Forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwiGlu {
    /// Rows (tokens).
    pub rows: u32,
    /// Columns of this rank.
    pub ffn: u32,
}

impl Kernel for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.ffn);
        Signature::default().input("gate_up", 2 * len).output("act", Access::Write, len)
    }
    fn flops(&self) -> Flops {
        Flops(5 * u64::from(self.rows) * u64::from(self.ffn))
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.ffn)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let ffn = self.ffn as usize;
        let rows = part_units(self.rows, self.ffn, part);
        let gate_up = &args.f32(0)[elements(&rows, 2 * ffn)];
        let act = args.out(0, elements(&rows, ffn));
        vectorized_fma(
            #[inline(always)]
            |fma| {
                for i in 0..rows.len() {
                    let (gate, up) = gate_up[2 * i * ffn..][..2 * ffn].split_at(ffn);
                    let act = &mut act[i * ffn..][..ffn];
                    for ((act, gate), up) in act.iter_mut().zip(gate).zip(up) {
                        *act = gate * sigmoid(fma, *gate).0 * up;
                    }
                }
            },
        );
    }
}

/// Gradient of gate and up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwiGluGrad {
    /// Rows (tokens).
    pub rows: u32,
    /// Columns of this rank.
    pub ffn: u32,
}

impl Kernel for SwiGluGrad {
    fn name(&self) -> &'static str {
        "swiglu_grad"
    }
    fn signature(&self) -> Signature {
        let len = u64::from(self.rows) * u64::from(self.ffn);
        Signature::default().input("gate_up", 2 * len).input("d_act", len).output(
            "d_gate_up",
            Access::Write,
            2 * len,
        )
    }
    fn flops(&self) -> Flops {
        Flops(9 * u64::from(self.rows) * u64::from(self.ffn))
    }
    fn parts(&self) -> u32 {
        part_count(self.rows, self.ffn)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let ffn = self.ffn as usize;
        let rows = part_units(self.rows, self.ffn, part);
        let gate_up = &args.f32(0)[elements(&rows, 2 * ffn)];
        let d_act = &args.f32(1)[elements(&rows, ffn)];
        let d_gate_up = args.out(0, elements(&rows, 2 * ffn));
        vectorized_fma(
            #[inline(always)]
            |fma| {
                for i in 0..rows.len() {
                    let (gate, up) = gate_up[2 * i * ffn..][..2 * ffn].split_at(ffn);
                    let (d_gate, d_up) = d_gate_up[2 * i * ffn..][..2 * ffn].split_at_mut(ffn);
                    let inputs = d_act[i * ffn..][..ffn].iter().zip(gate).zip(up);
                    for ((d_gate, d_up), ((d, gate), up)) in d_gate.iter_mut().zip(d_up).zip(inputs)
                    {
                        let (sigmoid, rest) = sigmoid(fma, *gate);
                        let silu = gate * sigmoid;
                        *d_up = d * silu;
                        // silu' = σ + gate σ (1 − σ)
                        *d_gate = d * up * (sigmoid + silu * rest);
                    }
                }
            },
        );
    }
}

/// `σ = 1 / (1 + e⁻ˣ)` and `1 − σ`, both to the last place.
#[inline(always)]
fn sigmoid(fma: Fma, x: f32) -> (f32, f32) {
    let e = exp(fma, -x);
    let sigmoid = 1.0 / (1.0 + e);
    (sigmoid, if e == f32::INFINITY { 1.0 } else { e * sigmoid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, assert_close, dot, finite_differences, run, wide};

    fn reference(ffn: u32, gate_up: &[f64]) -> Vec<f64> {
        let ffn = ffn as usize;
        let rows = gate_up.chunks(2 * ffn);
        rows.flat_map(|row| (0..ffn).map(|j| row[j] / (1.0 + (-row[j]).exp()) * row[ffn + j]))
            .collect()
    }

    /// Gates from −8 to 8.
    fn gate_up(random: &mut Random, rows: u32, ffn: u32) -> Vec<f32> {
        random.floats(u64::from(2 * rows * ffn)).iter().map(|x| 8.0 * x).collect()
    }

    #[test]
    fn activation_equals_its_definition() {
        for (rows, ffn) in [(1, 1), (3, 37), (601, 172)] {
            let x = gate_up(&mut Random::new(1), rows, ffn);
            let act = run(&SwiGlu { rows, ffn }, &[&x], &[]);
            assert_close(&act[0], &reference(ffn, &wide(&x)), 2e-7, "act");
        }
    }

    #[test]
    fn gradient_equals_finite_differences() {
        for (rows, ffn) in [(1, 1), (3, 19), (7, 16)] {
            let mut random = Random::new(2);
            let x = gate_up(&mut random, rows, ffn);
            let d_act = random.floats(u64::from(rows * ffn));
            let loss = |x: &[f64]| dot(&reference(ffn, x), &wide(&d_act));
            let expected = finite_differences(&wide(&x), loss);
            let d_x = run(&SwiGluGrad { rows, ffn }, &[&x, &d_act], &[]);
            assert_close(&d_x[0], &expected, 1e-6, "d_gate_up");
        }
    }

    #[test]
    fn gradient_of_many_rows_equals_its_formula() {
        let (rows, ffn) = (601, 172);
        let mut random = Random::new(3);
        let x = gate_up(&mut random, rows, ffn);
        let d_act = random.floats(u64::from(rows * ffn));
        let mut expected = vec![0.0; x.len()];
        for (i, &d) in d_act.iter().enumerate() {
            let (row, column) = (i / ffn as usize, i % ffn as usize);
            let place = row * 2 * ffn as usize + column;
            let (d, gate) = (f64::from(d), f64::from(x[place]));
            let up = f64::from(x[place + ffn as usize]);
            let sigmoid = 1.0 / (1.0 + (-gate).exp());
            expected[place] = d * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
            expected[place + ffn as usize] = d * gate * sigmoid;
        }
        let d_x = run(&SwiGluGrad { rows, ffn }, &[&x, &d_act], &[]);
        assert_close(&d_x[0], &expected, 3e-7, "d_gate_up");
    }

    #[test]
    fn huge_gates_stay_finite_and_nan_shows() {
        let x = [1e4, -1e4, f32::NAN, 1.0, 1.0, 1.0];
        let op = SwiGlu { rows: 1, ffn: 3 };
        let act = &run(&op, &[&x], &[])[0];
        assert_eq!(act[..2], [1e4, 0.0]);
        assert!(act[2].is_nan());
        let d = &run(&SwiGluGrad { rows: 1, ffn: 3 }, &[&x, &[1.0; 3]], &[])[0];
        assert_eq!([d[0], d[1], d[3], d[4]], [1.0, 0.0, 1e4, 0.0]);
        assert!(d[2].is_nan() && d[5].is_nan());
    }
}
