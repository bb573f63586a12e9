//! Runs ops on a device and on the host, and compares.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use shardlab::exec::Device;
use shardlab::exec::gpu::{Adapter, GpuDevice, GpuOptions, adapters};
use shardlab::mesh::{Mesh, Rank, RankOrder};
use shardlab::ops::{Args, Kernel, Op};
use shardlab::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Place, Plan, Program, Role,
    View,
};
use shardlab::shape::DType;

/// The first adapter that can run ranks.
pub(crate) fn adapter() -> Option<Adapter> {
    static ADAPTER: OnceLock<Option<Adapter>> = OnceLock::new();
    let found = ADAPTER
        .get_or_init(|| adapters().into_iter().find(|adapter| adapter.unsuitable.is_none()))
        .clone();
    if found.is_none() {
        let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
        assert!(!required, "REQUIRE_GPU=1 and no adapter can run ranks");
        eprintln!("no adapter: kernels are not compared");
    }
    found
}

/// A device of the first adapter; `None` without one.
pub(crate) fn open(options: GpuOptions) -> Option<GpuDevice> {
    Some(GpuDevice::open(&adapter()?, options).unwrap())
}

/// The device that most tests share.
pub(crate) fn shared() -> Option<MutexGuard<'static, GpuDevice>> {
    static DEVICE: OnceLock<Option<Mutex<GpuDevice>>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| open(GpuOptions::default()).map(Mutex::new)).as_ref()?;
    Some(device.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Random numbers that are the same on every run.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// Floats between −`scale` and `scale`.
    pub(crate) fn floats(&mut self, len: u64, scale: f32) -> Vec<f32> {
        let float = |x: u64| (x as f32 / (1u64 << 31) as f32 - 1.0) * scale;
        (0..len).map(|_| float(self.next())).collect()
    }

    /// Integers of `start..end` as bits of floats.
    pub(crate) fn integers(&mut self, len: u64, start: i32, end: i32) -> Vec<f32> {
        let one = |x: u64| f32::from_bits((start + (x % (end - start) as u64) as i32) as u32);
        (0..len).map(|_| one(self.next())).collect()
    }
}

/// An op with the data of all its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Vec<f32>>,
    /// What the outputs hold before.
    pub(crate) outputs: Vec<Vec<f32>>,
    /// Largest error relative to the largest element of an output.
    pub(crate) tolerance: f32,
}

impl Case {
    /// An op over random floats.
    pub(crate) fn new(op: Op, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let signature = op.signature();
        let inputs = signature.inputs.iter().map(|slot| random.floats(slot.len, 1.0)).collect();
        let outputs = signature.outputs.iter();
        let outputs = outputs.map(|(slot, _)| random.floats(slot.len, 1.0)).collect();
        Self { op, inputs, outputs, tolerance: 1e-5 }
    }

    pub(crate) fn input(mut self, index: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), self.inputs[index].len(), "{}: input {index}", self.op);
        self.inputs[index] = data;
        self
    }

    pub(crate) fn output(mut self, index: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), self.outputs[index].len(), "{}: output {index}", self.op);
        self.outputs[index] = data;
        self
    }

    pub(crate) fn tolerance(mut self, tolerance: f32) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// What the host makes of the outputs.
    pub(crate) fn expected(&self) -> Vec<Vec<f32>> {
        let inputs: Vec<&[f32]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut expected = self.outputs.clone();
        let mut outputs: Vec<&mut [f32]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
        Args::with(&inputs, &mut outputs, |args| {
            (0..self.op.parts()).for_each(|part| self.op.run(part, args));
        });
        expected
    }
}

/// A Plan of one rank with a launch for each case, every argument in a buffer of its own, in which
/// its view starts `shift` elements after the beginning.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    shift: u32,
    bytes: u64,
}

/// What stands around views and must stay.
const FENCE: f32 = 12_345.5;

impl Bench {
    pub(crate) fn new(shift: u32) -> Self {
        let mesh = Mesh { dp: 1, tp: 1, pp: 1, order: RankOrder::default() };
        let (tensors, buffers) = (Vec::new(), Vec::new());
        let plan = Plan { mesh, tensors, buffers, programs: vec![Program::default()] };
        Self { plan, shift, bytes: 0 }
    }

    pub(crate) fn of(cases: &[Case], shift: u32) -> Self {
        let mut bench = Self::new(shift);
        cases.iter().for_each(|case| bench.launch(&case.op));
        bench
    }

    fn launch(&mut self, op: &Op) {
        let signature = op.signature();
        let inputs = signature.inputs.iter().map(|slot| self.view(slot.dtype, slot.len)).collect();
        let outputs =
            signature.outputs.iter().map(|(slot, _)| self.view(slot.dtype, slot.len)).collect();
        self.push(Action::Launch { op: op.clone(), inputs, outputs });
    }

    pub(crate) fn push(&mut self, action: Action) {
        let instr = Instr { lane: Lane::Compute, action, origin: Origin::default() };
        self.plan.programs[0].instrs.push(instr);
    }

