//! The plot of losses: every finite point is seen, also between others that are not; the axis keeps
//! still; many points make few shapes.

use super::*;
use crate::trace::draw::audit;
use crate::trace::draw::fonts::SansTable;
use crate::trace::draw::scene::{Canvas, Dash, Shape, Sketch};
use crate::trace::draw::theme::Theme;

const PLOT: Area = Area { left: 0.0, top: 0.0, width: 486.0, height: 240.0 };

fn frame<'a>(series: &'a Series) -> Frame<'a> {
    let range = Range::holding(series.finite(), None);
    Frame {
        series,
        held_out: &[],
        target: None,
        shown: None,
        hover: None,
        steps: 0,
        reference: None,
        branches: &[],
        unit: "nats per byte",
        range,
    }
}

fn shapes(frame: &Frame<'_>) -> (Vec<Shape>, Layout) {
    let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, PLOT);
    let layout = draw(&mut sketch, PLOT, frame);
    (sketch.scene.shapes, layout)
}

/// Dots of points of the raw curve.
fn dots(shapes: &[Shape]) -> Vec<Point> {
    let raw = Theme::LIGHT.ground.mixed(Theme::LIGHT.ink, 0.38);
    let dot = |shape: &Shape| match shape {
        Shape::Dot { at, fill, .. } if *fill == raw => Some(*at),
        _ => None,
    };
    shapes.iter().filter_map(dot).collect()
}

fn triangles(shapes: &[Shape]) -> usize {
    let is_triangle = |shape: &&Shape| matches!(shape, Shape::Polygon { .. });
    shapes.iter().filter(is_triangle).count()
}

#[test]
fn finite_points_around_one_that_is_not_are_all_seen() {
    let series: Series = (0..).zip([3.0, 2.0, f64::NAN, 2.0, 1.9]).collect();
    let (shapes, layout) = shapes(&frame(&series));
    let found = dots(&shapes);
    assert_eq!(found.len(), 4);
    assert_eq!(triangles(&shapes), 1);
    let steps: Vec<_> = found.iter().map(|at| layout.step_at(Point { y: 99.0, ..*at })).collect();
    assert_eq!(steps[..2], [Some(0), Some(1)]);
    assert!(found.iter().all(|at| layout.plot.top <= at.y && at.y <= layout.plot.bottom()));
}

#[test]
fn a_single_finite_point_is_a_dot_and_nothing_finite_is_no_fault() {
    let series: Series = (0..).zip([f64::NAN, 2.0, f64::NAN]).collect();
    let (drawn, _) = shapes(&frame(&series));
    assert_eq!((dots(&drawn).len(), triangles(&drawn)), (1, 2));
    let series: Series = (0..).zip([f64::NAN, f64::INFINITY]).collect();
    let (drawn, _) = shapes(&frame(&series));
    assert_eq!((dots(&drawn).len(), triangles(&drawn)), (0, 2));
    shapes(&frame(&Series::default()));
}

#[test]
fn smoothing_begins_at_the_first_value_and_skips_what_is_not_finite() {
    let series: Series = (0..).zip([f64::NAN, 4.0, f64::NAN, 4.0, 2.0]).collect();
    let smoothed: Vec<f64> = series.points().iter().map(|point| point.smoothed).collect();
    assert!(smoothed[0].is_nan());
    assert!(smoothed[1..4].iter().all(|value| (value - 4.0).abs() < 1e-12));
    assert!(smoothed[4] < 4.0 && smoothed[4] > 3.0);
}

#[test]
fn steps_of_another_branch_do_not_mix_in() {
    let mut series: Series = (0..).zip([3.0, 2.0, 1.0]).collect();
    series.push(1, 9.0);
    assert_eq!(series.points().len(), 3);
    assert_eq!(series.at(1).map(|point| point.value), Some(2.0));
}

#[test]
fn the_axis_grows_at_once_and_shrinks_only_when_it_is_mostly_empty() {
    let start = Range::holding([2.4, 5.5], None);
    assert!(start.low <= 2.4 && start.high >= 5.5);
    // Inside, nothing moves, up to two thirds of it.
    assert_eq!(Range::holding([2.4, 5.1], Some(start)), start);
    let grown = Range::holding([2.4, 9.0], Some(start));
    assert!(grown.high >= 9.0);
    let shrunk = Range::holding([2.4, 3.0], Some(grown));
    assert!(shrunk.high < 4.0);
    assert_eq!(Range::holding([f64::NAN], Some(start)), start);
    // Of a loss that goes down slowly the axis moves a few times, not at every step.
    let (mut range, mut moves) = (None, 0);
    for step in 1..500 {
        let values = (0..step).map(|at| 2.4 + 3.0 * (-0.01 * f64::from(at)).exp());
        let next = Range::holding(values, range);
        moves += usize::from(range.is_some_and(|before| before != next));
        range = Some(next);
    }
    assert!(moves <= 6, "{moves} moves");
}

