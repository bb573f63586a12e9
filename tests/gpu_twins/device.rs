//! What a device promises besides right numbers: order, repeatability, memory, loss, timing.

use shardlab::exec::gpu::{GpuDevice, GpuOptions, Verdict, adapters};
use shardlab::exec::{Device, ExecError};
use shardlab::mesh::Rank;
use shardlab::ops::Op;
use shardlab::ops::attention::{Attention, Heads};
use shardlab::ops::elementwise::{AddAssign, Fill, Scale};
use shardlab::ops::matmul::{Form, Matmul};
use shardlab::plan::{Action, Arena, Life, Plan, View};
use shardlab::shape::DType;
use shardlab::units::Bytes;

use crate::bench::{Bench, Case, Random, adapter, bits, bytes, floats, open, run, shared};

const RANK: Rank = Rank(0);

#[test]
fn adapters_are_listed_once_and_say_what_they_are() {
    let Some(first) = adapter() else { return };
    let all = adapters();
    assert!(all.contains(&first));
    assert!(!first.info.name.is_empty() && !first.info.api.is_empty());
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{one:?} is listed twice");
    }
}

#[test]
fn the_self_test_passes_and_reads_as_text() {
    let Some(device) = shared() else { return };
    let test = device.self_test();
    assert_eq!(test.failure(), None, "{test}");
    assert!(test.checks.iter().all(|check| !matches!(check.verdict, Verdict::Fail(_))));
    assert!(test.to_string().contains("matmul_nn equals the host's"));
}

#[test]
fn twenty_runs_give_the_same_bits() {
    let Some(mut device) = shared() else { return };
    let matmul = Matmul { form: Form::Nt, m: 65, n: 70, k: 130, accumulate: false };
    let heads = Heads {
        seq: 70,
        batch: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        group: 2,
        first_head: 0,
        first_kv_head: 0,
    };
    let cases =
        [Case::new(Op::Matmul(matmul), 1), Case::new(Op::Attention(Attention { heads }), 2)];
    let bench = Bench::of(&cases, 1);
    device.load(0, &bench.plan, &[RANK]).unwrap();
    for (instr, case) in cases.iter().enumerate() {
        bench.write(&mut device, instr, case);
    }
    let mut first: Option<Vec<Vec<u32>>> = None;
    for _ in 0..20 {
        let mut all = Vec::new();
        for instr in 0..cases.len() {
            device.encode(0, RANK, instr).unwrap();
            all.extend(bench.outputs(&mut device, instr).iter().map(|output| bits(output)));
        }
        assert_eq!(first.get_or_insert_with(|| all.clone()), &all);
    }
}

/// `x = 1`, then doubled and added up: any change of order shows.
#[test]
fn instructions_run_in_the_order_of_encoding() {
    let Some(mut device) = shared() else { return };
    let mut bench = Bench::new(1);
    let [x, y] = [(); 2].map(|()| bench.view(DType::F32, 100));
    let fill = |value, view| launch(Op::Fill(Fill { len: 100, value }), vec![], view);
    bench.push(fill(1.0, x));
    bench.push(fill(0.0, y));
    bench.push(launch(Op::Scale(Scale { len: 100, factor: 2.0 }), vec![], x));
    bench.push(launch(Op::AddAssign(AddAssign { len: 100 }), vec![x], y));
    bench.push(Action::Copy { from: y, to: x });
    device.load(0, &bench.plan, &[RANK]).unwrap();
    for instr in [0, 1, 2, 3, 2, 3] {
        device.encode(0, RANK, instr).unwrap();
    }
    assert_eq!(floats(&device.read(0, RANK, y).unwrap()), [6.0; 100]);
    // An upload comes after what was encoded before it, and before what comes after.
    device.encode(0, RANK, 3).unwrap();
    device.encode_upload(0, RANK, x, &bytes(&[5.0; 100])).unwrap();
    device.encode(0, RANK, 3).unwrap();
    device.encode(0, RANK, 4).unwrap();
    let download = device.encode_download(0, RANK, x).unwrap();
    device.encode(0, RANK, 0).unwrap();
    let batch = device.submit().unwrap();
    device.wait(batch).unwrap();
    assert!(device.is_done(batch).unwrap());
    let mut copied = vec![0; 400];
    device.finish_download(download, &mut copied).unwrap();
    assert_eq!(floats(&copied), [15.0; 100]);
    assert_eq!(floats(&device.read(0, RANK, x).unwrap()), [1.0; 100]);
}

