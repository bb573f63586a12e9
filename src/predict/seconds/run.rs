//! Runs the rows of a schedule on clocks: one of each lane of a rank of each class.
//!
//! All classes of a position run the same row, so they take a pass piece by piece together: where
//! some of them share a group, its collectives wait for the last.

use super::places::{Place, Places};
use super::price::{Prices, StagePrice};
use crate::planner::cluster::classes::GroupKind;
use crate::planner::cluster::stage::{Turn, reduces};
use crate::planner::schedule::{Act, Pass, Schedule};
use crate::units::Nanos;

/// Hears when a class, by position and number in it, does what.
pub(super) trait Notes {
    fn pass(&mut self, _at: (usize, usize), _from: u64, _to: u64) {}
    fn update(&mut self, _at: (usize, usize), _from: u64, _to: u64) {}
    /// A message or collective of it runs.
    fn moving(&mut self, _at: (usize, usize), _from: u64, _to: u64) {}
}

/// Nobody wants to know.
impl Notes for () {}

/// When the last op ends.
///
/// # Panics
/// If rows wait for one another.
pub(super) fn end(
    prices: &Prices,
    places: &Places,
    table: &Schedule,
    notes: &mut impl Notes,
) -> Nanos {
    let mut run = Run::new(prices, places, table, notes);
    let rows = 0..table.rows.len();
    let mut acts: Vec<_> = rows.map(|row| table.acts(row).peekable()).collect();
    loop {
        let (mut moved, mut is_done) = (false, true);
        for (row, acts) in acts.iter_mut().enumerate() {
            while let Some(act) = acts.next_if(|act| run.has_arrived(row, *act)) {
                run.act(row, act);
                moved = true;
            }
            is_done &= acts.peek().is_none();
        }
        if is_done {
            return Nanos(run.update());
        }
        assert!(moved, "rows of a named schedule never wait for one another");
    }
}

/// No message has arrived yet.
const NEVER: u64 = u64::MAX;

/// What has happened so far.
struct Run<'a, N> {
    prices: &'a Prices,
    places: &'a Places,
    /// By position and class.
    clocks: Vec<Vec<Clocks>>,
    /// By stage: where its microbatches begin in the lists of what has arrived.
    starts: Vec<usize>,
    /// By stage, microbatch and class: when the stage's input has arrived, and the gradient of its
    /// output, if another position sends them.
    inputs: Vec<u64>,
    gradients: Vec<u64>,
    /// By stage: its number in its position, whether its first forward has run, and how many passes
    /// that complete gradients are left.
    own: Vec<usize>,
    has_begun: Vec<bool>,
    left: Vec<u32>,
    /// By class: when its kernel of the current piece ends.
    done: Vec<u64>,
    notes: &'a mut N,
}

/// When the lanes of a rank are free, and what they have last written.
#[derive(Clone, Debug, Default)]
struct Clocks {
    compute: u64,
    /// The lane of weights and gradients.
    shared: u64,
    /// The end of the last reduction.
    reduced: u64,
    /// By peer: the lane of messages to it.
    out: Vec<u64>,
    /// Two places for the weights of a layer.
    slots: [Slot; 2],
    /// By own stage: when its first weights begin to be gathered.
    gathers: Vec<u64>,
    /// By own stage: when its gradients are complete.
    complete: Vec<u64>,
}

/// When a place was last written and last read.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    written: u64,
    read: u64,
}

impl Clocks {
    fn new(place: &Place, stages: usize) -> Self {
        Self {
            out: vec![0; place.peers.len()],
            gathers: vec![0; stages],
            complete: vec![0; stages],
            ..Self::default()
        }
    }

    /// Gathers the weights of a layer into its slot when nobody reads the ones before any more;
    /// from when to when.
    fn gather(&mut self, slot: usize, takes: u64) -> (u64, u64) {
        let read = self.slots[slot].read;
        let span = self.share(read, takes);
        self.slots[slot].written = span.1;
        span
    }

    /// A collective of the lane of weights and gradients; from when to when.
    fn share(&mut self, ready: u64, takes: u64) -> (u64, u64) {
        let start = self.shared.max(ready);
        self.shared = start + takes;
        (start, self.shared)
    }
}

/// A pass of a microbatch, as all classes of its position run it.
#[derive(Clone, Copy)]
struct Running<'a> {
    row: usize,
    /// By class.
    stage: &'a [StagePrice],
    /// The number of the stage in its position.
    own: usize,
    pass: Pass,
    turn: Turn,
    /// By class: when what it needs has arrived.
    arrived: Option<usize>,
}

