//! The table of numbers: what was counted, measured and replayed beside what a formula says.
//!
//! Rows come in as plain values; a chosen row opens to its formula, first in symbols, then with the
//! numbers of this run. Every column wears its badge once, in its heading.

use super::pen::On;
use super::scene::{Align, Area, Point, Sketch};
use crate::trace::Badge;
use crate::units::{Bytes, Nanos, grouped};

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A share between 0 and 1, written in %.
    Share(f64),
    /// Bytes.
    Bytes(Bytes),
    /// Time.
    Time(Nanos),
    /// So many a second.
    PerSecond(f64),
    /// A number of things.
    Count(u64),
}

impl Value {
    /// The number without its unit, for comparing two of a kind.
    fn amount(self) -> f64 {
        match self {
            Self::Share(value) | Self::PerSecond(value) => value,
            Self::Bytes(bytes) => bytes.0 as f64,
            Self::Time(time) => time.0 as f64,
            Self::Count(count) => count as f64,
        }
    }

    /// How it is written in a table.
    pub fn text(self) -> String {
        match self {
            Self::Share(share) => format!("{:.1} %", 100.0 * share),
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Time(time) => time.to_string(),
            Self::PerSecond(rate) => format!("{}/s", grouped(rate.max(0.0).round() as u64)),
            Self::Count(count) => grouped(count),
        }
    }
}

/// What a textbook says: a value with the formula behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    /// In symbols: `(p−1)/(m+p−1)`.
    pub symbols: String,
    /// With the numbers of the case: `(2−1)/(4+2−1)`.
    pub numbers: String,
    /// Its value: a share, or bytes.
    pub value: f64,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is about.
    pub metric: String,
    /// Exact, from the Plan.
    pub counted: Option<Value>,
    /// By the clock of this run.
    pub measured: Option<Value>,
    /// Laid out as if every rank had its own device.
    pub replayed: Option<Value>,
    /// What a cost model of the machine says.
    pub predicted: Option<Value>,
    /// What a formula says, in the unit of the others.
    pub formula: Option<Formula>,
    /// Why counted or replayed and formula may differ, in a few words.
    pub note: Option<String>,
}

impl Row {
    /// A row that has nothing yet.
    pub fn new(metric: impl Into<String>) -> Self {
        let metric = metric.into();
        Self {
            metric,
            counted: None,
            measured: None,
            replayed: None,
            predicted: None,
            formula: None,
            note: None,
        }
    }

    /// What the run says, the surest first.
    pub fn found(&self) -> Option<Value> {
        self.counted.or(self.replayed).or(self.measured)
    }

    /// What the formula says, in the unit of what was found.
    pub fn expected(&self) -> Option<Value> {
        let value = self.formula.as_ref()?.value;
        Some(match self.found() {
            Some(Value::Bytes(_)) => Value::Bytes(Bytes(value.round() as u64)),
            Some(Value::Count(_)) => Value::Count(value.round() as u64),
            Some(Value::Time(_)) => Value::Time(Nanos(value.round() as u64)),
            Some(Value::PerSecond(_)) => Value::PerSecond(value),
            Some(Value::Share(_)) | None => Value::Share(value),
        })
    }

    /// By how much the run differs from the formula, as it is written: of shares in points, of all
    /// else in hundredths of the formula's value; `None` where there is nothing to hold it against.
    pub fn difference(&self) -> Option<String> {
        let (found, expected) = (self.found()?, self.expected()?);
        let by = found.amount() - expected.amount();
        let (by, unit) = match (expected, expected.amount()) {
            (Value::Share(_), _) => (100.0 * by, "points"),
            (_, 0.0) if by != 0.0 => return None,
            (_, 0.0) => (0.0, "%"),
            (_, whole) => (100.0 * by / whole, "%"),
        };
        Some(match by {
            0.0 => format!("0 {unit}"),
            _ => format!("{by:+.1} {unit}").replace('-', "−"),
        })
    }

