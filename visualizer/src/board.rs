//! What every part of the chrome is drawn on: texts, buttons, tabs and sliders at fixed places.
//!
//! A [`Board`] collects a scene as the pictures do, so that all text goes through the same
//! [`Sketch::label`], and asks egui only what pointer, keyboard and screen reader do. A control
//! tells what it does in the explanation line while the pointer is over it: there are no tooltips
//! that could cover a row.

use eframe::egui;
use egui::{CursorIcon, Id, Response, Role, Sense, WidgetInfo};
use shardlab::trace::Badge;
use shardlab::trace::draw::scene::{
    Align, Area, Canvas, Dash, Face, Point, Scene, Shape, Sketch, Text,
};
use shardlab::trace::draw::theme::Rgb;

use crate::audit::Audit;
use crate::icon::{self, Icon};
use crate::paint::{self, Fonts};
use crate::style::{Look, Touch};

/// What the window is drawn with and what it tells back, shared by all parts.
#[derive(Debug)]
pub struct Desk {
    /// Colours and sizes.
    pub look: Look,
    /// All texts, if asked for.
    pub audit: Audit,
    /// What the pointer is over.
    pub pointed: Option<Pointed>,
    /// Whether a key was pressed after the pointer was moved last.
    pub by_keys: bool,
    /// The field that was left with Esc: it takes the focus again only when somebody gives it.
    pub left: Option<Id>,
}

impl Desk {
    /// Nothing was pointed at or left yet.
    pub fn new(look: Look, audit: Audit) -> Self {
        Self { look, audit, pointed: None, by_keys: false, left: None }
    }
}

/// What the pointer is over, for the line that explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointed {
    /// A control; what it does.
    Control(String),
    /// Something in a picture; what it is.
    Shown(String),
    /// The word that says where a number comes from.
    Badge(Badge),
}

/// A control.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    /// Tells it from all others.
    pub id: &'a str,
    /// What stands on it; empty where an icon says it.
    pub text: &'a str,
    /// What is drawn on it.
    pub icon: Option<Icon>,
    /// What it does: for the explanation line and for screen readers.
    pub hint: &'a str,
    /// Whether it stands for something that is on, and is.
    pub chosen: Chosen,
    /// Whether it can be pressed just now.
    pub reach: Reach,
}

/// Whether a control can be pressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// It can.
    #[default]
    Free,
    /// It is dim, and says why.
    Barred,
}

/// Whether a control stands for something that can be on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chosen {
    /// It is a plain button.
    #[default]
    Plain,
    /// It is off.
    Off,
    /// It is on.
    On,
}

impl From<bool> for Chosen {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl<'a> Control<'a> {
    /// A button with a text.
    pub fn text(id: &'a str, text: &'a str, hint: &'a str) -> Self {
        Self { id, text, icon: None, hint, chosen: Chosen::Plain, reach: Reach::Free }
    }

    /// A button with an icon.
    pub fn icon(id: &'a str, icon: Icon, hint: &'a str) -> Self {
        Self { id, text: "", icon: Some(icon), hint, chosen: Chosen::Plain, reach: Reach::Free }
    }

    /// The same for something that can be on.
    #[must_use]
    pub fn chosen(self, chosen: impl Into<Chosen>) -> Self {
        Self { chosen: chosen.into(), ..self }
    }

    /// The same, dim where there is a reason why it cannot be pressed: it tells that instead of what it
    /// does.
    #[must_use]
    pub fn unless(self, why: Option<&'a str>) -> Self {
        why.map_or(self, |hint| Self { hint, reach: Reach::Barred, ..self })
    }
}

/// One part of the window while it is drawn.
pub struct Board<'a> {
    ui: &'a mut egui::Ui,
    zone: &'static str,
    desk: &'a mut Desk,
    scene: Scene,
    ground: Rgb,
}

impl std::fmt::Debug for Board<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl<'a> Board<'a> {
    /// Begins to draw a part; `zone` names it in the record of texts.
    pub fn new(ui: &'a mut egui::Ui, desk: &'a mut Desk, zone: &'static str) -> Self {
        let ground = desk.look.theme.ground;
        Self { ui, zone, desk, scene: Scene::default(), ground }
    }

    /// Colours and sizes.
    pub fn look(&self) -> Look {
        self.desk.look
    }

