//! Goal: a search finds what simulating every layout would find. Method: it does just that, on a
//! model of few layouts, and holds bounds, best, front and counts against it.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::front::Front;
use super::why::Comparison;
use super::*;
use crate::config::workload::{Precision, Transformer};
use crate::planner::cluster::classes::{Classes, Knobs};
use crate::planner::cluster::{cluster_plan, topology};
use crate::predict::memory::{self, PositionMemory};
use crate::predict::with_overheads;
use crate::sim::Ordered;

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

/// The step of a layout in seconds, written as a Plan and laid out.
fn laid_out(search: &Search<'_>, cut: &Cut) -> f64 {
    let Search { space, cluster, constants, .. } = *search;
    let workload = space.workload(cut);
    let (table, knobs) = (table(&workload, workload.batch.microbatches), Knobs::default());
    let topology = topology(&workload, &table, cluster.node.gpus, &knobs);
    let plan = cluster_plan(&workload, &table, &topology, Classes::quotient(&topology));
    let end = Ordered::new(plan).end(&Pricer { cluster, constants }).unwrap();
    with_overheads(end.as_secs(), &workload, constants)
}

/// Every layout that is not refused, with memory, bound and the seconds of its step.
struct Brute {
    cuts: Vec<Cut>,
    points: Vec<Point>,
    bounds: Vec<f64>,
}

/// Every `nth` layout that fits.
fn brute(search: &Search<'_>, nth: usize) -> Brute {
    let mut go_on = |_: &Progress| ControlFlow::Continue(());
    let mut listed = Listed::default();
    assert!(listed.list(search.space, &mut go_on).is_continue());
    let ControlFlow::Continue(fitting) = Fitting::of(search, &mut listed, &mut go_on) else {
        panic!("nobody broke off")
    };
    assert_memory_is_that_of_the_tables(search, &listed, &fitting, nth);
    let some: Vec<Point> = fitting.bounds.iter().copied().step_by(nth).collect();
    let points = in_parallel(2, &some, |point| {
        let cut = &listed.cuts[point.index as usize];
        let seconds = laid_out(search, cut);
        assert_eq!(search.simulate(cut, &fitting), seconds, "{cut}");
        Point { seconds, ..*point }
    });
    let bounds = some.iter().map(|point| point.seconds).collect();
    Brute { cuts: listed.cuts, points, bounds }
}

/// Layouts fit as far as their schedules' tables say, and take what these say.
fn assert_memory_is_that_of_the_tables(
    search: &Search<'_>,
    listed: &Listed,
    fitting: &Fitting,
    nth: usize,
) {
    let memory_gb = search.cluster.gpu.memory_gb;
    let mut fit = fitting.bounds.iter().peekable();
    for (index, cut) in listed.cuts.iter().enumerate() {
        let found = fit.next_if(|point| point.index as usize == index);
        if index % nth != 0 {
            continue;
        }
        let workload = search.space.workload(cut);
        let positions =
            memory::positions(&workload, &table(&workload, workload.batch.microbatches));
        assert_eq!(memory::fits(&positions, memory_gb), found.is_some(), "{cut}");
        if let Some(point) = found {
            let most = positions.iter().map(PositionMemory::total).fold(0.0, f64::max);
            assert_eq!(point.memory, most, "{cut}");
        }
    }
}

impl Brute {
    fn assert_bounds_are_admissible(&self) {
        for (bound, point) in self.bounds.iter().zip(&self.points) {
            let cut = &self.cuts[point.index as usize];
            assert!(*bound <= point.seconds, "{cut}: {bound} > {}", point.seconds);
            assert!(*bound > 0.0, "{cut}");
        }
    }

    /// The layouts of some points.
    fn of<'a>(&self, points: impl Iterator<Item = &'a Point>) -> Vec<(Cut, f64)> {
        points.map(|p| (self.cuts[p.index as usize].clone(), p.seconds)).collect()
    }

    fn assert_is_found(&self, found: &Found) {
        let of = |candidates: &[Candidate]| -> Vec<(Cut, f64)> {
            candidates.iter().map(|c| (c.cut.clone(), c.step_seconds)).collect()
        };
        let mut sorted = self.points.clone();
        sorted.sort();
        assert_eq!(of(&found.best), self.of(sorted.iter().take(BEST)));
        let front = self.front();
        let slowest = sorted.first().map_or(0.0, |first| SLOWEST * first.seconds);
        let within = front.points().iter().filter(|point| point.seconds <= slowest);
        assert_eq!(of(&found.front), self.of(within));

        let Counts { enumerated, refused, bounded, simulated, open } = found.counts;
        assert_eq!(open, 0);
        assert_eq!(enumerated, refused + bounded + simulated);
        assert_eq!(bounded + simulated, self.points.len() as u64);
        assert_eq!(refused, found.refused.iter().map(|refused| refused.count).sum::<u64>());
    }

    fn front(&self) -> Front {
        let mut front = Front::default();
        self.points.iter().for_each(|point| front.insert(*point));
        front
    }
}

