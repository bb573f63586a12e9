//! The meaning of a Plan, in a hundred lines: every program read from top to bottom, sends
//! buffered, every buffer in memory of its own. Goal: a second opinion on the planner that shares
//! nothing with `exec` but the kernels; what differs between the two is a fault of places, waits or
//! lanes.

use std::collections::{BTreeMap, VecDeque};

use shardlab::mesh::Rank;
use shardlab::ops::{Args, Kernel};
use shardlab::plan::{Action, Held, Input, Life, Output, Plan, Scalar, Tag, View};
use shardlab::shape::DType;

/// What the host brings to a step.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// `[batch, seq]`.
    pub(crate) tokens: Vec<i32>,
    pub(crate) labels: Vec<i32>,
    pub(crate) seq: u32,
    pub(crate) lr: f32,
    pub(crate) bias_corrections: [f32; 2],
}

/// Sees an instruction (rank, index) and the contents of the views that it writes: before, after.
pub(crate) type Watch<'a> = &'a mut dyn FnMut((Rank, usize), &[Vec<f32>], &[Vec<f32>]);

/// All ranks' memory, a vector a buffer; integers are kept as the bits of floats.
pub(crate) struct Interpreter<'a> {
    plan: &'a Plan,
    memory: Vec<Vec<f32>>,
}

