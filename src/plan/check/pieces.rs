//! The owned pieces of a tensor cover it exactly once.
//!
//! A piece is a run of elements of a box, so it is at most three rectangles of the tensor: the rest
//! of a row, whole rows, the start of a row. A sweep over the rows finds elements with two owners,
//! the sum of areas finds elements with none.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{FaultKind, Faults};
use crate::plan::{BufferDecl, Held, LogicalTensor, Piece, Plan};

/// Checks that all pieces fit and that the owned ones tile their tensors: every tensor's weight,
/// and whatever else of it is held anywhere.
pub(super) fn check_pieces(plan: &Plan, faults: &mut Faults) {
    let mut owned: BTreeMap<(u32, Held), Vec<Rect<'_>>> = BTreeMap::new();
    for (tensor, _) in (0..).zip(&plan.tensors) {
        owned.insert((tensor, Held::Weight), Vec::new());
    }
    for decl in &plan.buffers {
        for piece in &decl.pieces {
            if let Some(why) = misfit(plan, decl, piece) {
                let tensor = plan.tensors.get(piece.tensor as usize);
                let tensor = tensor.map_or(format!("#{}", piece.tensor), |t| t.name.clone());
                let kind = FaultKind::PieceOutside { label: decl.label.clone(), tensor, why };
                faults.add(Some(decl.rank), None, kind);
                continue;
            }
            let rects = owned.entry((piece.tensor, piece.held)).or_default();
            if piece.owned {
                rects.extend(rects_of(decl, piece));
            }
        }
    }
    for ((tensor, held), rects) in owned {
        check_cover(plan, tensor, held, &rects, faults);
    }
}

/// A rectangle of a tensor, and the buffer that owns it.
struct Rect<'a> {
    rows: Range<u64>,
    cols: Range<u64>,
    decl: &'a BufferDecl,
}

/// Rows and columns of a tensor; one dimension is one column.
fn sides(tensor: &LogicalTensor) -> (u64, u64) {
    let dims = &tensor.shape.0;
    (dims.first().copied().unwrap_or(1), dims.iter().skip(1).product())
}

/// Why a piece does not fit its tensor or buffer.
fn misfit(plan: &Plan, decl: &BufferDecl, piece: &Piece) -> Option<String> {
    let Some(tensor) = plan.tensors.get(piece.tensor as usize) else {
        return Some(format!("the Plan names {} tensors", plan.tensors.len()));
    };
    let (tensor_rows, tensor_cols) = sides(tensor);
    let Piece { rows, cols, flat, offset, .. } = piece;
    let inside =
        |range: &Range<u32>, len: u64| range.start <= range.end && u64::from(range.end) <= len;
    if !inside(rows, tensor_rows) || !inside(cols, tensor_cols) {
        return Some(format!("rows {rows:?}, columns {cols:?} of {}", tensor.shape));
    }
    let area = u64::from(rows.end - rows.start) * u64::from(cols.end - cols.start);
    if !inside(flat, area) {
        return Some(format!("elements {flat:?} of a box of {area}"));
    }
    let end = u64::from(*offset) + u64::from(flat.end - flat.start);
    let outside = end > u64::from(decl.len);
    outside.then(|| format!("its elements end at {end}, the buffer at {}", decl.len))
}

/// The elements of a piece that fits, as rectangles: the rest of a row, whole rows, the start of a
/// row.
fn rects_of<'a>(decl: &'a BufferDecl, piece: &Piece) -> Vec<Rect<'a>> {
    let [row, col, width] =
        [piece.rows.start, piece.cols.start, piece.cols.end - piece.cols.start].map(u64::from);
    let (start, end) = (u64::from(piece.flat.start), u64::from(piece.flat.end));
    if start == end {
        return Vec::new();
    }
    let rect = |rows: Range<u64>, cols: Range<u64>| Rect {
        rows: row + rows.start..row + rows.end,
        cols: col + cols.start..col + cols.end,
        decl,
    };
    let (first_whole, behind_whole) = (start.div_ceil(width), end / width);
    if first_whole > behind_whole {
        return vec![rect(behind_whole..behind_whole + 1, start % width..end % width)];
    }
    let parts = [
        rect(first_whole.saturating_sub(1)..first_whole, start % width..width),
        rect(first_whole..behind_whole, 0..width),
        rect(behind_whole..behind_whole + 1, 0..end % width),
    ];
    let wanted = [start % width > 0, first_whole < behind_whole, end % width > 0];
    parts.into_iter().zip(wanted).filter_map(|(part, wanted)| wanted.then_some(part)).collect()
}

