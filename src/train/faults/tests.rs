//! What each fault does is known beforehand: which judge notices, what differs, and by how much.

use std::sync::Arc;

use super::*;
use crate::config::{Layout, Model, ModelSource, OptimizerKind, Training, ZeroStage};
use crate::data::Dataset;
use crate::plan::{Action, Phase};
use crate::train::verify::checked_training;
use crate::units::Nanos;

fn scenario(layout: Layout) -> Scenario {
    let model = Model {
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: 16,
        tie_word_embeddings: true,
        ..Model::preset("tiny").unwrap()
    };
    let training = Training { batch: 8, seq: 8, ..Training::default() };
    Scenario {
        name: "tiny".into(),
        model: ModelSource::Sizes(model),
        layout,
        training: checked_training(&training),
        data: Default::default(),
    }
}

fn options(faults: &[Fault]) -> Options {
    let text: Vec<u8> = (0..2000u32).map(|i| (i * i % 13) as u8).collect();
    let dataset = Some(Dataset::from_text("squares", text));
    let mut options = Options { dataset, faults: faults.to_vec(), ..Options::on_cpu() };
    options.exec.threads = Some(1);
    options
}

/// The answer of the checker, and of three steps that end.
fn judged(scenario: &Scenario, fault: Fault) -> Verification {
    let Examination { checker, steps } = examine(scenario, &options(&[fault])).unwrap();
    assert_eq!(checker, [], "{fault:?} is legal");
    match steps {
        Steps::Compared(verification) => verification,
        other => panic!("{fault:?}: {other:?}"),
    }
}

fn close(found: f64, want: f64) -> bool {
    (found - want).abs() <= 1e-4 * want
}

fn layout(dp: u32, pp: u32, zero: ZeroStage) -> Layout {
    Layout { dp, pp, zero, microbatches: 2, ..Layout::default() }
}

#[test]
fn without_faults_both_judges_are_content() {
    let mut scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    scenario.layout.tp = 2;
    scenario.layout.sequence_parallel = true;
    let Examination { checker, steps } = examine(&scenario, &options(&[])).unwrap();
    let Steps::Compared(verification) = steps else { panic!("{steps:?}") };
    assert!(checker.is_empty() && verification.pass, "{verification:?}");
    assert_eq!(verification.first_tensor, None);
}

#[test]
fn a_gradient_that_is_too_large_shows_under_sgd_and_hides_from_adam_and_a_clip_that_always_acts() {
    for (fault, times) in [(Fault::ForgetDivision, 3.0), (Fault::ScaleByMicrobatches, 2.0)] {
        let mut scenario = scenario(layout(3, 2, ZeroStage::Zero1));
        let plain = judged(&scenario, fault);
        assert!(close(plain.grad_rel_max, times - 1.0), "{plain:?}");
        assert!(plain.loss_rel_max > 1e-3 && plain.final_rel_max > 1e-2, "{plain:?}");
        assert!(plain.first_tensor.as_ref().unwrap().contains("embed_tokens"));

        // A clip that never acts hides nothing.
        scenario.training.clip_norm = 1e6;
        let unclipped = judged(&scenario, fault);
        assert_eq!(unclipped.final_rel_max, plain.final_rel_max);

        scenario.training.clip_norm = 1e-3;
        let clipped = judged(&scenario, fault);
        assert!(close(clipped.grad_rel_max, times - 1.0), "{clipped:?}");
        assert!(clipped.final_rel_max < 1e-5 && clipped.loss_rel_max < 1e-5, "{clipped:?}");

        scenario.training.clip_norm = 0.0;
        scenario.training.optimizer = OptimizerKind::AdamW;
        scenario.training.lr = 3e-3;
        let adam = judged(&scenario, fault);
        assert!(close(adam.grad_rel_max, times - 1.0), "{adam:?}");
        assert!(adam.final_rel_max < 1e-3 && adam.loss_rel_max < 1e-4, "{adam:?}");
    }
}

