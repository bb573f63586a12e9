//! What is broken and what the judges say, in sentences.

use shardlab::plan::check::{self, FaultKind};
use shardlab::train::driver::{Difference, Facts};
use shardlab::train::faults::{Fault, Steps, Unsent};
use shardlab::train::verify::Verification;

use crate::texts;

/// The longest line, in characters.
const LONGEST: usize = 120;

/// What is broken, in one line: `Broken on purpose: rank 1 computes 4 times as long.`
pub fn now(faults: &[Fault]) -> String {
    let all: Vec<String> = faults.iter().map(Fault::to_string).collect();
    let line = format!("Broken on purpose: {}.", all.join("; "));
    if line.chars().count() <= LONGEST {
        return line;
    }
    format!("Broken on purpose: {} things; the tab Faults names them.", faults.len())
}

/// What the checker of Plans says.
pub fn checker(found: &[check::Fault], faults: &[Fault]) -> String {
    let Some(first) = found.first() else {
        let slow = |fault: &Fault| matches!(fault, Fault::SlowRank { .. } | Fault::SlowLink { .. });
        return if faults.iter().all(slow) {
            "passes: the Plan is right, it only runs late.".into()
        } else {
            "passes: the Plan is legal, but wrong.".into()
        };
    };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more)"),
    };
    // Without buffers and tags: they say nothing to who reads this line.
    let what = match (&first.kind, first.rank, first.instr) {
        (FaultKind::UnmatchedRecv { len, from, .. }, Some(rank), Some(instr)) => {
            format!("rank {rank} #{instr} waits for {len} numbers that rank {from} never sends")
        }
        _ => first.to_string(),
    };
    format!("finds it: {what}.{more}")
}

/// What three steps beside one rank say.
pub fn steps(steps: &Steps, facts: Option<&Facts>) -> String {
    match steps {
        Steps::Compared(verification) => compared(verification),
        Steps::Hang { report } => {
            let unsent = facts.map(|facts| Unsent::all(&facts.plan, &facts.order, &facts.graph));
            format!("hang. {}", texts::hang(report, &unsent.unwrap_or_default()))
        }
        Steps::NotFinite { step, first } => {
            format!("stop. {}", texts::not_finite(*step, first.as_deref()))
        }
    }
}

fn compared(verification: &Verification) -> String {
    let Verification { grad_rel_max, final_rel_max, tolerance, .. } = verification;
    let [allowed, allowed_weights] = tolerance;
    let largest = verification.loss_rel_max.max(*grad_rel_max).max(*final_rel_max);
    if verification.pass {
        return format!("equal one rank: largest relative difference {}.", short(largest));
    }
    let first = match &verification.first_tensor {
        Some(first) => format!("First: {}.", first.split(": ").next().unwrap_or(first)),
        None => "No tensor does; losses or norms do.".into(),
    };
    let hides = *final_rel_max <= *allowed_weights && grad_rel_max > allowed;
    let weights = match hides {
        true => format!("weights by {} only: it hides", short(*final_rel_max)),
        false => format!("weights by {}", short(*final_rel_max)),
    };
    format!("differ: gradients by {}, {weights}. {first}", short(*grad_rel_max))
}

/// How far the run is from one rank now.
pub fn beside(step: u64, loss: f64, difference: &Difference, facts: &Facts) -> String {
    let Difference { loss: one, weights, tensor } = difference;
    let delta = (loss - one).abs();
    let tensor = tensor.and_then(|index| facts.plan.tensors.get(index as usize));
    let most = tensor.map_or(String::new(), |tensor| format!(", most in {}", tensor.name));
    let (delta, weights) = (short(delta), short(*weights));
    format!("step {}: |Δ| of the loss {delta}, weights differ by {weights}{most}.", step + 1)
}

/// A relative difference: `0.31`, `2.4e−7`, `0`.
fn short(difference: f64) -> String {
    if difference == 0.0 {
        return "0".into();
    }
    if (0.01..100.0).contains(&difference) {
        return format!("{difference:.2}");
    }
    format!("{difference:.1e}").replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::mesh::Rank;

    #[test]
    fn the_line_names_what_is_broken_or_counts_it() {
        let slow = Fault::SlowRank { rank: Rank(1), factor: 4.0 };
        assert_eq!(now(&[slow]), "Broken on purpose: rank 1 computes 4 times as long.");
        let all = now(&Fault::MUSEUM);
        assert_eq!(all, "Broken on purpose: 5 things; the tab Faults names them.");
        for fault in crate::broken::EXHIBITS {
            assert!(now(&[fault]).chars().count() <= LONGEST, "{}", now(&[fault]));
        }
    }

    #[test]
    fn a_gradient_that_differs_behind_equal_weights_is_said_to_hide() {
        let differs = Verification {
            pass: false,
            loss_rel_max: 1e-7,
            grad_norm_rel_max: 1.0,
            grad_rel_max: 1.0,
            final_rel_max: 1e-6,
            first_difference: None,
            first_tensor: Some("gradient of lm_head.weight: 1.0e0 (allowed 1e-5)".into()),
            steps: 3,
            tolerance: [1e-5, 1e-5],
        };
        let text = compared(&differs);
        assert!(text.contains("it hides. First: gradient of lm_head.weight."), "{text}");
        let plain = compared(&Verification { final_rel_max: 0.3, ..differs.clone() });
        assert!(plain.contains("weights by 0.30. First"), "{plain}");
        let equal = compared(&Verification { pass: true, grad_rel_max: 2e-7, ..differs });
        assert!(equal.starts_with("equal one rank"), "{equal}");
    }
}
