//! The sentences of the window, as pure functions of what they speak about.
//!
//! One line each, at most 120 characters, in the words of the field.

use std::collections::BTreeSet;

use shardlab::config::layout::ZeroStage;
use shardlab::config::{Layout, Scenario, ScheduleName};
use shardlab::data::Marks;
use shardlab::exec::{DeviceInfo, DeviceKind, NonFinite};
use shardlab::mesh::Axis;
use shardlab::planner::schedule::explain::Formula;
use shardlab::trace::Badge;
use shardlab::trace::draw::playback::Speed;
use shardlab::trace::draw::{Work, label};
use shardlab::train::driver::Explained;
use shardlab::train::faults::Unsent;

/// What the picture is, for who sees it for the first time; of a picture no key is told.
pub fn idle(layout: &Layout, groups: bool, medium: Medium) -> String {
    let ranks = layout.mesh().size();
    let row = if groups { "A row is a stage" } else { "A row is a rank" };
    let what = match ranks {
        1 => format!("1 rank trains a language model alone. {row}: colour works."),
        _ => format!(
            "{ranks} ranks train one language model together. {row}: colour works, hatching waits."
        ),
    };
    match medium {
        Medium::Window => what + " Space pauses, → steps.",
        Medium::Picture => what,
    }
}

/// Where a sentence is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// In the window, where keys can be pressed.
    #[default]
    Window,
    /// In a picture or an animation.
    Picture,
}

/// The cuts of a layout: `data 2 × tensor 2 × pipeline 2 · ZeRO 1`.
pub fn cuts(layout: &Layout) -> String {
    let [data, tensor, pipeline] =
        Axis::ALL.map(|axis| format!("{} {}", axis.word(), layout.mesh().len(axis)));
    let zero = match layout.zero {
        ZeroStage::Zero0 => String::new(),
        stage => format!(" · ZeRO {}", u8::from(stage)),
    };
    format!("{data} × {tensor} × {pipeline}{zero}")
}

/// The same with the schedule, where it is not the usual one: `… · ZeRO 1 · ZB-V`.
pub fn cuts_and_schedule(layout: &Layout) -> String {
    match &layout.schedule {
        ScheduleName::OneFOneB => cuts(layout),
        other => format!("{} · {}", cuts(layout), other.title()),
    }
}

/// What a run is called in the one that follows it, where their losses can be compared: what it was
/// cut into, if that is what differs.
pub fn left_behind(old: &Scenario, new: &Scenario) -> Option<String> {
    let is_same = old.model == new.model && old.data == new.data;
    let (was, is) = (cuts_and_schedule(&old.layout), cuts_and_schedule(&new.layout));
    is_same.then(|| if was == is { "the run before".into() } else { was })
}

/// A schedule as people write it.
pub fn schedule(name: &ScheduleName) -> String {
    match name {
        ScheduleName::File(path) => path.display().to_string(),
        named => named.title(),
    }
}