impl<'a> Interpreter<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        // Poison: reading what nobody wrote shows.
        let memory = plan.buffers.iter().map(|decl| {
            let fill = if decl.life == Life::Step { f32::NAN } else { 0.0 };
            vec![fill; decl.len as usize]
        });
        Self { plan, memory: memory.collect() }
    }

    /// Writes whole logical tensors into every piece that holds them.
    pub(crate) fn scatter(&mut self, held: Held, tensors: &BTreeMap<String, Vec<f32>>) {
        for (decl, memory) in self.plan.buffers.iter().zip(&mut self.memory) {
            for piece in decl.pieces.iter().filter(|piece| piece.held == held) {
                let logical = &self.plan.tensors[piece.tensor as usize];
                let cols = logical.shape.0.get(1).copied().unwrap_or(1);
                let whole = &tensors[&logical.name];
                for i in 0..piece.flat.end - piece.flat.start {
                    memory[(piece.offset + i) as usize] =
                        whole[piece.global_index(i, u32::try_from(cols).unwrap())];
                }
            }
        }
    }

    /// Reads whole logical tensors; replicas must have the same bits as the owned piece.
    pub(crate) fn gather(&self, held: Held) -> BTreeMap<String, Vec<f32>> {
        let mut tensors = BTreeMap::new();
        for owned in [true, false] {
            for (decl, memory) in self.plan.buffers.iter().zip(&self.memory) {
                let pieces = decl.pieces.iter();
                for piece in pieces.filter(|piece| piece.held == held && piece.owned == owned) {
                    let logical = &self.plan.tensors[piece.tensor as usize];
                    let cols = u32::try_from(logical.shape.0.get(1).copied().unwrap_or(1)).unwrap();
                    let len = usize::try_from(logical.shape.len()).unwrap();
                    let whole =
                        tensors.entry(logical.name.clone()).or_insert_with(|| vec![None; len]);
                    for i in 0..piece.flat.end - piece.flat.start {
                        let value: f32 = memory[(piece.offset + i) as usize];
                        let at: &mut Option<f32> = &mut whole[piece.global_index(i, cols)];
                        match *at {
                            None => *at = Some(value),
                            Some(first) => assert!(
                                !owned && first.to_bits() == value.to_bits(),
                                "{} on rank {} differs from its owner: {value} is not {first}",
                                logical.name,
                                decl.rank
                            ),
                        }
                    }
                }
            }
        }
        let whole = |values: Vec<Option<f32>>| -> Vec<f32> {
            values.into_iter().map(|value| value.expect("owned pieces cover the tensor")).collect()
        };
        tensors.into_iter().map(|(name, values)| (name, whole(values))).collect()
    }

    fn fill_inputs(&mut self, batch: &Batch) {
        let seq = batch.seq as usize;
        let valid = batch.labels.iter().filter(|label| **label != -100).count();
        for (decl, memory) in self.plan.buffers.iter().zip(&mut self.memory) {
            let Life::Input(input) = decl.life else { continue };
            let time_major = |values: &[i32], first: u32, rows: u32| -> Vec<f32> {
                let at = |t: usize, row: usize| values[(first as usize + row) * seq + t];
                let rows = 0..rows as usize;
                (0..seq)
                    .flat_map(|t| rows.clone().map(move |row| (t, row)))
                    .map(|(t, row)| f32::from_bits(at(t, row).cast_unsigned()))
                    .collect()
            };
            match input {
                Input::Tokens { first_row, rows } => {
                    *memory = time_major(&batch.tokens, first_row, rows);
                }
                Input::Labels { first_row, rows } => {
                    *memory = time_major(&batch.labels, first_row, rows);
                }
                Input::Scalars => {
                    let [one, two] = batch.bias_corrections;
                    *memory = vec![batch.lr, one, two, 1.0 / valid as f32];
                    assert_eq!(memory.len(), Scalar::COUNT as usize);
                }
                Input::RopeTable { seq, head_dim, theta_bits } => {
                    let theta = f64::from_bits(theta_bits);
                    *memory = (0..seq)
                        .flat_map(|t| (0..head_dim / 2).map(move |i| (t, i)))
                        .flat_map(|(t, i)| {
                            let power = -2.0 * f64::from(i) / f64::from(head_dim);
                            let angle = f64::from(t) * theta.powf(power);
                            [angle.cos() as f32, angle.sin() as f32]
                        })
                        .collect();
                }
            }
        }
    }

    fn read(&self, view: View) -> Vec<f32> {
        let range = view.offset as usize..(view.offset + view.len) as usize;
        self.memory[view.buffer.0 as usize][range].to_vec()
    }

    fn written_by(&self, action: &Action) -> Vec<Vec<f32>> {
        action.writes().iter().map(|view| self.read(*view)).collect()
    }

    fn write(&mut self, view: View, values: &[f32]) {
        let range = view.offset as usize..(view.offset + view.len) as usize;
        self.memory[view.buffer.0 as usize][range].copy_from_slice(values);
    }

    /// Runs one step and returns the mean loss and the squared gradient norm.
    pub(crate) fn run(&mut self, batch: &Batch) -> (f64, f64) {
        self.run_watched(batch, &mut |_, _, _| {})
    }

    /// As [`Interpreter::run`]; `watch` sees what lay where an instruction writes, before and
    /// after.
    pub(crate) fn run_watched(&mut self, batch: &Batch, watch: Watch<'_>) -> (f64, f64) {
        self.fill_inputs(batch);
        let mut at = vec![0; self.plan.programs.len()];
        let mut messages: BTreeMap<(Rank, Rank, Tag), VecDeque<Vec<f32>>> = BTreeMap::new();
        loop {
            let mut ran = false;
            for rank in self.plan.mesh.ranks() {
                let program = &self.plan.programs[rank.index()];
                while let Some(instr) = program.instrs.get(at[rank.index()]) {
                    let before = self.written_by(&instr.action);
                    match &instr.action {
                        Action::Launch { op, inputs, outputs } => {
                            let inputs: Vec<_> = inputs.iter().map(|v| self.read(*v)).collect();
                            let mut results: Vec<_> =
                                outputs.iter().map(|v| self.read(*v)).collect();
                            let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
                            let mut slices: Vec<&mut [f32]> =
                                results.iter_mut().map(Vec::as_mut_slice).collect();
                            Args::with(&inputs, &mut slices, |args| {
                                (0..op.parts()).for_each(|part| op.run(part, args));
                            });
                            for (view, values) in outputs.iter().zip(&results) {
                                self.write(*view, values);
                            }
                        }
                        Action::Send { view, to, tag, .. } => {
                            let data = self.read(*view);
                            messages.entry((rank, *to, *tag)).or_default().push_back(data);
                        }
                        Action::Recv { view, from, tag, .. } => {
                            let queue = messages.entry((*from, rank, *tag)).or_default();
                            let Some(data) = queue.pop_front() else { break };
                            self.write(*view, &data);
                        }
                        Action::Copy { from, to } => {
                            let data = self.read(*from);
                            self.write(*to, &data);
                        }
                    }
                    watch((rank, at[rank.index()]), &before, &self.written_by(&instr.action));
                    at[rank.index()] += 1;
                    ran = true;
                }
            }
            if !ran {
                break;
            }
        }
        let programs = self.plan.programs.iter().enumerate();
        let stuck: Vec<String> = programs
            .filter_map(|(rank, program)| {
                let instr = program.instrs.get(at[rank])?;
                Some(format!("rank {rank} #{}: {:?} {:?}", at[rank], instr.action, instr.origin))
            })
            .collect();
        assert!(stuck.is_empty(), "the programs hang:\n{}", stuck.join("\n"));
        assert!(messages.values().all(VecDeque::is_empty), "a message was never received");
        self.outputs(batch)
    }

    fn outputs(&self, batch: &Batch) -> (f64, f64) {
        let valid = batch.labels.iter().filter(|label| **label != -100).count();
        let (mut loss, mut norm) = (0.0, None);
        for (decl, memory) in self.plan.buffers.iter().zip(&self.memory) {
            assert!(decl.dtype == DType::F32 || matches!(decl.life, Life::Input(_)));
            match decl.life {
                Life::Output(Output::LossSum { counted: true }) => loss += f64::from(memory[0]),
                Life::Output(Output::SquaredNorm) => {
                    let same = norm.is_none_or(|first: f32| first.to_bits() == memory[0].to_bits());
                    assert!(same, "the norm differs between ranks");
                    norm = Some(memory[0]);
                }
                _ => {}
            }
        }
        (loss / valid as f64, norm.map_or(0.0, f64::from))
    }
}
