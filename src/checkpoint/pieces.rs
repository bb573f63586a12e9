//! The way between logical tensors and the buffers of ranks: through pieces, and nothing else.
//!
//! Nobody here knows how a layout cuts a tensor; the Plan's pieces say it. Owned pieces cover each
//! tensor exactly once and are gathered; all pieces, also replicas, are written.

use std::fmt;
use std::ops::Range;

use super::{CheckpointError, Tensor, Tensors, misfit};
use crate::mesh::Rank;
use crate::plan::{BufferDecl, BufferId, Held, Life, Piece, Plan, View};
use crate::shape::{DType, Shape};

/// Reads whole tensors from the owned pieces of all ranks. Empty if the Plan holds none of the
/// kind (SGD has no moments).
///
/// # Panics
/// If the owned pieces do not cover each tensor exactly once: the planner's mistake.
pub fn gather(plan: &Plan, held_kind: Held, read: &mut dyn FnMut(View) -> Vec<f32>) -> Tensors {
    let mut whole: Vec<Vec<f32>> = Vec::new();
    let mut covered: Vec<Vec<bool>> = Vec::new();
    for holding in held(plan, held_kind).filter(|holding| holding.piece.owned) {
        if whole.is_empty() {
            let lens = plan.tensors.iter().map(|tensor| tensor.shape.len() as usize);
            whole = lens.clone().map(|len| vec![0.0; len]).collect();
            covered = lens.map(|len| vec![false; len]).collect();
        }
        let index = holding.piece.tensor as usize;
        let values = read(holding.view);
        assert_eq!(values.len(), holding.view.len as usize, "a read returns all of its view");
        for (part, first) in runs(holding.piece, tensor_cols(&plan.tensors[index].shape)) {
            let target = first..first + part.len();
            let twice = covered[index][target.clone()].iter().position(|covered| *covered);
            assert!(twice.is_none(), "{holding} owns an element that another piece owns too");
            covered[index][target.clone()].fill(true);
            whole[index][target].copy_from_slice(&values[part]);
        }
    }
    let tensors = plan.tensors.iter().zip(whole.into_iter().zip(covered));
    tensors
        .map(|(tensor, (data, covered))| {
            let hole = covered.iter().position(|covered| !covered);
            assert!(hole.is_none(), "no rank owns element {hole:?} of {}", tensor.name);
            (tensor.name.clone(), Tensor { shape: tensor.shape.clone(), data })
        })
        .collect()
}

/// Writes whole tensors into all pieces of all ranks, owners and replicas. Tensors that the Plan
/// does not know are left out.
///
/// # Errors
/// If a tensor of the Plan is missing or has another shape; all of them. Nothing is written then.
pub fn scatter(
    plan: &Plan,
    held_kind: Held,
    tensors: &Tensors,
    write: &mut dyn FnMut(View, &[f32]),
) -> Result<(), CheckpointError> {
    if held(plan, held_kind).next().is_none() {
        return Ok(());
    }
    let needed = plan.tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape));
    if let Some(why) = misfit(tensors, needed) {
        return Err(CheckpointError::Tensors {
            source_name: format!("{}s", kind_name(held_kind)),
            why,
            remedy: "Use a checkpoint of this model, or the model of the checkpoint".into(),
        });
    }
    for holding in held(plan, held_kind) {
        let tensor = &plan.tensors[holding.piece.tensor as usize];
        let data = &tensors[&tensor.name].data;
        let values: Vec<f32> = runs(holding.piece, tensor_cols(&tensor.shape))
            .flat_map(|(part, first)| &data[first..first + part.len()])
            .copied()
            .collect();
        write(holding.view, &values);
    }
    Ok(())
}

/// The first element whose copies on two ranks differ in a bit, in the order of the Plan's
/// tensors; `None` if all replicas agree.
pub fn replica_difference(
    plan: &Plan,
    held_kind: Held,
    read: &mut dyn FnMut(View) -> Vec<f32>,
) -> Option<ReplicaDifference> {
    (0..).zip(&plan.tensors).find_map(|(index, tensor)| {
        let cols = tensor_cols(&tensor.shape);
        // The first copy of each element: its value, and which holding it came from.
        let mut first_copies: Vec<Option<(u32, usize)>> = vec![None; tensor.shape.len() as usize];
        let holdings: Vec<_> =
            held(plan, held_kind).filter(|holding| holding.piece.tensor == index).collect();
        for (number, holding) in holdings.iter().enumerate() {
            let values = read(holding.view);
            let places = runs(holding.piece, cols)
                .flat_map(|(part, first)| part.zip(first..))
                .map(|(i, element)| (element, values[i].to_bits()));
            for (element, bits) in places {
                let (first_bits, first) = *first_copies[element].get_or_insert((bits, number));
                if first_bits != bits {
                    let copy = |holding: &Holding<'_>, bits| ReplicaCopy {
                        rank: holding.decl.rank,
                        buffer: holding.decl.label.clone(),
                        value: f32::from_bits(bits),
                    };
                    return Some(ReplicaDifference {
                        tensor: tensor.name.clone(),
                        held: held_kind,
                        element: element as u64,
                        copies: [copy(&holdings[first], first_bits), copy(holding, bits)],
                    });
                }
            }
        }
        None
    })
}

