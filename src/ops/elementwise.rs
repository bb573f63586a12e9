//! Additions and other elementwise work.

use serde::{Deserialize, Serialize};

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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
