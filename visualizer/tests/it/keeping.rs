//! Goal: nothing that was done is lost, however the window ends. Method: change everything that is kept by
//! pointer, drop the window without closing it, and open another one from the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use eframe::egui;
use egui::accesskit::Role;
use egui::{Event, Key, Modifiers, Pos2, ViewportId, pos2};
use egui_kittest::kittest::Queryable as _;
use shardlab_visualizer::saved::{Saved, View};
use shardlab_visualizer::style::{Distance, Scheme};

use crate::window::{Opened, Window, sixty_four_ranks};

const NONE: Modifiers = Modifiers::NONE;

fn open(store: PathBuf, view: View) -> Window {
    let (scenario, store, scheme) = (sixty_four_ranks(), Some(store), view.scheme);
    Window::open(Opened { scenario, store, scheme, view, ..Opened::default() })
}

fn read(path: &Path) -> Saved {
    let (saved, warnings) = Saved::read(path).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    saved
}

fn click_on(window: &mut Window, label: &str) {
    let at = window.harness.get_by_label(label).rect().center();
    window.click(at);
}

fn drag(window: &mut Window, from: Pos2, to: Pos2, modifiers: Modifiers) {
    window.harness.hover_at(from);
    window.harness.event(Event::ModifiersChanged(modifiers));
    window.harness.drag_at(from);
    for part in [0.2, 0.5, 1.0] {
        window.harness.hover_at(from.lerp(to, part));
    }
    window.harness.drop_at(to);
    window.harness.event(Event::ModifiersChanged(NONE));
    window.frames(2);
}

/// Everything that a pointer can change of what is kept, each time another thing.
fn change(window: &mut Window) -> Vec<(&'static str, View)> {
    let mut views = vec![("nothing", window.app().saved().view.unwrap())];
    let mut after = |what, window: &Window| views.push((what, window.app().saved().view.unwrap()));
    click_on(window, "Pause, training as well (Space).");
    click_on(window, "keep training");
    after("training while paused", window);
    click_on(window, "Slower (,).");
    after("the speed", window);
    click_on(window, "Light or dark.");
    after("the colours", window);
    // From here on nothing that a key could do as well.
    let zones = *window.app().zones();
    let divider = zones.divider.centre();
    let at = pos2(divider.x, divider.y);
    drag(window, at, pos2(at.x, at.y - 40.0), NONE);
    after("a divider", window);
    click_on(window, "Memory");
    after("a tab", window);
    let line = |window: &Window, part: f32| {
        let zone = window.app().zones().timeline;
        let right = zone.right() - 132.0;
        pos2(zone.left + 132.0 + part * (right - zone.left - 132.0), zone.top + 60.0)
    };
    let (from, to) = (line(window, 0.1), line(window, 0.4));
    drag(window, from, to, Modifiers::SHIFT);
    after("marked time", window);
    let block = window.harness.get_all_by_role(Role::ListItem).next();
    let at = block.expect("a block is in sight").rect().center();
    window.click(at);
    after("a block and its details", window);
    let zone = window.app().zones().timeline;
    window.click(pos2(zone.left + 40.0, zone.top + 60.0));
    after("an open group", window);
    window.harness.hover_at(line(window, 0.5));
    window.frames(1);
    window.harness.event(Event::Zoom(2.0));
    window.frames(2);
    after("a part of the time", window);
    views
}

#[test]
fn what_was_done_with_the_pointer_is_there_again_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("visualizer.toml");
    let mut window = open(path.clone(), View::new(Scheme::Light, Distance::Desk));
    let views = change(&mut window);
    for pair in views.windows(2) {
        assert_ne!(pair[0].1, pair[1].1, "{} changes what is kept", pair[1].0);
    }
    // Half a second later all of it is on the disk, and nobody has closed the window.
    window.frames(40);
    let before = window.app().saved();
    drop(window);
    let saved = read(&path);
    assert_eq!(saved, before);
    let view = saved.view.unwrap();
    assert_eq!((view.scheme, view.unfolded.len()), (Scheme::Dark, 1));
    assert!(view.marked.is_some() && view.window.is_some() && view.selection.is_some());
    let window = open(path, view);
    assert_eq!(window.app().saved(), before);
}

#[test]
fn each_single_change_is_written_without_another_one_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("visualizer.toml");
    let mut window = open(path.clone(), View::default());
    window.press(NONE, Key::Space);
    window.frames(40);
    for (tab, number) in [("Memory", 1), ("Collective", 2), ("Wires", 0)] {
        click_on(&mut window, tab);
        // At once where nothing was written a moment ago, or else soon: a frame is asked for.
        if read(&path).view.unwrap().left_tab != number {
            let delay = window.harness.output().viewport_output[&ViewportId::ROOT].repaint_delay;
            assert!(delay <= Duration::from_millis(500), "{tab}: {delay:?}");
        }
        window.frames(32);
        assert_eq!(read(&path).view.unwrap().left_tab, number, "{tab}");
    }
    // Then the window stands still again, and the disk is left alone.
    let written = || std::fs::metadata(&path).unwrap().modified().unwrap();
    window.hover(4.0, 400.0);
    let before = written();
    window.assert_stands_still(40);
    window.hover(300.0, 240.0);
    window.hover(500.0, 250.0);
    window.frames(40);
    assert_eq!(written(), before, "pointing changes nothing that is kept");
}