/// Two copies of an element that should be equal and are not.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaDifference {
    /// Name of the tensor.
    pub tensor: String,
    /// Weight, gradient or moment.
    pub held: Held,
    /// Index in the whole tensor, row-major.
    pub element: u64,
    /// The two copies.
    pub copies: [ReplicaCopy; 2],
}

/// One rank's copy of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaCopy {
    /// Which rank.
    pub rank: Rank,
    /// Label of the buffer.
    pub buffer: String,
    /// The value there.
    pub value: f32,
}

impl fmt::Display for ReplicaDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}, element {}: ", kind_name(self.held), self.tensor, self.element)?;
        let copies = self.copies.each_ref().map(|copy| {
            let ReplicaCopy { rank, buffer, value } = copy;
            format!("rank {rank} holds {value} ({:#010x}) in {buffer}", value.to_bits())
        });
        f.write_str(&copies.join(", "))
    }
}

/// A piece and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// The buffer that holds it, which says whose memory it is.
    pub decl: &'a BufferDecl,
    /// Which part of which logical tensor.
    pub piece: &'a Piece,
    /// Its elements.
    pub view: View,
}

impl fmt::Display for Holding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, buffer {}: {:?}", self.decl.rank, self.decl.label, self.piece)
    }
}

/// All pieces of a kind in the order of the buffers. Weights and moments are those that live
/// across steps; a copy that is gathered inside a step holds nothing between steps.
///
/// # Panics
/// If a piece is not of floats.
pub fn held(plan: &Plan, kind: Held) -> impl Iterator<Item = Holding<'_>> {
    (0u32..)
        .map(BufferId)
        .zip(&plan.buffers)
        .filter(move |(_, decl)| kind == Held::Gradient || decl.life == Life::Persistent)
        .flat_map(|(buffer, decl)| decl.pieces.iter().map(move |piece| (buffer, decl, piece)))
        .filter(move |(_, _, piece)| piece.held == kind && !piece.flat.is_empty())
        .map(|(buffer, decl, piece)| {
            assert_eq!(decl.dtype, DType::F32, "{}: pieces are f32", decl.label);
            let view = View { buffer, offset: piece.offset, len: piece.flat.len() as u32 };
            Holding { decl, piece, view }
        })
}

/// Columns of a tensor as pieces count them: one if it has one dimension.
pub(super) fn tensor_cols(shape: &Shape) -> u32 {
    shape.0.get(1).map_or(1, |cols| u32::try_from(*cols).expect("pieces count columns in u32"))
}

/// The contiguous runs of a piece: elements of the piece, and the index of the first of them in
/// the whole tensor.
pub(super) fn runs(
    piece: &Piece,
    tensor_cols: u32,
) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
    let Piece { rows, cols, flat, .. } = piece.clone();
    let width = cols.len();
    let (start, end) = (flat.start as usize, flat.end as usize);
    // A box over all columns is one run.
    let row_end = move |at: usize| {
        if width == tensor_cols as usize { end } else { end.min((at / width + 1) * width) }
    };
    let global = move |at: usize| {
        (rows.start as usize + at / width) * tensor_cols as usize + cols.start as usize + at % width
    };
    let first = (start < end).then_some(start);
    std::iter::successors(first, move |at| Some(row_end(*at)).filter(|next| *next < end))
        .map(move |at| (at - start..row_end(at) - start, global(at)))
}

fn kind_name(kind: Held) -> &'static str {
    match kind {
        Held::Weight => "weight",
        Held::Gradient => "gradient",
        Held::Moment1 => "first moment",
        Held::Moment2 => "second moment",
    }
}

#[cfg(test)]
mod tests {
    //! Hand-made Plans, no planner: what is cut how is written in the test.

    use super::*;
    use crate::mesh::{Mesh, RankOrder};
    use crate::plan::{Arena, LogicalTensor, Place, Program, Role};
    use crate::shape::part;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const MATRIX: u32 = 0; // [6, 10]
    const VECTOR: u32 = 1; // [19]

