//! Changes of element type.

use serde::{Deserialize, Serialize};

use super::lanes::{part_count, part_units, vectorized};
use super::{Access, Args, Kernel, Signature};
use crate::shape::DType;
use crate::units::Flops;

/// `y = x` in another type. Only f32 ↔ i32 has a kernel (towards zero, saturating, NaN to 0);
/// 16-bit floats are for predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cast {
    /// Type of the input.
    pub from: DType,
    /// Type of the output.
    pub to: DType,
    /// Elements.
    pub len: u32,
}

impl Kernel for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }
    fn signature(&self) -> Signature {
        Signature::default().typed_input("x", self.from, self.len).typed_output(
            "y",
            self.to,
            Access::Write,
            self.len,
        )
    }
    fn flops(&self) -> Flops {
        Flops(self.len.into())
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let range = part_units(self.len, 1, part);
        let y = args.out(0, range.clone());
        match (self.from, self.to) {
            (DType::F32, DType::I32) => {
                let x = &args.f32(0)[range];
                vectorized(
                    #[inline(always)]
                    || y.iter_mut().zip(x).for_each(|(y, &x)| *y = f32::from_bits(x as i32 as u32)),
                );
            }
            (DType::I32, DType::F32) => {
                let x = &args.i32(0)[range];
                vectorized(
                    #[inline(always)]
                    || y.iter_mut().zip(x).for_each(|(y, &x)| *y = x as f32),
                );
            }
            (from, to) => panic!("cast from {from} to {to} has no kernel; check before launching"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{from_i32, run, to_i32};

    #[test]
    fn floats_become_integers_towards_zero() {
        let x = [0.0, 1.9, -1.9, 1e10, -1e10, f32::NAN, f32::INFINITY];
        let op = Cast { from: DType::F32, to: DType::I32, len: 7 };
        let y: Vec<i32> = run(&op, &[&x], &[])[0].iter().copied().map(to_i32).collect();
        assert_eq!(y, [0, 1, -1, i32::MAX, i32::MIN, 0, i32::MAX]);
    }

    #[test]
    fn integers_become_the_nearest_floats() {
        let x = [0, -100, 16_777_217, i32::MIN].map(from_i32);
        let op = Cast { from: DType::I32, to: DType::F32, len: 4 };
        assert_eq!(run(&op, &[&x], &[])[0], [0.0, -100.0, 16_777_216.0, -2_147_483_648.0]);
    }

    #[test]
    #[should_panic(expected = "cast from bf16 to f32 has no kernel")]
    fn sixteen_bit_floats_have_no_kernel() {
        let op = Cast { from: DType::Bf16, to: DType::F32, len: 1 };
        run(&op, &[&[0.0]], &[]);
    }
}