    /// The formula in words that can be pasted: name, symbols, numbers, value.
    pub fn copied(&self) -> Option<String> {
        let formula = self.formula.as_ref()?;
        let value = self.expected()?.text();
        Some(format!("{}: {} = {} = {value}", self.metric, formula.symbols, formula.numbers))
    }

    /// The row in one sentence.
    pub fn sentence(&self) -> String {
        let parts = [
            self.counted.map(|value| (value, Badge::Counted)),
            self.measured.map(|value| (value, Badge::Measured)),
            self.replayed.map(|value| (value, Badge::Replayed)),
            self.predicted.map(|value| (value, Badge::Predicted)),
            self.expected().map(|value| (value, Badge::Formula)),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .flatten()
            .map(|(value, badge)| format!("{} {}", value.text(), badge.word()))
            .collect();
        format!("{}: {}.", self.metric, parts.join(", "))
    }
}

/// Where the rows lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Each row that is shown, and which it is.
    pub rows: Vec<(Area, usize)>,
    /// The first row of the next page; `None` where all are shown.
    pub more_from: Option<usize>,
}

/// What of the table is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Frame {
    /// The row that is open.
    pub open: Option<usize>,
    /// The row under the pointer.
    pub hover: Option<usize>,
    /// The first row that is shown.
    pub first: usize,
}

/// The columns behind the metric, and the badge each wears.
const COLUMNS: [Badge; 5] =
    [Badge::Counted, Badge::Measured, Badge::Predicted, Badge::Replayed, Badge::Formula];

/// Where texts begin: an open row has its mark before that.
const INDENT: f32 = 8.0;
/// The heading of the last column.
const DIFFERENCE: &str = "Δ to FORMULA";

/// Draws the table.
pub fn draw(sketch: &mut Sketch<'_>, area: Area, rows: &[Row], frame: &Frame) -> Layout {
    let table = Table::over(sketch, area, rows);
    let height = sketch.line_of_text() + 6.0;
    let (head, mut rest) = area.cut_top(height);
    table.head(sketch, head);
    let mut layout = Layout::default();
    for (index, row) in rows.iter().enumerate().skip(frame.first) {
        let is_open = frame.open == Some(index);
        let lines = if is_open { 1 + table.opened(sketch, row).len() } else { 1 };
        if rest.height < height * lines as f32 {
            layout.more_from = Some(index);
            break;
        }
        let (line, below) = rest.cut_top(height);
        table.row(sketch, line, row, (is_open, frame.hover == Some(index)));
        layout.rows.push((line, index));
        rest = below;
        if is_open {
            for text in table.opened(sketch, row) {
                let (line, below) = rest.cut_top(height);
                let on = sketch.faint();
                sketch.write(line.shrunk(2.0 * INDENT, 0.0), &text, Align::Left, on);
                rest = below;
            }
        }
    }
    layout
}

/// How wide the columns are.
struct Table {
    width: f32,
    metric: f32,
    column: f32,
    /// Which of [`COLUMNS`] have a value anywhere, and room.
    shown: Vec<Badge>,
    delta: bool,
}

