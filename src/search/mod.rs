//! The fastest layouts of a model on a described cluster, and the Pareto front of time and memory.
//!
//! [`Space`] lists every layout and refuses those that make no sense; what does not fit into memory
//! is refused too. For the rest, `bound` says a time that the step is never below, by formula, and
//! for the most promising on paper, from the prices of the simulator (`price`). Layouts are simulated
//! in the order of these bounds, until no bound is below the tenth best and none can lie on the
//! front up to twice the best time: what is found is what simulating all of them would find.
//!
//! [`why`] tells what one layout loses to another, [`here`] searches the layouts of a real scenario on
//! this machine. Nothing here prints.

mod bound;
mod front;
pub mod here;
mod parallel;
mod price;
mod space;
pub mod why;

#[cfg(test)]
mod tests;

pub use space::{Cut, Refusal, Space};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

use serde::Serialize;

use crate::config::{Cluster, ScheduleName};
use crate::planner::schedule::Pass;
use crate::predict::memory::{self, Held, PositionMemory};
use crate::predict::{self, Rate};
use crate::sim::cost::{Constants, Pricer};
use crate::units::Nanos;
use front::{Front, Point};
use parallel::in_parallel;
use price::{Passes, Place, Prices};

/// How many of the fastest are looked for.
pub const BEST: usize = 10;

/// The front ends at layouts that take so many times as long as the fastest: nobody pays more.
pub const SLOWEST: f64 = 2.0;

/// Layouts that are looked at together: a constant, so that what is simulated does not depend on the
/// number of threads.
const ROUND: usize = 16;

/// A search, to be [run](Search::run).
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// What is cut.
    pub space: &'a Space,
    /// Over which GPUs.
    pub cluster: &'a Cluster,
    /// Rates and overheads of predictions.
    pub constants: &'a Constants,
    /// Threads that look at layouts; they change nothing but how long it takes.
    pub threads: usize,
}

/// What has become of all layouts. At the end none is open: `enumerated` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All layouts.
    pub enumerated: u64,
    /// They make no sense or do not fit.
    pub refused: u64,
    /// Their bounds say that they are neither among the best nor on the front.
    pub bounded: u64,
    /// They were simulated.
    pub simulated: u64,
    /// Nothing is known yet.
    pub open: u64,
}

/// Layouts that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The reason.
    pub reason: Refusal,
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub example: String,
}

/// A layout and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The layout.
    pub cut: Cut,
    /// Predicted seconds of a step.
    pub step_seconds: f64,
    /// Predicted bytes of the fullest GPU.
    pub memory_bytes: f64,
    /// Operations of the model over the peak of the GPUs.
    pub mfu: f64,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The fastest, at most [`BEST`]; of equally fast ones those that take less memory first.
    pub best: Vec<Candidate>,
    /// What no other layout beats in both time and memory, the fastest first, up to [`SLOWEST`] times
    /// its time.
    pub front: Vec<Candidate>,
    /// What has become of all layouts.
    pub counts: Counts,
    /// By reason, those that were met.
    pub refused: Vec<Refused>,
    /// The layout that takes the least memory of a GPU, whether it fits or not, and its bytes.
    pub smallest: Option<(Cut, f64)>,
    /// Whether the search came to its end.
    pub is_complete: bool,
}

