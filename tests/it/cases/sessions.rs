//! Goal: runs start, stop and go on in any layout. Method: sessions, as the command drives them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use shardlab::checkpoint::Checkpoint;
use shardlab::config::{
    CollectiveChoice, Data, Layout, ModelSource, OptimizerKind, Scenario, Training, ZeroStage,
};
use shardlab::data::{Batches, Dataset, rows_by_rank};
use shardlab::plan::{Held, Input, Life};
use shardlab::planner::plan_step;
use shardlab::train::{DeviceRequest, Options, Session};

use super::{model, sgd, spec};

/// A run of the small model with `AdamW` and clipping on letters that follow a rule.
pub(crate) fn scenario(layout: Layout) -> Scenario {
    let training = Training {
        optimizer: OptimizerKind::AdamW,
        clip_norm: 1.0,
        steps: 20,
        lr: 1e-2,
        ..sgd(8, 6)
    };
    let model = ModelSource::Sizes(model());
    Scenario { name: "case".into(), model, layout, training, data: Data::default() }
}

pub(crate) fn options() -> Options {
    let tokens: Vec<u32> = (0..3000).map(|i: u32| (i * i + i / 7) % 31).collect();
    let dataset = Some(Dataset::from_tokens("rule", &tokens));
    Options { devices: DeviceRequest::cpu(), dataset, ..Options::default() }
}

pub(crate) fn start(layout: Layout) -> Session {
    Session::start(scenario(layout), options()).unwrap()
}

fn mesh(dp: u32, tp: u32, pp: u32) -> Layout {
    Layout { dp, tp, pp, microbatches: 2, ..Layout::default() }
}

fn losses(session: &mut Session, steps: usize) -> Vec<f64> {
    (0..steps).map(|_| session.step().unwrap().loss).collect()
}

#[test]
fn every_axis_alone_keeps_its_replicas_equal() {
    let mut layouts = vec![mesh(2, 1, 1), mesh(1, 2, 1), mesh(1, 1, 2)];
    layouts.push(Layout { sequence_parallel: true, ..mesh(1, 2, 1) });
    for zero in [ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
        layouts.push(Layout { zero, ..mesh(2, 1, 1) });
    }
    let one = losses(&mut start(mesh(1, 1, 1)), 3);
    for layout in layouts {
        let mut session = start(layout.clone());
        for (a, b) in one.iter().zip(losses(&mut session, 3)) {
            assert!((a - b).abs() <= 1e-5 * a, "{a} is not {b}: {layout:?}");
        }
        for held in [Held::Weight, Held::Gradient, Held::Moment1, Held::Moment2] {
            assert_eq!(session.replica_difference(held).unwrap(), None, "{layout:?}");
        }
    }
}

#[test]
fn every_row_is_read_by_one_replica_and_once_an_epoch() {
    // 64 numbered rows of four tokens: the token tells the row.
    let numbered: Vec<u32> = (0..286).map(|position| position / 4).collect();
    let training = Training { batch: 16, seq: 4, ..sgd(16, 4) };
    let batches =
        Batches::new(Dataset::from_tokens("numbered", &numbered), &training, 100).unwrap();
    assert_eq!(batches.rows(), 64);
    let plan = plan_step(&spec(model(), mesh(2, 2, 2), training)).unwrap();
    let mut epoch = Vec::new();
    for step in 0..4 {
        let batch = batches.batch(step);
        let by_rank = rows_by_rank(plan.mesh, &batch);
        for rank in plan.mesh.ranks() {
            // What the Plan brings to a rank are the rows that are shown of it.
            let mut brought = BTreeSet::new();
            for (_, decl) in plan.buffers_of(rank) {
                if let Life::Input(
                    Input::Tokens { first_row, rows } | Input::Labels { first_row, rows },
                ) = decl.life
                {
                    let rows = first_row as usize..(first_row + rows) as usize;
                    brought.extend(rows.map(|i| batch.tokens[i * 4].unsigned_abs()));
                }
            }
            let shown: BTreeSet<u32> = by_rank[rank.index()].iter().copied().collect();
            assert_eq!(brought, shown, "rank {rank}");
            if plan.mesh.coord(rank).tp == 0 && plan.mesh.coord(rank).pp == 0 {
                epoch.extend(brought);
            }
        }
    }
    epoch.sort_unstable();
    assert!(epoch.into_iter().eq(0..64), "an epoch is the data");
}

#[test]
fn a_run_goes_on_in_any_other_layout() {
    let direct = |layout: Layout| Layout { collective: CollectiveChoice::Direct, ..layout };
    let saved = direct(Layout { zero: ZeroStage::Zero1, ..mesh(4, 2, 2) });
    let mut session = start(saved.clone());
    losses(&mut session, 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    session.save(&path).unwrap();
    let expected = losses(&mut session, 5);
    let weights = session.tensors(Held::Weight).unwrap();
    let checkpoint = Checkpoint::read(&path).unwrap();
    for layout in [
        mesh(1, 1, 1),
        mesh(2, 1, 1),
        mesh(1, 4, 2),
        Layout { zero: ZeroStage::Zero3, ..mesh(3, 1, 1) },
        Layout { sequence_parallel: true, ..mesh(1, 2, 3) },
    ] {
        let mut other = Session::resume(&checkpoint, scenario(layout.clone()), options()).unwrap();
        assert_eq!(other.next_step(), 3);
        for (a, b) in expected.iter().zip(losses(&mut other, 5)) {
            assert!((a - b).abs() <= 1e-5 * a, "{a} is not {b}: {layout:?}");
        }
    }
    let mut same = Session::resume(&checkpoint, scenario(saved), options()).unwrap();
    assert_eq!(losses(&mut same, 5), expected, "the same layout has the same bits");
    assert_eq!(same.tensors(Held::Weight).unwrap(), weights);
}

#[test]
fn saving_waits_for_no_other_rank() {
    for layout in [mesh(1, 2, 1), mesh(1, 2, 2), Layout { zero: ZeroStage::Zero3, ..mesh(2, 2, 1) }]
    {
        let mut session = start(layout);
        losses(&mut session, 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let begun = Instant::now();
        session.save(&path).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5));
        let written = Checkpoint::read(&path).unwrap();
        assert_eq!(written.weights, session.tensors(Held::Weight).unwrap());
        assert_eq!(written.moments[1], session.tensors(Held::Moment2).unwrap());
    }
}
