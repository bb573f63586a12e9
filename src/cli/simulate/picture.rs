//! The predicted step as rows, one of each pipeline position: in the terminal and in a file.

use std::path::Path;
use std::sync::Arc;

use super::super::Failure;
use super::super::live::{StillRow, still};
use super::super::picture::Picture;
use super::super::text::Terminal;
use crate::mesh::Rank;
use crate::predict::Prediction;
use crate::trace::Badge;
use crate::trace::draw::timeline::{Alike, Timeline};
use crate::trace::draw::{Block, Work, blocks};
use crate::units::Nanos;

/// Rows of at most this many positions; of more, neighbours share one.
const ROWS: usize = 32;

/// The schedule in the terminal: of each position the class that works longest.
pub(super) fn lines(prediction: &Prediction, terminal: &Terminal) -> Vec<String> {
    let plan = &prediction.cluster_plan.plan;
    let blocks = blocks(plan, &prediction.order, &prediction.trace);
    let busy = |class: usize| -> Nanos { blocks[class].iter().map(Block::busy).sum() };
    let position = |class: usize| position(prediction, class);
    let positions = (0..blocks.len()).map(position).max().unwrap_or(0) as usize + 1;
    let folded = positions.div_ceil(ROWS);
    let row = |group: usize| -> Option<StillRow<'_>> {
        let own = (0..blocks.len()).filter(|class| position(*class) as usize / folded == group);
        // Of equal ones the first.
        let class = own.rev().max_by_key(|class| busy(*class))?;
        let label = format!("  p{} rank {}", position(class), first(prediction, class));
        Some((label, &blocks[class]))
    };
    let rows: Vec<StillRow<'_>> = (0..positions.div_ceil(folded)).filter_map(row).collect();
    still(&rows, prediction.trace.end(), Badge::Predicted, terminal)
}

/// The first rank that a program stands for.
fn first(prediction: &Prediction, class: usize) -> Rank {
    prediction.cluster_plan.classes.first[class]
}

fn position(prediction: &Prediction, class: usize) -> u32 {
    prediction.mesh.coord(first(prediction, class)).pp
}

/// Writes the step as a picture with a legend.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, prediction: &Prediction, title: &str) -> Result<(), Failure> {
    let plan = Arc::new(prediction.cluster_plan.plan.clone());
    let trace = Arc::new(prediction.trace.clone());
    let classes = &prediction.cluster_plan.classes;
    let alike = (0..classes.count()).map(|class| Alike {
        first: classes.first[class],
        count: classes.sizes[class],
        position: position(prediction, class),
    });
    let timeline = Timeline::new(plan, &prediction.order, trace, &[]);
    let timeline = timeline.standing_for(alike.collect());
    let caption = "A row is a pipeline position: its slowest rank large, a line for each kind of \
                   rank. Colour works, hatching waits.";
    let picture = Picture { title, caption, badge: Badge::Predicted };
    let passes = |row: &u32| {
        let blocks = timeline.blocks(Rank(*row)).iter();
        blocks.filter(|block| block.work().is_some_and(Work::is_pass)).count()
    };
    let most = (0..classes.count() as u32).map(|row| passes(&row)).max().unwrap_or(0);
    picture.write(path, &timeline, 150.0 + 45.0 * most as f32)
}
