//! What a person points at, by what it is and not by when it is: a choice survives the next step.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Half, Timeline};
use crate::mesh::{Axis, Rank};
use crate::plan::{Action, Instr, Lane, Plan};
use crate::trace::Span;
use crate::trace::draw::Work;
use crate::trace::draw::blocks::{Piece, State};
use crate::trace::draw::timeline::row::work_of;
use crate::units::Nanos;

/// How finely a row is cut.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A pass of a microbatch, or a collective.
    #[default]
    Pass,
    /// One layer of it.
    Layer,
    /// One instruction.
    Instr,
}

impl Level {
    /// From coarse to fine.
    pub const ALL: [Self; 3] = [Self::Pass, Self::Layer, Self::Instr];
}

/// Something in a picture of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The block that an instruction lies in, at a level.
    Block {
        /// Whose block.
        rank: Rank,
        /// How much of it.
        level: Level,
        /// Its first instruction.
        instr: u32,
        /// Which part of that instruction, if a row shows other work in between; else 0.
        #[serde(default)]
        part: u32,
    },
    /// A wait.
    Wait {
        /// Who waits.
        rank: Rank,
        /// What runs after it; `None` at the end of the step.
        before: Option<u32>,
    },
    /// A rank.
    Rank(Rank),
    /// A pipeline position with all its ranks.
    Position(u32),
    /// All messages from one rank to another for an axis.
    Link {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// What for.
        axis: Axis,
    },
}

impl Target {
    /// Whether steps of a Plan can have it: a choice may come from a file that knew another one.
    pub fn fits(&self, plan: &Plan) -> bool {
        let has = |rank: Rank| rank.index() < plan.programs.len();
        let runs = |rank: Rank, instr: u32| {
            let program = plan.programs.get(rank.index());
            program.is_some_and(|program| (instr as usize) < program.instrs.len())
        };
        match *self {
            Self::Block { rank, instr, .. } => runs(rank, instr),
            Self::Wait { rank, before } => {
                has(rank) && before.is_none_or(|instr| runs(rank, instr))
            }
            Self::Rank(rank) => has(rank),
            Self::Position(position) => position < plan.mesh.pp,
            Self::Link { from, to, .. } => has(from) && has(to),
        }
    }
}

/// Where a target lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) span: Span,
    /// What it is made of; empty for work beside the row.
    pub(super) pieces: Range<usize>,
}

impl Target {
    /// The rank that it is, or that it is something of; `None` of several.
    pub const fn rank(&self) -> Option<Rank> {
        match *self {
            Self::Rank(rank) | Self::Block { rank, .. } | Self::Wait { rank, .. } => Some(rank),
            Self::Position(_) | Self::Link { .. } => None,
        }
    }

    /// The block that an instruction lies in, at a level.
    pub const fn block(rank: Rank, level: Level, instr: u32) -> Self {
        Self::Block { rank, level, instr, part: 0 }
    }
}

impl Timeline {
    /// What covers an instant of a rank, at a level.
    pub fn target_at(&self, rank: Rank, level: Level, time: Nanos) -> Option<Target> {
        let row = self.row(rank);
        let index = row.index_at(level, time);
        (index < row.len(level)).then(|| {
            let part = row.part(level, index);
            self.target_of(rank, level, &part.pieces)
        })
    }

    /// The target that a part of a row is.
    pub(super) fn target_of(&self, rank: Rank, level: Level, pieces: &Range<usize>) -> Target {
        let row = self.row(rank);
        let first: &Piece = &row.pieces[pieces.start];
        match (first.state, first.instr) {
            (State::Runs(_), Some(instr)) => {
                let parts = self.parts(rank, instr).take_while(|part| *part < pieces.start);
                Target::Block { rank, level, instr, part: parts.count() as u32 }
            }
            _ => {
                // Behind a wait something runs, or the step ends.
                let next = row.pieces[pieces.end..].iter().find(|piece| work_of(piece).is_some());
                Target::Wait { rank, before: next.and_then(|piece| piece.instr) }
            }
        }
    }

    /// Where a block or a wait lies in this step; `None` for anything else, and for what is not
    /// there this time.
    pub(super) fn place(&self, target: &Target) -> Option<Place> {
        match *target {
            Target::Block { rank, level, instr, part } => {
                self.place_of_block(rank, level, (instr, part))
            }
            Target::Wait { rank, before } => self.place_of_wait(rank, before),
            Target::Rank(_) | Target::Position(_) | Target::Link { .. } => None,
        }
    }

    /// When a block or a wait is, and whose; `None` for anything else, and for what is not there
    /// in this step.
    pub fn span(&self, target: &Target) -> Option<(Rank, Span)> {
        self.place(target).map(|place| (place.rank, place.span))
    }

