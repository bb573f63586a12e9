//! Goal: on an adapter the same model is trained, within ten times what the host may be off.
//! Method: reference cases, mixed devices and drawn layouts on the first adapter that can run
//! ranks; its kernels have tests of their own against the host's.
//!
//! Without an adapter the tests print one line and pass; with `REQUIRE_GPU=1` they fail.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardlab::checkpoint::Tensor;
use shardlab::config::{Data, Layout, ModelSource, Scenario, Training, ZeroStage};
use shardlab::data::{Batch, Dataset};
use shardlab::exec::gpu::adapters;
use shardlab::exec::{DeviceKind, ExecOptions, Progress, Watcher};
use shardlab::plan::Held;
use shardlab::planner::StepSpec;
use shardlab::trace::captured::first;
use shardlab::train::{DeviceRequest, Options, Session, verify};

use crate::captured::assert_numbers_add_up;
use crate::cases::sessions;
use crate::equivalence::{batch, weights};
use crate::golden::{CASES, read};
use crate::layouts::{draw_spec, unsplit};
use crate::machine::{difference, train};
use crate::property::seeds;

/// The number of the first adapter that can run ranks, in the order of `doctor`.
fn adapter() -> Option<usize> {
    let found = adapters().iter().position(|adapter| adapter.unsuitable.is_none());
    if found.is_none() {
        let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
        assert!(!required, "REQUIRE_GPU=1 and no adapter can run ranks");
        println!("no adapter: nothing is trained on one");
    }
    found
}

/// One test at a time: a software adapter runs on the cores that the others wait for.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request(text: &str) -> DeviceRequest {
    text.parse().unwrap()
}

#[test]
fn an_adapter_trains_as_pytorch_does() {
    let _turn = alone();
    let Some(adapter) = adapter() else { return };
    let base = || Layout { microbatches: 2, ..Layout::default() };
    let layouts = [
        ("1", Layout::default()),
        ("2×2×2", Layout { dp: 2, tp: 2, pp: 2, ..base() }),
        ("zero 3, dp 2", Layout { dp: 2, zero: ZeroStage::Zero3, ..base() }),
        ("tp 2, sp", Layout { tp: 2, sequence_parallel: true, ..base() }),
    ];
    for golden in CASES.map(read) {
        for (name, layout) in &layouts {
            let devices = request(&adapter.to_string());
            let result =
                verify::against_golden(&golden, layout, &devices, &ExecOptions::default()).unwrap();
            assert!(result.pass, "{} with {name}: {result:?}", golden.name);
            assert_eq!(result.tolerance[0], 1e-4, "ranks ran on the adapter");
        }
    }
}

#[test]
fn a_host_and_an_adapter_train_together_and_keep_their_copies_equal() {
    let _turn = alone();
    let Some(adapter) = adapter() else { return };
    let base = || Layout { microbatches: 2, ..Layout::default() };
    // Replicas on two kinds of device; tensor ranks; stages.
    for layout in [
        Layout { dp: 2, ..base() },
        Layout { dp: 2, zero: ZeroStage::Zero1, ..base() },
        Layout { dp: 2, zero: ZeroStage::Zero3, ..base() },
        Layout { tp: 2, ..base() },
        Layout { pp: 2, dp: 2, ..base() },
    ] {
        let mut one = sessions::start(Layout::default());
        let devices = request(&format!("cpu,{adapter}"));
        let options = Options { devices, ..sessions::options() };
        let mut mixed = Session::start(sessions::scenario(layout.clone()), options).unwrap();
        let on_host = |session: &Session| {
            let devices = session.devices();
            devices.iter().filter(|device| device.kind == DeviceKind::Host).count()
        };
        let ranks = mixed.devices().len();
        assert!((1..ranks).contains(&on_host(&mixed)), "{layout:?}");
        for step in 0..50 {
            // A mean over the labels of the whole batch on both: the same number, not a multiple.
            let (a, b) = (one.step().unwrap(), mixed.step().unwrap());
            if step < 3 {
                for (a, b) in [(a.loss, b.loss), (a.grad_norm, b.grad_norm)] {
                    assert!((a - b).abs() <= 1e-4 * a, "step {step}: {a} is not {b}; {layout:?}");
                }
            }
            assert!(b.loss.is_finite());
        }
        for held in [Held::Weight, Held::Moment1, Held::Moment2] {
            assert_eq!(mixed.replica_difference(held).unwrap(), None, "{layout:?}");
        }
    }
}

