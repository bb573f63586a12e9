//! Drives tiny runs: any commands in any order end, pauses hold, branches repeat to the bit.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::{Layout, Model, ModelSource, OptimizerKind, Training, ZeroStage};
use crate::data::Dataset;
use crate::exec::RankDelay;
use crate::mesh::Rank;
use crate::sim::Links;
use crate::units::Nanos;

/// Longer than any of these runs takes on the slowest machine: a test that reaches it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two layers of eight numbers, trained on the counting of bytes.
pub(super) fn tiny(layout: Layout, steps: u64) -> Setup {
    let model = Model {
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: 16,
        ..Model::preset("tiny").unwrap()
    };
    let text: Vec<u8> = (0..2000u32).map(|i| (i * i % 13) as u8).collect();
    let scenario = Scenario {
        name: "tiny".into(),
        model: ModelSource::Sizes(model),
        layout,
        training: Training { steps, batch: 4, seq: 8, warmup: 0, ..Training::default() },
        data: Default::default(),
    };
    let dataset = Some(Dataset::from_text("counting", text));
    let mut options = Options { dataset, ..Options::on_cpu() };
    options.exec.threads = Some(1);
    Setup::new(scenario, options)
}

fn two_by_two() -> Layout {
    Layout { dp: 2, pp: 2, zero: ZeroStage::Zero1, microbatches: 2, ..Layout::default() }
}

/// Events up to the first that satisfies `last`, with it.
fn until(driver: &Driver, last: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let event = driver.wait_event(PATIENCE);
        let event = event.unwrap_or_else(|| panic!("nothing follows {events:#?}"));
        let is_last = last(&event);
        events.push(event);
        if is_last {
            return events;
        }
    }
}

fn is_done(event: &Event) -> bool {
    matches!(event, Event::Done { .. })
}

fn is_paused(event: &Event) -> bool {
    matches!(event, Event::Paused)
}

/// Steps and losses, to the bit.
fn losses(events: &[Event]) -> Vec<(u64, u64)> {
    let steps = events.iter().filter_map(|event| match event {
        Event::Step(step) => Some((step.summary.step, step.summary.loss.to_bits())),
        _ => None,
    });
    steps.collect()
}

#[test]
fn a_run_prepares_trains_measures_and_says_that_it_is_done() {
    let driver = Driver::start(tiny(two_by_two(), 5), || {}).unwrap();
    let events = until(&driver, is_done);
    let kinds = events.iter().map(|event| match event {
        Event::Starting(_) => "starting",
        Event::Ready(_) => "ready",
        Event::Playing => "playing",
        Event::Step(_) => "step",
        Event::HeldOut { .. } => "held out",
        Event::Done { trained: 5 } => "done",
        other => panic!("{other:?}"),
    });
    let mut kinds: Vec<&str> = kinds.collect();
    kinds.dedup();
    assert_eq!(kinds, ["starting", "ready", "playing", "held out", "step", "held out", "done"]);
    assert_eq!(losses(&events).len(), 5);
    // More steps than the scenario asks for.
    driver.train_more(2);
    let more = losses(&until(&driver, is_done));
    assert!(more.iter().map(|(step, _)| *step).eq([5, 6]));
}

