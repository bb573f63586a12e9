//! Goal: a search finds what simulating every layout would find. Method: it does just that, on a
//! model of few layouts, and holds bounds, best, front and counts against it.

use std::ops::ControlFlow;

use super::why::Comparison;
use super::*;
use crate::config::workload::{Precision, Transformer};

/// A wide model that only `heads`' divisors cut.
fn model(layers: u64, heads: u64) -> Transformer {
    Transformer {
        layers,
        hidden: 128 * heads,
        heads,
        kv_heads: heads,
        head_dim: 128,
        ffn: 512 * heads,
        vocab: 32_000,
        gated: true,
        tied: false,
    }
}

/// Two layers on 64 GPUs: of the powers of two only 1 and 2 divide 62 heads.
fn wide() -> Space {
    Space { model: model(2, 62), gpus: 64, batch: 64, seq: 2048, precision: Precision::Half }
}

fn search<'a>(space: &'a Space, cluster: &'a Cluster, constants: &'a Constants) -> Search<'a> {
    Search { space, cluster, constants, threads: 2 }
}

fn to_the_end(search: &Search<'_>) -> Found {
    search.run(&mut |_| ControlFlow::Continue(()))
}

/// Every layout that is not refused, with memory, bounds and simulated seconds.
struct Brute {
    points: Vec<Point>,
    formula: Vec<f64>,
    paper: Vec<f64>,
}

/// Every `nth` layout that fits.
fn brute(search: &Search<'_>, nth: usize) -> Brute {
    let listed = Listed::of(search.space);
    let kinds = search.held(&listed.cuts);
    let places = search.places(&listed.cuts);
    let some: Vec<(usize, &Cut)> = listed.cuts.iter().enumerate().step_by(nth).collect();
    let of = in_parallel(2, &some, |(index, cut)| {
        let place = &places[&(cut.tp, cut.pp)];
        let (memory, formula) = search.look_at(std::slice::from_ref(cut), &kinds, place)[0];
        let formula = formula?;
        let (seconds, index) = (search.simulate(cut), *index as u32);
        Some((Point { seconds, memory, index }, formula, search.on_paper(cut)))
    });
    let mut brute = Brute { points: Vec::new(), formula: Vec::new(), paper: Vec::new() };
    for (point, formula, paper) in of.into_iter().flatten() {
        brute.points.push(point);
        brute.formula.push(formula);
        brute.paper.push(paper);
    }
    brute
}

impl Brute {
    fn assert_bounds_are_admissible(&self, space: &Space) {
        let listed = Listed::of(space);
        for (index, point) in self.points.iter().enumerate() {
            let cut = &listed.cuts[point.index as usize];
            for (name, bound) in [("formula", self.formula[index]), ("paper", self.paper[index])] {
                assert!(bound <= point.seconds, "{cut}: {name} {bound} > {}", point.seconds);
                assert!(bound > 0.0, "{cut}: {name}");
            }
        }
    }
}

#[test]
fn at_64_gpus_a_search_finds_the_best_and_the_front_of_brute_force() {
    let (space, cluster) = (wide(), Cluster::preset("a100-40").unwrap());
    let constants = Constants::default();
    let search = search(&space, &cluster, &constants);
    let brute = brute(&search, 1);
    brute.assert_bounds_are_admissible(&space);
    // Bounds twice as high would be wrong nearly everywhere: these are sharp.
    let sharp = |bounds: &[f64]| {
        let pairs = bounds.iter().zip(&brute.points);
        pairs.filter(|(bound, point)| 2.0 * **bound > point.seconds).count() as f64
    };
    let all = brute.points.len() as f64;
    assert!(sharp(&brute.formula) > 0.8 * all && sharp(&brute.paper) > 0.9 * all);
    let found = to_the_end(&search);

    let listed = Listed::of(&space);
    let cuts = |points: &[Point]| -> Vec<(Cut, f64)> {
        let of = |point: &Point| (listed.cuts[point.index as usize].clone(), point.seconds);
        points.iter().map(of).collect()
    };
    let of = |candidates: &[Candidate]| -> Vec<(Cut, f64)> {
        let of = |candidate: &Candidate| (candidate.cut.clone(), candidate.step_seconds);
        candidates.iter().map(of).collect()
    };
    let mut sorted = brute.points.clone();
    sorted.sort_by(Point::order);
    assert_eq!(of(&found.best), cuts(&sorted[..BEST]));
    let mut front = Front::default();
    brute.points.iter().for_each(|point| front.insert(*point));
    let slowest = SLOWEST * sorted[0].seconds;
    let within = front.points().partition_point(|point| point.seconds <= slowest);
    assert_eq!(of(&found.front), cuts(&front.points()[..within]));
    assert!(3 < within && within < front.points().len(), "{within}: the front is cut short");

    let Counts { enumerated, refused, bounded, simulated, open } = found.counts;
    assert_eq!(open, 0);
    assert_eq!(enumerated, refused + bounded + simulated);
    assert_eq!(bounded + simulated, brute.points.len() as u64);
    assert!(simulated * 4 < bounded, "{simulated} simulated, {bounded} bounded away");
    assert_eq!(refused, found.refused.iter().map(|refused| refused.count).sum::<u64>());
    let memory = found.refused.iter().find(|refused| refused.reason == Refusal::Memory).unwrap();
    assert_eq!(memory.count, (listed.cuts.len() - brute.points.len()) as u64);
    assert!(memory.example.contains(" of 37.2 GB"), "{}", memory.example);
    assert!(found.smallest.unwrap().1 <= front.points().last().unwrap().memory);
}