    pub(crate) fn view(&mut self, dtype: DType, len: u64) -> View {
        let index = self.plan.buffers.len() as u32;
        // Each argument starts at another distance from a place that may be bound.
        let offset = if self.shift == 0 { 0 } else { self.shift + index % 3 };
        let decl = BufferDecl {
            rank: Rank(0),
            label: format!("buffer {index}"),
            role: Role::Workspace,
            dtype,
            len: offset + len as u32 + 3,
            life: Life::Step,
            place: Place { arena: Arena::Step, offset: self.bytes },
            pieces: Vec::new(),
        };
        self.bytes = (self.bytes + decl.bytes().0).next_multiple_of(Place::ALIGN);
        self.plan.buffers.push(decl);
        View { buffer: BufferId(index), offset, len: len as u32 }
    }

    fn views(&self, instr: usize) -> (&[View], &[View]) {
        match &self.plan.programs[0].instrs[instr].action {
            Action::Launch { inputs, outputs, .. } => (inputs, outputs),
            other => panic!("{other:?} is no launch"),
        }
    }

    /// Writes the arguments of a case with fences around them.
    pub(crate) fn write(&self, device: &mut GpuDevice, instr: usize, case: &Case) {
        let (inputs, outputs) = self.views(instr);
        let arguments = inputs.iter().zip(&case.inputs).chain(outputs.iter().zip(&case.outputs));
        for (view, data) in arguments {
            let all = self.fenced(*view, data);
            device.write(0, Rank(0), self.whole(*view), &bytes(&all)).unwrap();
        }
    }

    fn fenced(&self, view: View, data: &[f32]) -> Vec<f32> {
        let mut all = vec![FENCE; self.plan.buffer(view.buffer).len as usize];
        all[view.offset as usize..][..data.len()].copy_from_slice(data);
        all
    }

    fn whole(&self, view: View) -> View {
        View { offset: 0, len: self.plan.buffer(view.buffer).len, ..view }
    }

    /// The outputs after a launch.
    pub(crate) fn outputs(&self, device: &mut GpuDevice, instr: usize) -> Vec<Vec<f32>> {
        let (_, outputs) = self.views(instr);
        outputs.iter().map(|view| floats(&device.read(0, Rank(0), *view).unwrap())).collect()
    }

    /// Asserts that fences and inputs are what they were.
    fn assert_nothing_else_changed(&self, device: &mut GpuDevice, instr: usize, case: &Case) {
        let (inputs, outputs) = self.views(instr);
        for (view, data) in inputs.iter().zip(&case.inputs) {
            let after = floats(&device.read(0, Rank(0), self.whole(*view)).unwrap());
            assert_eq!(bits(&after), bits(&self.fenced(*view, data)), "{}: input", case.op);
        }
        for view in outputs {
            let after = floats(&device.read(0, Rank(0), self.whole(*view)).unwrap());
            let (before, rest) = after.split_at(view.offset as usize);
            let after = &rest[view.len as usize..];
            assert!(before.iter().chain(after).all(|&x| x == FENCE), "{}: fence", case.op);
        }
    }
}

pub(crate) fn bytes(data: &[f32]) -> Vec<u8> {
    data.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect()
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_bits(u32::from_le_bytes(*word))).collect()
}

pub(crate) fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

/// Runs all cases in one batch on a device, with views that start at two places, and compares with
/// the host.
pub(crate) fn assert_twins(device: &mut GpuDevice, cases: &[Case]) {
    for shift in [0, 1] {
        let bench = Bench::of(cases, shift);
        device.load(0, &bench.plan, &[Rank(0)]).unwrap();
        for (instr, case) in cases.iter().enumerate() {
            bench.write(device, instr, case);
        }
        (0..cases.len()).for_each(|instr| device.encode(0, Rank(0), instr).unwrap());
        for (instr, case) in cases.iter().enumerate() {
            let outputs = bench.outputs(device, instr);
            for (index, (got, expected)) in outputs.iter().zip(case.expected()).enumerate() {
                assert_close(got, &expected, case, index);
            }
            bench.assert_nothing_else_changed(device, instr, case);
        }
    }
}

fn assert_close(got: &[f32], expected: &[f32], case: &Case, index: usize) {
    let scale = expected.iter().filter(|x| x.is_finite()).fold(0f32, |max, x| max.max(x.abs()));
    for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let equal = got == expected || (got.is_nan() && expected.is_nan());
        let error = (got - expected).abs();
        assert!(
            equal || error <= case.tolerance * scale,
            "{:?}: output {index}, element {at}: {got} instead of {expected} (largest {scale})",
            case.op
        );
    }
}

/// The outputs of one case.
pub(crate) fn run(device: &mut GpuDevice, case: &Case) -> Vec<Vec<f32>> {
    let bench = Bench::of(std::slice::from_ref(case), 1);
    device.load(0, &bench.plan, &[Rank(0)]).unwrap();
    bench.write(device, 0, case);
    device.encode(0, Rank(0), 0).unwrap();
    bench.outputs(device, 0)
}
