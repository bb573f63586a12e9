//! Goal: stages of any size train the model, and what cannot run is refused before it starts.
//! Method: awkward cuts against one rank; schedules and Plans that hang.

use std::collections::BTreeSet;
use std::path::Path;

use shardlab::config::{CollectiveChoice, Layout, Model, ScheduleName, Training, ZeroStage};
use shardlab::exec::{ExecError, ExecOptions, Executor, StepInput};
use shardlab::ledger::Ledger;
use shardlab::mesh::{Axis, Rank};
use shardlab::plan::check::{FaultKind, check};
use shardlab::plan::{Held, Life, Output, Phase, Plan, order, text};
use shardlab::planner::schedule::named;
use shardlab::planner::{StepSpec, plan_step};
use shardlab::sim::{Links, replay};
use shardlab::trace::bubble::bubble;
use shardlab::units::Nanos;

use super::{assert_close, assert_trains_like_one_rank, model, sgd, spec};
use crate::layouts::unsplit;
use crate::machine::{run, same_bits, train};

#[test]
fn switching_the_pipeline_on_changes_no_bit_of_the_weights() {
    for microbatches in [1, 4] {
        let with = |pp| {
            let collective = CollectiveChoice::Direct;
            let layout = Layout { pp, microbatches, collective, ..Layout::default() };
            train(&spec(model(), layout, sgd(8, 6)), 1)
        };
        let off = with(1);
        for pp in [2, 3, 4] {
            assert_eq!(same_bits(&off.weights, &with(pp).weights), Ok(()), "pp {pp}");
        }
    }
}

/// Ranks that hold a piece of the embedding table.
fn holders(plan: &Plan) -> BTreeSet<Rank> {
    let table = plan.tensors.iter().position(|t| t.name == "model.embed_tokens.weight").unwrap();
    let holds = |held, tensor: u32| held == Held::Weight && tensor as usize == table;
    let buffers = plan.buffers.iter();
    let holding = buffers.filter(|decl| decl.pieces.iter().any(|p| holds(p.held, p.tensor)));
    holding.map(|decl| decl.rank).collect()
}

#[test]
fn a_tied_table_stays_the_same_on_the_first_and_last_stage() {
    for pp in [2, 4] {
        let [tied, untied] = [true, false].map(|tie_word_embeddings| {
            let model = Model { tie_word_embeddings, ..model() };
            let layout = Layout { dp: 2, pp, microbatches: 4, ..Layout::default() };
            spec(model, layout, Training { lr: 0.3, clip_norm: 0.5, ..sgd(8, 6) })
        });
        let plan = plan_step(&tied).unwrap();
        let positions: BTreeSet<u32> =
            holders(&plan).iter().map(|rank| plan.mesh.coord(*rank).pp).collect();
        assert_eq!(positions, BTreeSet::from([0, pp - 1]));
        // The extra bytes: the table's gradient there and back, for each of two replicas.
        let bytes = |spec: &StepSpec| Ledger::of(&plan_step(spec).unwrap()).bytes_on(Axis::Pp).0;
        let table = u64::from(tied.model.vocab_size * tied.model.hidden_size) * 4;
        assert_eq!(bytes(&tied) - bytes(&untied), 2 * 2 * table);
        // Ten steps; `run` compares the bits of all copies.
        let steps = |spec: &StepSpec| {
            run(plan_step(spec).unwrap(), spec, 2, ExecOptions::default(), 10).unwrap()
        };
        assert_close(&steps(&unsplit(&tied)), &steps(&tied), &format!("pp {pp}"));
    }
}

#[test]
fn a_stage_of_the_embedding_alone_joins_the_norm_and_the_update() {
    for zero in [ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3] {
        for stage_units in [vec![1, 3], vec![3, 1]] {
            let stage_units = Some(stage_units);
            let layout = Layout { dp: 2, pp: 2, zero, stage_units, ..Layout::default() };
            let training = Training { clip_norm: 0.05, ..sgd(4, 6) };
            assert_trains_like_one_rank(&spec(model(), layout, training), 3);
        }
    }
}