#[test]
fn a_tied_table_that_is_not_summed_shows_in_its_gradient_wherever_its_uses_lie() {
    for pp in [1, 2] {
        for zero in [ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
            let scenario = scenario(layout(2, pp, zero));
            let found = judged(&scenario, Fault::SplitTied);
            let first = found.first_tensor.unwrap();
            assert!(first.starts_with("gradient of model.embed_tokens.weight"), "{first}");
            assert!(found.grad_rel_max > 1e-2, "pp {pp}, ZeRO {zero}");
        }
    }
    // The copies on two stages drift apart.
    let mut session =
        Session::start(scenario(layout(1, 2, ZeroStage::Zero0)), options(&[Fault::SplitTied]))
            .unwrap();
    session.step().unwrap();
    let apart = session.replica_difference(crate::plan::Held::Weight).unwrap();
    assert!(apart.unwrap().contains("embed_tokens"));
}

#[test]
fn norms_that_are_not_summed_show_in_norms_first_and_key_heads_are_summed_still() {
    for (pp, zero) in [(1, ZeroStage::Zero0), (2, ZeroStage::Zero1), (1, ZeroStage::Zero3)] {
        let mut scenario = scenario(layout(2, pp, zero));
        // One key head on two tensor ranks: its gradient is summed over the same axis.
        if let ModelSource::Sizes(model) = &mut scenario.model {
            model.num_key_value_heads = 1;
        }
        scenario.layout.tp = 2;
        scenario.layout.sequence_parallel = true;
        let found = judged(&scenario, Fault::SplitNorms);
        let first = found.first_tensor.unwrap();
        assert!(first.starts_with("gradient of model.layers.0.input_layernorm.weight"), "{first}");
        let options = options(&[Fault::SplitNorms]);
        let mut session = Session::start(scenario.clone(), options).unwrap();
        let mut right =
            Session::start(scenario, Options { faults: Vec::new(), ..self::options(&[]) }).unwrap();
        session.step().unwrap();
        right.step().unwrap();
        let [wrong, right] =
            [&mut session, &mut right].map(|s| s.tensors(crate::plan::Held::Gradient).unwrap());
        for (name, tensor) in &right {
            assert_eq!(wrong[name] != *tensor, name.contains("norm"), "{name}");
        }
    }
}

#[test]
fn a_loader_that_repeats_rows_shows_in_the_first_loss() {
    let scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    let found = judged(&scenario, Fault::RepeatRows);
    assert!(found.first_difference.unwrap().starts_with("loss of step 0"));
}

#[test]
fn slow_ranks_and_links_change_no_bit() {
    let scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    let cost = Links { latency: Nanos(50_000), bytes_per_sec: Some(1e9) };
    for fault in [
        Fault::SlowRank { rank: Rank(1), factor: 2.0 },
        Fault::SlowLink { from: Rank(0), to: Rank(2), cost },
    ] {
        assert!(judged(&scenario, fault).pass);
        let mut slow = Session::start(scenario.clone(), options(&[fault])).unwrap();
        let mut right = Session::start(scenario.clone(), options(&[])).unwrap();
        assert_eq!(slow.step().unwrap().loss.to_bits(), right.step().unwrap().loss.to_bits());
        assert!(Arc::ptr_eq(slow.plan(), slow.original()));
    }
}

