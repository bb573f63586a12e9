//! Whole training runs on the device, against what `PyTorch` got.

use std::path::Path;

use shardlab::checkpoint::Golden;
use shardlab::config::{CollectiveChoice, Layout, ZeroStage};
use shardlab::exec::ExecOptions;
use shardlab::train::DeviceRequest;
use shardlab::train::verify::against_golden;

use crate::bench::adapter;

fn assert_trains_as_pytorch(case: &str, layout: &Layout, devices: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case);
    let golden = Golden::read(&dir).unwrap();
    let devices: DeviceRequest = devices.parse().unwrap();
    let verification = against_golden(&golden, layout, &devices, &ExecOptions::default()).unwrap();
    assert!(verification.pass, "{case}, {layout:?}: {verification:?}");
}

#[test]
fn one_rank_trains_as_pytorch_does() {
    if adapter().is_none() {
        return;
    }
    for case in ["plain", "gqa-tied", "uneven", "masked", "sgd-tied-masked"] {
        assert_trains_as_pytorch(case, &Layout::default(), "0");
    }
}

#[test]
fn eight_ranks_on_one_device_train_as_pytorch_does() {
    if adapter().is_none() {
        return;
    }
    for (zero, collective) in
        [(ZeroStage::Zero0, CollectiveChoice::Ring), (ZeroStage::Zero3, CollectiveChoice::Direct)]
    {
        let split = Layout { dp: 2, tp: 2, pp: 2, microbatches: 2, ..Layout::default() };
        let layout = Layout { zero, collective, ..split };
        assert_trains_as_pytorch("gqa-tied", &layout, "0");
    }
}

/// Half of the ranks on the host: messages go through its memory, and one kind of device updates
/// the weights that both hold.
#[test]
fn ranks_on_host_and_device_train_together() {
    if adapter().is_none() {
        return;
    }
    let layout = Layout { dp: 2, pp: 2, microbatches: 2, ..Layout::default() };
    assert_trains_as_pytorch("plain", &layout, "cpu,0");
}
