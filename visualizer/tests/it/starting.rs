//! Goal: a run that starts slowly never looks like a window that hangs. Method: tell the window what a
//! driver tells while it compiles, and let time pass.

use std::time::Duration;

use eframe::egui::ViewportId;
use shardlab::exec::Progress;
use shardlab::trace::draw::scene::Area;
use shardlab::train::driver::Event;

use crate::window::{Opened, Window};

fn compiling(done: usize) -> Event {
    Event::Starting(Progress::Compiling { device: "Radeon 680M".into(), done, of: 38 })
}

/// What stands where the timeline will be.
fn written(window: &mut Window) -> Vec<String> {
    let written = window.audit().written().to_vec();
    let there = written.into_iter().filter(|text| text.zone == "timeline");
    there.map(|text| text.label.full).collect()
}

/// Lets time pass as on a machine that shows no frame meanwhile.
fn wait(window: &mut Window, seconds: f64) {
    let now = window.harness.ctx.input(|input| input.time);
    window.harness.input_mut().time = Some(now + seconds);
    window.frames(1);
}

#[test]
fn shaders_that_compile_are_counted_and_timed_and_the_clock_goes_on_by_itself() {
    for size in [(800.0, 480.0), (1280.0, 800.0)] {
        let mut window = Window::empty(Opened { size, ..Opened::default() });
        window.tell(compiling(0));
        window.frames(2);
        let fresh = written(&mut window);
        assert!(!fresh.iter().any(|text| text.contains("MEASURED")), "{fresh:?}");
        wait(&mut window, 7.2);
        window.tell(compiling(9));
        wait(&mut window, 5.0);
        let found = written(&mut window);
        assert_eq!(
            found,
            ["Compiling shaders for Radeon 680M, once for this driver: 9 of 38 …", "12 s MEASURED"]
        );
        assert_eq!(window.audit().faults(Area::sized(size.0, size.1), 12.0), Vec::<String>::new());
        // Nobody moves the pointer and nothing is told: the next second is shown all the same.
        window.frames(30);
        let delay = window.harness.output().viewport_output[&ViewportId::ROOT].repaint_delay;
        assert!(delay <= Duration::from_secs(1), "{delay:?}");
        wait(&mut window, 1.0);
        assert_eq!(written(&mut window)[1], "13 s MEASURED");
    }
}