    fn piece(
        tensor: u32,
        rows: Range<u32>,
        cols: Range<u32>,
        flat: Range<u32>,
        offset: u32,
    ) -> Piece {
        Piece { tensor, held: Held::Weight, rows, cols, flat, offset, owned: true }
    }

    fn replica(piece: Piece) -> Piece {
        Piece { owned: false, ..piece }
    }

    /// A Plan of one buffer of 64 elements a rank.
    fn plan(pieces: Vec<Vec<Piece>>) -> Plan {
        let decl = |(rank, pieces)| BufferDecl {
            rank: Rank(rank),
            label: format!("w{rank}"),
            role: Role::Weights,
            dtype: DType::F32,
            len: 64,
            life: Life::Persistent,
            place: Place { arena: Arena::Persistent, offset: 0 },
            pieces,
        };
        let tensor = |name: &str, dims: &[u64]| LogicalTensor {
            name: name.into(),
            shape: Shape(dims.to_vec()),
        };
        let ranks = pieces.len() as u32;
        Plan {
            mesh: Mesh { dp: ranks, tp: 1, pp: 1, order: RankOrder::TpDpPp },
            tensors: vec![tensor("matrix", &[6, 10]), tensor("vector", &[19])],
            buffers: (0..).zip(pieces).map(decl).collect(),
            programs: vec![Program::default(); ranks as usize],
        }
    }

    /// Layouts that cut the same two tensors in all the ways there are.
    fn layouts() -> Vec<Plan> {
        let vector = |flat, offset| piece(VECTOR, 0..19, 0..1, flat, offset);
        let whole = vec![piece(MATRIX, 0..6, 0..10, 0..60, 0)];
        // 19 elements over 8 ranks, and the matrix cut flat in the middle of rows, after padding.
        let flat = (0..8).map(|rank| {
            let (elements, share) = (part(60, 8, rank), part(19, 8, rank));
            vec![piece(MATRIX, 0..6, 0..10, elements, 3), vector(share, 40)]
        });
        // Columns over 3 ranks, the vector cut as two boxes and one replica.
        let columns = (0..3).map(|rank| {
            let cols = part(10, 3, rank);
            let elements = 6 * cols.len() as u32;
            let vector = match rank {
                0 => piece(VECTOR, 0..7, 0..1, 0..7, 30),
                1 => piece(VECTOR, 7..19, 0..1, 0..12, 30),
                _ => replica(vector(2..13, 30)),
            };
            vec![piece(MATRIX, 0..6, cols, 0..elements, 0), vector]
        });
        // Rows over 2 ranks, whose shards are cut flat over 2 more, with a replica of all of it.
        let rows = (0..4).map(|rank| {
            let rows = part(6, 2, rank / 2);
            let elements = rows.len() as u32 * 10;
            let share = part(elements, 2, rank % 2);
            let mut pieces = vec![piece(MATRIX, rows, 0..10, share, 0)];
            pieces.push(if rank == 3 { vector(0..19, 40) } else { replica(vector(0..19, 40)) });
            pieces
        });
        let both = vec![[whole, vec![replica(vector(0..19, 60 - 19))]].concat()];
        let mut plans = vec![plan(flat.collect()), plan(columns.collect()), plan(rows.collect())];
        // The one-rank plan: the matrix in the front half of a larger buffer.
        let mut one = plan(both);
        one.buffers[0].len = 128;
        one.buffers[0].pieces[1] = vector(0..19, 100);
        plans.push(one);
        plans
    }

    /// Memory of all buffers, with a mark where nothing was written.
    struct Memory(Vec<Vec<f32>>);

    impl Memory {
        fn of(plan: &Plan) -> Self {
            Self(plan.buffers.iter().map(|decl| vec![f32::NAN; decl.len as usize]).collect())
        }
        fn range(view: View) -> Range<usize> {
            view.offset as usize..(view.offset + view.len) as usize
        }
        fn write(&mut self, view: View, values: &[f32]) {
            self.0[view.buffer.0 as usize][Self::range(view)].copy_from_slice(values);
        }
        fn read(&self, view: View) -> Vec<f32> {
            self.0[view.buffer.0 as usize][Self::range(view)].to_vec()
        }
    }

    fn tensors() -> Tensors {
        let tensor = |dims: &[u64], start: u32| {
            let shape = Shape(dims.to_vec());
            let data = (0..shape.len() as u32).map(|i| (start + i) as f32).collect();
            Tensor { shape, data }
        };
        [("matrix".into(), tensor(&[6, 10], 0)), ("vector".into(), tensor(&[19], 100))].into()
    }

