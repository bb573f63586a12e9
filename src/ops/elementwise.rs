//! Additions and other elementwise work.

use serde::{Deserialize, Serialize};

use super::lanes::{part_count, part_units, vectorized};
use super::{Access, Args, Kernel, Signature};
use crate::units::Flops;

/// `c = a + b`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Add {
    /// Elements.
    pub len: u32,
}

impl Kernel for Add {
    fn name(&self) -> &'static str {
        "add"
    }
    fn signature(&self) -> Signature {
        Signature::default().input("a", self.len).input("b", self.len).output(
            "c",
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
        let (a, b) = (&args.f32(0)[range.clone()], &args.f32(1)[range.clone()]);
        let c = args.out(0, range);
        vectorized(
            #[inline(always)]
            || c.iter_mut().zip(a.iter().zip(b)).for_each(|(c, (a, b))| *c = a + b),
        );
    }
}

/// `y += x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddAssign {
    /// Elements.
    pub len: u32,
}

impl Kernel for AddAssign {
    fn name(&self) -> &'static str {
        "add_assign"
    }
    fn signature(&self) -> Signature {
        Signature::default().input("x", self.len).output("y", Access::ReadWrite, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(self.len.into())
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let range = part_units(self.len, 1, part);
        let x = &args.f32(0)[range.clone()];
        let y = args.out(0, range);
        vectorized(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, x)| *y += x),
        );
    }
}

/// `x *= factor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Elements.
    pub len: u32,
    /// The factor.
    pub factor: f32,
}

impl Kernel for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }
    fn signature(&self) -> Signature {
        Signature::default().output("x", Access::ReadWrite, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(self.len.into())
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        let x = args.out(0, part_units(self.len, 1, part));
        vectorized(
            #[inline(always)]
            || x.iter_mut().for_each(|x| *x *= self.factor),
        );
    }
}

/// `x = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Elements.
    pub len: u32,
    /// The value.
    pub value: f32,
}

impl Kernel for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }
    fn signature(&self) -> Signature {
        Signature::default().output("x", Access::Write, self.len)
    }
    fn flops(&self) -> Flops {
        Flops(0)
    }
    fn parts(&self) -> u32 {
        part_count(self.len, 1)
    }
    fn run(&self, part: u32, args: &Args<'_>) {
        args.out(0, part_units(self.len, 1, part)).fill(self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Random, bits, run};

    const LENGTHS: [u32; 4] = [1, 17, 1000, 100_003];

    #[test]
    fn sums_are_those_of_single_elements() {
        let mut random = Random::new(1);
        for len in LENGTHS {
            let (a, b) = (random.floats(len.into()), random.floats(len.into()));
            let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            assert_eq!(run(&Add { len }, &[&a, &b], &[])[0], expected);
            assert_eq!(run(&AddAssign { len }, &[&b], &[&a])[0], expected);
        }
    }

    #[test]
    fn scaling_and_filling_reach_every_element() {
        let mut random = Random::new(2);
        for len in LENGTHS {
            let x = random.floats(len.into());
            let expected: Vec<f32> = x.iter().map(|x| x * -0.3).collect();
            assert_eq!(run(&Scale { len, factor: -0.3 }, &[], &[&x])[0], expected);
            let zeros = run(&Fill { len, value: -0.0 }, &[], &[]);
            assert_eq!(bits(&zeros[0]), vec![1 << 31; len as usize]);
        }
    }

    #[test]
    fn a_large_op_is_cut_and_an_empty_one_is_not() {
        assert!(Add { len: 1 << 20 }.parts() > 8);
        assert_eq!(Add { len: 100 }.parts(), 1);
        assert!(run(&Add { len: 0 }, &[&[], &[]], &[])[0].is_empty());
    }
}