impl Search<'_> {
    /// Searches. `tell` hears how far it is, and may end it: what was found until then is returned.
    pub fn run(&self, tell: &mut dyn FnMut(&Counts) -> ControlFlow<()>) -> Found {
        let mut listed = Listed::of(self.space);
        if tell(&listed.counts).is_break() {
            return listed.found(self, &Simulated::default(), false);
        }
        let open = self.fitting(&mut listed);
        let mut simulated = Simulated::default();
        let is_complete = self.best_first(&mut listed, open, &mut simulated, tell);
        listed.found(self, &simulated, is_complete)
    }

    /// Refuses what does not fit; the rest with memory and the bound by formula.
    fn fitting(&self, listed: &mut Listed) -> Vec<Open> {
        let kinds = self.held(&listed.cuts);
        let places = self.places(&listed.cuts);
        let mut groups: Vec<(usize, &[Cut])> = Vec::new();
        for cuts in listed.cuts.chunk_by(Cut::costs_as) {
            let start = groups.last().map_or(0, |(start, cuts)| start + cuts.len());
            groups.push((start, cuts));
        }
        let usable = space::usable_bytes(self.cluster);
        let looked = in_parallel(self.threads, &groups, |(_, cuts)| {
            let place = &places[&(cuts[0].tp, cuts[0].pp)];
            self.look_at(cuts, &kinds, place)
        });
        let mut open = Vec::new();
        let looked = groups.iter().zip(&looked).flat_map(|((start, _), of)| (*start..).zip(of));
        let mut refused: Vec<(usize, f64)> = Vec::new();
        let mut least: Option<(usize, f64)> = None;
        for (index, (memory, bound)) in looked {
            if least.is_none_or(|(_, bytes)| *memory < bytes) {
                least = Some((index, *memory));
            }
            match bound {
                Some(seconds) => {
                    let (seconds, memory, index) = (*seconds, *memory, index as u32);
                    open.push(Open { point: Point { seconds, memory, index }, on_paper: false });
                }
                None => refused.push((index, *memory)),
            }
        }
        listed.smallest = least.map(|(index, bytes)| (listed.cuts[index].clone(), bytes));
        if let Some((first, bytes)) = refused.first() {
            let example = format!(
                "{}: needs {:.1} of {:.1} GB",
                self.space.example(Refusal::Memory, &listed.cuts[*first]),
                bytes * 1e-9,
                usable * 1e-9
            );
            let count = refused.len() as u64;
            listed.counts.refused += count;
            listed.counts.open -= count;
            listed.refused.push(Refused { reason: Refusal::Memory, count, example });
        }
        open
    }

    /// Memory of layouts that cost the same, and a bound in seconds for each that fits.
    fn look_at(&self, cuts: &[Cut], kinds: &Kinds, place: &Place) -> Vec<(f64, Option<f64>)> {
        let Self { space, cluster, constants, .. } = *self;
        let first = space.workload(&cuts[0]);
        let mut passes = Passes::new(&first, place, Pricer { cluster, constants });
        let look = |cut: &Cut| {
            let workload = space.workload(cut);
            let microbatches = workload.batch.microbatches;
            let kind = &kinds[&Kind::of(space, cut)];
            let positions = memory::of_held(&workload, &kind.held);
            let bytes = positions.iter().map(PositionMemory::total).fold(0.0, f64::max);
            let fits = memory::fits(&positions, cluster.gpu.memory_gb);
            let bound = fits.then(|| {
                let prices = Prices::of(&workload, &kind.held, &mut passes);
                let nanos = bound::by_formula(&prices, &kind.held, microbatches, kind.splits);
                predict::with_overheads(Nanos(nanos).as_secs(), &workload, constants)
            });
            (bytes, bound)
        };
        cuts.iter().map(look).collect()
    }

    /// Looks at open layouts in the order of their bounds; whether it came to the end.
    fn best_first(
        &self,
        listed: &mut Listed,
        open: Vec<Open>,
        simulated: &mut Simulated,
        tell: &mut dyn FnMut(&Counts) -> ControlFlow<()>,
    ) -> bool {
        let mut heap: BinaryHeap<Reverse<Open>> = open.into_iter().map(Reverse).collect();
        loop {
            let mut round = Vec::with_capacity(ROUND);
            while round.len() < ROUND
                && let Some(Reverse(next)) = heap.pop()
            {
                if simulated.rules_out(next.point) {
                    listed.counts.bounded += 1;
                    listed.counts.open -= 1;
                } else {
                    round.push(next);
                }
            }
            if tell(&listed.counts).is_break() {
                return false;
            }
            if round.is_empty() {
                return true;
            }
            let seconds = in_parallel(self.threads, &round, |open| {
                let cut = &listed.cuts[open.point.index as usize];
                if open.on_paper { self.simulate(cut) } else { self.on_paper(cut) }
            });
            for (open, seconds) in round.into_iter().zip(seconds) {
                if open.on_paper {
                    simulated.insert(Point { seconds, ..open.point });
                    listed.counts.simulated += 1;
                    listed.counts.open -= 1;
                } else {
                    let seconds = seconds.max(open.point.seconds);
                    let point = Point { seconds, ..open.point };
                    heap.push(Reverse(Open { point, on_paper: true }));
                }
            }
        }
    }

    /// The bound of a layout on paper, in seconds.
    fn on_paper(&self, cut: &Cut) -> f64 {
        let Self { space, cluster, constants, .. } = *self;
        let workload = space.workload(cut);
        let microbatches = workload.batch.microbatches;
        let table = predict::table(&workload, microbatches);
        let held = Held::of(&table);
        let place = Place::of(workload.split.mesh(), cluster);
        let mut passes = Passes::new(&workload, &place, Pricer { cluster, constants });
        let prices = Prices::of(&workload, &held, &mut passes);
        let nanos = bound::on_paper(&prices, &held, &table, microbatches);
        predict::with_overheads(Nanos(nanos).as_secs(), &workload, constants)
    }

    /// The predicted step of a layout, in seconds.
    fn simulate(&self, cut: &Cut) -> f64 {
        let workload = self.space.workload(cut);
        let seconds = predict::step_seconds(&workload, self.cluster, self.constants);
        seconds.expect("a named schedule does not hang")
    }

    /// What positions hold, for each schedule that occurs.
    fn held(&self, cuts: &[Cut]) -> Kinds {
        let mut kinds: Vec<Kind> = cuts.iter().map(|cut| Kind::of(self.space, cut)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let of = in_parallel(self.threads, &kinds, KindHeld::of);
        kinds.into_iter().zip(of).collect()
    }

    fn places(&self, cuts: &[Cut]) -> BTreeMap<(u32, u32), Place> {
        let mut places = BTreeMap::new();
        for cut in cuts {
            places
                .entry((cut.tp, cut.pp))
                .or_insert_with(|| Place::of(self.space.workload(cut).split.mesh(), self.cluster));
        }
        places
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
struct KindHeld {
    held: Vec<Held>,
    /// Whether it runs weight gradients apart.
    splits: bool,
}

impl KindHeld {
    fn of(kind: &Kind) -> Self {
        let Kind { schedule, pp, chunks, microbatches } = *kind;
        let name = &ScheduleName::NAMED[schedule];
        let table = crate::planner::schedule::named::named(name, pp, chunks, microbatches)
            .expect("a named schedule has a table");
        let mut acts = (0..table.rows.len()).flat_map(|row| table.acts(row));
        Self { splits: acts.any(|act| act.pass == Pass::W), held: Held::of(&table) }
    }
}

/// A layout that may be among the best; its seconds are a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Open {
    point: Point,
    /// Whether the bound is the one on paper.
    on_paper: bool,
}

impl Eq for Open {}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.point.order(&other.point).then(self.on_paper.cmp(&other.on_paper))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The best of what was simulated.
#[derive(Clone, Debug, Default)]
struct Simulated {
    best: Vec<Point>,
    front: Front,
}

impl Simulated {
    fn insert(&mut self, point: Point) {
        let at = self.best.partition_point(|other| other.order(&point).is_lt());
        self.best.insert(at, point);
        self.best.truncate(BEST);
        self.front.insert(point);
    }

    /// Whether a layout that takes at least so many seconds is neither among the best nor on the
    /// front.
    fn rules_out(&self, least: Point) -> bool {
        let is_slower = self.best.get(BEST - 1).is_some_and(|last| least.seconds > last.seconds);
        is_slower && (self.is_too_slow(&least) || self.front.beats(least.seconds, least.memory))
    }

    fn is_too_slow(&self, point: &Point) -> bool {
        self.best.first().is_some_and(|first| point.seconds > SLOWEST * first.seconds)
    }

    /// The front, as far as anybody pays for it.
    fn front(&self) -> impl Iterator<Item = &Point> {
        self.front.points().iter().filter(|point| !self.is_too_slow(point))
    }
}

/// All layouts that make sense, and what was refused.
struct Listed {
    cuts: Vec<Cut>,
    counts: Counts,
    refused: Vec<Refused>,
    smallest: Option<(Cut, f64)>,
}

impl Listed {
    fn of(space: &Space) -> Self {
        let (mut cuts, mut counts) = (Vec::new(), Counts::default());
        let mut refused: BTreeMap<Refusal, Refused> = BTreeMap::new();
        space.each(|cut| {
            counts.enumerated += 1;
            let Some(reason) = space.refuses(&cut) else { return cuts.push(cut) };
            let first = || Refused { reason, count: 0, example: space.example(reason, &cut) };
            refused.entry(reason).or_insert_with(first).count += 1;
        });
        counts.open = cuts.len() as u64;
        counts.refused = counts.enumerated - counts.open;
        Self { cuts, counts, refused: refused.into_values().collect(), smallest: None }
    }

    fn found(self, search: &Search<'_>, simulated: &Simulated, is_complete: bool) -> Found {
        let candidate = |point: &Point| {
            let cut = self.cuts[point.index as usize].clone();
            let workload = search.space.workload(&cut);
            let mfu = Rate::of(&workload, search.cluster, point.seconds).mfu;
            Candidate { cut, step_seconds: point.seconds, memory_bytes: point.memory, mfu }
        };
        Found {
            best: simulated.best.iter().map(candidate).collect(),
            front: simulated.front().map(candidate).collect(),
            counts: self.counts,
            refused: self.refused,
            smallest: self.smallest,
            is_complete,
        }
    }
}