fn check_cover(plan: &Plan, tensor: u32, held: Held, rects: &[Rect<'_>], faults: &mut Faults) {
    let tensor = &plan.tensors[tensor as usize];
    // Rectangles end before others start on the same row.
    let starts = rects.iter().enumerate().map(|(index, rect)| (rect.rows.start, true, index));
    let ends = rects.iter().enumerate().map(|(index, rect)| (rect.rows.end, false, index));
    let mut events: Vec<(u64, bool, usize)> = starts.chain(ends).collect();
    events.sort_unstable();
    // The rectangles of the current row by first column; they never overlap.
    let mut active: BTreeMap<u64, usize> = BTreeMap::new();
    let mut pairs = BTreeSet::new();
    for (row, is_start, index) in events {
        let cols = &rects[index].cols;
        if !is_start {
            if active.get(&cols.start) == Some(&index) {
                active.remove(&cols.start);
            }
            continue;
        }
        let before = active.range(..cols.end).next_back().map(|(_, other)| *other);
        match before.filter(|other| rects[*other].cols.end > cols.start) {
            None => drop(active.insert(cols.start, index)),
            Some(other) => {
                let col = cols.start.max(rects[other].cols.start);
                let [one, other] = [other, index].map(|i| rects[i].decl);
                let [one, other] = [one, other].map(|d| format!("rank {}'s {}", d.rank, d.label));
                if pairs.insert((one.clone(), other.clone())) {
                    let tensor = tensor.name.clone();
                    let kind = FaultKind::OwnedTwice { tensor, held, row, col, one, other };
                    faults.add(None, None, kind);
                }
            }
        }
    }
    let area =
        |rect: &Rect<'_>| (rect.rows.end - rect.rows.start) * (rect.cols.end - rect.cols.start);
    let (len, owned) = (tensor.shape.len(), rects.iter().map(area).sum::<u64>());
    if owned < len {
        let (tensor, missing) = (tensor.name.clone(), len - owned);
        faults.add(None, None, FaultKind::NotOwned { tensor, held, missing, len });
    }
}

#[cfg(test)]
mod tests {
    //! The sweep is held against counting owners element by element.
    use super::*;
    use crate::plan::sample::Sample;
    use crate::shape::Shape;
    use proptest::prelude::*;

    const ROWS: u32 = 5;
    const COLS: u32 = 4;

    fn random_piece() -> impl Strategy<Value = Piece> {
        let inside = |len: u32| (0..=len, 0..=len).prop_map(|(a, b)| a.min(b)..a.max(b));
        (inside(ROWS), inside(COLS)).prop_flat_map(move |(rows, cols)| {
            let area = (rows.end - rows.start) * (cols.end - cols.start);
            (inside(area), Just((rows, cols))).prop_map(|(flat, (rows, cols))| Piece {
                tensor: 0,
                held: Held::Weight,
                rows,
                cols,
                flat,
                offset: 0,
                owned: true,
            })
        })
    }

    proptest! {
        #[test]
        fn owners_are_counted_as_if_one_by_one(
            pieces in proptest::collection::vec(random_piece(), 0..5),
        ) {
            let mut sample = Sample::new(1);
            sample.weight(0, "w", ROWS * COLS);
            let plan = &mut sample.plan;
            plan.tensors[0].shape = Shape(vec![ROWS.into(), COLS.into()]);
            let mut owners = vec![0; (ROWS * COLS) as usize];
            for piece in &pieces {
                for i in 0..piece.flat.end - piece.flat.start {
                    owners[piece.global_index(i, COLS)] += 1;
                }
            }
            plan.buffers[0].pieces = pieces;
            let mut faults = Faults::default();
            check_pieces(plan, &mut faults);
            let twice = |kind: &FaultKind| matches!(kind, FaultKind::OwnedTwice { .. });
            let has_twice = faults.list.iter().any(|fault| twice(&fault.kind));
            prop_assert_eq!(has_twice, owners.iter().any(|count| *count > 1));
            if !has_twice {
                let free = owners.iter().filter(|count| **count == 0).count() as u64;
                let missing = faults.list.iter().find_map(|fault| match fault.kind {
                    FaultKind::NotOwned { missing, .. } => Some(missing),
                    _ => None,
                });
                prop_assert_eq!(missing.unwrap_or(0), free);
            }
        }
    }
}