#[test]
fn a_vocabulary_much_larger_than_the_model_leaves_no_stage_empty() {
    let wide = Model { vocab_size: 2000, hidden_size: 8, ..model() };
    let with = |pp| {
        let layout = Layout { pp, microbatches: 4, ..Layout::default() };
        spec(wide.clone(), layout, sgd(4, 6))
    };
    for pp in [2, 3, 4] {
        let plan = plan_step(&with(pp)).unwrap();
        for rank in plan.mesh.ranks() {
            let held = plan.buffers_of(rank).flat_map(|(_, decl)| &decl.pieces);
            assert!(held.filter(|piece| piece.held == Held::Weight).count() > 0, "rank {rank}");
        }
        assert_trains_like_one_rank(&with(pp), 4);
    }
    let refusal = plan_step(&with(5)).unwrap_err().to_string();
    assert!(refusal.contains("5 stages need 5 units, but the model has 4"), "{refusal}");
}

#[test]
fn seven_layers_are_cut_into_any_two_stages_and_the_cost_is_seen() {
    let seven = Model { num_hidden_layers: 7, ..model() };
    let with = |stage_units| {
        let layout = Layout { pp: 2, microbatches: 4, stage_units, ..Layout::default() };
        spec(seven.clone(), layout, Training { lr: 0.1, ..sgd(8, 5) })
    };
    let flops = |spec: &StepSpec| -> Vec<u64> {
        let ledger = Ledger::of(&plan_step(spec).unwrap());
        let passes = [Phase::Forward, Phase::Backward];
        ledger
            .ranks
            .iter()
            .map(|rank| passes.map(|phase| rank.flops[&phase].0).iter().sum())
            .collect()
    };
    let whole =
        flops(&StepSpec { layout: Layout { microbatches: 4, ..Layout::default() }, ..with(None) });
    // Given as embedding + 4 layers and 3 layers + head, at both extremes, and cut by cost.
    let mut shares = Vec::new();
    for units in [Some(vec![5, 4]), Some(vec![1, 8]), Some(vec![8, 1]), None] {
        let spec = with(units);
        let ranks = flops(&spec);
        assert_eq!(ranks.iter().sum::<u64>(), whole[0], "a cut adds no work");
        shares.push(ranks[0] as f64 / whole[0] as f64);
        assert_trains_like_one_rank(&spec, 5);
    }
    assert!(shares[1] < 0.01 && shares[2] > 0.8, "{shares:?}");
    assert!((0.4..0.6).contains(&shares[3]), "{shares:?}");
}

#[test]
fn the_work_of_a_step_is_the_same_whatever_the_schedule() {
    let model = Model { num_hidden_layers: 4, ..model() };
    let work = |layout: Layout| -> u64 {
        let plan = plan_step(&spec(model.clone(), layout, sgd(8, 6))).unwrap();
        let ranks = Ledger::of(&plan).ranks;
        let passes = [Phase::Forward, Phase::Backward, Phase::InputGrad, Phase::WeightGrad];
        ranks
            .iter()
            .flat_map(|rank| passes.map(|phase| rank.flops.get(&phase).map_or(0, |flops| flops.0)))
            .sum()
    };
    let alone = work(Layout { microbatches: 4, ..Layout::default() });
    for name in ScheduleName::NAMED {
        for (pp, chunks) in [(2, 1), (2, 2), (3, 2)] {
            if name.stages().allows(chunks) {
                let schedule = name.clone();
                let base = Layout { pp, chunks, schedule, microbatches: 4, ..Layout::default() };
                assert_eq!(work(base.clone()), alone, "{name}");
                // Two replicas of half the rows: microbatches of half the size, twice as many.
                assert_eq!(work(Layout { dp: 2, microbatches: 2, ..base }), alone, "{name}, dp 2");
            }
        }
    }
}

#[test]
fn a_stage_that_no_position_owns_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zbv.csv");
    // A V of four stages, of which stage 2 is on no row.
    let rows = "0F0,3F0,3B0,0B0\n1F0,1B0\n";
    std::fs::write(&path, rows).unwrap();
    let schedule = ScheduleName::File(path);
    let layout = Layout { pp: 2, chunks: 2, schedule, ..Layout::default() };
    let refusal = plan_step(&spec(model(), layout, sgd(4, 6))).unwrap_err().to_string();
    let words = "stage 2 is in no row: each of the 4 stages must be in exactly one";
    assert!(refusal.contains(words), "{refusal}");
}

