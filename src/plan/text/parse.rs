//! Reads a Plan from text, and says in which line what was expected if it cannot.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use serde::de::DeserializeOwned;

use super::compact;
use crate::mesh::{Axis, Mesh, Rank};
use crate::plan::{
    Action, Arena, BufferDecl, BufferId, Collective, CollectiveKind, Instr, Lane, LogicalTensor,
    Origin, Piece, Place, Plan, Program, Tag, View,
};
use crate::shape::Shape;

/// Why a text is no Plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {found}")]
pub struct TextError {
    /// 1-based line.
    pub line: usize,
    /// What should stand there.
    pub expected: String,
    /// What stands there, or `nothing`.
    pub found: String,
}

type Read<T> = Result<T, TextError>;

/// Reads a Plan that [`super::print`] wrote. Empty lines and lines that start with `//` do not
/// count.
///
/// # Errors
/// A [`TextError`] that names the line and what was expected there.
pub fn parse(text: &str) -> Read<Plan> {
    let lines = text.lines().enumerate().map(|(index, line)| Cursor::new(index + 1, line));
    let mut lines = lines.filter(|line| !line.rest.is_empty() && !line.rest.starts_with("//"));
    let first = lines.next().unwrap_or(Cursor::new(1, ""));
    let mut reader = Reader::new(first)?;
    for line in lines {
        reader.line(line)?;
    }
    Ok(reader.plan)
}

/// The Plan so far, and the names that it gave.
struct Reader {
    plan: Plan,
    buffers: BTreeMap<(Rank, String), BufferId>,
    tensors: BTreeMap<String, u32>,
}

impl Reader {
    fn new(mut line: Cursor<'_>) -> Read<Self> {
        line.expect("mesh")?;
        let [dp, tp, pp] = [line.field("dp")?, line.field("tp")?, line.field("pp")?];
        line.skip_spaces();
        line.expect_prefix("order=")?;
        let order = line.word("a rank order such as tp-dp-pp")?;
        line.end()?;
        let plan = Plan {
            mesh: Mesh { dp, tp, pp, order },
            tensors: Vec::new(),
            buffers: Vec::new(),
            programs: Vec::new(),
        };
        Ok(Self { plan, buffers: BTreeMap::new(), tensors: BTreeMap::new() })
    }

    fn line(&mut self, mut line: Cursor<'_>) -> Read<()> {
        let start = line.clone();
        match line.token() {
            "tensor" => self.tensor(&mut line)?,
            "buffer" => self.buffer(&mut line)?,
            "piece" => self.piece(&start, &mut line)?,
            "rank" => {
                let rank = self.plan.programs.len();
                if !line.accept(&rank.to_string()) {
                    return Err(line.error(&format!("{rank}: ranks come in order")));
                }
                self.plan.programs.push(Program::default());
            }
            index => self.instr(&start, index, &mut line)?,
        }
        line.end()
    }

    fn tensor(&mut self, line: &mut Cursor<'_>) -> Read<()> {
        let name = line.name("the name of a tensor")?;
        line.skip_spaces();
        line.expect_char('[')?;
        let dims = line.run_of(|c| c != ']');
        let start = line.clone();
        let dims: Option<Vec<u64>> = match dims {
            "" => Some(Vec::new()),
            dims => dims.split(',').map(|dim| dim.parse().ok()).collect(),
        };
        let shape = Shape(dims.ok_or_else(|| start.error("a shape such as [4,8]"))?);
        line.expect_char(']')?;
        self.tensors.insert(name.clone(), index_u32(self.plan.tensors.len()));
        self.plan.tensors.push(LogicalTensor { name, shape });
        Ok(())
    }

    fn buffer(&mut self, line: &mut Cursor<'_>) -> Read<()> {
        let rank = Rank(line.number("a rank")?);
        let label = line.name("the label of a buffer")?;
        let role = line.word("a role such as weights")?;
        line.skip_spaces();
        let start = line.clone();
        let dtype = line.run_of(|c| c.is_ascii_alphanumeric());
        let dtype = from_word(dtype).ok_or_else(|| start.error("a type and length: f32[8]"))?;
        line.expect_char('[')?;
        let len = line.digits("a number of elements")?;
        line.expect_char(']')?;
        line.skip_spaces();
        let life = compact::parse(line, "a life such as Step or Persistent")?;
        let place = line.place()?;
        let id = BufferId(index_u32(self.plan.buffers.len()));
        self.buffers.insert((rank, label.clone()), id);
        let pieces = Vec::new();
        self.plan.buffers.push(BufferDecl { rank, label, role, dtype, len, life, place, pieces });
        Ok(())
    }

