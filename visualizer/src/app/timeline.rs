//! The timeline in the window: paints the picture of the library and turns what pointer and wheel do
//! into commands.

use eframe::egui;
use egui::{CursorIcon, Id, PointerButton, Response, Role, Sense, WidgetInfo};
use shardlab::trace::draw::Block;
use shardlab::trace::draw::minimap::{self, MiniLayout, MiniMap};
use shardlab::trace::draw::scene::{
    Align, Area, Canvas, Face, Point, Scene, Shape, Sketch, Text, line_height,
};
use shardlab::trace::draw::theme::{Rgb, Theme};
use shardlab::trace::draw::timeline::{
    Frame, Layout, Legend, MemoryColumn, RowBox, RowKind, Shows, Target, Timeline, draw,
    draw_legend,
};
use shardlab::trace::{Badge, Span};
use shardlab::units::Nanos;

use super::window;
use crate::board::{Board, Style};
use crate::paint::{self, Fonts};
use crate::run::State;
use crate::shown::{Command, Revealed, Shared, Sight, Step};
use crate::style::Look;
use crate::texts;

/// Windows narrower than this have no room for the column of memory.
const NARROW: f32 = 1100.0;
/// Blocks that a screen reader is told of at most.
const READ_MOST: usize = 600;

/// A timeline of the window; keeps nothing but what the pointer began.
#[derive(Debug, Default)]
pub(super) struct TimelinePart {
    drag: Option<Drag>,
    /// Where the blocks lay in the last frame: zooming by key is around the pointer.
    under_pointer: Option<Nanos>,
}

/// What was begun with the pointer.
#[derive(Clone, Copy, Debug)]
enum Drag {
    /// The playhead is moved.
    Seek,
    /// The window of time is moved: where it was, and where the pointer was.
    Pan(Span, f32),
    /// A stretch of time is marked: where that began.
    Mark(Nanos),
}

/// What is seen in a timeline, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// What it is called for screen readers, and tells it from all others.
    pub(super) name: &'static str,
    /// The step.
    pub(super) timeline: &'a Timeline,
    /// Where its times come from.
    pub(super) badge: Badge,
    /// Where its time axis ends.
    pub(super) end: Nanos,
    /// What is chosen and pointed at in it.
    pub(super) sight: &'a Sight,
    /// The instant that is being shown, if one is.
    pub(super) playhead: Option<Nanos>,
    /// Whether memory is shown beside the rows.
    pub(super) memory: MemoryColumn,
    /// Whether roles are explained below.
    pub(super) legend: Legend,
    /// Whether it is what is asked for.
    pub(super) age: Age,
}

/// Whether a step is what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It is.
    Now,
    /// It is what was asked for before: shown faintly until there is the one that is.
    Before,
}

impl Seen<'_> {
    /// The part of the step that is as wide as the timeline.
    fn window(&self) -> Span {
        self.sight.window.unwrap_or(Span { start: Nanos(0), end: self.end })
    }

    fn frame(&self, area: Area) -> Frame<'_> {
        let window = self.window();
        Frame {
            area,
            window: (window.start, window.end),
            scroll: self.sight.scroll,
            open: &self.sight.open,
            playhead: self.playhead,
            selected: self.sight.selection,
            hovered: self.sight.hover,
            arrows: self.sight.arrows,
            badge: self.badge,
            memory: self.memory,
            legend: self.legend,
        }
    }
}

/// Whether a timeline of this width has room for the column of memory.
pub(super) fn memory_column(width: f32, look: &Look) -> MemoryColumn {
    if width < NARROW * look.scale { MemoryColumn::Hidden } else { MemoryColumn::Shown }
}

impl TimelinePart {
    /// The instant under the pointer, if it is over the blocks.
    pub(super) fn under_pointer(&self) -> Option<Nanos> {
        self.under_pointer
    }