#[test]
fn at_64_gpus_a_search_finds_the_best_and_the_front_of_brute_force() {
    let (space, cluster) = (wide(), Cluster::preset("a100-40").unwrap());
    let constants = Constants::default();
    let search = search(&space, &cluster, &constants);
    let brute = brute(&search, 1);
    brute.assert_bounds_are_admissible();
    // Bounds twice as high would be wrong nearly everywhere: these are sharp.
    let pairs = brute.bounds.iter().zip(&brute.points);
    let sharp = pairs.filter(|(bound, point)| 2.0 * **bound > point.seconds).count();
    assert!(sharp as f64 > 0.8 * brute.points.len() as f64);
    let found = to_the_end(&search);
    brute.assert_is_found(&found);

    let front = brute.front();
    let within = found.front.len();
    assert!(3 < within && within < front.points().len(), "{within}: the front is cut short");
    let Counts { bounded, simulated, .. } = found.counts;
    assert!(simulated < bounded, "{simulated} simulated, {bounded} bounded away");
    let memory = found.refused.iter().find(|refused| refused.reason == Refusal::Memory).unwrap();
    assert_eq!(memory.count, (brute.cuts.len() - brute.points.len()) as u64);
    assert!(memory.example.contains(" of 37.2 GB"), "{}", memory.example);
    assert!(found.smallest.unwrap().1 <= front.points().last().unwrap().memory);
}

prop_compose! {
    /// A model of few layers on few GPUs, some of them in nodes of odd sizes.
    fn small()(
        (layers, heads) in (1u64..5, prop::sample::select(vec![4u64, 6, 31])),
        (gpus, node) in (prop::sample::select(vec![2u32, 4, 6, 8]), prop::sample::select(vec![3u32, 8])),
        batch in prop::sample::select(vec![4u32, 6, 12]),
        seq in prop::sample::select(vec![512u64, 4096]),
        gb_per_sec in prop::sample::select(vec![1.0f64, 50.0]),
        memory_gb in 4.0f64..40.0,
    ) -> (Space, Cluster) {
        let mut cluster = Cluster::preset("h100").unwrap();
        cluster.node.gpus = node;
        cluster.network.gb_per_sec = gb_per_sec;
        cluster.gpu.memory_gb = memory_gb;
        let precision = Precision::Half;
        (Space { model: model(layers, heads), gpus, batch, seq, precision }, cluster)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn whatever_is_searched_the_best_and_the_front_are_those_of_brute_force(
        (space, cluster) in small(),
    ) {
        let constants = Constants::default();
        let search = search(&space, &cluster, &constants);
        let brute = brute(&search, 1);
        brute.assert_bounds_are_admissible();
        brute.assert_is_found(&to_the_end(&search));
    }
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
        brute.assert_bounds_are_admissible();
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

    // Whenever it is ended, it ends at once and tells what was found until then.
    let mut heard = Vec::new();
    let all = to_the_end_of(&on(2), &mut heard);
    assert!(all.is_complete);
    let phases: Vec<Phase> = heard.iter().map(|progress| progress.phase).collect();
    assert!(phases.is_sorted(), "{phases:?}");
    for phase in [Phase::Listing, Phase::Bounding, Phase::Simulating] {
        let mut told = 0;
        let ended = on(2).run(&mut |progress| {
            assert!(told == 0 || progress.phase < phase, "it goes on");
            if progress.phase < phase
                || progress.counts.simulated == 0 && phase == Phase::Simulating
            {
                return ControlFlow::Continue(());
            }
            told += 1;
            ControlFlow::Break(())
        });
        assert!(!ended.is_complete && told == 1, "{phase:?}");
        assert_eq!(ended.best.is_empty(), phase < Phase::Simulating);
    }
    let sum = |counts: &Counts| counts.refused + counts.bounded + counts.simulated + counts.open;
    assert!(heard.iter().all(|told| told.counts.enumerated == sum(&told.counts)), "{heard:?}");
}

/// All that is told on the way.
fn to_the_end_of(search: &Search<'_>, heard: &mut Vec<Progress>) -> Found {
    search.run(&mut |progress| {
        heard.push(*progress);
        ControlFlow::Continue(())
    })
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