    /// The pieces of a row that show an instruction, ascending.
    fn parts(&self, rank: Rank, instr: u32) -> impl Iterator<Item = usize> + '_ {
        let (row, ran) = (self.row(rank), self.span_of(rank, instr));
        let first = row.index_at(Level::Instr, ran.start);
        let shown = row.pieces[first..].iter().enumerate();
        let inside = shown.take_while(move |(index, piece)| {
            *index == 0 || piece.end <= ran.end || piece.instr == Some(instr)
        });
        let parts =
            inside.filter(move |(_, piece)| piece.instr == Some(instr) && work_of(piece).is_some());
        parts.map(move |(index, _)| first + index)
    }

    fn place_of_block(&self, rank: Rank, level: Level, (instr, part): (u32, u32)) -> Option<Place> {
        let row = self.rows.get(rank.index())?;
        let ran = *self.trace.spans[rank.index()].get(instr as usize)?;
        let mut parts = self.parts(rank, instr);
        let first = parts.next();
        // In another step there may be fewer parts.
        let piece = match part.checked_sub(1).and_then(|after| parts.nth(after as usize)).or(first)
        {
            Some(piece) => piece,
            None if row.beside.iter().any(|beside| beside.instr == instr) => {
                let shown = row.index_at(Level::Instr, ran.start);
                return Some(Place { rank, span: ran, pieces: shown..shown });
            }
            // What takes no time this once: the block that goes on there.
            None if ran.start == ran.end => row.index_at(Level::Instr, ran.start),
            None => return None,
        };
        work_of(row.pieces.get(piece)?)?;
        let part = row.part(level, row.index_of(level, piece));
        Some(Place { rank, span: part.span, pieces: part.pieces })
    }

    fn place_of_wait(&self, rank: Rank, before: Option<u32>) -> Option<Place> {
        let row = self.rows.get(rank.index())?;
        let end = match before {
            None => row.pieces.len(),
            Some(instr) => {
                let ran = *self.trace.spans[rank.index()].get(instr as usize)?;
                row.index_at(Level::Instr, ran.start)
            }
        };
        let is_wait = |piece: &usize| work_of(&row.pieces[*piece]).is_none();
        let start = (0..end).rev().take_while(is_wait).last()?;
        Some(Place { rank, span: row.span(&(start..end)), pieces: start..end })
    }

    /// The instructions that a target stands for, ascending by rank: of a block its own with its
    /// messages, of a wait what runs next and both sides of the message that is missing, of a rank
    /// or a position all, of a link its messages.
    pub fn instrs(&self, target: &Target) -> Vec<(Rank, u32)> {
        let all = |rank: Rank| {
            let count = self.plan.programs[rank.index()].instrs.len() as u32;
            (0..count).map(move |instr| (rank, instr))
        };
        match *target {
            Target::Block { rank, level, instr, .. } => {
                let place = self.place(target);
                let mine = place.map(|place| self.instrs_of_block(level, &place, instr));
                mine.into_iter().flatten().map(|instr| (rank, instr)).collect()
            }
            Target::Wait { rank, before } => {
                let mut found: Vec<(Rank, u32)> = before.map(|b| (rank, b)).into_iter().collect();
                if let Some(half) = self.missing(target) {
                    found.extend([(rank, half.instr), (half.other, half.other_instr)]);
                }
                found.sort_unstable();
                found.dedup();
                found
            }
            Target::Rank(rank) => all(rank).collect(),
            Target::Position(position) => self.position(position).flat_map(all).collect(),
            Target::Link { from, to, axis } => {
                let is_sent = |half: &&Half| {
                    half.other == to && self.line(from, half.instr).lane == Lane::Out(axis, to)
                };
                let sends = self.halves[from.index()].iter().filter(is_sent);
                sends.map(|half| (from, half.instr)).collect()
            }
        }
    }

    /// The message that a wait is for, as the waiting rank sees it.
    pub(super) fn missing(&self, wait: &Target) -> Option<&Half> {
        let place = self.place(wait)?;
        let last = place.pieces.end.checked_sub(1)?;
        match self.row(place.rank).pieces[last].state {
            State::Waits(Some(held_by)) => self.half(place.rank, held_by),
            State::Waits(None) | State::Runs(_) => None,
        }
    }

    /// One side of a message.
    pub(super) fn half(&self, rank: Rank, instr: u32) -> Option<&Half> {
        let halves = &self.halves[rank.index()];
        halves.binary_search_by_key(&instr, |half| half.instr).ok().map(|index| &halves[index])
    }

    pub(super) fn line(&self, rank: Rank, instr: u32) -> &Instr {
        &self.plan.programs[rank.index()].instrs[instr as usize]
    }

    fn instrs_of_block(&self, level: Level, place: &Place, instr: u32) -> Vec<u32> {
        let rank = place.rank;
        if level == Level::Instr || place.pieces.is_empty() {
            return vec![instr];
        }
        let row = self.row(rank);
        let first = row.pieces[place.pieces.start].instr.unwrap_or(instr);
        let origin = self.line(rank, first).origin;
        let work = row.part(level, row.index_of(level, place.pieces.start)).work;
        let belongs = |index: u32, line: &Instr| {
            let mine = Work::of(line.origin);
            let same_layer = level == Level::Pass || line.origin.layer == origin.layer;
            let same_cell =
                (line.origin.stage, line.origin.microbatch) == (origin.stage, origin.microbatch);
            let span = self.span_of(rank, index);
            let inside = span.start < place.span.end && place.span.start < span.end;
            // A pass is known by its cell. Forward that is run again, and collectives, come in
            // several blocks: those are told apart by time.
            let same_work = match mine {
                Work::Recompute => same_cell && inside && work.is_some_and(Work::is_pass),
                _ if mine.is_pass() => Some(mine) == work && same_cell,
                _ => Some(mine) == work && inside,
            };
            same_layer && same_work && !matches!(line.action, Action::Recv { .. })
        };
        let lines = (0u32..).zip(&self.plan.programs[rank.index()].instrs);
        lines.filter(|(index, line)| belongs(*index, line)).map(|(index, _)| index).collect()
    }
}
