//! Tests an adapter before it is trusted: small ops against the host, and how long loops may run.

use std::fmt;

use super::device::{GpuDevice, SELF_TEST_PLAN};
use super::kernels::KernelId;
use super::loaded::lower_program;
use super::lower::{Bound, Dispatch};
use super::params;
use crate::exec::ExecError;
use crate::exec::device::Device;
use crate::mesh::{Mesh, Rank, RankOrder};
use crate::ops::matmul::{Form, Matmul};
use crate::ops::reduction::{SquaredNorm, SumRanks};
use crate::ops::{Args, Kernel, Op};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Instr, Lane, Life, Origin, Place, Plan, Program, Role,
    View,
};

/// What the self test of an adapter found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfTest {
    /// In the order in which they ran.
    pub checks: Vec<Check>,
}

/// One check of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was tried.
    pub what: String,
    /// How it went.
    pub verdict: Verdict,
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Pass,
    /// Not as it should, but the kernels know how to live with it.
    Trait(String),
    /// The adapter cannot be trusted.
    Fail(String),
}

impl SelfTest {
    /// Why the adapter is refused, if it is.
    pub fn failure(&self) -> Option<String> {
        self.checks.iter().find_map(|check| match &check.verdict {
            Verdict::Fail(why) => Some(format!("its self test failed: {}: {why}", check.what)),
            Verdict::Pass | Verdict::Trait(_) => None,
        })
    }

    /// Whether long loops stop early.
    pub(super) fn has_short_loops(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.verdict, Verdict::Trait(_)))
    }
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Check { what, verdict }) in self.checks.iter().enumerate() {
            let end = if index + 1 < self.checks.len() { "\n" } else { "" };
            match verdict {
                Verdict::Pass => write!(f, "pass  {what}{end}")?,
                Verdict::Trait(how) => write!(f, "note  {what}: {how}{end}")?,
                Verdict::Fail(how) => write!(f, "FAIL  {what}: {how}{end}")?,
            }
        }
        Ok(())
    }
}

/// Longer than the 65,535 trips after which one old software driver stops.
const TRIPS: u32 = 70_000;
/// Largest error of an element, relative to the largest element.
const TOLERANCE: f32 = 1e-5;

/// Runs all checks.
///
/// # Errors
/// If the device fails altogether.
pub(super) fn run(device: &mut GpuDevice) -> Result<SelfTest, ExecError> {
    let matmul = |form, accumulate| Op::Matmul(Matmul { form, m: 67, n: 45, k: 83, accumulate });
    let ops = [
        matmul(Form::Nn, false),
        matmul(Form::Nt, true),
        matmul(Form::Tn, false),
        Op::SumRanks(SumRanks { ranks: 3, own: Some(1), len: 1000, accumulate: false }),
        Op::SquaredNorm(SquaredNorm { len: 40_000, guard: false, accumulate: false }),
    ];
    let mut bench = Bench::new(&ops);
    let counted = bench.buffer("counted".to_owned(), 2);
    let mut lowered = lower_program(&bench.plan, Rank(0), device.budget(), &device.fault)?;
    lowered.push(vec![count_trips(counted)]);
    let last = lowered.len() - 1;
    device.load_lowered(SELF_TEST_PLAN, &bench.plan, vec![(Rank(0), lowered)])?;

    let mut test = SelfTest::default();
    for (index, op) in ops.iter().enumerate() {
        let verdict = bench.check(device, index, op)?;
        test.checks.push(Check { what: format!("{op} equals the host's"), verdict });
    }
    device.encode(SELF_TEST_PLAN, Rank(0), last)?;
    let bytes = device.read(SELF_TEST_PLAN, Rank(0), counted)?;
    let counted: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
    let what = format!("a loop of {TRIPS} trips runs to its end");
    test.checks.push(Check { what, verdict: trips_verdict(counted[0], counted[1]) });
    device.unload(SELF_TEST_PLAN);
    Ok(test)
}

fn count_trips(counted: View) -> Dispatch {
    let params = params::SelfTest { trips: TRIPS, counted_at: 0 };
    Dispatch {
        kernel: KernelId::CountTrips,
        params: bytemuck::bytes_of(&params).to_vec(),
        bindings: vec![Bound::View(counted)],
        groups: [1, 1, 1],
    }
}

/// Judges a loop by the trips that it counted and the chain of numbers that it computed.
fn trips_verdict(trips: u32, chain: u32) -> Verdict {
    let link = |chain: u32, _| chain.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    if trips <= TRIPS && chain != (0..trips).fold(1, link) {
        Verdict::Fail(format!("it counts {trips} trips and computes something else"))
    } else if trips == TRIPS {
        Verdict::Pass
    } else if (super::open::SAFE_TRIPS..TRIPS).contains(&trips) {
        Verdict::Trait(format!(
            "it stops silently after {trips}; longer loops are cut into several dispatches"
        ))
    } else {
        Verdict::Fail(format!("it ran {trips} trips"))
    }
}

/// Judges an output by its largest difference from the host's.
fn verdict(got: &[f32], expected: &[f32]) -> Verdict {
    let scale = expected.iter().fold(f32::MIN_POSITIVE, |scale, x| scale.max(x.abs()));
    let wrong = got.iter().zip(expected).position(|(got, expected)| {
        let error = (got - expected).abs();
        error > TOLERANCE * scale || error.is_nan()
    });
    match wrong {
        None => Verdict::Pass,
        Some(at) => {
            Verdict::Fail(format!("element {at} is {} instead of {}", got[at], expected[at]))
        }
    }
}

