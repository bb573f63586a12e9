//! Goal: many ranks, many steps, little memory. Method: a world of 64 ranks; a thousand steps in a
//! process of their own; the quickstart's model under a cap.

use std::process::Command;
use std::time::{Duration, Instant};

use shardlab::config::{Layout, Recompute, Scenario, ScheduleName, Training, ZeroStage};
use shardlab::exec::{self, ExecOptions};
use shardlab::planner::{Purpose, StepSpec, plan_step};
use shardlab::train::{DeviceRequest, Options, Session, TrainError};
use shardlab::units::Bytes;

use crate::cases::sessions::start;
use crate::cases::{assert_close, model, sgd, spec};
use crate::layouts::unsplit;
use crate::machine::run;

#[test]
fn sixty_four_ranks_train_like_one() {
    let begun = Instant::now();
    for (zero, sequence_parallel) in [(ZeroStage::Zero1, false), (ZeroStage::Zero3, true)] {
        let base = Layout { zero, sequence_parallel, microbatches: 4, ..Layout::default() };
        let layout = Layout { dp: 4, tp: 4, pp: 4, ..base };
        let training = Training { lr: 0.3, clip_norm: 0.5, ..sgd(16, 6) };
        let spec = spec(model(), layout, training);
        let plan = plan_step(&spec).unwrap();
        assert_eq!(plan.programs.len(), 64);
        let many = run(plan, &spec, 1, ExecOptions::default(), 5).unwrap();
        let alone = unsplit(&spec);
        let one = run(plan_step(&alone).unwrap(), &alone, 1, ExecOptions::default(), 5).unwrap();
        assert_close(&one, &many, &format!("4×4×4, ZeRO {zero}"));
    }
    let limit = Duration::from_secs(120);
    assert!(begun.elapsed() <= limit, "{:?}", begun.elapsed());
}

/// Set in the process that measures itself.
const ALONE: &str = "SHARDLAB_TEST_ALONE";