impl<'a, N: Notes> Run<'a, N> {
    fn new(prices: &'a Prices, places: &'a Places, table: &Schedule, notes: &'a mut N) -> Self {
        let microbatches = table.microbatch_count() as usize;
        let count = prices.owners.len();
        let (mut starts, mut size) = (Vec::with_capacity(count), 0);
        let (mut own, mut held) = (Vec::with_capacity(count), vec![0; places.positions.len()]);
        for &owner in &prices.owners {
            starts.push(size);
            size += microbatches * places.positions[owner as usize].len();
            own.push(held[owner as usize]);
            held[owner as usize] += 1;
        }
        let mut left = vec![0; count];
        let rows = 0..table.rows.len();
        for act in rows.flat_map(|row| table.acts(row)).filter(|act| reduces(act.pass)) {
            left[act.stage as usize] += 1;
        }
        let widest = places.positions.iter().map(Vec::len).max().unwrap_or(0);
        let mut run = Self {
            clocks: Vec::with_capacity(held.len()),
            prices,
            places,
            starts,
            inputs: vec![NEVER; size],
            gradients: vec![NEVER; size],
            own,
            has_begun: vec![false; count],
            left,
            done: vec![0; widest],
            notes,
        };
        for (row, (classes, held)) in places.positions.iter().zip(held).enumerate() {
            run.clocks.push(classes.iter().map(|place| Clocks::new(place, held)).collect());
            run.gather_before_forward(row);
        }
        run
    }

    fn gather_before_forward(&mut self, row: usize) {
        if !self.prices.sharing.overlaps_weights {
            return;
        }
        for (own, stage) in self.prices.stages_of(row).enumerate() {
            let prices = &self.prices.stages[stage];
            for (class, (clocks, price)) in self.clocks[row].iter_mut().zip(prices).enumerate() {
                let count = price.pieces(Pass::F, Turn::First).count;
                let (start, end) = clocks.share(0, u64::from(count) * price.gather);
                clocks.gathers[own] = start;
                self.notes.moving((row, class), start, end);
            }
        }
    }

    /// Where what a pass needs is noted, if another position sends it.
    fn needed(&self, row: usize, act: Act) -> Option<(&[u64], usize)> {
        let Act { stage, pass, microbatch } = act;
        let stage = stage as usize;
        let owners = &self.prices.owners;
        let (from, list) = match pass {
            Pass::F => (stage.checked_sub(1)?, &self.inputs),
            Pass::B | Pass::I => (stage + 1, &self.gradients),
            Pass::W => return None,
        };
        let sends = owners.get(from).is_some_and(|owner| *owner as usize != row);
        let at = self.starts[stage] + microbatch as usize * self.clocks[row].len();
        sends.then_some((list, at))
    }

    fn has_arrived(&self, row: usize, act: Act) -> bool {
        self.needed(row, act).is_none_or(|(list, at)| list[at] != NEVER)
    }

    fn act(&mut self, row: usize, act: Act) {
        let Act { stage: number, pass, microbatch } = act;
        let stage = number as usize;
        let turn = self.turn(stage, pass);
        let own = self.own[stage];
        let arrived = self.needed(row, act).map(|(_, at)| at);
        let running = Running { row, stage: &self.prices.stages[stage], own, pass, turn, arrived };
        self.pieces(&running);
        if turn == Turn::Completing {
            for (clocks, done) in self.clocks[row].iter_mut().zip(&self.done) {
                clocks.complete[own] = *done;
            }
        }
        let to = match pass {
            Pass::F => Some(stage + 1).filter(|to| *to < self.starts.len()),
            Pass::B | Pass::I => stage.checked_sub(1),
            Pass::W => None,
        };
        if let Some(to) = to {
            self.send(row, to, pass, microbatch as usize);
        }
    }

    fn turn(&mut self, stage: usize, pass: Pass) -> Turn {
        match pass {
            Pass::F if !self.has_begun[stage] => {
                self.has_begun[stage] = true;
                Turn::First
            }
            Pass::B | Pass::W => {
                self.left[stage] -= 1;
                if self.left[stage] == 0 { Turn::Completing } else { Turn::Other }
            }
            Pass::F | Pass::I => Turn::Other,
        }
    }

    fn pieces(&mut self, running: &Running<'_>) {
        let Running { row, stage, pass, turn, .. } = *running;
        if self.prices.sharing.gathers(pass) {
            for (class, (clocks, price)) in self.clocks[row].iter_mut().zip(stage).enumerate() {
                let (start, end) = clocks.gather(0, price.gather);
                self.notes.moving((row, class), start, end);
            }
        }
        let count = stage[0].pieces(pass, turn).count;
        for piece in 0..count {
            self.kernels(running, piece, count);
            self.collectives(running);
        }
    }