/// What runs the ranks: `CPU, 8 ranks`.
pub fn device(devices: &[DeviceInfo]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for device in devices {
        let name = if device.kind == DeviceKind::Host { "CPU" } else { device.name.as_str() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let count = devices.len();
    format!("{}, {count} rank{}", names.join(" and "), if count == 1 { "" } else { "s" })
}

/// Both heads: `step 41 of 96 trained, slow motion 1/32`.
pub fn heads(shown: Option<u64>, trained: u64, speed: Speed) -> String {
    let Some(shown) = shown else { return format!("{trained} steps trained") };
    let how = match speed.power() {
        ..0 => format!("slow motion {speed}"),
        0 => "real time".into(),
        1.. => format!("{speed} × real time"),
    };
    format!("step {} of {trained} trained, {how}", shown + 1)
}

/// What a loss is counted in: a token is a byte where marks were counted.
pub fn loss_unit(marks: Option<Marks>) -> &'static str {
    marks.map_or("nats per token", |_| "nats per byte")
}

/// A step, 0-based, that has run for long and has not ended.
pub fn running(step: u64) -> String {
    format!("step {} running…", step + 1)
}

/// The share of waiting that the textbook gives, where it gives one.
pub fn formula(layout: &Layout) -> Option<f64> {
    let Layout { schedule, pp, chunks, microbatches, .. } = layout;
    Formula::of(schedule, *pp, *chunks, *microbatches).map(|formula| formula.waiting_over_span())
}

/// All steps are trained.
pub fn done(trained: u64, shown: Option<u64>) -> String {
    let shown = shown.map_or(trained, |step| step + 1);
    format!("Training done. Replaying step {shown}; nothing is running.")
}

/// Nobody has touched the window for long. Training stops as well, unless it goes on while paused.
pub const LEFT_ALONE: &str = "Paused after 10 minutes without input. Space goes on.";

/// A step with a number that is not finite: `Step 57: first non-finite number on rank 3, layer 2, B1,
/// the gradient of mlp.up_proj.`
pub fn not_finite(step: u64, first: Option<&NonFinite>) -> String {
    let Some(first) = first else {
        return format!("Step {}: the loss or the gradient norm is not finite.", step + 1);
    };
    let NonFinite { rank, origin, .. } = first;
    let mut text = format!("Step {}: first non-finite number on rank {rank}", step + 1);
    let mut held = first.held_by().replace(".weight", "");
    if let Some(layer) = origin.layer {
        text += &format!(", layer {layer}");
        // The layer is told already.
        held = held.replace(&format!("model.layers.{layer}."), "");
    }
    let part = label(Work::of(*origin), origin.microbatch);
    text + &format!(", {part}, {held}.")
}

/// A step that does not end: what is never sent, or who waits for whom.
pub fn hang(report: &[String], unsent: &[Unsent]) -> String {
    match unsent {
        [] => format!("The step hangs: {}.", report.join("; ")),
        [one] => one.to_string(),
        [first, more @ ..] => format!("{first} {} more messages are never sent.", more.len()),
    }
}

/// Training goes on elsewhere than asked for; why in a few words.
pub fn fell_back(why: &Explained) -> String {
    let Explained { what, why, .. } = why;
    let short = why.split_once(": ").map_or(why.as_str(), |(short, _)| short);
    let why = if short.is_empty() { String::new() } else { format!(": {short}") };
    format!("{what}{why}. Training on the CPU instead.")
}

/// No window can open: without a display.
pub fn no_display(unset: &[&str]) -> String {
    let unset = match unset {
        [] => "the display does not answer".to_owned(),
        [one] => format!("{one} is unset"),
        [first, .., last] => format!("{first} and {last} are unset"),
    };
    format!(
        "No display found ({unset}), so no window can open. The same step in this terminal: \
         shardlab. Pictures without a display: shardlab-visualizer --screenshot out/"
    )
}

/// No window can open: without an adapter to draw it.
pub fn no_adapter(why: &str) -> String {
    format!(
        "No adapter can draw the window ({why}). Install a Vulkan driver, on Debian and Ubuntu: \
         mesa-vulkan-drivers. The same step in this terminal: shardlab. Pictures without an \
         adapter: shardlab-visualizer --screenshot out/"
    )
}

/// Whether a sentence tells a time or a share and does not say where that comes from.
pub fn tells_time(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    let tells = words.windows(2).any(|pair| {
        let unit = pair[1].trim_end_matches(['.', ',', ':', ';', ')']);
        pair[0].ends_with(|letter: char| letter.is_ascii_digit())
            && ["ns", "µs", "ms", "s", "%"].contains(&unit)
    });
    tells && !Badge::ALL.iter().any(|badge| text.contains(badge.word()))
}

/// What a badge means in this run: on `devices`, with links that take no time or are as `links` says;
/// `machine` is what a prediction is of.
pub fn meaning(badge: Badge, devices: &[DeviceInfo], links: &str, machine: &str) -> String {
    let word = badge.word();
    match badge {
        Badge::Counted | Badge::Formula => format!("{word}: {}.", badge.meaning()),
        Badge::Measured => {
            let ranks = devices.len();
            let kinds: BTreeSet<&str> = devices.iter().map(|device| device.name.as_str()).collect();
            let host = devices.iter().all(|device| device.kind == DeviceKind::Host);
            let how = match (ranks, kinds.len()) {
                (0, _) => String::new(),
                (1, _) => "; the rank had its device".into(),
                _ if host => format!("; {ranks} ranks took turns on the CPU"),
                (ranks, kinds) if ranks == kinds => "; each rank had its device".into(),
                (_, 1) => format!("; {ranks} ranks took turns on 1 device"),
                (_, kinds) => format!("; {ranks} ranks took turns on {kinds} devices"),
            };
            format!("{word}: {}{how}.", badge.meaning())
        }
        Badge::Replayed => format!("{word}: {}; links: {links}.", badge.meaning()),
        Badge::Predicted => format!("{word}: cost model of {machine}."),
    }
}

/// The title of the window.
pub fn title(scenario: &Scenario) -> String {
    format!("{} · Shardlab", scenario.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn every_sentence_fits_one_line() {
        for preset in presets::all() {
            let layout = &preset.scenario.layout;
            for groups in [false, true] {
                let text = idle(layout, groups, Medium::Window);
                assert!(text.chars().count() <= 120, "{text}");
            }
        }
        assert!(done(100_000, Some(99_999)).chars().count() <= 120);
    }

    #[test]
    fn the_quickstart_reads_as_on_the_page() {
        let scenario = presets::quickstart();
        assert_eq!(
            idle(&scenario.layout, false, Medium::Window),
            "8 ranks train one language model together. A row is a rank: colour works, hatching \
             waits. Space pauses, → steps."
        );
        assert_eq!(
            idle(&scenario.layout, false, Medium::Picture),
            "8 ranks train one language model together. A row is a rank: colour works, hatching \
             waits."
        );
        assert_eq!(cuts(&scenario.layout), "data 2 × tensor 2 × pipeline 2 · ZeRO 1");
        assert_eq!(cuts_and_schedule(&scenario.layout), cuts(&scenario.layout));
        let other = Layout { schedule: ScheduleName::ZbV, ..scenario.layout.clone() };
        assert_eq!(cuts_and_schedule(&other), "data 2 × tensor 2 × pipeline 2 · ZeRO 1 · ZB-V");
        assert_eq!(formula(&scenario.layout), Some(0.2));
        assert_eq!(heads(Some(40), 96, Speed::new(-5)), "step 41 of 96 trained, slow motion 1/32");
        let over = "Training done. Replaying step 200; nothing is running.";
        assert_eq!([done(200, Some(199)), done(200, None)], [over; 2]);
    }

    #[test]
    fn times_and_shares_are_found_in_a_sentence_that_does_not_say_where_they_come_from() {
        for text in
            ["Rank 0 waits 12.4 ms for B2.", "It takes 3 s.", "Waiting 20 %, all", "9 µs; 1"]
        {
            assert!(tells_time(text), "{text}");
        }
        for text in ["Rank 0 → 2, data: 0.5 MiB this step.", "12 ms (REPLAYED)", "step 12 seen", ""]
        {
            assert!(!tells_time(text), "{text}");
        }
    }

    #[test]
    fn a_badge_says_what_it_means_in_this_run() {
        let device = |name: &str, kind| DeviceInfo {
            name: name.into(),
            kind,
            api: String::new(),
            driver: String::new(),
        };
        let says = |badge, devices: &[DeviceInfo]| meaning(badge, devices, "free", "8 × H100");
        let cpu = vec![device("cpu", DeviceKind::Host); 8];
        let one = vec![device("Radeon", DeviceKind::Discrete); 4];
        let own = ["a", "b"].map(|name| device(name, DeviceKind::Discrete));
        assert_eq!(
            says(Badge::Measured, &cpu),
            "MEASURED: clock time of this run; 8 ranks took turns on the CPU."
        );
        assert!(says(Badge::Measured, &one).ends_with("4 ranks took turns on 1 device."));
        assert!(says(Badge::Measured, &own).ends_with("each rank had its device."));
        assert_eq!(
            says(Badge::Replayed, &cpu),
            "REPLAYED: measured pieces, laid out as if every rank had its own device; links: free."
        );
        assert_eq!(says(Badge::Predicted, &[]), "PREDICTED: cost model of 8 × H100.");
        for badge in Badge::ALL {
            let text = says(badge, &cpu);
            assert!(text.starts_with(badge.word()) && text.chars().count() <= 120, "{text}");
        }
    }

    #[test]
    fn a_loss_is_counted_a_byte_only_where_the_data_are_bytes() {
        let marks = Marks { bytes: 3.3, pairs: 2.49 };
        assert_eq!(loss_unit(Some(marks)), "nats per byte");
        assert_eq!(loss_unit(None), "nats per token");
    }

    #[test]
    fn no_window_says_why_and_what_to_do() {
        assert_eq!(
            no_display(&["DISPLAY", "WAYLAND_DISPLAY"]),
            "No display found (DISPLAY and WAYLAND_DISPLAY are unset), so no window can open. \
             The same step in this terminal: shardlab. Pictures without a display: \
             shardlab-visualizer --screenshot out/"
        );
        assert!(no_adapter("none found").contains("mesa-vulkan-drivers"));
    }
}