    fn piece(&mut self, start: &Cursor<'_>, line: &mut Cursor<'_>) -> Read<()> {
        let at = line.clone();
        let name = line.token();
        let tensor = match name.strip_prefix('#') {
            Some(id) => id.parse().ok(),
            None => self.tensors.get(name).copied(),
        };
        let tensor = tensor.ok_or_else(|| at.error("a tensor that was named above"))?;
        let held = line.word("what is held, such as Weight")?;
        let mut range = |name: &str| {
            line.expect(name)?;
            line.range()
        };
        let [rows, cols, flat] = [range("rows")?, range("cols")?, range("flat")?];
        line.expect("at")?;
        let offset = line.number("an offset")?;
        let at = line.clone();
        let owned = match line.token() {
            "owned" => true,
            "replica" => false,
            _ => return Err(at.error("owned or replica")),
        };
        let decl = self.plan.buffers.last_mut();
        let decl = decl.ok_or_else(|| start.error("a buffer before its pieces"))?;
        decl.pieces.push(Piece { tensor, held, rows, cols, flat, offset, owned });
        Ok(())
    }

    fn instr(&mut self, start: &Cursor<'_>, index: &str, line: &mut Cursor<'_>) -> Read<()> {
        let Some(program) = self.plan.programs.last() else {
            return Err(start.error("tensor, buffer, piece or rank"));
        };
        let expected = program.instrs.len();
        if index.parse() != Ok(expected) {
            return Err(start.error(&format!("instruction {expected} or the next rank")));
        }
        let rank = Rank(index_u32(self.plan.programs.len() - 1));
        let lane = line.lane()?;
        let action = self.action(rank, line)?;
        let origin = line.origin()?;
        let program = self.plan.programs.last_mut().expect("checked above");
        program.instrs.push(Instr { lane, action, origin });
        Ok(())
    }

    fn action(&self, rank: Rank, line: &mut Cursor<'_>) -> Read<Action> {
        let mut ahead = line.clone();
        let verb = ahead.token();
        match verb {
            "send" | "recv" => {
                *line = ahead;
                let view = self.view(rank, line)?;
                line.expect(if verb == "send" { "to" } else { "from" })?;
                let peer = Rank(line.number("a rank")?);
                line.expect("tag")?;
                let tag = Tag(line.number("a tag")?);
                let hops = if line.accept("hops") { line.number("a number of hops")? } else { 1 };
                Ok(match verb {
                    "send" => Action::Send { view, to: peer, tag, hops },
                    _ => Action::Recv { view, from: peer, tag, hops },
                })
            }
            "copy" => {
                *line = ahead;
                let from = self.view(rank, line)?;
                line.expect("->")?;
                Ok(Action::Copy { from, to: self.view(rank, line)? })
            }
            _ => {
                line.skip_spaces();
                let op = compact::parse_op(line)?;
                let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
                while !line.accept("->") {
                    inputs.push(self.view(rank, line)?);
                }
                while !matches!(line.peek(), "" | "|") {
                    outputs.push(self.view(rank, line)?);
                }
                Ok(Action::Launch { op, inputs, outputs })
            }
        }
    }

    /// `label`, `label[0..8]` or `#17[0..8]`.
    fn view(&self, rank: Rank, line: &mut Cursor<'_>) -> Read<View> {
        let start = line.clone();
        let token = line.token();
        let expected = "a view such as y.m0[0..8] of a buffer of this rank";
        let wrong = || start.error(expected);
        let (name, range) = match token.split_once('[') {
            Some((name, range)) => {
                let range = range.strip_suffix(']').and_then(range_from).ok_or_else(wrong)?;
                (name, Some(range))
            }
            None => (token, None),
        };
        let buffer = match name.strip_prefix('#') {
            Some(id) => id.parse().ok().map(BufferId),
            None => self.buffers.get(&(rank, name.to_owned())).copied(),
        };
        let buffer = buffer.ok_or_else(wrong)?;
        let range: Range<u64> = match range {
            Some(range) => range,
            None => 0..self.plan.buffers.get(buffer.0 as usize).ok_or_else(wrong)?.len.into(),
        };
        let len = range.end.checked_sub(range.start).and_then(|len| u32::try_from(len).ok());
        match (u32::try_from(range.start), len) {
            (Ok(offset), Some(len)) => Ok(View { buffer, offset, len }),
            _ => Err(wrong()),
        }
    }
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a text has fewer than 2^32 lines")
}

fn range_from<T: FromStr>(text: &str) -> Option<Range<T>> {
    let (start, end) = text.split_once("..")?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

fn from_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(word.into())).ok()
}