#[test]
fn a_collective_is_captured_on_an_adapter_and_over_two_kinds_of_device() {
    let _turn = alone();
    let Some(adapter) = adapter() else { return };
    for devices in [adapter.to_string(), format!("cpu,{adapter}")] {
        let compiled = Arc::new(Mutex::new(Vec::new()));
        let start = || {
            let mut options = Options { devices: request(&devices), ..sessions::options() };
            let told = Arc::clone(&compiled);
            options.exec.watcher = Watcher::new(move |progress| {
                if let Progress::Compiling { done, of, .. } = progress {
                    told.lock().unwrap().push((done, of));
                }
            });
            let layout = Layout { dp: 4, zero: ZeroStage::Zero1, ..Layout::default() };
            Session::start(sessions::scenario(layout), options).unwrap()
        };
        let (mut plain, mut opened) = (start(), start());
        let told = std::mem::take(&mut *compiled.lock().unwrap());
        assert!(!told.is_empty() && told.iter().all(|(done, of)| done < of), "{told:?}");
        let at = first(opened.plan(), opened.order()).unwrap();
        for step in 0..2 {
            let right = plain.step().unwrap();
            let (report, captured) = opened.step_capturing(at).unwrap();
            assert_eq!(report.loss.to_bits(), right.loss.to_bits(), "{devices}, step {step}");
            assert_numbers_add_up(&captured, &devices);
        }
        let [a, b] = [&mut plain, &mut opened].map(|s| s.tensors(Held::Weight).unwrap());
        assert_eq!(a, b, "{devices}");
        // A state is kept and put back to the bit on any device.
        let kept = opened.snapshot().unwrap();
        let once = opened.step().unwrap().loss;
        opened.restore(&kept).unwrap();
        assert_eq!(opened.step().unwrap().loss.to_bits(), once.to_bits(), "{devices}");
    }
}

/// Losses and norms, gradients of the first step, and weights of two steps on an adapter.
fn on_adapter(spec: &StepSpec, seed: u64, adapter: usize) -> Session {
    let shapes = spec.model.tensors();
    let drawn = weights(spec, seed);
    let weights = shapes
        .into_iter()
        .map(|(name, shape)| {
            let data = drawn[&name].clone();
            (name, Tensor { shape, data })
        })
        .collect();
    let scenario = Scenario {
        name: format!("draw {seed}"),
        model: ModelSource::Sizes(spec.model.clone()),
        layout: spec.layout.clone(),
        training: spec.training.clone(),
        data: Data::default(),
    };
    let options = Options {
        devices: request(&adapter.to_string()),
        weights: Some(weights),
        dataset: Some(Dataset::from_tokens("none", &[0; 100])),
        ..Options::default()
    };
    Session::start(scenario, options).unwrap()
}

#[test]
fn drawn_layouts_train_on_an_adapter_like_one_rank_on_the_host() {
    let _turn = alone();
    let Some(adapter) = adapter() else { return };
    for seed in seeds(8) {
        let mut spec = draw_spec(seed, 8);
        spec.training = Training { warmup: 0, lr_min_ratio: 1.0, ..spec.training };
        let context = format!("SHARDLAB_SEED={seed}: {:?} {:?}", spec.layout, spec.model);
        let one = train(&unsplit(&spec), seed);
        let mut session = on_adapter(&spec, seed, adapter);
        let mut scalars = Vec::new();
        for step in 0..2 {
            let drawn = batch(&spec, seed + step);
            let rows = (0..spec.training.batch).collect();
            let batch = Batch { tokens: drawn.tokens, labels: drawn.labels, rows };
            let report = session.step_on(&batch).unwrap();
            scalars.extend([report.loss, report.grad_norm]);
            if step == 0 {
                let gradients = session.tensors(Held::Gradient).unwrap();
                let (gradient, name) = difference(&one.gradients, &gradients);
                assert!(gradient <= 1e-4, "gradient of {name}: {gradient:e}; {context}");
            }
        }
        for (a, b) in one.scalars.iter().zip(&scalars) {
            assert!((a - b).abs() <= 1e-4 * a.abs(), "{a} is not {b}; {context}");
        }
        let (weight, name) = difference(&one.weights, &session.tensors(Held::Weight).unwrap());
        assert!(weight <= 1e-4, "{name}: {weight:e}; {context}");
        for held in [Held::Weight, Held::Gradient] {
            assert_eq!(session.replica_difference(held).unwrap(), None, "{context}");
        }
    }
}
