//! The bar that says that there is more than is in sight, and which part of it that is.

use super::scene::Area;

/// Width of the bar, before scaling.
pub const WIDTH: f32 = 6.0;

/// Track and thumb at the right edge of `view`, where `content` is higher than that and `scrolled` of
/// it is hidden above. `None`: all is in sight.
pub fn bar(view: Area, (scrolled, content): (f32, f32), width: f32) -> Option<[Area; 2]> {
    let hidden = content - view.height;
    if hidden < 1.0 || view.height <= 0.0 {
        return None;
    }
    let (track, _) = view.cut_right(width.min(view.width));
    // Never so short that it is not seen.
    let least = (2.0 * width).min(track.height);
    let height = (track.height * view.height / content).max(least);
    let top = track.top + (track.height - height) * (scrolled / hidden).clamp(0.0, 1.0);
    Some([track, Area { top, height, ..track }.shrunk(width / 6.0, 0.0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumb_goes_from_end_to_end_and_is_there_only_where_something_is_hidden() {
        let view = Area::new(10.0, 20.0, 100.0, 200.0);
        assert_eq!(bar(view, (0.0, 200.0), WIDTH), None);
        let thumb = |scrolled, content| bar(view, (scrolled, content), WIDTH).expect("a bar")[1];
        assert_eq!(thumb(0.0, 400.0).top, 20.0);
        assert_eq!(thumb(200.0, 400.0).bottom(), 220.0);
        assert_eq!(thumb(100.0, 400.0).centre().y, 120.0);
        assert_eq!(thumb(0.0, 400.0).height, 100.0);
        assert_eq!(thumb(0.0, 1e6).height, 2.0 * WIDTH);
        let [track, thumb] = bar(view, (0.0, 400.0), WIDTH).expect("a bar");
        assert!(track.is_inside(view) && thumb.is_inside(track));
    }
}