    #[test]
    fn scattering_and_gathering_gives_the_same_tensors_for_every_cut() {
        for plan in layouts() {
            let mut memory = Memory::of(&plan);
            scatter(&plan, Held::Weight, &tensors(), &mut |v, x| memory.write(v, x)).unwrap();
            assert_eq!(gather(&plan, Held::Weight, &mut |view| memory.read(view)), tensors());
            assert_eq!(replica_difference(&plan, Held::Weight, &mut |v| memory.read(v)), None);
        }
    }

    #[test]
    fn nineteen_elements_over_eight_ranks_lie_in_order_and_padding_stays_untouched() {
        let plan = layouts().remove(0);
        let mut memory = Memory::of(&plan);
        scatter(&plan, Held::Weight, &tensors(), &mut |v, x| memory.write(v, x)).unwrap();
        assert_eq!(memory.0[0][40..43], [100.0, 101.0, 102.0]);
        assert_eq!(memory.0[7][40..42], [117.0, 118.0]);
        assert!(memory.0[7][42].is_nan() && memory.0[7][2].is_nan());
    }

    #[test]
    fn gathering_reads_owners_only_and_scattering_writes_replicas_too() {
        let plan = layouts().remove(1);
        let mut memory = Memory::of(&plan);
        scatter(&plan, Held::Weight, &tensors(), &mut |v, x| memory.write(v, x)).unwrap();
        assert_eq!(memory.0[2][30], 102.0);
        memory.0[2][30] = -1.0;
        assert_eq!(gather(&plan, Held::Weight, &mut |view| memory.read(view)), tensors());
    }

    #[test]
    fn a_replica_that_differs_in_one_bit_is_named() {
        let plan = layouts().remove(2);
        let mut memory = Memory::of(&plan);
        scatter(&plan, Held::Weight, &tensors(), &mut |v, x| memory.write(v, x)).unwrap();
        memory.0[2][40 + 5] = f32::from_bits(105f32.to_bits() + 1);
        let found = replica_difference(&plan, Held::Weight, &mut |v| memory.read(v)).unwrap();
        assert_eq!((found.tensor.as_str(), found.element), ("vector", 5));
        assert_eq!(found.copies.each_ref().map(|copy| copy.rank), [Rank(0), Rank(2)]);
        let text = found.to_string();
        assert!(
            text.contains("weight of vector, element 5: rank 0 holds 105 (0x42d20000)"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_or_misshapen_tensor_is_refused_by_name_and_nothing_is_written() {
        let plan = layouts().remove(0);
        let mut given = tensors();
        given.remove("vector");
        given.get_mut("matrix").unwrap().shape = Shape(vec![10, 6]);
        let error = scatter(&plan, Held::Weight, &given, &mut |_, _| panic!("nothing is written"))
            .unwrap_err()
            .to_string();
        let why = "weights: missing vector; matrix is [10, 6], not [6, 10]";
        assert!(error.starts_with(why), "{error}");
    }

    #[test]
    fn a_plan_without_moments_gathers_none_and_accepts_any() {
        let plan = layouts().remove(0);
        assert!(gather(&plan, Held::Moment1, &mut |_| panic!("nothing to read")).is_empty());
        scatter(&plan, Held::Moment1, &Tensors::new(), &mut |_, _| ()).unwrap();
    }

    #[test]
    fn copies_that_live_inside_a_step_are_no_weights() {
        let mut plan = layouts().remove(0);
        plan.buffers.push(BufferDecl {
            life: Life::Step,
            label: "slot".into(),
            pieces: vec![replica(piece(MATRIX, 0..6, 0..10, 0..60, 0))],
            ..plan.buffers[0].clone()
        });
        let mut written = 0;
        scatter(&plan, Held::Weight, &tensors(), &mut |_, values| written += values.len()).unwrap();
        assert_eq!(written, 60 + 19);
    }

    #[test]
    fn owned_pieces_that_overlap_or_leave_a_hole_are_the_planners_mistake() {
        let mut hole = layouts().remove(0);
        hole.buffers[3].pieces.pop();
        let mut overlap = layouts().remove(1);
        overlap.buffers[2].pieces[1].owned = true;
        for (plan, message) in [(hole, "no rank owns element"), (overlap, "another piece owns")] {
            let run = AssertUnwindSafe(|| {
                gather(&plan, Held::Weight, &mut |view| vec![0.0; view.len as usize])
            });
            let panic = catch_unwind(run).unwrap_err();
            assert!(panic.downcast_ref::<String>().unwrap().contains(message));
        }
    }
}
