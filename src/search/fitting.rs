//! Which layouts fit into memory, and a bound for each: what its step is never below.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use super::front::Point;
use super::listed::Listed;
use super::parallel::in_parallel;
use super::price::{Passes, Place, Prices};
use super::{Cut, Phase, Refusal, Refused, Search, Space, Tell, bound, space};
use crate::config::ScheduleName;
use crate::config::schedule::Stages;
use crate::planner::cluster::classes::Knobs;
use crate::planner::cluster::topology_of;
use crate::planner::schedule::named::{Held, held, splits_backward};
use crate::predict::memory::{self, PositionMemory};
use crate::predict::{Places, with_overheads};
use crate::sim::cost::Pricer;
use crate::units::Nanos;

/// Groups of layouts, or schedules, between two reports of progress.
const REPORT: usize = 1 << 9;

/// The layouts that fit.
#[derive(Debug)]
pub(super) struct Fitting {
    /// Their bounds, in the order of the list.
    pub(super) bounds: Vec<Point>,
    kinds: Kinds,
    /// Where ranks lie, for each mesh whose layouts are simulated.
    places: BTreeMap<Hops, OnceLock<Places>>,
}

/// Seconds that a layout is never below, and its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// Of the fullest GPU.
    pub(super) bytes: f64,
    /// None if it does not fit.
    pub(super) seconds: Option<f64>,
}