    /// Draws the timeline of the shown step, or what stands in for it until there is one.
    pub(super) fn show(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        shared: &Shared<'_>,
    ) -> Vec<Command> {
        let Some(step) = shared.step else {
            self.under_pointer = None;
            waiting(board, area, shared);
            return Vec::new();
        };
        let look = board.look();
        let map_height = 24.0 * look.scale;
        let (map, area) = match area.height >= 10.0 * map_height {
            true => area.cut_bottom(map_height),
            false => (Area::default(), area),
        };
        let seen = Seen {
            name: "Timeline",
            timeline: &step.timeline,
            badge: Badge::Replayed,
            end: shared.axis.end,
            sight: shared.sight,
            playhead: Some(shared.play.playhead()),
            memory: memory_column(area.width, &look),
            legend: Legend::Shown,
            age: Age::Now,
        };
        let mut steps = None;
        let mut commands = self.picture(board, area, &seen, |sketch, layout| {
            running(sketch, layout, shared);
            steps = mini_map(sketch, map, layout, shared);
        });
        if let Some(steps) = steps {
            let response = board.ui().interact(
                paint::rect(map),
                Id::unique("steps below"),
                Sense::click_and_drag(),
            );
            let chosen = response.interact_pointer_pos().and_then(|pos| steps.step_at(pos.x));
            // Steps are written as people count them.
            let chosen = chosen.map(|step| step - 1).filter(|step| *step != shown_step(shared));
            commands.extend(chosen.map(Command::SeekStep));
            let pointed = response.hover_pos().and_then(|pos| steps.step_at(pos.x));
            if let Some(pointed) = pointed {
                let oldest = shared.run.steps().oldest + 1;
                board.hint(match pointed < oldest {
                    true => format!(
                        "Step {pointed} has its loss alone: the times of steps are known from step \
                         {oldest} on."
                    ),
                    false => "The loss of the last 200 steps: press or drag to see a step again."
                        .to_owned(),
                });
            }
        }
        commands
    }

