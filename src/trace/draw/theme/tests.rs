//! Goal: nobody needs one certain kind of eye or printer to tell roles apart. Method: colour
//! differences (CIEDE2000) of all pairs of roles as people with each kind of colour blindness see
//! them (Machado, Oliveira, Fernandes 2009, severity 1), contrasts of WCAG 2, and L* in print.

use super::*;
use crate::plan::Role as MemoryRole;

/// `[row][column]` on linear RGB: normal sight, protanopia, deuteranopia, tritanopia.
const SIGHTS: [(&str, [[f64; 3]; 3]); 4] = [
    ("normal", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protan",
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    ),
    (
        "deutan",
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ),
    (
        "tritan",
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ),
];

/// CIE L*a*b* under D65.
fn lab(colour: Rgb, sight: &[[f64; 3]; 3]) -> [f64; 3] {
    let linear = [colour.0, colour.1, colour.2].map(|channel| {
        let c = f64::from(channel) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    });
    let seen =
        sight.map(|row| row.iter().zip(linear).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0));
    let xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    .map(|row| row.iter().zip(seen).map(|(a, b)| a * b).sum::<f64>());
    let f = |t: f64| {
        if t > 216.0 / 24389.0 { t.cbrt() } else { (24389.0 / 27.0 * t + 16.0) / 116.0 }
    };
    let [x, y, z] = [f(xyz[0] / 0.95047), f(xyz[1]), f(xyz[2] / 1.08883)];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// CIEDE2000 (Sharma, Wu, Dalal 2005).
fn difference([l1, a1, b1]: [f64; 3], [l2, a2, b2]: [f64; 3]) -> f64 {
    let power = |c: f64| (c.powi(7) / (c.powi(7) + 25.0_f64.powi(7))).sqrt();
    let mean = f64::midpoint(a1.hypot(b1), a2.hypot(b2));
    let g = 0.5 * (1.0 - power(mean));
    let (a1, a2) = (a1 * (1.0 + g), a2 * (1.0 + g));
    let (c1, c2) = (a1.hypot(b1), a2.hypot(b2));
    let hue = |a: f64, b: f64| b.atan2(a).to_degrees().rem_euclid(360.0);
    let (h1, h2) = (hue(a1, b1), hue(a2, b2));
    let grey = c1 * c2 == 0.0;
    let turn = match h2 - h1 {
        _ if grey => 0.0,
        turn if turn > 180.0 => turn - 360.0,
        turn if turn < -180.0 => turn + 360.0,
        turn => turn,
    };
    let d_h = 2.0 * (c1 * c2).sqrt() * (turn / 2.0).to_radians().sin();
    let (l, c) = (f64::midpoint(l1, l2), f64::midpoint(c1, c2));
    let h = match h1 + h2 {
        sum if grey => sum,
        sum if (h1 - h2).abs() <= 180.0 => sum / 2.0,
        sum if sum < 360.0 => (sum + 360.0) / 2.0,
        sum => (sum - 360.0) / 2.0,
    };
    let cos = |degrees: f64| degrees.to_radians().cos();
    let t = 1.0 - 0.17 * cos(h - 30.0) + 0.24 * cos(2.0 * h) + 0.32 * cos(3.0 * h + 6.0)
        - 0.20 * cos(4.0 * h - 63.0);
    let turned = 30.0 * (-((h - 275.0) / 25.0).powi(2)).exp();
    let s_l = 1.0 + 0.015 * (l - 50.0).powi(2) / (20.0 + (l - 50.0).powi(2)).sqrt();
    let (s_c, s_h) = (1.0 + 0.045 * c, 1.0 + 0.015 * c * t);
    let rotation = -(2.0 * turned).to_radians().sin() * 2.0 * power(c);
    let (l, c, h) = ((l2 - l1) / s_l, (c2 - c1) / s_c, d_h / s_h);
    (l * l + c * c + h * h + rotation * c * h).sqrt()
}

/// What a block can be, each once: collectives share a paint, and are told apart by letters.
fn roles(theme: &Theme) -> Vec<(&'static str, Paint)> {
    let works = [
        Work::Forward,
        Work::Recompute,
        Work::Backward,
        Work::InputGrad,
        Work::WeightGrad,
        Work::Optimizer,
        Work::AllReduce,
        Work::Other,
    ];
    let works = works.map(|work| (work.letters(), theme.work(work)));
    works.into_iter().chain([("waiting", theme.waiting())]).collect()
}