/// The unread rest of a line.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    line: usize,
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn new(line: usize, text: &'a str) -> Self {
        Self { line, rest: text.trim() }
    }

    pub(super) fn error(&self, expected: &str) -> TextError {
        let found = self.rest.split_whitespace().next().unwrap_or("nothing").to_owned();
        TextError { line: self.line, expected: expected.into(), found }
    }

    pub(super) fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    pub(super) fn starts_with(&self, c: char) -> bool {
        self.rest.starts_with(c)
    }

    /// Takes the longest run of such characters, perhaps none.
    pub(super) fn run_of(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at(end);
        self.rest = rest;
        run
    }

    /// Takes the text up to the next space.
    fn token(&mut self) -> &'a str {
        self.skip_spaces();
        self.run_of(|c| c != ' ')
    }

    fn peek(&self) -> &'a str {
        self.clone().token()
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        if found {
            self.token();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Read<()> {
        if self.accept(token) { Ok(()) } else { Err(self.error(token)) }
    }

    fn expect_prefix(&mut self, prefix: &str) -> Read<()> {
        self.rest = self.rest.strip_prefix(prefix).ok_or_else(|| self.error(prefix))?;
        Ok(())
    }

    pub(super) fn expect_char(&mut self, c: char) -> Read<()> {
        self.rest = self.rest.strip_prefix(c).ok_or_else(|| self.error(&c.to_string()))?;
        Ok(())
    }

    fn end(&self) -> Read<()> {
        if self.rest.trim().is_empty() { Ok(()) } else { Err(self.error("the end of the line")) }
    }

    fn number<T: FromStr>(&mut self, expected: &str) -> Read<T> {
        let start = self.clone();
        self.token().parse().ok().ok_or_else(|| start.error(expected))
    }

    fn digits<T: FromStr>(&mut self, expected: &str) -> Read<T> {
        let start = self.clone();
        self.run_of(|c| c.is_ascii_digit()).parse().ok().ok_or_else(|| start.error(expected))
    }

    /// `name=number`
    fn field(&mut self, name: &str) -> Read<u32> {
        self.skip_spaces();
        self.expect_prefix(name)?;
        self.expect_char('=')?;
        self.digits(&format!("a number for {name}"))
    }

    /// An enum without fields, by its serialized word.
    fn word<T: DeserializeOwned>(&mut self, expected: &str) -> Read<T> {
        let start = self.clone();
        from_word(self.token()).ok_or_else(|| start.error(expected))
    }

    fn range(&mut self) -> Read<Range<u32>> {
        let start = self.clone();
        range_from(self.token()).ok_or_else(|| start.error("a range such as 0..8"))
    }

    /// A bare or quoted name.
    fn name(&mut self, expected: &str) -> Read<String> {
        self.skip_spaces();
        if self.starts_with('"') {
            return self.quoted();
        }
        let start = self.clone();
        match self.token() {
            "" => Err(start.error(expected)),
            name => Ok(name.into()),
        }
    }

    /// A string in quotes with the escapes of JSON.
    pub(super) fn quoted(&mut self) -> Read<String> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
        match values.next() {
            Some(Ok(name)) => {
                self.rest = &self.rest[values.byte_offset()..];
                Ok(name)
            }
            _ => Err(self.error("a string in quotes")),
        }
    }

    /// `step+256`
    fn place(&mut self) -> Read<Place> {
        let start = self.clone();
        let place = self.token().split_once('+').and_then(|(arena, offset)| {
            let named = |found: &&Arena| found.to_string() == arena;
            let arena = *Arena::ALL.iter().find(named)?;
            Some(Place { arena, offset: offset.parse().ok()? })
        });
        place.ok_or_else(|| start.error("a place such as step+256"))
    }

    /// `compute`, `reduce`, `posted` or `pp>1`
    fn lane(&mut self) -> Read<Lane> {
        let start = self.clone();
        let lane = match self.token() {
            "compute" => Some(Lane::Compute),
            "reduce" => Some(Lane::Reduce),
            "posted" => Some(Lane::Posted),
            out => out.split_once('>').and_then(|(axis, to)| {
                let axis = from_word::<Axis>(axis)?;
                Some(Lane::Out(axis, Rank(to.parse().ok()?)))
            }),
        };
        lane.ok_or_else(|| start.error("a lane: compute, reduce, posted or such as pp>1"))
    }

    /// `| forward stage 0 microbatch 2`, or nothing
    fn origin(&mut self) -> Read<Origin> {
        let mut origin = Origin::default();
        if !self.accept("|") {
            return Ok(origin);
        }
        origin.phase = self.word("a phase such as forward")?;
        let numbers = [
            ("stage", &mut origin.stage),
            ("layer", &mut origin.layer),
            ("microbatch", &mut origin.microbatch),
        ];
        for (name, slot) in numbers {
            if self.accept(name) {
                *slot = Some(self.number(&format!("a number for {name}"))?);
            }
        }
        if let Some(kind) = from_word::<CollectiveKind>(self.peek()) {
            self.token();
            let id = self.number("the number of the collective")?;
            origin.collective = Some(Collective { kind, id });
        }
        if self.accept("axis") {
            origin.axis = Some(self.word("an axis: dp, tp or pp")?);
        }
        Ok(origin)
    }
}