    /// Draws a timeline, and over it what else there is; what pointer and wheel ask for.
    pub(super) fn picture(
        &mut self,
        board: &mut Board<'_>,
        area: Area,
        seen: &Seen<'_>,
        over: impl FnOnce(&mut Sketch<'_>, &Layout),
    ) -> Vec<Command> {
        let look = board.look();
        let id = Id::unique(seen.name);
        let response = board.ui().interact(paint::rect(area), id, Sense::click_and_drag());
        let ctx = board.ctx().clone();
        let fonts = Fonts(&ctx);
        let canvas = Canvas { theme: &look.theme, measure: &fonts };
        let mut sketch = Sketch::new(canvas, area);
        let layout = draw(&mut sketch, seen.timeline, &seen.frame(area));
        over(&mut sketch, &layout);
        if seen.age == Age::Before {
            fade(&mut sketch.scene, &look.theme);
        }
        board.picture(&sketch.scene);
        let mut commands = Vec::new();
        if let Some(what) = seen.sight.reveal {
            commands.push(Command::Scroll(scroll_to(&layout, what)));
        }
        read_out(board.ui(), &response, &layout, seen);
        let at = response.hover_pos().map(|pos| Point { x: pos.x, y: pos.y });
        if let Some(text) = at.and_then(|at| beside_blocks(&layout, seen, at)) {
            board.hint(text);
        }
        commands.extend(self.pointer(board.ui(), &response, &layout, seen));
        commands
    }

    fn pointer(
        &mut self,
        ui: &egui::Ui,
        response: &Response,
        layout: &Layout,
        seen: &Seen<'_>,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        let at = response.hover_pos().map(|pos| Point { x: pos.x, y: pos.y });
        let hover = at.and_then(|at| layout.hit(seen.timeline, at));
        self.under_pointer =
            at.filter(|at| layout.track.contains(*at)).map(|at| layout.time_at(at.x));
        if hover != seen.sight.hover {
            commands.push(Command::Hover(hover));
        }
        if let Some(at) = at {
            if layout.ruler.contains(at) {
                ui.ctx().set_cursor_icon(CursorIcon::ResizeHorizontal);
            }
            wheel(ui, at, layout, seen, &mut commands);
        }
        self.dragging(ui, response, layout, seen, &mut commands);
        if let (true, Some(target)) = (response.secondary_clicked(), hover) {
            commands.push(Command::Menu(target, at));
        }
        if response.double_clicked() {
            let span = hover.and_then(|target| seen.timeline.span(&target));
            let window = span.and_then(|(_, span)| window::around(span, seen.end));
            commands.push(Command::Window(window));
        } else if response.clicked() && !at.is_some_and(|at| layout.ruler.contains(at)) {
            match hover {
                Some(Target::Position(position)) => commands.push(Command::Unfold(position)),
                _ => commands.push(Command::Select(hover)),
            }
        }
        commands
    }

    fn dragging(
        &mut self,
        ui: &egui::Ui,
        response: &Response,
        layout: &Layout,
        seen: &Seen<'_>,
        commands: &mut Vec<Command>,
    ) {
        let Some(pos) = response.interact_pointer_pos() else {
            self.drag = None;
            return;
        };
        let time = layout.time_at(pos.x);
        if self.drag.is_none() {
            let origin = ui.input(|input| input.pointer.press_origin()).unwrap_or(pos);
            let on_ruler = layout.ruler.contains(Point { x: origin.x, y: origin.y });
            let near = seen.playhead.is_some_and(|at| (layout.x_at(at) - origin.x).abs() <= 4.0);
            let in_track = layout.track.contains(Point { x: origin.x, y: origin.y });
            self.drag = if on_ruler || (in_track && near && response.dragged()) {
                Some(Drag::Seek)
            } else if !(in_track && response.drag_started_by(PointerButton::Primary)) {
                None
            } else if ui.input(|input| input.modifiers.shift) {
                Some(Drag::Mark(layout.time_at(origin.x)))
            } else {
                Some(Drag::Pan(seen.window(), origin.x))
            };
        }
        match self.drag {
            Some(Drag::Seek) => commands.push(Command::Seek(time)),
            Some(Drag::Pan(from, x)) => {
                let per_point = from.duration().0 as f64 / f64::from(layout.track.width.max(1.0));
                let by = -f64::from(pos.x - x) * per_point;
                let moved = window::panned(from, by, seen.end);
                if moved.is_some() {
                    commands.push(Command::Window(moved));
                }
            }
            Some(Drag::Mark(from)) => {
                let span = Span { start: from.min(time), end: from.max(time) };
                commands.push(Command::Mark(Some(span).filter(|s| s.start < s.end)));
            }
            None => {}
        }
    }
}

/// Draws a legend of its own place: of several pictures, or of one to which something was added.
pub(super) fn legend(board: &mut Board<'_>, area: Area, shows: &Shows) {
    let look = board.look();
    let ctx = board.ctx().clone();
    let fonts = Fonts(&ctx);
    let mut sketch = Sketch::new(Canvas { theme: &look.theme, measure: &fonts }, area);
    draw_legend(&mut sketch, area, shows);
    board.picture(&sketch.scene);
}

/// Makes a picture faint, down to its texts: all that can be read can be read still.
fn fade(scene: &mut Scene, theme: &Theme) {
    /// What is left of a colour.
    const LEFT: f32 = 0.3;
    let faded = |colour: &mut Rgb| *colour = theme.ground.mixed(*colour, LEFT);
    for shape in &mut scene.shapes {
        match shape {
            Shape::Fill { fill, pattern, edge, .. } => {
                faded(fill);
                pattern.iter_mut().for_each(|(_, ink)| faded(ink));
                edge.iter_mut().for_each(faded);
            }
            Shape::Line { ink, .. } => faded(ink),
            Shape::Polygon { fill, .. } | Shape::Dot { fill, .. } => faded(fill),
            Shape::Label(label) => {
                let is_on_ground = label.ground == theme.ground;
                faded(&mut label.ground);
                label.ink = if is_on_ground { theme.faint } else { theme.ink };
            }
        }
    }
}

/// What the ruler and the place behind the step are for.
fn beside_blocks(layout: &Layout, seen: &Seen<'_>, at: Point) -> Option<&'static str> {
    if layout.ruler.contains(at) {
        return Some(match seen.playhead {
            Some(_) => {
                "Drag to move the playhead. 0 shows the whole step, its axis as short as it can be."
            }
            None => "0 shows the whole step, its axis as short as it can be.",
        });
    }
    let is_behind = layout.track.contains(at) && layout.time_at(at.x) >= seen.timeline.end();
    is_behind.then_some(
        "The step is over here: the axis holds the longest of the last steps. 0 shortens it.",
    )
}

fn wheel(ui: &egui::Ui, at: Point, layout: &Layout, seen: &Seen<'_>, commands: &mut Vec<Command>) {
    let (scroll, zoom, shift) =
        ui.input(|input| (input.smooth_scroll_delta, input.zoom_delta(), input.modifiers.shift));
    let (view, end) = (seen.window(), seen.end);
    let time = layout.time_at(at.x);
    let hidden = layout.hidden();
    if zoom != 1.0 {
        commands.push(Command::Window(window::zoomed(view, f64::from(zoom), time, end)));
    } else if scroll.x != 0.0 || (shift && scroll.y != 0.0) {
        let points = if scroll.x != 0.0 { scroll.x } else { scroll.y };
        let per_point = view.duration().0 as f64 / f64::from(layout.track.width.max(1.0));
        let moved = window::panned(view, -f64::from(points) * per_point, end);
        commands.push(Command::Window(moved));
    } else if scroll.y != 0.0 && hidden > 0.0 {
        let to = (seen.sight.scroll - scroll.y).clamp(0.0, hidden);
        commands.push(Command::Scroll(to));
    } else if scroll.y != 0.0 {
        let factor = (f64::from(scroll.y) / 200.0).exp();
        commands.push(Command::Window(window::zoomed(view, factor, time, end)));
    }
}

/// A step that has run for long: hatching behind the shown one, for as much room as there is.
fn running(sketch: &mut Sketch<'_>, layout: &Layout, shared: &Shared<'_>) {
    let (Some(step), Some(shown)) = (shared.running, shared.step) else { return };
    let left = layout.x_at(shown.timeline.end()).max(layout.track.left);
    let track = layout.track;
    let area = Area::new(left, track.top, track.right() - left, track.height).shrunk(6.0, 6.0);
    let theme = *sketch.theme();
    if area.width < theme.label_size {
        return;
    }
    let paint = theme.waiting();
    let pattern = paint.pattern.map(|pattern| (pattern, paint.pattern_ink));
    sketch.push(Shape::Fill { area, fill: paint.fill, pattern, edge: None, corner: 0.0 });
    let (band, _) = area.cut_top(line_height(theme.label_size) + 8.0);
    plate(sketch, band, &texts::running(step));
}

/// A text in the middle of a picture, on a ground of its own; none where there is no room.
pub(super) fn plate(sketch: &mut Sketch<'_>, within: Area, text: &str) {
    let theme = *sketch.theme();
    let (size, ink, ground) = (theme.label_size, theme.ink, theme.ground);
    let width = sketch.canvas.measure.width(text, size, Face::Sans) + 12.0;
    let height = line_height(size) + 4.0;
    if width > within.width || height > within.height {
        return;
    }
    let centre = within.centre();
    let plate = Area::new(centre.x - width / 2.0, centre.y - height / 2.0, width, height);
    sketch.fill(plate, ground);
    sketch.label(plate, Text { text, size, face: Face::Sans, align: Align::Middle, ink, ground });
}

/// The last steps below the rows, in their columns; nothing where there is no room.
fn mini_map(
    sketch: &mut Sketch<'_>,
    area: Area,
    layout: &Layout,
    shared: &Shared<'_>,
) -> Option<MiniLayout> {
    if area.height == 0.0 {
        return None;
    }
    let column = |above: Area| Area { left: above.left, width: above.width, ..area };
    let steps = shared.run.steps();
    let values: Vec<f64> = shared.run.losses().iter().map(|(_, loss)| *loss).collect();
    let map = MiniMap {
        name: "loss",
        first: shared.run.losses().first().map_or(0, |(step, _)| *step) + 1,
        values: &values,
        shown: Some(shown_step(shared) + 1),
        // Those before something was broken ran another Plan, and older ones are known no more.
        brush: (steps.oldest > 0 && steps.newest.is_some()).then_some(steps.oldest + 1..u64::MAX),
    };
    let bars = column(layout.track).shrunk(0.0, 3.0);
    let (names, memory) = (column(layout.labels), layout.memory.map(column));
    Some(minimap::draw(sketch, &map, bars, names, memory))
}

/// The step on the screen, 0-based.
fn shown_step(shared: &Shared<'_>) -> u64 {
    shared.step.map_or(0, Step::number)
}

/// How far rows must be scrolled for something to be in sight.
fn scroll_to(layout: &Layout, what: Revealed) -> f32 {
    let is_it = |row: &&RowBox| match (what, row.kind) {
        (Revealed::Rows(position), RowKind::Heading { position: other }) => position == other,
        (Revealed::Rank(rank), RowKind::Rank(other) | RowKind::Group { shown: other, .. }) => {
            rank == other || row.lines.as_ref().is_some_and(|lines| lines.ranks.contains(&rank))
        }
        (Revealed::Rows(_), _) | (Revealed::Rank(_), RowKind::Heading { .. }) => false,
    };
    let Some(row) = layout.rows.iter().find(is_it) else { return layout.scrolled };
    let (above, below) =
        (row.area.top - layout.track.top, row.area.bottom() - layout.track.bottom());
    let by = match what {
        // The heading is the first one in sight.
        Revealed::Rows(_) => above,
        Revealed::Rank(_) => above.min(0.0) + below.max(0.0),
    };
    (layout.scrolled + by).clamp(0.0, layout.hidden())
}

/// What stands there before the first step: what is done just now, and how far it is.
fn waiting(board: &mut Board<'_>, area: Area, shared: &Shared<'_>) {
    let look = board.look();
    board.fill(area, look.theme.track);
    let (text, part) = match shared.run.state() {
        State::Starting(progress) => (format!("{progress} …"), progress.fraction()),
        State::Failed(why) => (why.to_string(), None),
        State::Held => ("Paused before the first step. Space starts.".into(), None),
        State::NotFinite { .. } | State::Hang { .. } => {
            ("No step has ended, so there is none to show.".into(), None)
        }
        State::Training | State::Done => {
            ("The first steps run: one is shown here in a moment.".into(), None)
        }
    };
    let middle = area.shrunk(look.gap(4), (area.height - look.gap(16)) / 2.0);
    let (line, below) = middle.cut_top(look.heading() * 1.6);
    let style = Style::sized(look.heading()).middle().on(look.theme.track);
    board.write(line, &text, style);
    let (bar, below) = below.cut_top(look.gap(2)).1.cut_top(look.gap(1));
    if let Some(part) = part {
        let bar = bar.shrunk((bar.width - 320.0 * look.scale).max(0.0) / 2.0, 0.0);
        board.fill(bar, look.theme.rule);
        board.fill(Area { width: bar.width * part, ..bar }, look.theme.ink);
    }
    if let Some(seconds) = shared.starting.filter(|seconds| *seconds > 0) {
        let clock = format!("{seconds} s {}", Badge::Measured.word());
        let style = Style::sized(look.small()).middle().ink(look.theme.faint);
        board.write(below, &clock, style.on(look.theme.track));
    }
}

/// Tells a screen reader of the blocks in sight, in the order in which the playhead meets them.
fn read_out(ui: &egui::Ui, response: &Response, layout: &Layout, seen: &Seen<'_>) {
    let timeline = seen.timeline;
    let now = timeline.now(seen.playhead.unwrap_or_default());
    let list = ui.ctx().accesskit_node_builder(response.id, |node| {
        node.set_role(Role::List);
        node.set_label(seen.name);
        node.set_value(now);
        if let Some(longest) = timeline.longest_wait() {
            node.set_description(longest);
        }
    });
    if list.is_none() {
        return;
    }
    let (start, end) = layout.window;
    let mut blocks: Vec<_> = layout
        .visible()
        .filter_map(|row| match row.kind {
            RowKind::Rank(rank) | RowKind::Group { shown: rank, .. } => Some((row, rank)),
            RowKind::Heading { .. } => None,
        })
        .flat_map(|(row, rank)| {
            let in_sight = move |block: &&Block| block.end > start && block.start < end;
            timeline.blocks(rank).iter().filter(in_sight).map(move |block| (row, rank, block))
        })
        .collect();
    blocks.sort_by_key(|(_, rank, block)| (block.start, *rank));
    for (row, rank, block) in blocks.into_iter().take(READ_MOST) {
        let left = layout.x_at(block.start).max(layout.track.left);
        let right = layout.x_at(block.end).min(layout.track.right());
        let place = Area::new(left, row.blocks.top, right - left, row.blocks.height);
        let id = response.id.with((rank.0, block.start.0));
        let rect = paint::rect(place);
        let read = ui.interact(rect, id, Sense::hover());
        let middle = Nanos(block.start.0.midpoint(block.end.0));
        let Some(target) = timeline.target_at(rank, layout.level, middle) else { continue };
        let text = timeline.explain(&target);
        read.widget_info(|| WidgetInfo::labeled(Role::ListItem, true, &text));
    }
}