    /// The egui context.
    pub fn ctx(&self) -> &egui::Context {
        self.ui.ctx()
    }

    /// What pointer and screen reader are asked through.
    pub fn ui(&self) -> &egui::Ui {
        self.ui
    }

    /// What is written from now on stands on this ground, which somebody else has filled.
    pub fn stand_on(&mut self, ground: Rgb) {
        self.ground = ground;
    }

    /// Fills an area; what is written from now on stands on this ground.
    pub fn ground(&mut self, area: Area, ground: Rgb) {
        self.ground = ground;
        self.fill(area, ground);
    }

    /// A plain rectangle.
    pub fn fill(&mut self, area: Area, fill: Rgb) {
        self.push(Shape::Fill { area, fill, pattern: None, edge: None, corner: 0.0 });
    }

    /// Any shape.
    pub fn push(&mut self, shape: Shape) {
        self.scene.shapes.push(shape);
    }

    /// A rule.
    pub fn rule(&mut self, from: Point, to: Point) {
        let ink = self.look().theme.rule;
        self.push(Shape::Line { points: vec![from, to], width: 1.0, ink, dash: Dash::Solid });
    }

    /// A thin upright rule between two groups of controls, with gaps; returns what is right of it.
    pub fn separator(&mut self, area: Area) -> Area {
        let gap = self.look().gap(2);
        let (rule, rest) = area.cut_left(2.0 * gap);
        let at = rule.centre();
        let (above, below) = (rule.shrunk(0.0, rule.height / 4.0).top, rule.height / 2.0);
        self.rule(Point { x: at.x, y: above }, Point { x: at.x, y: above + below });
        rest
    }

    /// Writes one line; returns the box of its glyphs.
    pub fn write(&mut self, within: Area, text: &str, style: Style) -> Option<Area> {
        let look = self.look();
        let ink = style.ink.unwrap_or(look.theme.ink);
        let text = Text {
            text,
            size: style.size.unwrap_or(look.body()),
            face: Face::Sans,
            align: style.align,
            ink,
            ground: style.ground.unwrap_or(self.ground),
        };
        let fonts = Fonts(self.ui.ctx());
        let canvas = Canvas { theme: &look.theme, measure: &fonts };
        let mut sketch = Sketch::new(canvas, within);
        let area = sketch.label(within, text);
        self.scene.shapes.append(&mut sketch.scene.shapes);
        area
    }

    /// How wide a text is.
    pub fn width(&self, text: &str, size: f32) -> f32 {
        use shardlab::trace::draw::scene::Measure as _;
        Fonts(self.ui.ctx()).width(text, size, Face::Sans)
    }

    /// How wide a button with this text is.
    pub fn button_width(&self, text: &str) -> f32 {
        let look = self.look();
        (self.width(text, look.body()) + look.gap(4)).ceil()
    }

    /// A badge: where a number comes from; returns its box.
    pub fn badge(&mut self, within: Area, badge: Badge) -> Option<Area> {
        let (size, faint) = (self.look().small(), self.look().theme.faint);
        self.write(within, badge.word(), Style::sized(size).ink(faint))
    }

    /// A button; whether it was pressed.
    pub fn button(&mut self, area: Area, control: Control<'_>) -> bool {
        let response = self.interact(area, control);
        let touch = self.touch(&response, control.chosen);
        let look = self.look();
        let (fill, rest) = match control.reach {
            Reach::Free => (look.control(touch), None),
            Reach::Barred => (self.ground, Some(look.theme.rule)),
        };
        let edge = response.has_focus().then_some(look.theme.accent).or(rest);
        let corner = look.gap(1);
        self.push(Shape::Fill { area, fill, pattern: None, edge, corner });
        self.face(area, control, fill);
        response.clicked()
    }

    /// A control that has no ground of its own until it is touched; whether it was pressed.
    pub fn flat_button(&mut self, area: Area, control: Control<'_>) -> bool {
        let (response, fill) = self.flat(area, control);
        self.face(area, control, fill);
        response.clicked()
    }

    /// How wide the button of a list is that opens below it.
    pub fn menu_width(&self, text: &str) -> f32 {
        let look = self.look();
        (self.width(text, look.body()) + look.gap(9)).ceil()
    }

