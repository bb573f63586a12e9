//! Goal: live training does not make the window dance. Method: feed a long run step by step, play it
//! fast, and hold all sides of everything that is fixed, frame by frame.

use std::collections::BTreeSet;
use std::sync::Arc;

use eframe::egui;
use egui::accesskit::Role;
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use shardlab::trace::Span;
use shardlab::trace::draw::scene::{Area, Shape};
use shardlab::train::StepReport;
use shardlab::train::driver::{Event, StepSummary, Stepped};
use shardlab::units::Nanos;
use shardlab_visualizer::zones::Zones;

use crate::window::{Opened, Window, eight_ranks, recording};

/// Steps of the run that is followed, and frames from one to the next: a step that ends in a moment
/// rests for half a second.
const TOLD: u64 = 20;
const FRAMES_EACH: u64 = 36;

/// Four sides in quarters of a point.
type Sides = [i32; 4];

/// What is fixed in a frame.
type Seen = (Zones, Vec<(String, Sides)>);

fn sides(area: Area) -> Sides {
    [area.left, area.top, area.right(), area.bottom()].map(|side| (side * 4.0).round() as i32)
}

/// What must not move, by what it is: containers of the bars with all that can be pressed, names of
/// rows on their baselines, memory at their right, cards and wires.
fn fixed(window: &mut Window) -> Vec<(String, Sides)> {
    let zones = *window.app().zones();
    let theme = window.app().look().theme;
    let (left, right) = (zones.timeline.left + 100.0, zones.timeline.right() - 132.0);
    let mut fixed: Vec<(String, Sides)> = Vec::new();
    for text in window.audit().written() {
        let label = &text.label;
        // Above the legend and the small map.
        let is_row = label.area.bottom() < zones.timeline.bottom() - 48.0;
        let is_name = is_row && (label.area.right() < left || label.area.left > right);
        let is_coordinate = label.full.starts_with('d') && label.full.ends_with(['0', '1']);
        match text.zone {
            // What is written in them may change its width.
            "top bar" | "transport" | "figures" => {
                fixed.push((text.zone.into(), sides(label.within)));
            }
            "timeline" if is_name => {
                fixed.push((format!("row {}", label.full), sides(label.area)));
            }
            "left band" if is_coordinate => {
                fixed.push((format!("card {}", label.full), sides(label.area)));
            }
            _ => {}
        }
    }
    for painted in window.audit().scenes() {
        for shape in &painted.scene.shapes {
            match (painted.zone, shape) {
                ("left band", Shape::Fill { area, fill, edge: Some(_), .. })
                    if *fill == theme.raised =>
                {
                    fixed.push(("card".into(), sides(*area)));
                }
                // The course of a wire, whatever has crossed it.
                ("left band", Shape::Line { points, width, .. }) if *width == 1.0 => {
                    let ends = [points[0], points[points.len() - 1]];
                    let [a, b] = ends.map(|at| [at.x, at.y].map(|side| (side * 4.0) as i32));
                    fixed.push((
                        format!("wire of {} points", points.len()),
                        [a[0], a[1], b[0], b[1]],
                    ));
                }
                ("timeline", Shape::Line { points, ink, .. })
                    if *ink == theme.rule && points[0].y == points[1].y =>
                {
                    let width = points[1].x - points[0].x;
                    let rule = Area::new(points[0].x, points[0].y, width, 0.0);
                    fixed.push(("rule between rows".into(), sides(rule)));
                }
                _ => {}
            }
        }
    }
    for role in [Role::Button, Role::Slider] {
        let nodes = window.harness.get_all_by_role(role);
        fixed.extend(nodes.map(|node| {
            let (name, rect) = (node.accesskit_node().label().unwrap_or_default(), node.rect());
            let area = Area::new(rect.left(), rect.top(), rect.width(), rect.height());
            // Names of some follow what they do just now.
            let name = if name.to_lowercase().contains("step") { "of steps" } else { &name };
            (format!("{role:?} {name}"), sides(area))
        }));
    }
    fixed.sort();
    fixed
}

/// Numbers beside the axes of the loss: text and place.
fn axes_of_loss(window: &mut Window) -> Vec<(String, Sides)> {
    let written = window.audit().written().iter().filter(|text| text.zone == "right band");
    let is_tick = |text: &str| text.parse::<f64>().is_ok() || text == "step 0";
    let ticks = written.filter(|text| is_tick(&text.label.full));
    ticks.map(|text| (text.label.full.clone(), sides(text.label.area))).collect()
}

/// The figures as they are written.
fn figures(window: &mut Window) -> Vec<String> {
    let written = window.audit().written().iter().filter(|text| text.zone == "figures");
    written.map(|text| text.label.full.clone()).collect()
}