impl Table {
    fn over(sketch: &Sketch<'_>, area: Area, rows: &[Row]) -> Self {
        let used = |badge: &Badge| rows.iter().any(|row| value(row, *badge).is_some());
        let mut shown: Vec<Badge> = COLUMNS.into_iter().filter(used).collect();
        let widest = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(|text| sketch.wide(&text)).fold(0.0, f32::max)
        };
        let figures = |badge: Badge| rows.iter().filter_map(move |row| value(row, badge));
        let mut texts = COLUMNS
            .into_iter()
            .map(|badge| badge.word().to_owned())
            .chain([DIFFERENCE.to_owned()])
            .chain(COLUMNS.into_iter().flat_map(figures).map(Value::text))
            .chain(rows.iter().filter_map(Row::difference));
        // Figures are set in a wider face than the one that is measured here.
        let column = widest(&mut texts) * 1.15 + 16.0;
        let metric = widest(&mut rows.iter().map(|row| row.metric.clone())) + INDENT + 8.0;
        let delta = rows.iter().any(|row| row.difference().is_some());
        let mut delta = delta && shown.len() > 1;
        let least = metric.min(8.0 * sketch.theme().label_size);
        // Where not all fit, the difference goes first, then what is predicted, measured, replayed.
        while least + column * (shown.len() + usize::from(delta)) as f32 > area.width {
            if delta {
                delta = false;
            } else if shown.len() > 1 {
                let gone = [Badge::Predicted, Badge::Measured, Badge::Replayed, Badge::Formula];
                let gone = gone.into_iter().find(|badge| shown.contains(badge));
                shown.retain(|badge| Some(*badge) != gone);
            } else {
                break;
            }
        }
        let columns = (shown.len() + usize::from(delta)) as f32;
        let metric = metric.min((area.width - column * columns).max(0.0));
        Self { width: area.width, metric, column, shown, delta }
    }

    fn head(&self, sketch: &mut Sketch<'_>, line: Area) {
        let on = sketch.faint();
        let (metric, mut rest) = line.cut_left(self.metric);
        sketch.write(metric.cut_left(INDENT).1, "per step", Align::Left, on);
        for badge in &self.shown {
            let (cell, more) = rest.cut_left(self.column);
            sketch.write(cell, badge.word(), Align::Right, on);
            rest = more;
        }
        if self.delta {
            sketch.write(rest.cut_left(self.column).0, DIFFERENCE, Align::Right, on);
        }
        let y = line.bottom() - 0.5;
        sketch.rule(Point { x: line.left, y }, Point { x: line.right(), y });
    }

    fn row(
        &self,
        sketch: &mut Sketch<'_>,
        line: Area,
        row: &Row,
        (is_open, is_hovered): (bool, bool),
    ) {
        let theme = sketch.theme();
        let ground = if is_hovered { theme.ground.mixed(theme.ink, 0.06) } else { theme.ground };
        if is_hovered {
            sketch.fill(line, ground);
        }
        if is_open {
            sketch.fill(Area::new(line.left, line.top, 3.0, line.height), theme.accent);
        }
        let on = On { ink: theme.ink, ground };
        let (metric, mut rest) = line.cut_left(self.metric);
        sketch.write(metric.cut_left(INDENT).1, &row.metric, Align::Left, on);
        for badge in &self.shown {
            let (cell, more) = rest.cut_left(self.column);
            if let Some(value) = value(row, *badge) {
                sketch.figures(cell, &value.text(), Align::Right, on);
            }
            rest = more;
        }
        if let Some(difference) = row.difference().filter(|_| self.delta) {
            let cell = rest.cut_left(self.column).0;
            sketch.figures(cell, &difference, Align::Right, on);
        }
    }

    /// The lines below an open row.
    fn opened(&self, sketch: &Sketch<'_>, row: &Row) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(formula), Some(expected)) = (&row.formula, row.expected()) {
            let room = self.width - 4.0 * INDENT;
            let whole = format!("FORMULA  {} = {}", formula.symbols, expected.text());
            lines.extend(broken(sketch, &whole, room));
            lines.extend(broken(sketch, &format!("= {}", formula.numbers), room));
        }
        lines.extend(row.note.clone());
        lines
    }
}

/// A text in lines no wider than `room`, broken at its plus signs.
fn broken(sketch: &Sketch<'_>, text: &str, room: f32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, term) in text.split(" + ").enumerate() {
        match lines.last_mut() {
            Some(line) if sketch.wide(&format!("{line} + {term}")) <= room => {
                line.push_str(" + ");
                line.push_str(term);
            }
            _ if index == 0 => lines.push(term.to_owned()),
            _ => lines.push(format!("+ {term}")),
        }
    }
    lines
}

