//! What the host writes before a step and reads after it: inputs and outputs of a Plan.
//!
//! Everything follows from the declarations of the buffers; nothing here knows a model.

use super::{ExecError, StepInput};
use crate::mesh::Rank;
use crate::ops::Scalar;
use crate::plan::{BufferDecl, BufferId, Input, Life, Output, Plan, View};

/// Label that counts nothing.
const IGNORED: i32 = -100;

/// The input and output buffers of a Plan.
#[derive(Debug)]
pub(super) struct Io {
    /// Written before every step.
    pub(super) inputs: Vec<(Rank, View, Input)>,
    /// Written once, when the Plan is loaded.
    pub(super) constants: Vec<(Rank, View, Input)>,
    /// Read after every step.
    pub(super) outputs: Vec<(Rank, View, Output)>,
}

impl Io {
    /// Finds them.
    pub(super) fn new(plan: &Plan) -> Self {
        let mut io = Self { inputs: Vec::new(), constants: Vec::new(), outputs: Vec::new() };
        for (id, decl) in (0..).map(BufferId).zip(&plan.buffers) {
            let view = View { buffer: id, offset: 0, len: decl.len };
            match decl.life {
                Life::Input(input @ Input::RopeTable { .. }) => {
                    io.constants.push((decl.rank, view, input));
                }
                Life::Input(input) => io.inputs.push((decl.rank, view, input)),
                Life::Output(output) => {
                    io.outputs.push((decl.rank, View { len: 1, ..view }, output));
                }
                Life::Persistent | Life::Step => {}
            }
        }
        io
    }
}

/// Whether a declaration of an input can be filled at all; the reason if not.
pub(super) fn input_fault(decl: &BufferDecl) -> Option<String> {
    let Life::Input(input) = decl.life else { return None };
    let (len, want) = match input {
        Input::Tokens { rows, .. } | Input::Labels { rows, .. } => {
            let len = u64::from(decl.len);
            (len, len.next_multiple_of(u64::from(rows.max(1))) * u64::from(rows > 0))
        }
        Input::Scalars => (decl.len.into(), Scalar::COUNT.into()),
        Input::RopeTable { seq, head_dim, .. } => {
            (decl.len.into(), u64::from(seq) * u64::from(head_dim / 2) * 2)
        }
    };
    let dtype = match input {
        Input::Tokens { .. } | Input::Labels { .. } => crate::shape::DType::I32,
        Input::Scalars | Input::RopeTable { .. } => crate::shape::DType::F32,
    };
    (len != want || decl.dtype != dtype).then(|| {
        let (rank, label) = (decl.rank, &decl.label);
        format!("rank {rank}: input {label} is {len} × {}, due are {want} × {dtype}", decl.dtype)
    })
}

/// Checks what the host brings against what the inputs of a Plan want.
pub(super) fn check_input(
    inputs: &[(Rank, View, Input)],
    step: &StepInput<'_>,
) -> Result<(), ExecError> {
    let refuse = |what: String, why: String| {
        let remedy = "Bring the batch that the Plan was made for".into();
        Err(ExecError::Input { what, why, remedy })
    };
    if step.tokens.len() != step.labels.len() {
        let (tokens, labels) = (step.tokens.len(), step.labels.len());
        return refuse("the batch".into(), format!("{tokens} tokens, {labels} labels"));
    }
    let seq = u64::from(step.seq);
    for &(rank, view, input) in inputs {
        let (Input::Tokens { first_row, rows } | Input::Labels { first_row, rows }) = input else {
            continue;
        };
        if u64::from(view.len) != seq * u64::from(rows) {
            let planned = view.len / rows.max(1);
            return refuse(
                "the batch".into(),
                format!("rows of {seq} tokens where rank {rank} was planned for {planned}"),
            );
        }
        let end = u64::from(first_row) + u64::from(rows);
        if end * seq > step.tokens.len() as u64 {
            let rows = step.tokens.len() as u64 / seq.max(1);
            return refuse("the batch".into(), format!("{rows} rows, rank {rank} reads row {end}"));
        }
    }
    Ok(())
}

/// One over the labels that count; 0 if there are none, so that nothing is divided by zero.
pub(super) fn inverse_valid_labels(labels: &[i32]) -> f64 {
    let valid = labels.iter().filter(|&&label| label != IGNORED).count();
    if valid == 0 { 0.0 } else { 1.0 / valid as f64 }
}

/// Replaces `bytes` by the contents of an input buffer.
pub(super) fn fill(bytes: &mut Vec<u8>, input: Input, step: &StepInput<'_>, inverse_valid: f64) {
    bytes.clear();
    match input {
        Input::Tokens { first_row, rows } => {
            time_major(bytes, step.tokens, step.seq, first_row, rows);
        }
        Input::Labels { first_row, rows } => {
            time_major(bytes, step.labels, step.seq, first_row, rows);
        }
        Input::Scalars => {
            let mut scalars = [0f32; Scalar::COUNT as usize];
            scalars[Scalar::LearningRate as usize] = step.lr;
            scalars[Scalar::BiasCorrection1 as usize] = step.bias_corrections[0];
            scalars[Scalar::BiasCorrection2 as usize] = step.bias_corrections[1];
            scalars[Scalar::InverseValidLabels as usize] = inverse_valid as f32;
            bytes.extend(scalars.iter().flat_map(|scalar| scalar.to_ne_bytes()));
        }
        Input::RopeTable { seq, head_dim, theta_bits } => {
            rope_table(bytes, seq, head_dim, f64::from_bits(theta_bits));
        }
    }
}

/// Rows `first_row..first_row + rows` of a `[batch, seq]` matrix as `[seq, rows]`.
fn time_major(bytes: &mut Vec<u8>, batch: &[i32], seq: u32, first_row: u32, rows: u32) {
    let (seq, first, rows) = (seq as usize, first_row as usize, rows as usize);
    for t in 0..seq {
        for row in first..first + rows {
            bytes.extend(batch[row * seq + t].to_ne_bytes());
        }
    }
}

/// `[seq, head_dim / 2, 2]` of (cos, sin) of `t · theta^(−2i / head_dim)`.
fn rope_table(bytes: &mut Vec<u8>, seq: u32, head_dim: u32, theta: f64) {
    for t in 0..seq {
        for i in 0..head_dim / 2 {
            let angle = f64::from(t) * theta.powf(-2.0 * f64::from(i) / f64::from(head_dim));
            bytes.extend((angle.cos() as f32).to_ne_bytes());
            bytes.extend((angle.sin() as f32).to_ne_bytes());
        }
    }
}

/// Loss and gradient norm of a step from its outputs.
#[derive(Debug, Default)]
pub(super) struct Sums {
    loss_sum: f64,
    squared_norm: Option<f32>,
}

impl Sums {
    /// One output; ranks come in ascending order.
    pub(super) fn add(&mut self, output: Output, value: f32) {
        match output {
            Output::LossSum { counted: true } => self.loss_sum += f64::from(value),
            Output::LossSum { counted: false } => {}
            Output::SquaredNorm => {
                self.squared_norm.get_or_insert(value);
            }
        }
    }

    /// Mean loss.
    pub(super) fn loss(&self, inverse_valid: f64) -> f64 {
        self.loss_sum * inverse_valid
    }

    /// Global gradient norm; 0 if the Plan computes none.
    pub(super) fn grad_norm(&self) -> f64 {
        self.squared_norm.map_or(0.0, |squared| f64::from(squared).sqrt())
    }
}