#[test]
fn a_pause_holds_until_it_is_told_otherwise_and_a_step_is_one_step() {
    let setup = Setup { begin: Begin::Paused, ..tiny(two_by_two(), 1000) };
    let driver = Driver::start(setup, || {}).unwrap();
    assert_eq!(losses(&until(&driver, is_paused)), []);
    driver.step();
    driver.step();
    let events = [until(&driver, is_paused), until(&driver, is_paused)].concat();
    assert!(losses(&events).iter().map(|(step, _)| *step).eq([0, 1]));
    driver.play();
    until(&driver, |event| matches!(event, Event::Step(_)));
    driver.pause();
    until(&driver, is_paused);
    // A command that is obeyed later shows that no step came between.
    driver.fork();
    let events = until(&driver, |event| matches!(event, Event::Forked(_)));
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn a_branch_from_a_fork_repeats_the_steps_to_the_bit_and_the_start_repeats_all() {
    for zero in [ZeroStage::Zero1, ZeroStage::Zero3] {
        let layout = Layout { dp: 2, tp: 2, zero, ..Layout::default() };
        let setup = Setup { begin: Begin::Paused, ..tiny(layout, 8) };
        let driver = Driver::start(setup, || {}).unwrap();
        until(&driver, is_paused);
        let mut first = Vec::new();
        for _ in 0..3 {
            driver.step();
            first.extend(losses(&until(&driver, is_paused)));
        }
        driver.fork();
        driver.play();
        let rest = losses(&until(&driver, is_done));
        assert_eq!((first.len(), rest.len()), (3, 5));
        driver.go_back(Place::Fork(0));
        driver.play();
        let events = until(&driver, is_done);
        assert_eq!(losses(&events), rest, "{zero:?}");
        let branch = events.iter().find_map(|event| match event {
            Event::Step(step) => Some(step.summary.branch),
            _ => None,
        });
        assert_eq!(branch, Some(1));
        driver.go_back(Place::Start);
        driver.play();
        assert_eq!(losses(&until(&driver, is_done)), [first, rest].concat());
    }
}

#[test]
fn one_rank_beside_stays_within_rounding_and_follows_the_run_back() {
    let mut setup = tiny(two_by_two(), 4);
    setup.scenario.training.optimizer = OptimizerKind::Sgd;
    setup.begin = Begin::Paused;
    let driver = Driver::start(setup, || {}).unwrap();
    driver.step();
    driver.set_beside(Beside::OneRank);
    driver.play();
    let mut events = until(&driver, is_done);
    driver.go_back(Place::Start);
    driver.play();
    events.extend(until(&driver, is_done));
    let differences = events.iter().filter_map(|event| match event {
        Event::Step(step) => Some((step.summary, step.summary.difference)),
        _ => None,
    });
    let differences: Vec<_> = differences.collect();
    assert!(differences.len() == 8 && differences[0].1.is_none());
    for (summary, difference) in &differences[1..] {
        let difference = difference.unwrap();
        assert!((difference.loss - summary.loss).abs() < 1e-5 * summary.loss, "{summary:?}");
        assert!(difference.weights < 1e-5, "{summary:?}");
    }
}

#[test]
fn delays_change_no_bit() {
    let setup = Setup { begin: Begin::Paused, ..tiny(two_by_two(), 2) };
    let driver = Driver::start(setup, || {}).unwrap();
    driver.play();
    let right = losses(&until(&driver, is_done));
    let mut delays = Delays::default();
    delays.ranks.insert(Rank(1), RankDelay { factor: 2.0, extra: Nanos(1000) });
    delays.links.insert((Rank(0), Rank(1)), Links { latency: Nanos(10_000), ..Links::FREE });
    driver.set_delays(delays);
    driver.go_back(Place::Start);
    driver.play();
    assert_eq!(losses(&until(&driver, is_done)), right);
}

#[test]
fn what_cannot_start_is_told_in_three_parts_and_the_driver_still_answers() {
    let mut driver = Driver::start(tiny(Layout { tp: 3, ..Layout::default() }, 1), || {}).unwrap();
    let events = until(&driver, |event| matches!(event, Event::Failed(_)));
    let Some(Event::Failed(explained)) = events.last() else { panic!("{events:?}") };
    assert!(explained.what.contains("heads") && !explained.remedy.is_empty(), "{explained:?}");
    driver.play();
    until(&driver, |event| matches!(event, Event::Failed(_)));
    driver.stop();
    until(&driver, |event| matches!(event, Event::Stopped));
    driver.play();
    assert!(driver.wait_event(PATIENCE).is_none());
}

#[test]
fn a_device_that_is_not_there_is_replaced_by_the_cpu() {
    let mut setup = tiny(two_by_two(), 1);
    setup.options.devices = "no such adapter".parse().unwrap();
    let driver = Driver::start(setup, || {}).unwrap();
    let events = until(&driver, is_done);
    let fell = events.iter().find_map(|event| match event {
        Event::DeviceFellBack { why } => Some(why.to_string()),
        _ => None,
    });
    assert!(fell.unwrap().contains("no such adapter"));
}

#[test]
fn numbers_that_are_not_finite_pause_the_run_on_their_step() {
    let mut setup = tiny(two_by_two(), 50);
    setup.scenario.training.lr = 1e30;
    let driver = Driver::start(setup, || {}).unwrap();
    let events = until(&driver, |event| matches!(event, Event::NotFinite { .. }));
    let found = events.iter().find_map(|event| match event {
        Event::NotFinite { step, first } => Some((*step, first.clone())),
        _ => None,
    });
    let (step, first) = found.unwrap();
    assert_eq!(losses(&events).len() as u64, step);
    assert!(first.is_some());
    driver.go_back(Place::Start);
    driver.step();
    until(&driver, |event| matches!(event, Event::Step(_)));
}

#[test]
fn dropping_a_driver_ends_its_thread_whatever_it_does() {
    let count = Arc::new(());
    for begin in [Begin::Playing, Begin::Paused] {
        let held = Arc::clone(&count);
        let setup = Setup { begin, ..tiny(two_by_two(), 1_000_000) };
        let driver = Driver::start(setup, move || drop(Arc::clone(&held))).unwrap();
        until(&driver, |event| matches!(event, Event::Ready(_)));
        drop(driver);
        // What the thread was given is gone with it.
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

#[derive(Clone, Copy, Debug)]
enum Told {
    Play,
    Pause,
    Step,
    More(u64),
    Fork,
    Back(Place),
    Beside(Beside),
}

fn any_command() -> impl Strategy<Value = Told> {
    prop_oneof![
        Just(Told::Play),
        Just(Told::Pause),
        Just(Told::Step),
        (0..4u64).prop_map(Told::More),
        Just(Told::Fork),
        Just(Told::Back(Place::Start)),
        Just(Told::Back(Place::Here)),
        (0..3u32).prop_map(|id| Told::Back(Place::Fork(id))),
        Just(Told::Beside(Beside::OneRank)),
        Just(Told::Beside(Beside::Nothing)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_commands_in_any_order_are_obeyed_and_end(
        commands in prop::collection::vec(any_command(), 0..16),
    ) {
        let mut setup = tiny(Layout { dp: 2, ..Layout::default() }, 3);
        setup.held_out = HeldOut::Skipped;
        let mut driver = Driver::start(setup, || {}).unwrap();
        for command in commands {
            match command {
                Told::Play => driver.play(),
                Told::Pause => driver.pause(),
                Told::Step => driver.step(),
                Told::More(steps) => driver.train_more(steps),
                Told::Fork => driver.fork(),
                Told::Back(to) => driver.go_back(to),
                Told::Beside(beside) => driver.set_beside(beside),
            }
        }
        // Every step of a branch follows the one before.
        driver.play();
        driver.fork();
        let mut events = until(&driver, |event| matches!(event, Event::Forked(_)));
        driver.stop();
        events.extend(until(&driver, |event| matches!(event, Event::Stopped)));
        let steps: Vec<_> = events.iter().filter_map(|event| match event {
            Event::Step(step) => Some(step.summary),
            _ => None,
        }).collect();
        for pair in steps.windows(2) {
            let follows = pair[1].step == pair[0].step + 1;
            prop_assert!(follows || pair[1].branch > pair[0].branch, "{:?}", pair);
        }
    }
}

#[test]
fn faults_are_judged_run_and_taken_away_again() {
    let mut setup = tiny(two_by_two(), 3);
    setup.begin = Begin::Paused;
    setup.scenario.training.optimizer = OptimizerKind::Sgd;
    let driver = Driver::start(setup, || {}).unwrap();
    driver.set_beside(Beside::OneRank);
    driver.play();
    let right = losses(&until(&driver, is_done));

    driver.set_faults(vec![Fault::RepeatRows], Place::Start);
    driver.play();
    let events = until(&driver, is_done);
    assert_ne!(losses(&events), right);
    let summary = events.iter().find_map(|event| match event {
        Event::Step(step) => Some(step.summary),
        _ => None,
    });
    let summary = summary.unwrap();
    assert!((summary.difference.unwrap().loss - summary.loss).abs() > 1e-4, "{summary:?}");

    // A message that nobody sends: the checker says it, the step hangs and is reported.
    let facts = events.iter().find_map(|event| match event {
        Event::Ready(facts) => Some(Arc::clone(facts)),
        _ => None,
    });
    let facts = facts.unwrap();
    let instrs = facts.original.programs[0].instrs.iter();
    let send = instrs.clone().position(|i| matches!(i.action, crate::plan::Action::Send { .. }));
    let skipped = Fault::SkipMessage { rank: Rank(0), instr: send.unwrap() as u32 };
    driver.set_faults(vec![skipped], Place::Here);
    driver.step();
    let events = until(&driver, |event| matches!(event, Event::Hang { .. }));
    let is_found = |event: &Event| matches!(event, Event::Ready(f) if !f.checker.is_empty());
    assert!(events.iter().any(is_found));
    // Nothing goes on from a step that is half done.
    driver.play();
    until(&driver, |event| matches!(event, Event::Failed(_)));
    // What cannot be planted changes nothing.
    driver.set_faults(vec![Fault::SplitNorms], Place::Start);
    let events = until(&driver, |event| matches!(event, Event::Failed(_)));
    assert_eq!(events.len(), 1);

    driver.set_faults(Vec::new(), Place::Start);
    driver.play();
    assert_eq!(losses(&until(&driver, is_done)), right);
}

#[test]
fn a_collective_is_captured_in_one_step_which_is_a_step_like_any_other() {
    let setup = Setup { begin: Begin::Paused, ..tiny(two_by_two(), 4) };
    let driver = Driver::start(setup, || {}).unwrap();
    let events = until(&driver, is_paused);
    let facts = events.iter().find_map(|event| match event {
        Event::Ready(facts) => Some(Arc::clone(facts)),
        _ => None,
    });
    let facts = facts.unwrap();
    driver.play();
    let right = losses(&until(&driver, is_done));
    driver.go_back(Place::Start);
    until(&driver, is_paused);
    let (rank, instr) = crate::trace::captured::first(&facts.plan, &facts.order).unwrap();
    driver.step();
    driver.capture(rank, instr);
    let mut events = until(&driver, |event| matches!(event, Event::Captured { .. }));
    let Some(Event::Captured { step: 1, captured }) = events.last() else { panic!("{events:?}") };
    assert!(captured.samples.iter().all(|sample| !sample.values.is_empty()));
    driver.play();
    events.extend(until(&driver, is_done));
    assert_eq!(losses(&events), right);
}
