//! Goal: what one asked for is seen at once, and what stands still does so. Method: tell a window of a
//! change, and look at the step, the line that explains and the legend.

use std::collections::BTreeSet;

use shardlab::exec::Delays;
use shardlab::mesh::Rank;
use shardlab::sim::Links;
use shardlab::train::driver::Event;
use shardlab::train::faults::Fault;
use shardlab::units::Nanos;
use shardlab_visualizer::shown::Command;

use crate::window::{Opened, STEPS, Window, eight_ranks, recording};

/// Steps of the recording before something changes.
const BEFORE: u64 = 6;

fn step_of(event: &Event) -> Option<u64> {
    match event {
        Event::Step(step) => Some(step.summary.step),
        _ => None,
    }
}

/// A window that has seen the first steps of the recording, and what follows of it.
fn half_way() -> (Window, Vec<Event>) {
    let events = recording(&eight_ranks());
    let cut = events.iter().position(|event| step_of(event) == Some(BEFORE)).unwrap();
    let mut window = Window::empty(Opened::default());
    events[..cut].iter().for_each(|event| window.tell(event.clone()));
    window.frames(3);
    assert_eq!(window.app().step().map(|step| step.number()), Some(BEFORE - 1));
    (window, events[cut..].to_vec())
}

#[test]
fn what_was_broken_is_seen_with_the_first_step_that_runs_so() {
    let (mut window, rest) = half_way();
    // The playhead is at the beginning of a healthy step that takes seconds.
    window.ask(Command::Break(Fault::SlowRank { rank: Rank(1), factor: 4.0 }));
    let mut rest = rest.into_iter();
    // The step that ran already is healthy as well.
    window.tell(rest.next().unwrap());
    window.frames(2);
    assert_eq!(window.app().step().map(|step| step.number()), Some(BEFORE - 1));
    let mut delays = Delays::default();
    delays.links.insert((Rank(0), Rank(1)), Links { latency: Nanos(10_000), ..Links::FREE });
    window.tell(Event::Delayed(delays));
    window.frames(2);
    assert_eq!(window.app().step().map(|step| step.number()), Some(BEFORE - 1));
    window.tell(rest.next().unwrap());
    window.frames(2);
    assert_eq!(window.app().step().map(|step| step.number()), Some(BEFORE + 1));
    // Its medians are of steps that ran as it did.
    let run = window.app().run();
    let median_over = |step| run.recent(step).iter().map(|trace| trace.step).collect::<Vec<_>>();
    assert_eq!(median_over(BEFORE + 1), [BEFORE + 1]);
    assert_eq!(median_over(BEFORE), (0..=BEFORE).collect::<Vec<_>>());
}

#[test]
fn news_are_read_until_the_pointer_is_moved() {
    let mut window = Window::open(Opened::default());
    let track = window.app().zones().timeline;
    let at = (track.left + track.width * 0.3, track.top + track.height * 0.3);
    window.hover(at.0, at.1);
    let block = window.explanation();
    assert!(block.starts_with("Rank "), "{block}");
    window.ask(Command::Tell("The file is there.".into()));
    window.frames(3);
    assert_eq!(window.explanation(), "The file is there.");
    // A hand that trembles moves nothing.
    window.hover(at.0 + 2.0, at.1);
    assert_eq!(window.explanation(), "The file is there.");
    window.hover(at.0 + 40.0, at.1);
    assert!(window.explanation().starts_with("Rank "));
}

#[test]
fn the_legend_is_the_same_in_every_step() {
    let mut window = Window::open(Opened::default());
    let zone = window.app().zones().timeline;
    let mut legends = BTreeSet::new();
    for step in 0..STEPS {
        window.ask(Command::SeekStep(step));
        window.frames(2);
        let written = window.audit().written().iter();
        let words = ["F forward", "B backward", "waiting", "short waits inside", "N gradient norm"];
        let legend: Vec<String> = written
            .filter(|text| words.contains(&text.label.text.as_str()))
            .map(|text| format!("{} at {:.1}", text.label.text, text.label.area.left))
            .collect();
        assert!(legend.len() >= 4, "step {step}: {legend:?} in {zone:?}");
        legends.insert(legend);
    }
    assert_eq!(legends.len(), 1, "{legends:#?}");
}