#[test]
fn a_hundred_thousand_points_are_a_few_shapes_and_keep_their_extremes() {
    let value = |step: u64| if step == 54_321 { 9.0 } else { 3.0 + (step % 7) as f64 * 0.01 };
    let series: Series = (0..100_000).map(|step| (step, value(step))).collect();
    let (shapes, layout) = shapes(&frame(&series));
    let points = |shape: &Shape| match shape {
        Shape::Line { points, .. } => points.len(),
        _ => 1,
    };
    let count: usize = shapes.iter().map(points).sum();
    assert!(count < 12 * layout.plot.width as usize, "{count} points are painted");
    let highest = shapes.iter().filter_map(|shape| match shape {
        Shape::Line { points, width, dash: Dash::Solid, .. }
            if *width == 1.0 && points.len() > 9 =>
        {
            points.iter().map(|point| point.y).min_by(f32::total_cmp)
        }
        _ => None,
    });
    let range = frame(&series).range;
    let share = (9.0 - range.low) / (range.high - range.low);
    let expected = layout.plot.bottom() - layout.plot.height * share as f32;
    let highest = highest.min_by(f32::total_cmp).expect("a curve");
    assert!((highest - expected).abs() < 3.0, "{highest} {expected}");
}

#[test]
fn a_step_is_told_with_all_that_is_known_of_it() {
    let series: Series = (0..).zip([3.0, 2.5]).collect();
    let reference: Series = (0..).zip([3.0, 2.25]).collect();
    let held_out = [(1, 2.75)];
    let frame = Frame { reference: Some(&reference), held_out: &held_out, ..frame(&series) };
    assert_eq!(
        frame.sentence(1),
        "Step 1: loss 2.500, smoothed 2.722, one rank 2.250, |Δ| 2.5e−1, held-out 2.750."
    );
}

#[test]
fn the_name_of_the_target_stands_where_no_curve_runs() {
    let target = Some(Target { value: 2.49, name: "letter pairs" });
    let falls = |at: u64| 2.3 + 3.7 * (-0.08 * at as f64).exp();
    // As far as it has come: always the same place. A loss that ends above its target: another.
    let stays_above = |at: u64| 2.6 + 0.01 * (at % 2) as f64;
    let place = |loss: &dyn Fn(u64) -> f64, steps: u64| {
        let series: Series = (0..steps).map(|at| (at, loss(at))).collect();
        let frame = Frame { target, steps: 200, ..frame(&series) };
        let (shapes, _) = shapes(&frame);
        let named = shapes.iter().find_map(|shape| match shape {
            Shape::Label(label) if label.text.starts_with("target") => Some(label.area),
            _ => None,
        });
        let area = named.expect("the target has a name");
        assert!(dots(&shapes).iter().all(|at| !area.contains(*at)), "after {steps} steps");
        area.left
    };
    let places: Vec<_> = [2, 10, 40, 199].map(|steps| place(&falls, steps)).to_vec();
    assert!(places.iter().all(|left| *left == places[0]), "{places:?}");
    place(&stays_above, 50);
}

#[test]
fn texts_hold_at_every_size_in_every_theme() {
    let series: Series = (0..200).map(|at| (at, 2.4 + 3.0 * (-0.03 * at as f64).exp())).collect();
    let reference: Series =
        (0..200).map(|at| (at, 2.4 + 3.0 * (-0.031 * at as f64).exp())).collect();
    let name = "一个没有故障的分支".repeat(12);
    let branches = [Branch { series: &reference, name: &name }];
    for reference in [None, Some(&reference)] {
        audit::every_theme_and_size(|sketch, area| {
            let target = Some(Target { value: 2.49, name: &name });
            let (held_out, shown) = ([(0, 5.4), (200, 2.45)], Some(190));
            let frame = Frame {
                held_out: &held_out,
                branches: &branches,
                target,
                shown,
                hover: Some(11),
                steps: 200,
                reference,
                ..frame(&series)
            };
            draw(sketch, area, &frame);
        });
    }
}