/// Every table that `PyTorch` printed, with unequal stages and microbatches.
#[test]
fn schedules_from_files_train_like_one_rank_and_as_the_named_ones_do() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schedules");
    let mut trained = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "csv") || stem.starts_with("broken")
        {
            continue;
        }
        let [pp, chunks, microbatches] = ["-pp", "-v", "-mb"].map(|word| {
            let digits = stem.split_once(word).unwrap().1.split('-').next().unwrap();
            digits.parse::<u32>().unwrap()
        });
        let layers = pp * chunks - 1;
        let model = Model { num_hidden_layers: layers, tie_word_embeddings: true, ..model() };
        let schedule = ScheduleName::File(path);
        let layout = Layout { pp, chunks, microbatches, schedule, ..Layout::default() };
        let training = Training { lr: 0.1, ..sgd(microbatches + 1, 4) };
        let from_file = spec(model, layout, training);
        let trained_from_file = assert_trains_like_one_rank(&from_file, 8);
        let known = named::table(&from_file.layout).unwrap().known().unwrap();
        let by_name = StepSpec {
            layout: Layout { schedule: known, ..from_file.layout.clone() },
            ..from_file
        };
        let trained_by_name = train(&by_name, 8);
        assert_eq!(
            same_bits(&trained_from_file.weights, &trained_by_name.weights),
            Ok(()),
            "{stem}"
        );
        trained += 1;
    }
    assert_eq!(trained, 10);
}

/// A plan of paired passes, and the same one with the passes of each pair one after the other.
fn paired_and_in_turn(base: &Layout) -> [StepSpec; 2] {
    let model = Model { num_hidden_layers: 4, ..model() };
    let pairs = named::table(base).unwrap();
    let path = tempfile::NamedTempFile::with_suffix(".csv").unwrap().into_temp_path();
    let path = path.keep().unwrap();
    std::fs::write(&path, pairs.in_turn().to_string()).unwrap();
    [base.schedule.clone(), ScheduleName::File(path)].map(|schedule| {
        let layout = Layout { schedule, ..base.clone() };
        spec(model.clone(), layout, sgd(4, 6))
    })
}

#[test]
fn the_passes_of_a_pair_take_turns_so_that_one_computes_while_the_other_waits() {
    let schedule = ScheduleName::DualPipeV;
    let base = Layout { pp: 2, tp: 2, chunks: 2, microbatches: 4, schedule, ..Layout::default() };
    let specs = paired_and_in_turn(&base);
    let [paired, in_turn] = specs.each_ref().map(|spec| plan_step(spec).unwrap());
    // Microbatches of neighbouring instructions of one rank change far more often.
    let changes = |plan: &Plan| {
        let program = plan.programs[0].instrs.iter().filter(|i| i.origin.microbatch.is_some());
        let microbatches: Vec<_> = program.map(|instr| instr.origin.microbatch).collect();
        microbatches.windows(2).filter(|pair| pair[0] != pair[1]).count()
    };
    assert!(changes(&paired) > 2 * changes(&in_turn), "{}", changes(&paired));
    // The same kernels and messages, so the same bits; but where messages take as long as kernels
    // the device waits less, although it runs one kernel at a time.
    assert_eq!(paired.instr_count(), in_turn.instr_count());
    assert_eq!(same_bits(&train(&specs[0], 9).weights, &train(&specs[1], 9).weights), Ok(()));
    let makespan = |plan: &Plan| {
        let durations: Vec<Vec<Nanos>> =
            plan.programs.iter().map(|program| vec![Nanos(100); program.instrs.len()]).collect();
        let links = Links { latency: Nanos(100), bytes_per_sec: None };
        let graph = order::graph(plan, &order::derive(plan));
        let trace = replay(plan, &graph, &durations, &links, 0).unwrap();
        (trace.end().0, bubble(plan, &trace))
    };
    let ((with, bubble_with), (without, bubble_without)) = (makespan(&paired), makespan(&in_turn));
    assert!(with < without, "{with} is not less than {without}");
    for (a, b) in bubble_with.ranks.iter().zip(&bubble_without.ranks) {
        assert_eq!(a.busy, b.busy, "no kernel runs beside another one");
    }
    std::fs::remove_file(specs[1].layout.schedule.to_string()).unwrap();
}

