//! Changes of element type.

use serde::{Deserialize, Serialize};

use super::{Access, Args, Kernel, Signature};
use crate::shape::DType;
use crate::units::Flops;

/// `y = x` in another type. Only f32 ↔ i32 has a kernel; 16-bit floats are for predictions.
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
    fn run(&self, _part: u32, _args: &Args<'_>) {
        unimplemented!()
    }
}
