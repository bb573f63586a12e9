//! The nearest layout that can have a fault, for one that cannot.

use super::{Fault, check_fit};
use crate::config::{Layout, ModelSource, Scenario};

/// The scenario with as little changed as it takes to have a fault, and what was changed in words:
/// `2 data ranks`. `None` if nothing helps.
pub fn that_shows(scenario: &Scenario, fault: Fault) -> Option<(Scenario, String)> {
    let layout = &scenario.layout;
    let with = |layout: Layout| Scenario { layout, ..scenario.clone() };
    let (change, words) = match fault {
        Fault::ForgetDivision | Fault::RepeatRows => {
            (with(Layout { dp: 2, ..layout.clone() }), "2 data ranks".to_owned())
        }
        Fault::ScaleByMicrobatches => {
            (with(Layout { microbatches: 2, ..layout.clone() }), "2 microbatches".to_owned())
        }
        Fault::SplitTied => {
            // The weights that come with a folder are of a model that is not tied.
            if matches!(scenario.model, ModelSource::Dir(_)) {
                return None;
            }
            let mut model = scenario.model.resolve().ok()?;
            model.tie_word_embeddings = true;
            let model = ModelSource::Sizes(model);
            (Scenario { model, ..scenario.clone() }, "a tied table".to_owned())
        }
        Fault::SplitNorms => {
            let tp = layout.tp.max(2);
            let layout = Layout { tp, sequence_parallel: true, ..layout.clone() };
            (with(layout), format!("sequence parallel, tensor {tp}"))
        }
        Fault::SlowRank { .. }
        | Fault::SlowLink { .. }
        | Fault::Poison { .. }
        | Fault::SkipMessage { .. } => return None,
    };
    if check_fit(&change, fault).is_ok() {
        return Some((change, words));
    }
    // More replicas leave each fewer rows: fewer pieces may fit.
    let fewer = Layout { microbatches: 1, ..change.layout.clone() };
    let fewer = Scenario { layout: fewer, ..change };
    let fits = layout.microbatches > 1 && check_fit(&fewer, fault).is_ok();
    fits.then(|| (fewer, format!("{words}, 1 microbatch")))
}