#[test]
fn pairs_that_would_wait_for_each_other_are_planned_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crossed.csv");
    let rows = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n";
    std::fs::write(&path, rows).unwrap();
    let schedule = ScheduleName::File(path);
    let layout = Layout { pp: 2, tp: 2, microbatches: 2, schedule, ..Layout::default() };
    let spec = spec(model(), layout, sgd(4, 6));
    assert_eq!(check(&plan_step(&spec).unwrap()), []);
    assert_trains_like_one_rank(&spec, 10);
}

/// Two ranks that each send before they receive; where the message arrives is to be filled in.
fn both_send_first(arrives: &str) -> Plan {
    let mut text = String::from("mesh dp=1 tp=1 pp=2 order=tp-dp-pp\n");
    for rank in 0..2 {
        text += &format!("buffer {rank} x workspace f32[8] Step step+0\n");
        text += &format!("buffer {rank} y workspace f32[8] Step step+256\n");
    }
    for (rank, peer) in [(0, 1), (1, 0)] {
        text += &format!("rank {rank}\n  0 compute Fill(len=8 value=1.0) -> x\n");
        text += &format!("  1 pp>{peer} send x to {peer} tag {rank}\n");
        text += &format!("  2 posted recv {arrives} from {peer} tag {peer}\n");
    }
    text::parse(&text).unwrap()
}

#[test]
fn two_ranks_that_both_send_first_hang_only_if_the_message_has_no_place() {
    let step = |plan: Plan| {
        let mut executor = Executor::on_host(2, ExecOptions::default());
        let id = executor.load(plan.into()).unwrap();
        let input =
            StepInput { tokens: &[], labels: &[], seq: 1, lr: 0.0, bias_corrections: [1.0; 2] };
        executor.run(id, 0, &input).map(|output| output.instructions)
    };
    // Receives are posted, so each send finds its receive.
    let sound = both_send_first("y");
    assert_eq!(check(&sound), []);
    assert_eq!(step(sound).unwrap(), 6);
    // The receive waits for the place that the own send reads: the verifier prints the cycle.
    let faulty = both_send_first("x");
    let faults = check(&faulty);
    let [fault] = &faults[..] else { panic!("one fault: {faults:?}") };
    let FaultKind::Cycle { lines, .. } = &fault.kind else { panic!("a cycle: {fault}") };
    assert_eq!(lines.len(), 2, "one wait a rank: {lines:?}");
    let words = fault.to_string();
    for part in
        ["rank 0 #2 recv x from rank 1", "rank 1 #2 recv x from rank 0", "#1 send x to rank 0"]
    {
        assert!(words.contains(part), "{words}");
    }
    let error = step(faulty).unwrap_err();
    let ExecError::Hang { waiting } = &error else { panic!("a hang: {error}") };
    assert_eq!(waiting.len(), 2, "{error}");
}

#[test]
fn the_loss_lives_on_the_last_stage_and_is_reported_whole() {
    for (tp, pp) in [(1, 4), (2, 2)] {
        let layout = Layout { tp, pp, microbatches: 2, ..Layout::default() };
        let spec = spec(model(), layout, sgd(4, 6));
        let plan = plan_step(&spec).unwrap();
        let mut counted = 0;
        for decl in &plan.buffers {
            if let Life::Output(Output::LossSum { counted: counts }) = decl.life {
                assert_eq!(plan.mesh.coord(decl.rank).pp, pp - 1, "{}", decl.label);
                counted += u32::from(counts);
            }
        }
        assert_eq!(counted, 1, "the tensor ranks of a replica see the same labels");
        assert_trains_like_one_rank(&spec, 6);
    }
}