impl Fitting {
    /// Refuses what does not fit.
    pub(super) fn of(
        search: &Search<'_>,
        listed: &mut Listed,
        tell: &mut Tell<'_>,
    ) -> ControlFlow<(), Self> {
        let mut kinds: Vec<Kind> =
            listed.cuts.iter().map(|cut| Kind::of(search.space, cut)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut held = Kinds::new();
        for some in kinds.chunks(REPORT) {
            listed.tell(Phase::Bounding, tell)?;
            let of = in_parallel(search.threads, some, KindHeld::of);
            held.extend(some.iter().copied().zip(of));
        }
        let mut fitting = Self {
            bounds: Vec::new(),
            kinds: held,
            places: listed.cuts.iter().map(|cut| (Hops::of(cut), OnceLock::new())).collect(),
        };
        let meshes = meshes(search, &listed.cuts);
        let groups: Vec<&[Cut]> = listed.cuts.chunk_by(Cut::costs_as).collect();
        let mut looked = Vec::with_capacity(listed.cuts.len());
        for some in groups.chunks(REPORT) {
            listed.tell(Phase::Bounding, tell)?;
            let of = in_parallel(search.threads, some, |cuts| {
                fitting.look_at(search, cuts, &meshes[&(cuts[0].tp, cuts[0].pp)])
            });
            looked.extend(of.into_iter().flatten());
        }
        fitting.sort_out(search, listed, &looked);
        ControlFlow::Continue(fitting)
    }

    /// Keeps the bounds of what fits and notes the rest.
    fn sort_out(&mut self, search: &Search<'_>, listed: &mut Listed, looked: &[Looked]) {
        let mut refused = None;
        let mut count = 0;
        let mut least: Option<(usize, f64)> = None;
        for (index, looked) in looked.iter().enumerate() {
            let Looked { bytes: memory, seconds } = *looked;
            if least.is_none_or(|(_, bytes)| memory < bytes) {
                least = Some((index, memory));
            }
            if let Some(seconds) = seconds {
                self.bounds.push(Point { seconds, memory, index: index as u32 });
            } else {
                refused = refused.or(Some((index, memory)));
                count += 1;
            }
        }
        listed.smallest = least.map(|(index, bytes)| (listed.cuts[index].clone(), bytes));
        let Some((first, bytes)) = refused else { return };
        let example = format!(
            "{}: needs {:.1} of {:.1} GB",
            search.space.example(Refusal::Memory, &listed.cuts[first]),
            bytes * 1e-9,
            space::usable_bytes(search.cluster) * 1e-9
        );
        listed.counts.refused += count;
        listed.counts.open -= count;
        listed.refused.push(Refused { reason: Refusal::Memory, count, example });
    }

    /// Memory of layouts that cost the same, and a bound for each that fits.
    pub(super) fn look_at(&self, search: &Search<'_>, cuts: &[Cut], place: &Place) -> Vec<Looked> {
        let Search { space, cluster, constants, .. } = *search;
        let first = space.workload(&cuts[0]);
        let mut passes = Passes::new(&first, place, Pricer { cluster, constants });
        let look = |cut: &Cut| {
            let workload = space.workload(cut);
            let microbatches = workload.batch.microbatches;
            let kind = &self.kinds[&Kind::of(space, cut)];
            let positions = memory::of_held(&workload, &kind.held);
            let bytes = positions.iter().map(PositionMemory::total).fold(0.0, f64::max);
            let fits = memory::fits(&positions, cluster.gpu.memory_gb);
            let seconds = fits.then(|| {
                let prices = Prices::of(&workload, &kind.held, &mut passes);
                let nanos = bound::by_formula(&prices, &kind.held, microbatches, kind.splits);
                with_overheads(Nanos(nanos).as_secs(), &workload, constants)
            });
            Looked { bytes, seconds }
        };
        cuts.iter().map(look).collect()
    }

    /// Where the ranks of a layout lie.
    pub(super) fn places(&self, search: &Search<'_>, cut: &Cut) -> &Places {
        self.places[&Hops::of(cut)].get_or_init(|| {
            let Search { space, cluster, .. } = *search;
            let held = &self.kinds[&Kind::of(space, cut)].held;
            let mut owners = vec![0; held.iter().map(|held| held.stages.len()).sum()];
            for (position, held) in (0..).zip(held) {
                for stage in &held.stages {
                    owners[*stage as usize] = position;
                }
            }
            let (workload, knobs) = (space.workload(cut), Knobs::default());
            Places::of(&topology_of(&workload, &owners, cluster.node.gpus, &knobs))
        })
    }
}

/// Where the ranks of the first pipeline lie, by tensor and pipeline size.
pub(super) fn meshes(search: &Search<'_>, cuts: &[Cut]) -> BTreeMap<(u32, u32), Place> {
    let mut places = BTreeMap::new();
    for cut in cuts {
        let place = || Place::of(search.space.workload(cut).split.mesh(), search.cluster);
        places.entry((cut.tp, cut.pp)).or_insert_with(place);
    }
    places
}

/// What decides which positions hand over to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hops {
    tp: u32,
    pp: u32,
    /// Whether the last position hands over to the first.
    wraps: bool,
}

impl Hops {
    fn of(cut: &Cut) -> Self {
        Self { tp: cut.tp, pp: cut.pp, wraps: cut.schedule.stages() == Stages::Loop }
    }
}

/// What decides a schedule's table, by number in [`ScheduleName::NAMED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    schedule: usize,
    pp: u32,
    chunks: u32,
    microbatches: u32,
}

type Kinds = BTreeMap<Kind, KindHeld>;

impl Kind {
    fn of(space: &Space, cut: &Cut) -> Self {
        let named = ScheduleName::NAMED.iter().position(|name| *name == cut.schedule);
        Self {
            schedule: named.unwrap_or(0),
            pp: cut.pp,
            chunks: cut.chunks,
            microbatches: space.microbatches(cut),
        }
    }
}

/// What a schedule lets positions hold.
#[derive(Debug)]
struct KindHeld {
    held: Vec<Held>,
    /// Whether it runs weight gradients apart.
    splits: bool,
}

impl KindHeld {
    fn of(kind: &Kind) -> Self {
        let Kind { schedule, pp, chunks, microbatches } = *kind;
        let name = &ScheduleName::NAMED[schedule];
        let held = held(name, pp, chunks, microbatches);
        let (held, splits) = held.zip(splits_backward(name)).expect("a named schedule is no file");
        Self { held, splits }
    }
}
