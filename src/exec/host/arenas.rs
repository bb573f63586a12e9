//! The arenas of the ranks that live on the host, over all loaded Plans.
//!
//! A rank has one persistent arena for all Plans, one step arena as large as the largest Plan
//! needs (Plans never run at the same time), and one arena for inputs and outputs per Plan, as
//! constants such as the rotary table stay in it.

use std::ops::Range;
use std::sync::Arc;

use super::memory::{Arena, Extent};
use crate::mesh::Rank;
use crate::plan::{self, Plan, View};
use crate::units::Bytes;

/// The memory of all host ranks.
#[derive(Debug)]
pub(in crate::exec) struct Arenas {
    ranks: Vec<RankArenas>,
    empty: Arc<Arena>,
}

#[derive(Debug)]
struct RankArenas {
    persistent: Arc<Arena>,
    step: Arc<Arena>,
    /// One for each Plan.
    io: Vec<Arc<Arena>>,
}

/// Bytes that a Plan places in each arena of a rank, in the order of [`plan::Arena::ALL`].
pub(in crate::exec) fn placed(plan: &Plan, rank: Rank) -> [u64; 3] {
    plan::Arena::ALL.map(|arena| {
        let ends = plan.buffers_of(rank).filter(|(_, decl)| decl.place.arena == arena);
        ends.map(|(_, decl)| decl.place.offset + decl.bytes().0).max().unwrap_or(0)
    })
}

impl Arenas {
    /// No memory yet.
    pub(in crate::exec) fn new(rank_count: usize) -> Self {
        let empty = Arc::new(Arena::zeroed(0).expect("an empty arena takes a byte"));
        let rank = || RankArenas {
            persistent: Arc::clone(&empty),
            step: Arc::clone(&empty),
            io: Vec::new(),
        };
        Self { ranks: (0..rank_count).map(|_| rank()).collect(), empty }
    }

    /// Allocates what the next Plan needs on `rank`; nothing if the rank is not `here`. Returns
    /// whether the step arena of earlier Plans has moved.
    ///
    /// # Errors
    /// The size that the machine could not allocate.
    pub(in crate::exec) fn load(
        &mut self,
        plan: &Plan,
        rank: Rank,
        here: bool,
    ) -> Result<bool, Bytes> {
        let memory = &mut self.ranks[rank.index()];
        if !here {
            memory.io.push(Arc::clone(&self.empty));
            return Ok(false);
        }
        let zeroed = |bytes| Arena::zeroed(bytes).map(Arc::new).ok_or(Bytes(bytes));
        let [persistent, io, step] = placed(plan, rank);
        if memory.io.is_empty() {
            memory.persistent = zeroed(persistent)?;
        }
        let io = zeroed(io)?;
        let moves = step > memory.step.bytes();
        if moves {
            memory.step = zeroed(step)?;
        }
        memory.io.push(io);
        Ok(moves)
    }

    /// Takes back what [`Arenas::load`] prepared for a Plan that could not be loaded after all.
    pub(in crate::exec) fn forget(&mut self, plan_index: usize) {
        for rank in &mut self.ranks {
            rank.io.truncate(plan_index);
        }
    }

    /// Bytes allocated for a rank.
    pub(in crate::exec) fn allocated(&self, rank: Rank) -> Bytes {
        let RankArenas { persistent, step, io } = &self.ranks[rank.index()];
        let io: u64 = io.iter().map(|arena| arena.bytes()).sum();
        Bytes(persistent.bytes() + step.bytes() + io)
    }

    /// The arenas as a Plan numbers them: see [`extent`].
    pub(in crate::exec) fn of_plan(&self, plan_index: usize) -> Vec<Arc<Arena>> {
        let of_rank = |rank: &RankArenas| {
            [&rank.persistent, &rank.io[plan_index], &rank.step].map(Arc::clone)
        };
        self.ranks.iter().flat_map(of_rank).collect()
    }

    /// Copies the bytes of a view out; only while no task runs.
    pub(in crate::exec) fn read(&self, plan_index: usize, plan: &Plan, view: View) -> Vec<u8> {
        let (arena, bytes) = self.locate(plan_index, plan, view);
        let mut into = vec![0; (bytes.end - bytes.start) as usize];
        arena.read(bytes, &mut into);
        into
    }

    /// Copies bytes into a view; only while no task runs.
    pub(in crate::exec) fn write(&self, plan_index: usize, plan: &Plan, view: View, from: &[u8]) {
        let (arena, bytes) = self.locate(plan_index, plan, view);
        arena.write(bytes, from);
    }

    fn locate(&self, plan_index: usize, plan: &Plan, view: View) -> (&Arena, Range<u64>) {
        let (arena, bytes) = plan.view_place(view);
        let rank = &self.ranks[plan.buffer(view.buffer).rank.index()];
        let arena = match arena {
            plan::Arena::Persistent => &rank.persistent,
            plan::Arena::Io => &rank.io[plan_index],
            plan::Arena::Step => &rank.step,
        };
        (arena, bytes)
    }
}

/// Where a view lies in the list that [`Arenas::of_plan`] gives.
pub(in crate::exec) fn extent(plan: &Plan, view: View) -> Extent {
    let (arena, bytes) = plan.view_place(view);
    let index = plan::Arena::ALL.iter().position(|&a| a == arena).expect("ALL holds all arenas");
    Extent { arena: plan.buffer(view.buffer).rank.index() * plan::Arena::ALL.len() + index, bytes }
}
