//! Goal: every number of time or share says where it comes from, and each such word what it means.
//! Method: point at all badges of all parts; hold each text that tells a time to a badge beside it.

use std::collections::BTreeSet;

use eframe::egui::{Key, Modifiers};
use shardlab::mesh::Rank;
use shardlab::trace::Badge;
use shardlab::trace::draw::theme::Kind;
use shardlab::trace::draw::timeline::Level;
use shardlab::units::Nanos;
use shardlab_visualizer::app::{Paper, Wanted};
use shardlab_visualizer::audit::Written;
use shardlab_visualizer::export::parts::Part;
use shardlab_visualizer::keys::Action;
use shardlab_visualizer::shown::{Command, Popup, Workspace};
use shardlab_visualizer::texts;

use crate::window::{Opened, Window};

/// The badge with which a text ends.
fn badge(text: &str) -> Option<Badge> {
    Badge::ALL.into_iter().find(|badge| text.ends_with(badge.word()))
}

/// Shows all parts of the window one after the other.
fn everything(mut hold: impl FnMut(&mut Window, &str)) {
    let mut window = Window::open(Opened::default());
    let step = window.app().step().unwrap();
    let block = step.timeline.target_at(Rank(0), Level::Pass, Nanos(0));
    let wait = step.timeline.target_at(Rank(4), Level::Pass, Nanos(0));
    window.press(Modifiers::NONE, Key::Space);
    for (name, target) in [("nothing", None), ("a block", block), ("a wait", wait)] {
        window.ask(Command::Select(target));
        for tab in 0..8 {
            window.ask(Command::Do(Action::Tab(tab)));
            window.frames(2);
            hold(&mut window, &format!("{name}, tab {tab}"));
        }
    }
    window.ask(Command::Toggle(Popup::Split));
    window.frames(2);
    hold(&mut window, "the split");
    window.ask(Command::Close);
    window.ask(Command::Do(Action::Workspace(Workspace::Compare)));
    while window.app().is_busy() {
        window.frames(1);
    }
    window.frames(2);
    hold(&mut window, "Compare");
    window.ask(Command::Do(Action::Workspace(Workspace::Plan)));
    while window.app().planned().is_predicting() {
        window.frames(1);
    }
    window.frames(2);
    hold(&mut window, "Plan");
}

#[test]
fn a_badge_that_is_pointed_at_says_what_it_means() {
    let mut seen = BTreeSet::new();
    everything(|window, state| {
        let written: Vec<Written> = window.audit().written().to_vec();
        for Written { zone, label } in written {
            // What lies over the window hides what is below it.
            let is_seen = match state {
                "the split" => zone.starts_with("over "),
                _ => zone != "explanation",
            };
            let Some(badge) = badge(&label.text).filter(|_| is_seen) else { continue };
            let at = label.area.centre();
            // The word itself, at the end of what it says.
            window.hover(label.area.right() - 2.0, at.y);
            let line = window.explanation();
            let begins = format!("{}: ", badge.word());
            assert!(line.starts_with(&begins), "{state}, {zone}, {}: {line}", label.text);
            seen.insert(badge.word());
        }
        window.hover(1.0, 1.0);
    });
    assert_eq!(seen.len(), Badge::ALL.len(), "{seen:?}");
}

#[test]
fn where_a_time_or_a_share_is_told_a_badge_says_where_it_comes_from() {
    let mut told = 0;
    everything(|window, state| {
        let written = window.audit().written();
        let badged: BTreeSet<&str> = written
            .iter()
            .filter(|text| Badge::ALL.iter().any(|badge| text.label.text.contains(badge.word())))
            .map(|text| text.zone)
            .collect();
        for Written { zone, label } in written {
            if texts::tells_time(&label.full) {
                assert!(badged.contains(zone), "{state}, {zone}: “{}” has no badge", label.full);
                told += 1;
            }
        }
    });
    assert!(told > 100, "{told}");
}

/// The same of pictures that leave the window.
#[test]
fn a_picture_whose_caption_tells_a_time_says_where_that_comes_from() {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::NONE, Key::Space);
    let step = window.app().step().unwrap();
    let wait = step.timeline.target_at(Rank(4), Level::Pass, Nanos(0));
    window.ask(Command::Select(wait));
    window.frames(2);
    let paper = Paper::default();
    for (part, name) in Part::all().into_iter().filter(|(part, _)| !matches!(part, Part::Window(_)))
    {
        let wanted = Wanted { part, kind: Kind::Light, size: (1280.0, 800.0), at: None };
        let svg = window.app_mut().drawing(&paper, wanted).svg(1.0);
        assert!(svg.contains(" (REPLAYED).</text>"), "{name}: {svg}");
    }
}