    /// The kernels of a piece, when its input and its weights are there; the weights of the next piece
    /// are gathered meanwhile.
    fn kernels(&mut self, running: &Running<'_>, piece: u32, count: u32) {
        let Running { row, stage, own, pass, turn, arrived } = *running;
        let sharing = &self.prices.sharing;
        let gathers = sharing.gathers(pass);
        let waits_for_weights = turn == Turn::First && sharing.overlaps_weights;
        let arrivals = if pass == Pass::F { &self.inputs } else { &self.gradients };
        let slot = piece as usize % 2;
        for (class, (clocks, price)) in self.clocks[row].iter_mut().zip(stage).enumerate() {
            let kernel = price.pieces(pass, turn).kernel;
            let mut start = clocks.compute;
            if let (0, Some(at)) = (piece, arrived) {
                start = start.max(arrivals[at + class]);
            }
            if waits_for_weights {
                start = start.max(clocks.gathers[own] + u64::from(piece + 1) * price.gather);
            }
            if gathers {
                if piece + 1 < count {
                    let (start, end) = clocks.gather(1 - slot, price.gather);
                    self.notes.moving((row, class), start, end);
                }
                start = start.max(clocks.slots[slot].written);
                clocks.slots[slot].read = start + kernel;
            }
            clocks.compute = start + kernel;
            self.done[class] = clocks.compute;
            self.notes.pass((row, class), start, clocks.compute);
        }
    }

    /// The collectives after the kernels of a piece, as soon as the last of a group has come to them.
    fn collectives(&mut self, running: &Running<'_>) {
        let Running { row, stage, pass, turn, .. } = *running;
        let sharing = &self.prices.sharing;
        let once = turn == Turn::Completing && sharing.overlaps_gradients;
        let reduces = reduces(pass) && (sharing.layers || once);
        let classes = self.clocks[row].iter_mut().zip(stage).zip(&self.places.positions[row]);
        for (class, ((clocks, price), place)) in classes.enumerate() {
            let together = |kind: GroupKind, own: u64| {
                place.others(kind).iter().fold(own, |last, other| last.max(self.done[*other]))
            };
            let done = self.done[class];
            if let Some(joined) = price.pieces(pass, turn).joined {
                let met = together(GroupKind::Sequence, together(GroupKind::Tensor, done));
                clocks.compute = met + joined;
                self.notes.moving((row, class), met, clocks.compute);
            }
            if reduces {
                let (start, end) = clocks.share(together(GroupKind::Data, done), price.reduce);
                clocks.reduced = end;
                self.notes.moving((row, class), start, end);
            }
        }
    }

    /// Hands what a pass has written over to another stage.
    fn send(&mut self, row: usize, to: usize, pass: Pass, microbatch: usize) {
        let owner = self.prices.owners[to];
        if owner as usize == row {
            return;
        }
        let at = self.starts[to] + microbatch * self.clocks[owner as usize].len();
        let list = if pass == Pass::F { &mut self.inputs } else { &mut self.gradients };
        for (class, (clocks, place)) in
            self.clocks[row].iter_mut().zip(&self.places.positions[row]).enumerate()
        {
            let peer = place.peer_at(owner).expect("stages are handed over between neighbours");
            let lane = &mut clocks.out[peer];
            let start = clocks.compute.max(*lane);
            *lane = start + self.prices.messages[row][class][peer];
            let to = place.peers[peer].class;
            list[at + to] = *lane;
            self.notes.moving((row, class), start, *lane);
            self.notes.moving((owner as usize, to), start, *lane);
        }
    }

    /// Reduces what is left, runs the optimizer, shares what it has updated; when all has ended.
    fn update(&mut self) -> u64 {
        let sharing = &self.prices.sharing;
        let mut end = 0;
        for (row, places) in self.places.positions.iter().enumerate() {
            let stages: Vec<usize> = self.prices.stages_of(row).collect();
            let complete: Vec<Vec<u64>> =
                self.clocks[row].iter().map(|clocks| clocks.complete.clone()).collect();
            for (class, (clocks, place)) in self.clocks[row].iter_mut().zip(places).enumerate() {
                let at = (row, class);
                let price = |stage: &usize| &self.prices.stages[*stage][class];
                if sharing.reduces_late {
                    for (own, stage) in stages.iter().enumerate() {
                        let others = place.others(GroupKind::Data);
                        let ready = others.iter().map(|other| complete[*other][own]).max();
                        let ready = ready.unwrap_or(0).max(clocks.complete[own]);
                        let (start, done) = clocks.share(ready, price(stage).reduce_all);
                        clocks.reduced = done;
                        self.notes.moving(at, start, done);
                    }
                }
                let start = clocks.compute.max(clocks.reduced);
                clocks.compute = start + self.prices.updates[row][class];
                self.notes.update(at, start, clocks.compute);
                if sharing.shares_late {
                    let all = stages.iter().map(|stage| price(stage).gather_all).sum();
                    let (start, done) = clocks.share(clocks.compute, all);
                    self.notes.moving(at, start, done);
                }
                end = end.max(clocks.compute).max(clocks.shared);
            }
        }
        end
    }
}
