//! Pictures without a display: every view, in all themes and sizes, with and without an adapter,
//! and animations that play.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use shardlab::config::layout::ZeroStage;
use shardlab::config::{Layout, Scenario, ScheduleName};
use shardlab::train::Options;
use shardlab_visualizer::app::Wish;
use shardlab_visualizer::args::{Format, Scale, Size};
use shardlab_visualizer::export::parts::Part;
use shardlab_visualizer::export::raster::Image;
use shardlab_visualizer::headless::{self, Painter, Run, Shots, Take, Told};
use shardlab_visualizer::panels::COLLECTIVE;
use shardlab_visualizer::saved::View;
use shardlab_visualizer::shown::Side;
use shardlab_visualizer::style::{Distance, Scheme};

use crate::pixels::{TOLERANCE, assert_same, off, read};
use crate::window::eight_ranks;

const STEP: u64 = 2;

fn run(scheme: Scheme) -> Run {
    // Few GPUs: all their layouts are searched in a moment.
    let mut wish = Wish { model: "llama-3-8b".into(), gpus: 8, batch: 8, ..Wish::default() };
    wish.layout.pp = 1;
    let view = View { plan: wish, ..View::new(scheme, Distance::Desk) };
    let options = Options::on_cpu();
    Run { scenario: eight_ranks(), options, view, at: STEP, trace: None }
}

/// Takes pictures of all views into a folder.
fn take(
    folder: &Path,
    scheme: Scheme,
    size: Size,
    painter: Result<Painter, String>,
) -> BTreeMap<String, Image> {
    let shots = Shots {
        run: run(scheme),
        parts: Part::all(),
        format: Format::Png,
        size,
        scale: Scale(1.0),
        folder: folder.to_owned(),
    };
    headless::take(shots, painter, |_| ()).unwrap();
    let of = |(_, name): (Part, String)| {
        let file = format!("shakespeare-small_{name}_{STEP}.png");
        (name, read(&folder.join(file)))
    };
    Part::all().into_iter().map(of).collect()
}

#[test]
fn every_view_is_a_picture_of_its_own_in_both_themes_at_two_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [Size { width: 800, height: 480 }, Size::WINDOW];
    for (scheme, dark) in [(Scheme::Light, false), (Scheme::Dark, true)] {
        for size in sizes {
            let pictures = take(folder.path(), scheme, size, Painter::open());
            for (name, picture) in &pictures {
                assert_eq!(
                    (picture.width, picture.height),
                    (size.width.into(), size.height.into())
                );
                let mean = picture.rgba.iter().map(|byte| u64::from(*byte)).sum::<u64>()
                    / picture.rgba.len() as u64;
                // A quarter of all bytes is opaque alpha.
                assert_eq!(mean < 150, dark, "{name} is {mean} bright");
            }
            if size != Size::WINDOW {
                // Where the band is closed, the timeline has all the room already.
                continue;
            }
            let all: Vec<_> = pictures.iter().collect();
            for (index, (name, picture)) in all.iter().enumerate() {
                for (other_name, other) in &all[index + 1..] {
                    assert!(off(picture, other) > TOLERANCE, "{name} looks like {other_name}");
                }
            }
        }
    }
}

#[test]
fn without_an_adapter_the_same_views_come_from_vector_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let mut why = None;
    let shots = Shots {
        run: run(Scheme::Light),
        parts: Part::all(),
        format: Format::Png,
        size: Size::WINDOW,
        scale: Scale(2.0),
        folder: folder.path().to_owned(),
    };
    let mut written = Vec::new();
    headless::take(shots, Err("none here".into()), |told| match told {
        Told::Written(path) => written.push(path.to_owned()),
        Told::NoAdapter(reason) => why = Some(reason.to_owned()),
        Told::Trained(..) => {}
        Told::Estimate(_) | Told::Painted(..) => panic!("no animation was asked for"),
    })
    .unwrap();
    assert_eq!(why.as_deref(), Some("none here"));
    assert_eq!(written.len(), 2 * Part::all().len());
    for pair in written.chunks(2) {
        let svg = std::fs::read_to_string(&pair[0]).unwrap();
        // Explanation, figures and transport are in it as texts.
        let plans = pair[0].display().to_string().contains("_plan_");
        let texts = match plans {
            true => ["PREDICTED", "of 2 trained", "Memory"],
            false => ["REPLAYED", "COUNTED", "Peak memory"],
        };
        for text in texts {
            assert!(svg.contains(text), "{}: {text}", pair[0].display());
        }
        // A collective comes with its numbers, and not with the button that asks for them.
        assert!(!svg.contains("Run a step for its numbers"), "{}", pair[0].display());
        let image = read(&pair[1]);
        assert_eq!((image.width, image.height), (2560, 1600));
    }
}

#[test]
fn an_animation_plays_back_as_it_was_announced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step.gif");
    let size = Size { width: 800, height: 480 };
    let mut announced = None;
    let take = Take { run: run(Scheme::Light), size, path: path.clone() };
    let bytes = headless::record(take, |told| {
        if let Told::Estimate(estimate) = told {
            announced = Some(estimate);
        }
    })
    .unwrap();
    let announced = announced.expect("the estimate comes first");
    let file = std::fs::read(&path).unwrap();
    assert_eq!(file.len() as u64, bytes.0);
    let ratio = file.len() as f64 / announced.bytes as f64;
    assert!((0.2..5.0).contains(&ratio), "{} bytes, announced {announced}", file.len());
    let mut reader = gif::DecodeOptions::new().read_info(&file[..]).unwrap();
    assert_eq!((reader.width(), reader.height()), (size.width, size.height));
    let (mut frames, mut moving) = (0, 0);
    while let Some(frame) = reader.read_next_frame().unwrap() {
        frames += 1;
        moving += usize::from(frame.width > 1);
    }
    assert_eq!(frames, announced.frames);
    // All but the rest at the end.
    assert!(moving + 10 > frames && moving < frames, "{moving} of {frames} frames move");
}