#[test]
fn views_without_elements_go_everywhere() {
    let Some(mut device) = shared() else { return };
    let mut bench = Bench::new(0);
    let x = bench.view(DType::F32, 7).slice(7..7);
    let y = bench.view(DType::F32, 0);
    bench.push(launch(Op::Scale(Scale { len: 0, factor: 2.0 }), vec![], x));
    bench.push(Action::Copy { from: x, to: y });
    device.load(0, &bench.plan, &[RANK]).unwrap();
    device.encode(0, RANK, 0).unwrap();
    device.encode(0, RANK, 1).unwrap();
    device.encode_message(0, (RANK, x), (RANK, y)).unwrap();
    device.encode_upload(0, RANK, y, &[]).unwrap();
    let download = device.encode_download(0, RANK, x).unwrap();
    let batch = device.submit().unwrap();
    device.wait(batch).unwrap();
    device.finish_download(download, &mut []).unwrap();
    assert!(device.read(0, RANK, x).unwrap().is_empty());
    device.write(0, RANK, y, &[]).unwrap();
}

fn launch(op: Op, inputs: Vec<View>, output: View) -> Action {
    Action::Launch { op, inputs, outputs: vec![output] }
}

#[test]
fn a_copy_inside_a_rank_keeps_every_bit() {
    let Some(mut device) = shared() else { return };
    let mut bench = Bench::new(1);
    let [x, y] = [(); 2].map(|()| bench.view(DType::I32, 301));
    bench.push(Action::Copy { from: x, to: y });
    device.load(0, &bench.plan, &[RANK]).unwrap();
    let mut data = Random::new(1).integers(301, i32::MIN / 2, i32::MAX / 2);
    data[7] = f32::from_bits(0x7f80_0001); // a signalling NaN
    device.write(0, RANK, x, &bytes(&data)).unwrap();
    device.encode(0, RANK, 0).unwrap();
    assert_eq!(device.read(0, RANK, y).unwrap(), bytes(&data));
}

#[test]
fn two_ranks_of_a_device_and_two_devices_exchange_messages() {
    let Some(mut first) = shared() else { return };
    let mut second = open(GpuOptions::default()).expect("an adapter");
    let mut bench = Bench::new(1);
    let x = bench.view(DType::F32, 50);
    let y = bench.view(DType::F32, 50);
    let mut plan = bench.plan;
    plan.mesh.dp = 2;
    plan.programs.push(plan.programs[0].clone());
    plan.buffers[y.buffer.0 as usize].rank = Rank(1);
    let data = Random::new(2).floats(50, 1.0);

    first.load(0, &plan, &[Rank(0), Rank(1)]).unwrap();
    first.write(0, Rank(0), x, &bytes(&data)).unwrap();
    first.encode_message(0, (Rank(0), x), (Rank(1), y)).unwrap();
    assert_eq!(floats(&first.read(0, Rank(1), y).unwrap()), data);

    second.load(0, &plan, &[Rank(1)]).unwrap();
    let download = first.encode_download(0, Rank(0), x).unwrap();
    let batch = first.submit().unwrap();
    first.wait(batch).unwrap();
    let mut message = vec![0; 200];
    first.finish_download(download, &mut message).unwrap();
    second.encode_upload(0, Rank(1), y, &message).unwrap();
    assert_eq!(floats(&second.read(0, Rank(1), y).unwrap()), data);
}