#[test]
fn a_skipped_message_is_found_by_the_checker_and_hangs_with_who_waits_for_whom() {
    let scenario = scenario(layout(2, 1, ZeroStage::Zero1));
    let session = Session::start(scenario.clone(), options(&[])).unwrap();
    let instrs = &session.plan().programs[1].instrs;
    let sums = |instr: &crate::plan::Instr| {
        instr.origin.phase == Phase::GradReduce && matches!(instr.action, Action::Send { .. })
    };
    let instr = instrs.iter().position(sums).unwrap() as u32;
    let fault = Fault::SkipMessage { rank: Rank(1), instr };
    let Examination { checker, steps } = examine(&scenario, &options(&[fault])).unwrap();
    let found = checker.iter().any(|f| matches!(f.kind, check::FaultKind::UnmatchedRecv { .. }));
    assert!(found, "{checker:?}");
    let Steps::Hang { report } = steps else { panic!("{steps:?}") };
    assert!(report.iter().any(|line| line.contains("from rank 1")), "{report:?}");
    // The other half names the same message.
    let (to, recv) = session.order().peer[1][instr as usize].unwrap();
    let other = plant(session.plan(), &[Fault::SkipMessage { rank: to, instr: recv }]).unwrap();
    assert_eq!(other.places, [(Rank(1), instr)]);
}

#[test]
fn a_poisoned_launch_is_named_and_leaves_the_weights_alone() {
    let scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    let session = Session::start(scenario.clone(), options(&[])).unwrap();
    let instrs = &session.plan().programs[2].instrs;
    let works = |instr: &crate::plan::Instr| {
        instr.origin.phase == Phase::Forward && matches!(instr.action, Action::Launch { .. })
    };
    let instr = instrs.iter().position(works).unwrap() as u32;
    let fault = Fault::Poison { rank: Rank(2), instr };
    let Examination { checker, steps } = examine(&scenario, &options(&[fault])).unwrap();
    assert_eq!(checker, []);
    let Steps::NotFinite { step: 0, first: Some(first) } = steps else { panic!("{steps:?}") };
    assert_eq!((first.rank, first.instr as u32), (Rank(2), instr + 1));
}

#[test]
fn faults_meet_in_one_plan_each_at_the_place_that_was_named() {
    let scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    let session = Session::start(scenario, options(&[])).unwrap();
    let plan = session.plan();
    let launches = |instr: &crate::plan::Instr| {
        instr.origin.phase == Phase::Forward && matches!(instr.action, Action::Launch { .. })
    };
    let places: Vec<u32> =
        (0..).zip(&plan.programs[0].instrs).filter(|(_, i)| launches(i)).map(|(i, _)| i).collect();
    let poison = |instr| Fault::Poison { rank: Rank(0), instr };
    let (one, other) = (poison(places[0]), poison(places[2]));
    let faults = [one, Fault::SplitTied, other, Fault::ForgetDivision];
    let both = plant(plan, &faults).unwrap();
    let reversed: Vec<Fault> = faults.into_iter().rev().collect();
    let swapped = plant(plan, &reversed).unwrap();
    for planted in [&both, &swapped] {
        let instrs = &planted.plan.programs[0].instrs;
        for (place, moved) in [(places[0], 1), (places[2], 2)] {
            assert_eq!(
                instrs[(place + moved - 1) as usize],
                plan.programs[0].instrs[place as usize]
            );
            let Action::Launch { op, .. } = &instrs[(place + moved) as usize].action else {
                panic!("a launch")
            };
            assert!(op.to_string().contains("fill"), "{op}");
        }
    }
}

#[test]
fn a_layout_that_cannot_have_a_fault_says_why_and_what_would() {
    let one = scenario(Layout::default());
    for fault in Fault::MUSEUM {
        let fits = check_fit(&one, fault);
        if fault == Fault::SplitTied {
            fits.unwrap();
            continue;
        }
        let text = fits.unwrap_err().to_string();
        assert!(text.contains(fault.name()) && text.contains("Use "), "{text}");
    }
    let everything =
        Layout { dp: 2, tp: 2, microbatches: 2, sequence_parallel: true, ..Layout::default() };
    for fault in Fault::MUSEUM {
        check_fit(&scenario(everything.clone()), fault).unwrap();
    }
    let nobody = Fault::SlowRank { rank: Rank(9), factor: 2.0 };
    assert!(check_fit(&one, nobody).unwrap_err().to_string().contains("does not exist"));
    assert!(check_fit(&one, Fault::Poison { rank: Rank(7), instr: 0 }).is_err());
}

