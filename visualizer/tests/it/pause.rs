//! Goal: paused means that nothing moves, and steps forward and back lead to the same picture.
//! Method: compare pictures and count repaints.

use eframe::egui;
use egui::{Key, Modifiers};
use shardlab_visualizer::play::Mode;

use crate::window::{Opened, Window};

fn picture(window: &mut Window) -> Vec<u8> {
    window.harness.render().unwrap().into_raw()
}

#[test]
fn a_paused_window_stands_still_and_asks_for_no_frame() {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::NONE, Key::Space);
    assert_eq!(window.app().play().mode(), Mode::Paused);
    let trained = window.app().run().trained();
    window.assert_stands_still(60);
    let before = picture(&mut window);
    assert_eq!(window.app().run().trained(), trained);
    window.press(Modifiers::NONE, Key::Space);
    window.frames(30);
    assert!(picture(&mut window) != before, "and moves when it plays on");
}

#[test]
fn as_many_steps_back_as_forward_give_the_same_picture() {
    let mut window = Window::open(Opened::default());
    window.press(Modifiers::NONE, Key::Home);
    for modifiers in [Modifiers::NONE, Modifiers::SHIFT, Modifiers::ALT, Modifiers::COMMAND] {
        for _ in 0..3 {
            window.press(modifiers, Key::ArrowLeft);
        }
        let (at, step) = (window.app().play().playhead(), window.app().step().unwrap().number());
        let before = picture(&mut window);
        for _ in 0..5 {
            window.press(modifiers, Key::ArrowLeft);
        }
        assert!(picture(&mut window) != before, "{modifiers:?} moves");
        for _ in 0..5 {
            window.press(modifiers, Key::ArrowRight);
        }
        let now = (window.app().play().playhead(), window.app().step().unwrap().number());
        assert_eq!(now, (at, step), "{modifiers:?}");
        assert!(picture(&mut window) == before, "{modifiers:?}");
    }
}

#[test]
fn looking_at_an_old_step_changes_nothing_but_what_is_shown() {
    let mut window = Window::open(Opened::default());
    let loss = window.app().run().losses().to_vec();
    for _ in 0..4 {
        window.press(Modifiers::COMMAND, Key::ArrowLeft);
    }
    let shown = window.app().step().unwrap().number();
    assert_eq!(shown + 1 + 4, window.app().run().trained());
    assert_eq!(window.app().run().losses(), loss);
    window.press(Modifiers::NONE, Key::F);
    assert_eq!(window.app().play().mode(), Mode::Live);
    assert_eq!(window.app().step().unwrap().number() + 1, window.app().run().trained());
}