#[test]
fn memory_stays_the_same_over_steps() {
    let Some(mut device) = open(GpuOptions::default()) else { return };
    let mut bench = Bench::new(1);
    let x = bench.view(DType::F32, 30_000);
    device.load(0, &bench.plan, &[RANK]).unwrap();
    let placed = device.allocated(RANK);
    assert_eq!(placed, bench.plan.buffers[0].bytes());
    let data = bytes(&Random::new(1).floats(30_000, 1.0));
    let mut sizes = Vec::new();
    for _ in 0..12 {
        let half = View { len: 15_000, ..x };
        device.encode_upload(0, RANK, x, &data).unwrap();
        device.encode_upload(0, RANK, half, &data[..60_000]).unwrap();
        let downloads = [x, half].map(|view| device.encode_download(0, RANK, view).unwrap());
        let batch = device.submit().unwrap();
        device.wait(batch).unwrap();
        let mut into = vec![0; 120_000];
        device.finish_download(downloads[0], &mut into).unwrap();
        assert_eq!(into, data);
        device.finish_download(downloads[1], &mut into[..60_000]).unwrap();
        sizes.push((device.staging_bytes(), device.allocated(RANK)));
    }
    assert_eq!(sizes[1..], vec![sizes[1]; 11]);
}

/// The second Plan has the persistent buffer of the first and other inputs.
#[test]
fn plans_share_persistent_memory_and_nothing_else() {
    let Some(mut device) = shared() else { return };
    let plan = |step_len| {
        let mut bench = Bench::new(0);
        let [w, io, step] = [100, 60, step_len].map(|len| bench.view(DType::F32, len));
        let lives = [
            (w, Arena::Persistent, Life::Persistent),
            (io, Arena::Io, Life::Input(shardlab::plan::Input::Scalars)),
            (step, Arena::Step, Life::Step),
        ];
        for (view, arena, life) in lives {
            let decl = &mut bench.plan.buffers[view.buffer.0 as usize];
            (decl.place.arena, decl.place.offset, decl.life) = (arena, 0, life);
        }
        (bench.plan, [w, io, step])
    };
    let (first, views) = plan(500);
    let (second, _) = plan(40);
    device.load(0, &first, &[RANK]).unwrap();
    device.load(1, &second, &[RANK]).unwrap();
    let placed = |plan: &Plan, index: usize| plan.buffers[index].bytes().0;
    // Weights once, inputs of both, and the larger step.
    let expected = placed(&first, 0) + 2 * placed(&first, 1) + placed(&first, 2);
    assert_eq!(device.allocated(RANK).0, expected);
    for view in &views[..2] {
        device.write(0, RANK, *view, &bytes(&vec![3.0; view.len as usize])).unwrap();
    }
    assert_eq!(floats(&device.read(1, RANK, views[0]).unwrap()), [3.0; 100]);
    assert_eq!(floats(&device.read(1, RANK, views[1]).unwrap()), [0.0; 60]);
}

#[test]
fn a_lost_device_answers_with_an_error() {
    let Some(mut device) = open(GpuOptions::default()) else { return };
    let case = Case::new(Op::Fill(Fill { len: 10, value: 1.0 }), 1);
    run(&mut device, &case);
    let bench = Bench::of(&[case], 0);
    device.load(0, &bench.plan, &[RANK]).unwrap();
    device.encode(0, RANK, 0).unwrap();
    device.destroy();
    let error = first_error(&mut device, &bench.plan);
    let text = error.to_string();
    assert!(matches!(error, ExecError::Device { .. }), "{text}");
    assert!(text.contains("lost") && text.contains("--device cpu"), "{text}");
    // And it goes on answering so.
    assert!(device.encode(0, RANK, 0).is_err());
    let whole = View { buffer: shardlab::plan::BufferId(0), offset: 0, len: 1 };
    assert!(device.read(0, RANK, whole).is_err());
    assert!(device.load(1, &bench.plan, &[RANK]).is_err());
}