#[test]
fn a_message_that_never_comes_is_told_with_all_who_wait_for_it_in_the_end() {
    let scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    let original = Session::start(scenario.clone(), options(&[])).unwrap().original().clone();
    for rank in original.mesh.ranks() {
        for axis in places::axes(&original, rank) {
            let instr = places::to_skip(&original, rank, None, Some(axis)).unwrap();
            let options = options(&[Fault::SkipMessage { rank, instr }]);
            let mut session = Session::start(scenario.clone(), options).unwrap();
            let unsent = Unsent::all(session.plan(), session.order(), session.graph());
            let [Unsent { from, to, waiting, .. }] = &unsent[..] else { panic!("{unsent:?}") };
            let Action::Send { to: meant, .. } =
                original.programs[rank.index()].instrs[instr as usize].action
            else {
                panic!("a send")
            };
            assert_eq!((*from, *to), (rank, meant));
            let error = session.step().unwrap_err();
            let TrainError::Exec(ExecError::Hang { waiting: report }) = error else {
                panic!("{error}")
            };
            let stuck = |other: &Rank| {
                report.iter().any(|line| line.starts_with(&format!("rank {other} waits")))
            };
            let others: Vec<Rank> =
                original.mesh.ranks().filter(|other| *other != rank && stuck(other)).collect();
            assert_eq!(waiting, &others, "{rank} {axis:?}: {report:?}");
            let text = unsent[0].to_string();
            assert!(text.starts_with(&format!("Rank {rank} never sent ")), "{text}");
        }
    }
}

#[test]
fn the_nearest_layout_that_shows_a_fault_can_have_it() {
    let mut one = scenario(Layout { microbatches: 1, ..Layout::default() });
    if let ModelSource::Sizes(model) = &mut one.model {
        model.tie_word_embeddings = false;
    }
    for fault in Fault::MUSEUM {
        assert!(check_fit(&one, fault).is_err(), "{fault:?}");
        let (other, words) = that_shows(&one, fault).unwrap();
        check_fit(&other, fault).unwrap();
        assert!(!words.is_empty() && other.training == one.training);
    }
    // Two replicas have half the rows each: eight pieces no longer fit.
    one.layout.microbatches = 8;
    let (other, words) = that_shows(&one, Fault::RepeatRows).unwrap();
    assert_eq!((other.layout.dp, other.layout.microbatches), (2, 1));
    assert_eq!(words, "2 data ranks, 1 microbatch");
    assert!(that_shows(&one, Fault::SlowRank { rank: Rank(9), factor: 2.0 }).is_none());
}

#[test]
fn a_poison_falls_on_the_work_that_was_pointed_at_and_on_every_rank_it_is_noticed() {
    let scenario = scenario(layout(2, 2, ZeroStage::Zero1));
    let session = Session::start(scenario.clone(), options(&[])).unwrap();
    let plan = session.original();
    for rank in plan.mesh.ranks() {
        let instr = places::to_poison(plan, rank, None).unwrap();
        let steps = examine(&scenario, &options(&[Fault::Poison { rank, instr }])).unwrap().steps;
        let Steps::NotFinite { first: Some(first), .. } = steps else { panic!("{steps:?}") };
        assert_eq!(first.rank, rank);
    }
    let backward = plan.programs[1].instrs.iter().map(|instr| instr.origin);
    let backward = backward.into_iter().find(|origin| origin.phase == Phase::Backward).unwrap();
    let found = places::to_poison(plan, Rank(1), Some(backward)).unwrap();
    let origin = plan.programs[1].instrs[found as usize].origin;
    assert_eq!((origin.phase, origin.microbatch), (backward.phase, backward.microbatch));
}
