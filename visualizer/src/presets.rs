//! The scenarios of the menu: one for each idea, all on the text that is built in.

use shardlab::config::layout::ZeroStage;
use shardlab::config::{Layout, Scenario, ScheduleName};

/// A scenario of the menu.
#[derive(Clone, Debug)]
pub struct Preset {
    /// What it shows, in one line.
    pub about: &'static str,
    /// The scenario.
    pub scenario: Scenario,
}

/// The quickstart under the name that a person reads.
pub fn quickstart() -> Scenario {
    Scenario { name: "Shakespeare, small".into(), ..Scenario::quickstart() }
}

/// All presets, in the order of the menu.
pub fn all() -> Vec<Preset> {
    let quickstart = quickstart();
    let cut = |name: &str, about, layout: Layout| Preset {
        about,
        scenario: Scenario { name: name.into(), layout, ..quickstart.clone() },
    };
    let layout = quickstart.layout.clone();
    let whole = Layout { dp: 1, tp: 1, pp: 1, zero: ZeroStage::Zero0, ..layout.clone() };
    vec![
        Preset { about: "8 ranks, all three cuts at once", scenario: quickstart.clone() },
        cut("One rank", "no cut: what all others must equal", whole.clone()),
        cut("Data parallel", "4 copies, gradients are summed", Layout { dp: 4, ..whole.clone() }),
        cut("Tensor parallel", "every matrix cut in 4", Layout { tp: 4, ..whole.clone() }),
        cut("Pipeline", "4 stages pass microbatches on", Layout { pp: 4, ..whole.clone() }),
        cut(
            "Pipeline, GPipe",
            "all forwards first: the same waiting, more memory",
            Layout { pp: 4, schedule: ScheduleName::GPipe, ..whole.clone() },
        ),
        cut(
            "ZeRO 3",
            "weights, gradients and optimizer cut in 4",
            Layout { dp: 4, zero: ZeroStage::Zero3, ..whole },
        ),
        cut("64 ranks", "4 × 4 × 4: a row is a stage", Layout { dp: 4, tp: 4, pp: 4, ..layout }),
    ]
}

/// The scenario of the menu with this name, as [`slug`] writes it; also `quickstart`.
pub fn named(name: &str) -> Option<Scenario> {
    let wanted = slug(name);
    if wanted == "quickstart" {
        return Some(quickstart());
    }
    all().into_iter().map(|preset| preset.scenario).find(|scenario| slug(&scenario.name) == wanted)
}

/// The names that [`named`] knows.
pub fn names() -> Vec<String> {
    all().iter().map(|preset| slug(&preset.scenario.name)).collect()
}

/// A name as a part of a file name: `shakespeare-small`.
pub fn slug(name: &str) -> String {
    let letter = |c: char| if c.is_alphanumeric() { c } else { '-' };
    let plain: String = name.to_lowercase().chars().map(letter).take(60).collect();
    let parts: Vec<&str> = plain.split('-').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "scenario".into() } else { parts.join("-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::planner::{Purpose, StepSpec, plan_step};

    #[test]
    fn every_preset_can_run_and_has_a_name_of_its_own() {
        let mut names = Vec::new();
        for Preset { scenario, .. } in all() {
            let spec = StepSpec {
                model: scenario.model.resolve().unwrap(),
                layout: scenario.layout.clone(),
                training: scenario.training.clone(),
                purpose: Purpose::Evaluate,
                device_kinds: Vec::new(),
            };
            plan_step(&spec).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
            assert_eq!(named(&scenario.name), Some(scenario.clone()));
            let name = slug(&scenario.name);
            assert!(!names.contains(&name));
            names.push(name);
        }
        assert_eq!(names, super::names());
        assert_eq!(named("Shakespeare,  small"), named("quickstart"));
        assert_eq!(slug("∇!"), "scenario");
    }
}