/// The value of a row in a column.
fn value(row: &Row, badge: Badge) -> Option<Value> {
    match badge {
        Badge::Counted => row.counted,
        Badge::Measured => row.measured,
        Badge::Replayed => row.replayed,
        Badge::Formula => row.expected(),
        Badge::Predicted => row.predicted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::draw::audit;
    use crate::trace::draw::fonts::SansTable;
    use crate::trace::draw::scene::Canvas;
    use crate::trace::draw::theme::Theme;

    fn rows() -> Vec<Row> {
        let waiting = Formula {
            symbols: "(p−1)/(m+p−1)".into(),
            numbers: "(2−1)/(4+2−1)".into(),
            value: 0.2,
        };
        let sent = Formula {
            symbols: "4 B·(2(t−1)·4·L·T·h + 2(t−1)·2·T·h + t(t−1)·3·T)".into(),
            numbers: "4 B·(2·4·4·4096·128 + 2·2·4096·128 + 2·3·4096)".into(),
            value: 1024.0,
        };
        vec![
            Row {
                measured: Some(Value::Share(0.61)),
                replayed: Some(Value::Share(0.203)),
                formula: Some(waiting),
                note: Some("the rest: unequal stages".into()),
                ..Row::new("waiting/span")
            },
            Row {
                counted: Some(Value::Bytes(Bytes(1024))),
                formula: Some(sent),
                ..Row::new("sent, tensor")
            },
            Row {
                measured: Some(Value::PerSecond(20_100.4)),
                predicted: Some(Value::PerSecond(19_800.0)),
                ..Row::new("tokens")
            },
            Row {
                counted: Some(Value::Count(12_345_678)),
                ..Row::new("模型的一个很长的名字".repeat(30))
            },
        ]
    }

    #[test]
    fn shares_differ_in_points_and_all_else_in_hundredths_of_the_formula() {
        let differences: Vec<Option<String>> = rows().iter().map(Row::difference).collect();
        let differences: Vec<Option<&str>> = differences.iter().map(Option::as_deref).collect();
        assert_eq!(differences, [Some("+0.3 points"), Some("0 %"), None, None]);
        let [mut waiting, mut sent]: [Row; 2] =
            rows().into_iter().take(2).collect::<Vec<_>>().try_into().expect("two rows");
        waiting.replayed = Some(Value::Share(0.18));
        sent.counted = Some(Value::Bytes(Bytes(1536)));
        assert_eq!(waiting.difference().as_deref(), Some("−2.0 points"));
        assert_eq!(sent.difference().as_deref(), Some("+50.0 %"));
    }

    #[test]
    fn a_row_reads_as_a_sentence_and_can_be_copied() {
        let rows = rows();
        assert_eq!(
            rows[0].sentence(),
            "waiting/span: 61.0 % MEASURED, 20.3 % REPLAYED, 20.0 % FORMULA."
        );
        assert_eq!(rows[1].sentence(), "sent, tensor: 1.0 KiB COUNTED, 1.0 KiB FORMULA.");
        assert_eq!(rows[2].sentence(), "tokens: 20,100/s MEASURED, 19,800/s PREDICTED.");
        assert_eq!(
            rows[0].copied().as_deref(),
            Some("waiting/span: (p−1)/(m+p−1) = (2−1)/(4+2−1) = 20.0 %")
        );
    }

    #[test]
    fn an_open_row_shows_its_formula_in_symbols_and_numbers() {
        let area = Area::sized(794.0, 300.0);
        let mut sketch = Sketch::new(Canvas { theme: &Theme::LIGHT, measure: &SansTable }, area);
        let frame = Frame { open: Some(0), ..Frame::default() };
        let layout = draw(&mut sketch, area, &rows(), &frame);
        let texts: Vec<String> = sketch.scene.labels().map(|label| label.text.clone()).collect();
        for expected in
            ["FORMULA  (p−1)/(m+p−1) = 20.0 %", "= (2−1)/(4+2−1)", "the rest: unequal stages"]
        {
            assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:?}");
        }
        assert_eq!((layout.rows.len(), layout.more_from), (4, None));
    }

    #[test]
    fn texts_hold_at_every_size_in_every_theme() {
        for open in [None, Some(0), Some(1), Some(3)] {
            audit::every_theme_and_size(|sketch, area| {
                let frame = Frame { open, hover: Some(1), first: 0 };
                draw(sketch, area, &rows(), &frame);
            });
        }
    }
}