/// A long run: the recorded steps without the cold ones, over and over, 50 ms each with the noise of
/// a machine that does other things as well, and a loss that falls.
fn long_run() -> Vec<Event> {
    let events = recording(&eight_ranks());
    let reports: Vec<&StepReport> = events
        .iter()
        .filter_map(|event| match event {
            Event::Step(Stepped { report: Some(report), .. }) if report.step > 2 => {
                Some(report.as_ref())
            }
            _ => None,
        })
        .collect();
    let begin = events.iter().take_while(|event| !matches!(event, Event::Step(_)));
    let begin = begin.map(|event| match event {
        Event::Ready(facts) => {
            let mut facts = (**facts).clone();
            facts.scenario.training.steps = 200;
            Event::Ready(Arc::new(facts))
        }
        other => other.clone(),
    });
    let steps = (0..TOLD).map(|step| {
        let report = reports[step as usize % reports.len()];
        // One step in eight is much longer than all others.
        let noise = 0.9 + 0.02 * ((step * 7) % 11) as f64 + if step % 8 == 5 { 0.6 } else { 0.0 };
        let scale = 50e6 * noise / report.trace.end().0 as f64;
        let mut trace = report.trace.as_ref().clone();
        trace.step = step;
        for span in trace.spans.iter_mut().flatten() {
            let scaled = |at: Nanos| Nanos((at.0 as f64 * scale) as u64);
            *span = Span { start: scaled(span.start), end: scaled(span.end) };
        }
        let loss = 2.6 + 2.9 * (-(step as f64) / 6.0).exp() + 0.03 * (step as f64 * 2.0).sin();
        let report = StepReport { step, loss, trace: Arc::new(trace), ..report.clone() };
        let summary = StepSummary {
            step,
            branch: 0,
            loss,
            grad_norm: report.grad_norm,
            lr: report.lr,
            seconds: 0.05 * noise,
            wall_seconds: 0.05 * noise,
            bytes: report.crossed.bytes().0,
            difference: None,
        };
        Event::Step(Stepped { summary, report: Some(Arc::new(report)) })
    });
    begin.chain(steps).collect()
}

#[test]
fn nothing_fixed_moves_while_twenty_steps_of_a_run_are_shown() {
    let mut window = Window::empty(Opened::default());
    window.audit().keep_scenes();
    let mut events = long_run().into_iter().peekable();
    while let Some(event) = events.next_if(|event| !matches!(event, Event::Step(_))) {
        window.tell(event);
    }
    let (mut before, mut axis, mut loss) = (None::<Seen>, None, None);
    let (mut axis_changes, mut loss_changes, mut compared) = (0_u64, 0_u64, 0);
    let mut shown = BTreeSet::new();
    let mut figure: Option<(Vec<String>, u64)> = None;
    for frame in 0..TOLD * FRAMES_EACH {
        if frame % FRAMES_EACH == 0
            && let Some(event) = events.next()
        {
            window.tell(event);
        }
        window.frames(1);
        let Some(step) = window.app().step() else { continue };
        if shown.is_empty() {
            // As fast as it goes: a step is over in a moment.
            for _ in 0..16 {
                window.press(Modifiers::NONE, Key::Period);
            }
            window.frames(20);
            shown.insert(u64::MAX);
            continue;
        }
        shown.insert(step.number());
        let now = (*window.app().zones(), fixed(&mut window));
        if let Some((zones, before)) = &before {
            assert_eq!(now.0, *zones, "frame {frame}");
            let gone = before.iter().filter(|item| !now.1.contains(item));
            let new = now.1.iter().filter(|item| !before.contains(item));
            let moved: Vec<_> = gone.zip(new).collect();
            assert!(moved.is_empty() && now.1.len() == before.len(), "frame {frame}: {moved:#?}");
            compared += 1;
        }
        before = Some(now);
        let end = window.app().time_axis().end;
        axis_changes += u64::from(axis.is_some_and(|axis| axis != end));
        axis = Some(end);
        let axes = axes_of_loss(&mut window);
        assert!(axes.len() >= 5, "{axes:?}");
        loss_changes += u64::from(loss.as_ref().is_some_and(|loss| *loss != axes));
        loss = Some(axes);
        let written = figures(&mut window);
        match &figure {
            Some((known, _)) if *known == written => {}
            Some((_, at)) => {
                assert!(frame - at >= 14, "figures changed in frames {at} and {frame}");
                figure = Some((written, frame));
            }
            None => figure = Some((written, 0)),
        }
    }
    let count = shown.len() as u64 - 1;
    assert!(count >= 16 && compared >= 300, "{count} steps were shown in {compared} frames");
    assert!(axis_changes <= count / 8, "{axis_changes} changes of the time axis in {count} steps");
    assert!(loss_changes <= count / 8, "{loss_changes} changes of the axes of the loss");
    let kinds = ["top bar", "transport", "figures", "row ", "card ", "wire ", "rule ", "Button "];
    let (_, fixed) = before.expect("frames were compared");
    for kind in kinds {
        assert!(fixed.iter().any(|(what, _)| what.starts_with(kind)), "no {kind} was compared");
    }
}