fn pairs<T: Copy>(items: &[T]) -> impl Iterator<Item = (T, T)> + '_ {
    items.iter().enumerate().flat_map(|(i, a)| items[i + 1..].iter().map(|b| (*a, *b)))
}

const THEMES: [Theme; 3] = [Theme::LIGHT, Theme::DARK, Theme::PRINT];

#[test]
fn the_colour_difference_is_that_of_its_paper() {
    // Pairs 1, 7, 13, 17 and 25 of the supplement of Sharma, Wu and Dalal.
    let pairs = [
        ([50.0, 2.6772, -79.7751], [50.0, 0.0, -82.7485], 2.0425),
        ([50.0, 0.0, 0.0], [50.0, -1.0, 2.0], 2.3669),
        ([50.0, 2.5, 0.0], [50.0, 0.0, -2.5], 4.3065),
        ([50.0, 2.5, 0.0], [73.0, 25.0, -18.0], 27.1492),
        ([60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644),
    ];
    for (one, other, expected) in pairs {
        assert!((difference(one, other) - expected).abs() < 5e-5, "{one:?} {other:?}");
        assert!((difference(other, one) - expected).abs() < 5e-5);
    }
}

#[test]
fn roles_differ_for_normal_sight_and_three_kinds_of_colour_blindness() {
    for (theme, least) in [(Theme::LIGHT, 15.0), (Theme::DARK, 16.2)] {
        for (sight, matrix) in SIGHTS {
            for ((a, one), (b, other)) in pairs(&roles(&theme)) {
                let found = difference(lab(one.fill, &matrix), lab(other.fill, &matrix));
                assert!(
                    found >= least,
                    "{:?}, {sight}: {a} and {b} differ by {found:.2}",
                    theme.kind
                );
            }
        }
    }
}

#[test]
fn in_print_roles_differ_by_pattern_or_by_lightness() {
    for ((a, one), (b, other)) in pairs(&roles(&Theme::PRINT)) {
        for Rgb(red, green, blue) in [one.fill, other.fill] {
            assert!(red == green && green == blue, "{a}, {b}: print is grey");
        }
        let [one_l, other_l] = [one.fill, other.fill].map(|fill| lab(fill, &SIGHTS[0].1)[0]);
        let apart = (one_l - other_l).abs();
        assert!(apart >= 15.0 || one.pattern != other.pattern, "{a} and {b}: L* {apart:.1} apart");
    }
}

#[test]
fn every_text_is_read_on_its_fill_and_dark_fills_are_seen_on_their_ground() {
    for theme in THEMES {
        for (name, paint) in roles(&theme) {
            let contrast = paint.fill.contrast(paint.ink);
            assert!(contrast >= 4.5, "{:?}: {name} has {contrast:.2} : 1", theme.kind);
        }
        for ground in [theme.ground, theme.raised] {
            for ink in [theme.ink, theme.faint, theme.accent, theme.warning, theme.error] {
                let contrast = ground.contrast(ink);
                assert!(contrast >= 4.5, "{:?}: {ink:?} has {contrast:.2} : 1", theme.kind);
            }
        }
    }
    for (name, paint) in roles(&Theme::DARK).into_iter().filter(|(name, _)| *name != "waiting") {
        let contrast = paint.fill.contrast(Theme::DARK.ground);
        // To the one decimal in which it is agreed upon.
        assert!((contrast * 10.0).round() >= 33.0, "{name} has {contrast:.2} : 1 on dark");
    }
}

#[test]
fn pale_fills_on_light_have_an_edge_and_dark_ones_never() {
    for theme in THEMES {
        for (name, paint) in roles(&theme).into_iter().filter(|(name, _)| *name != "waiting") {
            let pale = paint.fill.contrast(theme.ground) < 3.0 && theme.kind != Kind::Dark;
            assert_eq!(paint.edge.is_some(), pale, "{:?}: {name}", theme.kind);
            if let Some(edge) = paint.edge {
                let [fill, edge] = [paint.fill, edge].map(|colour| lab(colour, &SIGHTS[0].1)[0]);
                // To the half that bytes leave open.
                let darker = fill - edge;
                assert!((darker - 25.0).abs() < 0.5, "{name}: L* {fill:.1} and {edge:.1}");
            }
        }
    }
}

#[test]
fn memory_wears_the_colour_of_the_work_that_it_serves() {
    for theme in THEMES {
        let fills = MemoryRole::ALL.map(|role| theme.memory(role).fill);
        for (a, b) in pairs(&fills) {
            assert_ne!(a, b);
        }
    }
}