    /// The button of a list that opens below it; whether it was pressed.
    pub fn menu(&mut self, area: Area, id: &str, text: &str, hint: &str) -> bool {
        let look = self.look();
        let arrow = look.gap(5);
        let pressed = self.flat_button(area, Control { text: "", ..Control::text(id, text, hint) });
        let (room, mark) = area.cut_left(area.width - arrow);
        self.write(room.shrunk(look.gap(2), 0.0), text, Style::default());
        let at = Point { x: mark.left + arrow / 2.0 - 2.0, y: mark.centre().y };
        let shapes = &mut self.scene.shapes;
        icon::draw(shapes, Icon::Down, at, look.small() * 0.8, look.theme.faint);
        pressed
    }

    /// Whether the pointer is over a place that is no control.
    pub fn is_over(&self, area: Area) -> bool {
        self.ui.rect_contains_pointer(paint::rect(area))
    }

    /// A text in lines of at most this width, broken at spaces.
    pub fn lines<'t>(&self, text: &'t str, size: f32, width: f32) -> Vec<&'t str> {
        let mut lines = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let fits = |text: &str| self.width(text, size) <= width;
            let spaces = rest.match_indices(' ').map(|(at, _)| at);
            let cut = match fits(rest) {
                true => rest.len(),
                // A single word that is wider stands alone, and is elided.
                false => {
                    let first = rest.find(' ').unwrap_or(rest.len());
                    spaces.take_while(|at| fits(&rest[..*at])).last().unwrap_or(first)
                }
            };
            let (line, below) = rest.split_at(cut);
            lines.push(line);
            rest = below.trim_start();
        }
        lines
    }

    /// The same for an entry whose name is written by who calls, beside other things.
    pub fn entry(&mut self, area: Area, control: Control<'_>) -> Response {
        self.flat(area, control).0
    }

    /// What is done with it, and its ground.
    fn flat(&mut self, area: Area, control: Control<'_>) -> (Response, Rgb) {
        let response = self.interact(area, control);
        let touch = self.touch(&response, control.chosen);
        let look = self.look();
        let fill = if touch == Touch::Rest { self.ground } else { look.control(touch) };
        if touch != Touch::Rest || response.has_focus() {
            let edge = response.has_focus().then_some(look.theme.accent);
            self.push(Shape::Fill { area, fill, pattern: None, edge, corner: look.gap(1) });
        }
        (response, fill)
    }

    fn face(&mut self, area: Area, control: Control<'_>, ground: Rgb) {
        let theme = self.look().theme;
        let ink = if control.reach == Reach::Barred { theme.faint } else { theme.ink };
        if let Some(icon) = control.icon {
            let size = self.look().body();
            let (place, rest) = if control.text.is_empty() {
                (area, Area::default())
            } else {
                area.cut_left(self.look().gap(7))
            };
            let centre = place.centre();
            icon::draw(&mut self.scene.shapes, icon, centre, size, ink);
            if !control.text.is_empty() {
                let style = Style::default().ink(ink).on(ground);
                self.write(rest.shrunk(2.0, 0.0), control.text, style);
            }
        } else {
            let within = area.shrunk(self.look().gap(1), 0.0);
            self.write(within, control.text, Style::default().ink(ink).middle().on(ground));
        }
    }

    /// One of a row of tabs: underlined where it is open; whether it was pressed, and how often.
    pub fn tab(&mut self, area: Area, control: Control<'_>) -> Response {
        let response = self.interact(area, control);
        let look = self.look();
        let open = control.chosen == Chosen::On;
        let ground = if response.hovered() { look.control(Touch::Hover) } else { self.ground };
        if response.hovered() || response.has_focus() {
            let edge = response.has_focus().then_some(look.theme.accent);
            self.push(Shape::Fill { area, fill: ground, pattern: None, edge, corner: 0.0 });
        }
        let ink = if open || response.hovered() { look.theme.ink } else { look.theme.faint };
        self.write(area, control.text, Style::default().middle().ink(ink).on(ground));
        if open {
            let (_, line) = area.cut_top(area.height - 2.0);
            self.fill(line, look.theme.ink);
        }
        response
    }

    /// A field for one line of text, focused until it is left with Esc; whether it was changed.
    pub fn field(&mut self, area: Area, id: &str, text: &mut String, empty: &str) -> bool {
        self.flush();
        let (id, look) = (Id::unique(id), self.look());
        let edit = egui::TextEdit::singleline(text)
            .id(id)
            .font(egui::FontId::proportional(look.body()))
            .hint_text(empty)
            .margin(egui::Margin::symmetric(8, 6));
        // Nothing else that lies over the window takes text: it keeps the focus.
        let is_free = self.ui.memory(|memory| memory.focused().is_none());
        let response = self.ui.put(paint::rect(area), edit);
        if response.has_focus() {
            self.desk.left = None;
        } else if is_free && self.desk.left != Some(id) {
            response.request_focus();
        }
        // A galley of egui's own: noted like every other text.
        let (shown, ink) = match text.is_empty() {
            true => (empty, look.theme.faint),
            false => (text.as_str(), look.theme.ink),
        };
        let fonts = Fonts(self.ui.ctx());
        let canvas = Canvas { theme: &look.theme, measure: &fonts };
        let mut note = Sketch::new(canvas, area);
        let ground = look.theme.raised;
        note.fill(area, ground);
        let (size, face, align) = (look.body(), Face::Sans, Align::Left);
        note.label(area.shrunk(8.0, 0.0), Text { text: shown, size, face, align, ink, ground });
        self.desk.audit.note(self.zone, self.clip(), &note.scene);
        response.changed()
    }

    /// A slider from 0 to 1; where it was put, if it was. `value` is what a screen reader says.
    pub fn slider(&mut self, area: Area, id: &str, at: f32, value: &str) -> Option<f32> {
        let response = self.ui.interact(paint::rect(area), Id::unique(id), Sense::click_and_drag());
        response.widget_info(|| {
            let mut info = WidgetInfo::labeled(Role::Slider, true, value);
            info.value = Some(f64::from(at));
            info
        });
        let look = self.look();
        let theme = &look.theme;
        let radius = look.gap(2);
        let track = area.shrunk(radius, 0.0);
        let middle = area.centre().y;
        let x = track.left + track.width * at.clamp(0.0, 1.0);
        let bar = |left: f32, right: f32| Area::new(left, middle - 2.0, right - left, 4.0);
        self.fill(bar(track.left, track.right()), theme.rule);
        self.fill(bar(track.left, x), theme.faint);
        let fill = if response.has_focus() { theme.accent } else { theme.ink };
        self.push(Shape::Dot { at: Point { x, y: middle }, radius: radius - 1.0, fill });
        if response.hovered() {
            self.point(Pointed::Control(value.to_owned()));
        }
        let pointer = response.interact_pointer_pos()?;
        (response.is_pointer_button_down_on() && track.width > 0.0)
            .then(|| ((pointer.x - track.left) / track.width).clamp(0.0, 1.0))
    }

    /// A bar that is pressed or dragged to bring a part of something into sight: which part of its
    /// height, from 0 to 1.
    pub fn grip(&self, area: Area, name: &str) -> Option<f32> {
        let response = self.ui.interact(paint::rect(area), Id::unique(name), Sense::drag());
        response.widget_info(|| WidgetInfo::labeled(Role::ScrollBar, true, name));
        let at = response.interact_pointer_pos()?;
        let is_held = response.is_pointer_button_down_on() && area.height > 0.0;
        is_held.then(|| ((at.y - area.top) / area.height).clamp(0.0, 1.0))
    }

    /// What is dragged to move a divider; where it was dragged to.
    pub fn handle(&mut self, area: Area, id: &str, cursor: CursorIcon) -> Option<egui::Pos2> {
        let rect = paint::rect(area).expand(2.0);
        let response = self.ui.interact(rect, Id::unique(id), Sense::drag());
        let theme = self.look().theme;
        let held = response.hovered() || response.dragged();
        self.fill(area, if held { theme.faint } else { theme.ground });
        if held {
            self.ui.ctx().set_cursor_icon(cursor);
        } else if area.height < area.width {
            let y = area.centre().y;
            self.rule(Point { x: area.left, y }, Point { x: area.right(), y });
        } else {
            let x = area.centre().x;
            self.rule(Point { x, y: area.top }, Point { x, y: area.bottom() });
        }
        if response.dragged() { response.interact_pointer_pos() } else { None }
    }

    /// Asks what pointer, keyboard and screen reader do with a control.
    pub fn interact(&mut self, area: Area, control: Control<'_>) -> Response {
        let rect = paint::rect(area);
        let is_free = control.reach == Reach::Free;
        let sense = if is_free { Sense::click() } else { Sense::focusable_noninteractive() };
        let response = self.ui.interact(rect, Id::unique(control.id), sense);
        let name = if control.text.is_empty() { control.hint } else { control.text };
        response.widget_info(|| match control.chosen {
            Chosen::Plain => WidgetInfo::labeled(Role::Button, is_free, name),
            Chosen::Off => WidgetInfo::selected(Role::Button, is_free, false, name),
            Chosen::On => WidgetInfo::selected(Role::Button, is_free, true, name),
        });
        // Of the pointer and the focus speaks the one that was moved last.
        let is_reached = response.has_focus() && self.desk.by_keys;
        if (response.hovered() || is_reached) && !control.hint.is_empty() {
            self.point(Pointed::Control(control.hint.to_owned()));
        }
        response
    }

    /// Says what is under the pointer in the line that explains.
    pub fn hint(&mut self, text: impl Into<String>) {
        self.point(Pointed::Shown(text.into()));
    }

    /// A badge is told before all else.
    fn point(&mut self, at: Pointed) {
        let is_badge = |pointed: &Pointed| matches!(pointed, Pointed::Badge(_));
        if is_badge(&at) || !self.desk.pointed.as_ref().is_some_and(is_badge) {
            self.desk.pointed = Some(at);
        }
    }

    /// Whether the pointer is over a badge of a scene.
    fn look_for_badges(&mut self, scene: &Scene) {
        let Some(at) =
            self.ctx().pointer_hover_pos().filter(|at| self.ui.clip_rect().contains(*at))
        else {
            return;
        };
        if self.ctx().layer_id_at(at).is_some_and(|layer| layer != self.ui.layer_id()) {
            return;
        }
        let at = Point { x: at.x, y: at.y };
        let mut pointed = scene.labels().filter(|label| label.area.contains(at));
        let badge = |text: &str| Badge::ALL.into_iter().find(|badge| text.ends_with(badge.word()));
        if let Some(badge) = pointed.find_map(|label| badge(&label.text)) {
            self.point(Pointed::Badge(badge));
        }
    }

    /// Lets a screen reader read a text that is drawn here.
    pub fn read(&mut self, area: Area, id: &str, text: &str) {
        let response = self.ui.interact(paint::rect(area), Id::unique(id), Sense::hover());
        response.widget_info(|| {
            let mut info = WidgetInfo::labeled(Role::Label, true, text);
            info.current_text_value = Some(text.to_owned());
            info
        });
    }

    fn touch(&self, response: &Response, chosen: Chosen) -> Touch {
        if response.is_pointer_button_down_on() || chosen == Chosen::On {
            Touch::Down
        } else if response.hovered() {
            Touch::Hover
        } else {
            Touch::Rest
        }
    }

    /// Takes over a picture that was drawn in the coordinates of the window.
    pub fn picture(&mut self, scene: &Scene) {
        self.flush();
        self.look_for_badges(scene);
        self.desk.audit.note(self.zone, self.clip(), scene);
        paint::paint(self.ui.painter(), scene);
    }

    fn clip(&self) -> Area {
        paint::area(self.ui.clip_rect())
    }

    fn flush(&mut self) {
        let scene = std::mem::take(&mut self.scene);
        self.look_for_badges(&scene);
        self.desk.audit.note(self.zone, self.clip(), &scene);
        paint::paint(self.ui.painter(), &scene);
    }

    /// Paints what was collected.
    pub fn finish(mut self) {
        self.flush();
    }
}

/// How a text is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    size: Option<f32>,
    ink: Option<Rgb>,
    ground: Option<Rgb>,
    align: Align,
}

impl Style {
    /// Of this size.
    pub fn sized(size: f32) -> Self {
        Self { size: Some(size), ..Self::default() }
    }

    /// In this colour.
    #[must_use]
    pub fn ink(self, ink: Rgb) -> Self {
        Self { ink: Some(ink), ..self }
    }

    /// On this ground.
    #[must_use]
    pub fn on(self, ground: Rgb) -> Self {
        Self { ground: Some(ground), ..self }
    }

    /// In the middle of its container.
    #[must_use]
    pub fn middle(self) -> Self {
        Self { align: Align::Middle, ..self }
    }

    /// At the right edge of its container.
    #[must_use]
    pub fn right(self) -> Self {
        Self { align: Align::Right, ..self }
    }
}