/// A Plan of one rank whose every instruction has buffers of its own.
struct Bench {
    plan: Plan,
    bytes: u64,
}

impl Bench {
    fn new(ops: &[Op]) -> Self {
        let mesh = Mesh { dp: 1, tp: 1, pp: 1, order: RankOrder::default() };
        let (tensors, buffers) = (Vec::new(), Vec::new());
        let plan = Plan { mesh, tensors, buffers, programs: vec![Program::default()] };
        let mut bench = Self { plan, bytes: 0 };
        for (index, op) in ops.iter().enumerate() {
            let signature = op.signature();
            let mut view =
                |name: &str, len: u64| bench.buffer(format!("{index}.{name}"), len as u32);
            let inputs = signature.inputs.iter().map(|slot| view(slot.name, slot.len)).collect();
            let outputs = signature.outputs.iter();
            let outputs = outputs.map(|(slot, _)| view(slot.name, slot.len)).collect();
            let action = Action::Launch { op: op.clone(), inputs, outputs };
            let instr = Instr { lane: Lane::Compute, action, origin: Origin::default() };
            bench.plan.programs[0].instrs.push(instr);
        }
        bench
    }

    fn buffer(&mut self, label: String, len: u32) -> View {
        let place = Place { arena: Arena::Step, offset: self.bytes };
        self.bytes = (self.bytes + 4 * u64::from(len)).next_multiple_of(Place::ALIGN);
        self.plan.buffers.push(BufferDecl {
            rank: Rank(0),
            label,
            role: Role::Workspace,
            dtype: crate::shape::DType::F32,
            len,
            life: Life::Step,
            place,
            pieces: Vec::new(),
        });
        View { buffer: BufferId(self.plan.buffers.len() as u32 - 1), offset: 0, len }
    }

    /// Runs an instruction on the device and on the host.
    fn check(&self, device: &mut GpuDevice, instr: usize, op: &Op) -> Result<Verdict, ExecError> {
        let Action::Launch { inputs, outputs, .. } = &self.plan.programs[0].instrs[instr].action
        else {
            unreachable!("a bench only launches");
        };
        let data = |view: &View| numbers(view.buffer.0, view.len);
        let inputs_data: Vec<Vec<f32>> = inputs.iter().map(data).collect();
        let mut expected: Vec<Vec<f32>> = outputs.iter().map(data).collect();
        for (view, data) in inputs.iter().zip(&inputs_data).chain(outputs.iter().zip(&expected)) {
            device.write(SELF_TEST_PLAN, Rank(0), *view, bytemuck::cast_slice(data))?;
        }
        device.encode(SELF_TEST_PLAN, Rank(0), instr)?;
        let got: Vec<Vec<f32>> = outputs
            .iter()
            .map(|view| {
                let bytes = device.read(SELF_TEST_PLAN, Rank(0), *view)?;
                Ok(bytemuck::pod_collect_to_vec(&bytes))
            })
            .collect::<Result<_, ExecError>>()?;

        let inputs: Vec<&[f32]> = inputs_data.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [f32]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
        Args::with(&inputs, &mut outputs, |args| {
            (0..op.parts()).for_each(|part| op.run(part, args));
        });
        let verdicts = got.iter().zip(&expected).map(|(got, expected)| verdict(got, expected));
        let mut failed = verdicts.filter(|verdict| *verdict != Verdict::Pass);
        Ok(failed.next().unwrap_or(Verdict::Pass))
    }
}

/// Numbers between −1 and 1 that differ from buffer to buffer.
fn numbers(seed: u32, len: u32) -> Vec<f32> {
    let hash = |i: u32| (i.wrapping_add(seed << 16)).wrapping_mul(2_654_435_761) >> 8;
    (0..len).map(|i| hash(i) as f32 / (1 << 23) as f32 - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_refused_in_words() {
        let verdict = verdict(&[1.0, 2.5, 3.0], &[1.0, 2.0, 3.0]);
        assert_eq!(verdict, Verdict::Fail("element 1 is 2.5 instead of 2".to_owned()));
        let what = "matmul_nn equals the host's".to_owned();
        let test = SelfTest { checks: vec![Check { what, verdict }] };
        assert_eq!(
            test.failure().as_deref(),
            Some(
                "its self test failed: matmul_nn equals the host's: element 1 is 2.5 instead of 2"
            )
        );
    }

    #[test]
    fn nan_is_wrong_and_a_small_difference_is_not() {
        assert!(matches!(verdict(&[f32::NAN], &[1.0]), Verdict::Fail(_)));
        assert_eq!(verdict(&[1.000_001, 1e-7], &[1.0, 0.0]), Verdict::Pass);
    }

    #[test]
    fn a_loop_that_stops_early_is_a_trait_and_a_wrong_one_a_failure() {
        let link = |chain: u32, _| chain.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let chain = |trips: u32| (0..trips).fold(1, link);
        assert_eq!(trips_verdict(TRIPS, chain(TRIPS)), Verdict::Pass);
        assert!(matches!(trips_verdict(65_535, chain(65_535)), Verdict::Trait(_)));
        assert!(matches!(trips_verdict(30_000, chain(30_000)), Verdict::Fail(_)));
        assert!(matches!(trips_verdict(TRIPS, chain(5)), Verdict::Fail(_)));
    }
}