#[test]
fn memory_is_flat_over_a_thousand_steps_of_training() {
    // Other tests allocate in this process, so the steps run in one of their own.
    if std::env::var_os(ALONE).is_none() {
        let test = "limits::memory_is_flat_over_a_thousand_steps_of_training";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let layout =
        Layout { dp: 2, pp: 2, zero: ZeroStage::Zero2, microbatches: 2, ..Layout::default() };
    let mut session = start(layout);
    let ranks: Vec<_> = session.plan().mesh.ranks().collect();
    let allocated =
        |session: &Session| ranks.iter().map(|rank| session.allocated(*rank)).collect::<Vec<_>>();
    let (mut resident, first) = (None, allocated(&session));
    for step in 1..=1000 {
        session.step().unwrap();
        assert_eq!(allocated(&session), first, "step {step}");
        if step == 100 {
            resident = resident_pages();
        }
    }
    let (Some(before), Some(after)) = (resident, resident_pages()) else {
        println!(
            "this system does not tell a process what it holds: only allocations are compared"
        );
        return;
    };
    assert!(after * 20 <= before * 21, "{before} pages after 100 steps, {after} after 1000");
}

/// Pages of this process in memory, on systems that tell.
fn resident_pages() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn spec_of(scenario: &Scenario, layout: Layout) -> StepSpec {
    StepSpec {
        model: scenario.model.resolve().unwrap(),
        layout,
        training: scenario.training.clone(),
        purpose: Purpose::Train,
        device_kinds: Vec::new(),
    }
}

/// The most that a rank places for training and for the held-out loss.
fn need(spec: &StepSpec) -> Bytes {
    let purposes = [Purpose::Train, Purpose::Evaluate];
    let plans = purposes.map(|purpose| plan_step(&StepSpec { purpose, ..spec.clone() }).unwrap());
    let ranks = plans[0].mesh.ranks();
    ranks.map(|rank| exec::need(&[&plans[0], &plans[1]], rank)).max().unwrap()
}

/// The layout that flags of the command line change.
fn with_flags(base: &Layout, flags: &str) -> Layout {
    let mut layout = Layout { recompute: Recompute::None, zero: ZeroStage::Zero0, ..base.clone() };
    let words: Vec<&str> = flags.split_whitespace().collect();
    for pair in words.chunks(2) {
        let [flag, value] = pair else { panic!("a flag and its value: {pair:?}") };
        match *flag {
            "--dp" => layout.dp = value.parse().unwrap(),
            "--tp" => layout.tp = value.parse().unwrap(),
            "--pp" => layout.pp = value.parse().unwrap(),
            "--microbatches" => layout.microbatches = value.parse().unwrap(),
            "--zero" => layout.zero = value.parse().unwrap(),
            "--recompute" => layout.recompute = value.parse().unwrap(),
            "--schedule" => layout.schedule = value.parse().unwrap(),
            "--chunks" => layout.chunks = value.parse().unwrap(),
            other => panic!("{other} is no flag of a layout"),
        }
    }
    layout
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_cuts_that_do() {
    let split = Scenario::quickstart();
    let alone =
        Scenario { layout: Layout { microbatches: 4, ..Layout::default() }, ..split.clone() };
    let cap = need(&spec_of(&split, split.layout.clone()));
    let options = || Options {
        devices: DeviceRequest::cpu(),
        exec: ExecOptions { memory_cap: Some(cap), ..ExecOptions::default() },
        ..Options::default()
    };
    let error = Session::start(alone.clone(), options()).unwrap_err();
    let TrainError::Memory { need: needed, have, ref fits, .. } = error else {
        panic!("another refusal: {error}")
    };
    assert_eq!(needed, need(&spec_of(&alone, alone.layout.clone())));
    assert_eq!(have, cap);
    assert!(needed > cap);
    let text = error.to_string();
    for part in [needed.to_string(), cap.to_string(), fits.join("; or ")] {
        assert!(text.contains(&part), "{part} in {text}");
    }
    assert!(!fits.is_empty(), "{text}");
    for flags in fits {
        let fitting = spec_of(&alone, with_flags(&alone.layout, flags));
        assert!(need(&fitting) <= cap, "{flags} needs {}, not {cap}", need(&fitting));
    }
    // Eight ranks fit, to the byte, and one byte less is refused.
    let mut session = Session::start(split.clone(), options()).unwrap();
    session.evaluate(1).unwrap();
    let allocated = session.plan().mesh.ranks().map(|rank| session.allocated(rank)).max();
    assert_eq!(allocated, Some(cap));
    let mut tighter = options();
    tighter.exec.memory_cap = Some(Bytes(cap.0 - 1));
    assert!(matches!(Session::start(split, tighter), Err(TrainError::Memory { .. })));
}

#[test]
fn a_stage_that_keeps_too_many_microbatches_is_named_with_need_have_and_fixes() {
    let quickstart = Scenario::quickstart();
    for (schedule, rank, keeps) in [
        (ScheduleName::OneFOneB, 0, "It keeps 4 microbatches of stage 0 at once: "),
        // As many on all positions, and the head is on the last one.
        (ScheduleName::ZbH2, 3, "It keeps 6 microbatches of stage 3 at once: "),
    ] {
        let layout = Layout { pp: 4, microbatches: 6, schedule, ..Layout::default() };
        let training = Training { batch: 24, ..quickstart.training.clone() };
        let scenario = Scenario { layout, training, ..quickstart.clone() };
        let need = need(&spec_of(&scenario, scenario.layout.clone()));
        // Room for three activations of the first stage, not for those it keeps.
        let cap = Bytes(need.0 * 3 / 4);
        let exec = ExecOptions { memory_cap: Some(cap), ..ExecOptions::default() };
        let options = Options { devices: DeviceRequest::cpu(), exec, ..Options::default() };
        let error = Session::start(scenario, options).unwrap_err();
        let TrainError::Memory { ref fits, .. } = error else { panic!("another refusal: {error}") };
        assert_eq!(fits.len(), 3, "{error}");
        let words = error.to_string();
        for part in [keeps, &format!("rank {rank} needs "), &need.to_string(), &cap.to_string()] {
            assert!(words.contains(part), "{part} in {words}");
        }
    }
}