#[test]
fn bounds_are_admissible_where_nodes_are_odd_and_links_are_slow() {
    let constants = Constants::default();
    // Six GPUs a node: groups of four lie across nodes, unlike from pipeline to pipeline.
    let space =
        Space { model: model(11, 12), gpus: 24, batch: 144, seq: 1024, precision: Precision::Half };
    for (gb_per_sec, latency_us) in [(25.0, 5.0), (0.5, 200.0)] {
        let mut cluster = Cluster::preset("h100").unwrap();
        cluster.node.gpus = 6;
        cluster.network.gb_per_sec = gb_per_sec;
        cluster.network.latency_us = latency_us;
        let search = search(&space, &cluster, &constants);
        let brute = brute(&search, 401);
        assert!(brute.points.len() > 40, "{}", brute.points.len());
        brute.assert_bounds_are_admissible(&space);
    }
}

#[test]
fn threads_change_nothing_and_a_search_that_is_ended_says_so() {
    let space = Space { gpus: 16, batch: 16, ..wide() };
    let (cluster, constants) = (Cluster::preset("a100-80").unwrap(), Constants::default());
    let on = |threads| Search { threads, ..search(&space, &cluster, &constants) };
    let (one, three) = (to_the_end(&on(1)), to_the_end(&on(3)));
    assert_eq!(one, three);
    assert!(one.is_complete && one.best.len() == BEST);

    let mut heard = Vec::new();
    let ended = on(2).run(&mut |counts| {
        heard.push(*counts);
        if counts.simulated > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(!ended.is_complete && ended.counts.open > 0);
    assert!(!ended.best.is_empty(), "what was found until then is told");
    let all = |counts: &Counts| counts.refused + counts.bounded + counts.simulated + counts.open;
    assert!(heard.iter().all(|counts| counts.enumerated == all(counts)), "{heard:?}");
}

#[test]
fn what_the_second_loses_is_told_part_by_part() {
    let space = Space { gpus: 16, batch: 16, ..wide() };
    let (cluster, constants) = (Cluster::preset("a100-80").unwrap(), Constants::default());
    let search = search(&space, &cluster, &constants);
    let found = to_the_end(&search);
    let last = found.best.last().unwrap();
    let first = &found.best[0];
    let why = Comparison::of(&search, &first.cut, &last.cut);
    for (parts, candidate) in [(why.faster, first), (why.slower, last)] {
        let sum: f64 = parts.seconds().iter().sum();
        assert!((sum - candidate.step_seconds).abs() < 1e-9, "{parts:?}");
        assert!(parts.seconds().iter().all(|part| *part >= 0.0), "{parts:?}");
        assert!(parts.compute > 0.5 * candidate.step_seconds, "{parts:?}");
    }
    let losses = why.losses();
    let sum: f64 = losses.iter().map(|(_, seconds)| seconds).sum();
    assert!((sum - (last.step_seconds - first.step_seconds)).abs() < 1e-9);
    assert!(losses.is_sorted_by(|(_, a), (_, b)| a.abs() >= b.abs()));
}
