//! What the devices of an executor do at the most: large products and large copies, on all of its
//! ranks at once, so that what ranks share is shared here too.

use std::sync::Arc;

use super::probe::{NOTHING, Probe, Scene, lower_quartile};
use crate::exec::{ExecError, Executor};
use crate::ops::matmul::{Form, Matmul};
use crate::ops::{Kernel as _, Op};
use crate::plan::Plan;
use crate::trace::Trace;
use crate::units::Bytes;

/// Sides of products and bytes of copies are doubled up to here, or until one takes `ENOUGH`.
const SIDES: [u32; 4] = [256, 512, 1024, 2048];
const COPIED: [u32; 4] = [8 << 20, 16 << 20, 32 << 20, 64 << 20];
const ENOUGH: f64 = 1e7;
/// Of each on every rank, so many times.
const COUNT: u64 = 4;
const RUNS: u64 = 3;

/// What one place gets while all others work too: a worker of the host, or a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Side of the square product with the best rate.
    pub side: u32,
    /// Its operations a second.
    pub flops_per_sec: f64,
    /// Size of the largest copy.
    pub copied: Bytes,
    /// Its bytes a second, read and written.
    pub bytes_per_sec: f64,
}

impl Limits {
    /// Measures an executor that has loaded `plan`, whose ranks it has.
    ///
    /// # Errors
    /// If a device fails or gives no memory.
    ///
    /// # Panics
    /// Never: one size at least is measured.
    pub fn measure(executor: &mut Executor, plan: &Plan) -> Result<Self, ExecError> {
        let of_products = rates(executor, plan, SIDES, |side| {
            let op = Matmul { form: Form::Nn, m: side, n: side, k: side, accumulate: false };
            (op.flops().0 as f64, Probe::Launch(Op::Matmul(op)))
        })?;
        let of_copies =
            rates(executor, plan, COPIED, |bytes| (2.0 * f64::from(bytes), Probe::Copy { bytes }))?;
        let best = of_products.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (side, flops_per_sec) = best.expect("one size at least is measured");
        // The largest: smaller ones say how fast the caches are.
        let largest = of_copies.last().copied();
        let (bytes, bytes_per_sec) = largest.expect("one size at least is measured");
        Ok(Self { side, flops_per_sec, copied: Bytes(bytes.into()), bytes_per_sec })
    }
}

/// Sizes with their units a second.
fn rates(
    executor: &mut Executor,
    loaded: &Plan,
    sizes: [u32; 4],
    probe: impl Fn(u32) -> (f64, Probe),
) -> Result<Vec<(u32, f64)>, ExecError> {
    let mut rates = Vec::new();
    for size in sizes {
        let (units, probe) = probe(size);
        let mut scene = Scene::beside(loaded);
        probe.write(&mut scene, 1, COUNT);
        let id = executor.load(Arc::new(scene.plan))?;
        let mut taken = Vec::new();
        for step in 0..=RUNS {
            let trace = executor.run(id, step, &NOTHING)?.trace;
            // The first run finds memory that nobody has touched.
            if step > 0 {
                taken.extend(durations(&trace));
            }
        }
        let nanos = lower_quartile(taken);
        rates.push((size, units / nanos * 1e9));
        if nanos >= ENOUGH {
            break;
        }
    }
    Ok(rates)
}

fn durations(trace: &Trace) -> impl Iterator<Item = f64> {
    trace.spans.iter().flatten().map(|span| span.duration().0.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ExecOptions;

    #[test]
    fn a_product_computes_more_than_a_copy_moves() {
        let options = ExecOptions { threads: Some(2), ..ExecOptions::default() };
        let empty = Scene::new(2).plan;
        let limits = Limits::measure(&mut Executor::on_host(2, options), &empty).unwrap();
        assert!(SIDES.contains(&limits.side), "{limits:?}");
        assert!(COPIED.map(|bytes| Bytes(bytes.into())).contains(&limits.copied), "{limits:?}");
        // Four bytes an element, read and written: a core that adds slower than it copies is none.
        assert!(limits.flops_per_sec > limits.bytes_per_sec / 8.0, "{limits:?}");
    }
}