fn first_error(device: &mut GpuDevice, plan: &Plan) -> ExecError {
    let step = |device: &mut GpuDevice| {
        let batch = device.submit()?;
        device.wait(batch)?;
        device.encode(0, RANK, 0)?;
        let batch = device.submit()?;
        device.wait(batch)?;
        device.load(0, plan, &[RANK])
    };
    step(device).expect_err("the device was destroyed")
}

#[test]
fn instructions_are_timed_when_asked() {
    assert_timed(GpuOptions { timestamps: true, ..Default::default() });
}

/// Each instruction goes to the queue by itself; nobody sees it from outside.
#[test]
fn a_batch_handed_over_in_pieces_is_one_batch() {
    assert_timed(GpuOptions { timestamps: true, work_at_once: Some(0), ..Default::default() });
}

fn assert_timed(options: GpuOptions) {
    let Some(adapter) = adapter() else { return };
    let mut device = GpuDevice::open(&adapter, options).unwrap();
    let matmul = |m| Op::Matmul(Matmul { form: Form::Nn, m, n: 64, k: 64, accumulate: true });
    let cases = [Case::new(matmul(8), 1), Case::new(matmul(256), 2)];
    let bench = Bench::of(&cases, 0);
    device.load(0, &bench.plan, &[RANK]).unwrap();
    let output = match &bench.plan.programs[0].instrs[0].action {
        Action::Launch { outputs, .. } => outputs[0],
        other => panic!("{other:?}"),
    };
    for round in 1..4 {
        bench.write(&mut device, 0, &cases[0]);
        let zeroes = bytes(&vec![0.0; output.len as usize]);
        device.encode_upload(0, RANK, output, &zeroes).unwrap();
        for instr in [0, 1, 0] {
            device.encode(0, RANK, instr).unwrap();
        }
        let download = device.encode_download(0, RANK, output).unwrap();
        device.encode(0, RANK, 0).unwrap();
        let batch = device.submit().unwrap();
        device.wait(batch).unwrap();
        let mut twice = vec![0; zeroes.len()];
        device.finish_download(download, &mut twice).unwrap();
        let once = Case { outputs: vec![floats(&zeroes)], ..cases[0].clone() }.expected();
        let right = |(twice, once): (&f32, &f32)| (twice - 2.0 * once).abs() < 1e-4;
        assert!(floats(&twice).iter().zip(&once[0]).all(right), "round {round}");

        let times = device.timings(batch);
        if !adapter.limits.timestamps {
            assert!(times.is_empty());
            continue;
        }
        let instrs: Vec<usize> = times.iter().map(|&(_, instr, _, _)| instr).collect();
        assert_eq!(instrs, [0, 1, 0, 0], "round {round}");
        assert!(times.iter().all(|&(rank, _, start, end)| rank == RANK && start <= end));
        assert!(times.windows(2).all(|pair| pair[0].3 <= pair[1].2), "{times:?}");
        assert!(device.timings(batch).is_empty(), "times are given once");
    }
}

#[test]
fn a_plan_larger_than_the_cap_is_refused_with_both_sizes() {
    let options = GpuOptions { memory_cap: Some(Bytes(4096)), ..Default::default() };
    let Some(adapter) = adapter() else { return };
    // The self test needs more than this cap, and is none of the user's memory.
    let mut device = GpuDevice::open(&adapter, options).unwrap();
    let mut bench = Bench::new(0);
    bench.view(DType::F32, 2000);
    let error = device.load(0, &bench.plan, &[RANK]).unwrap_err();
    assert!(matches!(error, ExecError::Memory { .. }), "{error}");
    assert!(error.to_string().contains("rank 0 needs 7.8 KiB"), "{error}");
}