#[test]
fn with_times_from_a_file_the_same_words_give_the_same_pixels_and_one_block_is_seen() {
    use shardlab::sim;
    use shardlab::trace::export::Recording;
    use shardlab_visualizer::run::Run as Told;

    // A recording as the command line writes it, from the steps of another run.
    let scenario = eight_ranks();
    let mut told = Told::told(scenario.clone());
    for event in crate::window::recording(&scenario) {
        told.absorb(event.clone());
    }
    let facts = told.facts().unwrap();
    let measured = told.measured(STEP).unwrap();
    let replayed = sim::replay_medians(&facts.plan, &facts.graph, &[measured], &sim::Wires::free());
    let recording = Recording {
        measured: Some(measured.as_ref().clone()),
        replayed: Some(replayed),
        ..Recording::of("a run", Vec::new(), &facts.plan)
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("step.json");
    std::fs::write(&file, serde_json::to_string(&recording).unwrap()).unwrap();

    let take = |name: &str| {
        let run = Run { trace: Some(file.clone()), ..run(Scheme::Light) };
        let folder = folder.path().join(name);
        let shots = Shots {
            run,
            parts: Part::named(&["watch".into()]).unwrap(),
            format: Format::Png,
            size: Size::WINDOW,
            scale: Scale(1.0),
            folder: folder.clone(),
        };
        headless::take(shots, Painter::open(), |_| ()).unwrap();
        read(&folder.join(format!("shakespeare-small_watch_{STEP}.png")))
    };
    let (one, other) = (take("one"), take("other"));
    assert_same(&one, &other);

    // One block of the first row in another colour must be seen, also the smallest of its kind.
    let (forward, other_fill) = ([0x1E, 0x49, 0x99], [0x49, 0x7D, 0x40]);
    let blocks = runs(&one, forward);
    assert!(blocks.len() >= 4, "{} forwards in the first row", blocks.len());
    for block in &blocks {
        let mut recoloured = one.clone();
        for &(x, y) in block {
            let at = 4 * (y * one.width as usize + x);
            recoloured.rgba[at..at + 3].copy_from_slice(&other_fill);
        }
        let (off, count) = (off(&one, &recoloured), block.len());
        let of = (one.width * one.height) as f64;
        assert!((off - count as f64 / of).abs() < 1e-9, "{count} pixels are {off} off");
        assert!(off > TOLERANCE, "a block of {count} pixels in another colour is {off} off");
    }
}

/// The connected stretches of a colour in the first row of blocks, as pixels; crumbs beside letters
/// belong to what they touch.
fn runs(picture: &Image, colour: [u8; 3]) -> Vec<Vec<(usize, usize)>> {
    let width = picture.width as usize;
    let is_it = |x: usize, y: usize| picture.rgba[4 * (y * width + x)..][..3] == colour;
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in (156..196).flat_map(|y| (132..1148).map(move |x| (x, y))) {
        if !is_it(start.0, start.1) || !seen.insert(start) {
            continue;
        }
        let (mut run, mut next) = (Vec::new(), vec![start]);
        while let Some((x, y)) = next.pop() {
            run.push((x, y));
            for near in [(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)] {
                let inside = (132..1148).contains(&near.0) && (156..196).contains(&near.1);
                if inside && is_it(near.0, near.1) && seen.insert(near) {
                    next.push(near);
                }
            }
        }
        found.push(run);
    }
    // The hole of an `o` is a crumb; a block is three points wide at least, and higher than a letter.
    found.retain(|run| run.len() > 60);
    found
}

#[test]
fn the_picture_of_a_collective_shows_one_with_its_numbers_in_every_layout() {
    let eight = eight_ranks();
    let of = |dp, tp, pp| Layout { dp, tp, pp, ..eight.layout.clone() };
    let zero_3 = Layout { zero: ZeroStage::Zero3, ..of(4, 1, 1) };
    let gpipe = Layout { schedule: ScheduleName::GPipe, ..of(1, 2, 2) };
    for layout in [of(4, 1, 1), of(1, 2, 1), of(2, 2, 2), zero_3, gpipe] {
        let folder = tempfile::tempdir().unwrap();
        let what = format!("{layout:?}");
        let scenario = Scenario { layout, ..eight.clone() };
        let shots = Shots {
            run: Run { scenario, ..run(Scheme::Light) },
            parts: vec![(Part::Tab(Side::Left, COLLECTIVE), "collective".into())],
            format: Format::Svg,
            size: Size::WINDOW,
            scale: Scale(1.0),
            folder: folder.path().to_owned(),
        };
        let mut written = Vec::new();
        headless::take(shots, Err("none here".into()), |told| {
            if let Told::Written(path) = told {
                written.push(path.to_owned());
            }
        })
        .unwrap();
        let svg = std::fs::read_to_string(&written[0]).unwrap();
        for text in ["Click a RS", "Run a step for its numbers", "does not run this"] {
            assert!(!svg.contains(text), "{what}: {text}");
        }
        assert!(svg.contains("before round 1 of"), "{what}: {svg}");
    }
}
