//! What software adapters are painted on with shows the same window as egui's own shader.

use eframe::egui;
use eframe::egui_wgpu::{RenderState, RendererOptions};
use egui_kittest::wgpu::{create_render_state, default_wgpu_setup};
use shardlab_visualizer::app::App;
use shardlab_visualizer::export::raster::Image;
use shardlab_visualizer::software::Software;
use shardlab_visualizer::style::{Distance, Scheme, colour};

use crate::pixels::{PAINTERS, assert_same, assert_within, off};
use crate::window::{Opened, Window};

/// The window as an adapter paints it on a ground of its own; `prepare` may install what paints.
fn painted(opened: Opened, prepare: impl FnOnce(&egui::Context, &RenderState, &App)) -> Image {
    let state = create_render_state(default_wgpu_setup(), RendererOptions::PREDICTABLE);
    let mut window = Window::open(Opened { painter: Some(state.clone()), ..opened });
    prepare(&window.harness.ctx, &state, window.app());
    window.frames(2);
    let ground = colour(window.app().look().theme.ground).to_array();
    let image = window.harness.render().unwrap();
    let (width, height) = (image.width(), image.height());
    let mut rgba = image.into_raw();
    // A window is cleared with its ground, this picture with nothing.
    for pixel in rgba.chunks_exact_mut(4) {
        let alpha = f32::from(pixel[3]) / 255.0;
        for (value, ground) in pixel.iter_mut().zip(ground) {
            let over = f32::from(*value) * alpha;
            *value = (over + f32::from(ground) * (1.0 - alpha)).round() as u8;
        }
        pixel[3] = u8::MAX;
    }
    Image::new(width, height, rgba)
}

fn look(ctx: &egui::Context, state: &RenderState, _: &App) {
    Software::install(ctx, state);
}

#[test]
fn the_window_looks_the_same_whoever_paints_it() {
    let looks = [
        (Scheme::Light, Distance::Desk, 1.0),
        (Scheme::Dark, Distance::Desk, 1.5),
        (Scheme::Print, Distance::Room, 1.0),
    ];
    for (scheme, distance, pixels_per_point) in looks {
        let opened = Opened { scheme, distance, pixels_per_point, ..Opened::default() };
        let by_egui = painted(opened.clone(), |_, _, _| ());
        assert_within(&by_egui, &painted(opened, look), PAINTERS);
    }
}

#[test]
fn a_ground_that_the_window_is_cleared_with_is_left_out_and_no_other() {
    let cleared_with = |ground: egui::Color32| {
        painted(Opened::default(), move |ctx, state, app| {
            look(ctx, state, app);
            Software::clears_with(ctx, ground);
        })
    };
    let whole = painted(Opened::default(), look);
    let ground = colour(shardlab::trace::draw::theme::Theme::LIGHT.ground);
    // Edges that were blended with nothing and then with the ground are a little off.
    assert!(off(&whole, &cleared_with(ground)) < 10.0 * PAINTERS);
    assert_same(&whole, &cleared_with(egui::Color32::RED));
    // Left out where it is not there, it would be seen.
    let track = colour(shardlab::trace::draw::theme::Theme::LIGHT.rule);
    assert_same(&whole, &cleared_with(track));
}
