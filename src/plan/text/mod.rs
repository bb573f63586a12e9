//! A Plan as text: one instruction a line, for reading, for diffs and for golden files.
//!
//! Lossless: [`parse()`] of [`print()`] gives the same Plan. Views go by the label of their buffer, so
//! that one more buffer does not change every line. [`describe`] names one instruction in errors.
//!
//! ```text
//! mesh dp=1 tp=1 pp=2 order=tp-dp-pp
//! tensor model.w [64]
//! buffer 0 w weights f32[64] Persistent persistent+0
//!   piece model.w Weight rows 0..64 cols 0..1 flat 0..64 at 0 owned
//! buffer 0 y.m0 activations f32[64] Step step+0
//! rank 0
//!   0 compute Add(len=64) w w -> y.m0 | forward stage 0 microbatch 0
//!   1 pp>1 send y.m0 to 1 tag 0 | forward stage 0 microbatch 0
//! ```

mod compact;
mod parse;

pub use parse::{TextError, parse};

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Action, Arena, BufferId, Instr, Lane, Origin, Piece, Plan, View};
use crate::mesh::Rank;
use crate::ops::Kernel as _;

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute => f.write_str("compute"),
            Self::Reduce => f.write_str("reduce"),
            Self::Out(axis, to) => write!(f, "{axis}>{to}"),
            Self::Posted => f.write_str("posted"),
        }
    }
}

impl fmt::Display for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Persistent => "persistent",
            Self::Io => "io",
            Self::Step => "step",
        })
    }
}

/// Names one instruction and what it does: `rank 0 #12 send y.m0 to rank 1 (64 f32, tag 3)`.
pub fn describe(plan: &Plan, rank: Rank, instr: u32) -> String {
    let label = |view: &View| match plan.buffers.get(view.buffer.0 as usize) {
        Some(decl) => decl.label.clone(),
        None => format!("#{}", view.buffer.0),
    };
    let size = |view: &View| match plan.buffers.get(view.buffer.0 as usize) {
        Some(decl) => format!("{} {}", view.len, decl.dtype),
        None => view.len.to_string(),
    };
    let what = match &plan.programs[rank.index()].instrs[instr as usize].action {
        Action::Launch { op, outputs, .. } => {
            let outputs: Vec<String> = outputs.iter().map(label).collect();
            format!("{} -> {}", op.name(), outputs.join(", "))
        }
        Action::Send { view, to, tag, .. } => {
            format!("send {} to rank {to} ({}, tag {})", label(view), size(view), tag.0)
        }
        Action::Recv { view, from, tag, .. } => {
            format!("recv {} from rank {from} ({}, tag {})", label(view), size(view), tag.0)
        }
        Action::Copy { from, to } => format!("copy {} -> {}", label(from), label(to)),
    };
    format!("rank {rank} #{instr} {what}")
}

/// Prints a Plan, one instruction a line.
pub fn print(plan: &Plan) -> String {
    Text(plan).to_string()
}

struct Text<'a>(&'a Plan);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_plan(f, self.0)
    }
}

fn write_plan(out: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let names = Names::new(plan);
    let mesh = plan.mesh;
    let order = word(&mesh.order);
    writeln!(out, "mesh dp={} tp={} pp={} order={order}", mesh.dp, mesh.tp, mesh.pp)?;
    for tensor in &plan.tensors {
        let dims: Vec<String> = tensor.shape.0.iter().map(u64::to_string).collect();
        writeln!(out, "tensor {} [{}]", quoted(&tensor.name), dims.join(","))?;
    }
    for decl in &plan.buffers {
        let (rank, label, life) = (decl.rank, quoted(&decl.label), compact::print(&decl.life));
        let (role, place) = (decl.role, decl.place);
        writeln!(
            out,
            "buffer {rank} {label} {role} {}[{}] {life} {}+{}",
            decl.dtype, decl.len, place.arena, place.offset
        )?;
        for piece in &decl.pieces {
            write_piece(out, &names, piece)?;
        }
    }
    for (rank, program) in (0..).map(Rank).zip(&plan.programs) {
        writeln!(out, "rank {rank}")?;
        for (index, instr) in program.instrs.iter().enumerate() {
            write!(out, "  {index} {}", instr.lane)?;
            write_action(out, &names, rank, instr)?;
            write_origin(out, instr.origin)?;
            out.write_str("\n")?;
        }
    }
    Ok(())
}

fn write_piece(out: &mut fmt::Formatter<'_>, names: &Names<'_>, piece: &Piece) -> fmt::Result {
    let Piece { rows, cols, flat, offset, .. } = piece;
    let (held, owned) = (word(&piece.held), if piece.owned { "owned" } else { "replica" });
    writeln!(
        out,
        "  piece {} {held} rows {rows:?} cols {cols:?} flat {flat:?} at {offset} {owned}",
        names.tensor(piece.tensor)
    )
}

fn write_action(
    out: &mut fmt::Formatter<'_>,
    names: &Names<'_>,
    rank: Rank,
    instr: &Instr,
) -> fmt::Result {
    let view = |view: &View| names.view(rank, *view);
    let hops = |hops: u32| if hops == 1 { String::new() } else { format!(" hops {hops}") };
    match &instr.action {
        Action::Launch { op, inputs, outputs } => {
            write!(out, " {}", compact::print_op(op))?;
            for input in inputs {
                write!(out, " {}", view(input))?;
            }
            out.write_str(" ->")?;
            for output in outputs {
                write!(out, " {}", view(output))?;
            }
            Ok(())
        }
        Action::Send { view: sent, to, tag, hops: n } => {
            write!(out, " send {} to {to} tag {}{}", view(sent), tag.0, hops(*n))
        }
        Action::Recv { view: into, from, tag, hops: n } => {
            write!(out, " recv {} from {from} tag {}{}", view(into), tag.0, hops(*n))
        }
        Action::Copy { from, to } => write!(out, " copy {} -> {}", view(from), view(to)),
    }
}

fn write_origin(out: &mut fmt::Formatter<'_>, origin: Origin) -> fmt::Result {
    if origin == Origin::default() {
        return Ok(());
    }
    write!(out, " | {}", word(&origin.phase))?;
    let numbers =
        [("stage", origin.stage), ("layer", origin.layer), ("microbatch", origin.microbatch)];
    for (name, number) in numbers {
        if let Some(number) = number {
            write!(out, " {name} {number}")?;
        }
    }
    if let Some(collective) = origin.collective {
        write!(out, " {} {}", word(&collective.kind), collective.id)?;
    }
    match origin.axis {
        Some(axis) => write!(out, " axis {axis}"),
        None => Ok(()),
    }
}

/// How buffers and tensors are named: by label where that is unambiguous, else `#17`.
struct Names<'a> {
    plan: &'a Plan,
    buffers: BTreeMap<(Rank, &'a str), Option<BufferId>>,
    tensors: BTreeMap<&'a str, Option<u32>>,
}

impl<'a> Names<'a> {
    fn new(plan: &'a Plan) -> Self {
        let (mut buffers, mut tensors) = (BTreeMap::new(), BTreeMap::new());
        for (id, decl) in (0..).map(BufferId).zip(&plan.buffers) {
            let id = is_bare(&decl.label).then_some(id);
            let entry = buffers.entry((decl.rank, decl.label.as_str()));
            entry.and_modify(|seen| *seen = None).or_insert(id);
        }
        for (id, tensor) in (0..).zip(&plan.tensors) {
            let id = is_bare(&tensor.name).then_some(id);
            let entry = tensors.entry(tensor.name.as_str());
            entry.and_modify(|seen| *seen = None).or_insert(id);
        }
        Self { plan, buffers, tensors }
    }

    fn tensor(&self, id: u32) -> String {
        let tensor = self.plan.tensors.get(id as usize);
        match tensor.map(|tensor| tensor.name.as_str()) {
            Some(name) if self.tensors[name] == Some(id) => name.into(),
            _ => format!("#{id}"),
        }
    }

    fn view(&self, rank: Rank, view: View) -> String {
        let decl = self.plan.buffers.get(view.buffer.0 as usize);
        let mut name = match decl.map(|decl| decl.label.as_str()) {
            Some(label) if self.buffers.get(&(rank, label)) == Some(&Some(view.buffer)) => {
                label.into()
            }
            _ => format!("#{}", view.buffer.0),
        };
        if view.offset != 0 || decl.is_none_or(|decl| decl.len != view.len) {
            let end = u64::from(view.offset) + u64::from(view.len);
            name.push_str(&format!("[{}..{end}]", view.offset));
        }
        name
    }
}

/// Whether a name can stand without quotes and is no `#17`.
fn is_bare(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-/:".contains(c);
    !name.is_empty() && name.chars().all(plain)
}

fn quoted(name: &str) -> String {
    if is_bare(name) {
        return name.into();
    }
    serde_json::to_string(name).expect("a string is valid JSON")
}

/// The serialized word of an enum without fields.
fn word<T: Serialize>(value: &T) -> String {
    let value = serde_json::to_value(value).expect("plain data serializes");
    value.as_str().expect("an enum without fields is one word").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Axis;
    use crate::ops::attention::{Attention, Heads};
    use crate::ops::elementwise::{Fill, Scale};
    use crate::ops::{Op, reduction::SumRanks};
    use crate::plan::sample::{Sample, one_f_one_b, pipeline, random_program};
    use crate::plan::{Collective, CollectiveKind, Input, Life, Output, Phase, Role, Tag};
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn a_small_pipeline_reads_well_and_comes_back() {
        let plan = pipeline(&one_f_one_b(2, 1));
        let text = print(&plan);
        expect![[r#"
            mesh dp=1 tp=1 pp=2 order=tp-dp-pp
            tensor model.w.r0 [64]
            tensor model.w.r1 [64]
            buffer 0 w weights f32[64] Persistent persistent+0
              piece model.w.r0 Weight rows 0..64 cols 0..1 flat 0..64 at 0 owned
            buffer 0 d_w gradients f32[64] Step step+0
            buffer 0 y.m0 activations f32[64] Step step+256
            buffer 0 d_y.m0 activations f32[64] Step step+512
            buffer 0 d_x.m0 activations f32[64] Step step+768
            buffer 0 scalars workspace f32[4] Input=Scalars io+0
            buffer 0 norm workspace f32[1] Step step+1024
            buffer 1 w weights f32[64] Persistent persistent+0
              piece model.w.r1 Weight rows 0..64 cols 0..1 flat 0..64 at 0 owned
            buffer 1 d_w gradients f32[64] Step step+0
            buffer 1 x.m0 activations f32[64] Step step+256
            buffer 1 y.m0 activations f32[64] Step step+512
            buffer 1 d_x.m0 activations f32[64] Step step+768
            buffer 1 scalars workspace f32[4] Input=Scalars io+0
            buffer 1 norm workspace f32[1] Step step+1024
            rank 0
              0 compute Add(len=64) w w -> y.m0 | forward stage 0 microbatch 0
              1 pp>1 send y.m0 to 1 tag 0 | forward stage 0 microbatch 0
              2 posted recv d_y.m0 from 1 tag 1 | backward stage 0 microbatch 0
              3 compute Add(len=64) d_y.m0 y.m0 -> d_x.m0 | backward stage 0 microbatch 0
              4 compute SumRanks(accumulate=false len=64 own=null ranks=1) d_x.m0 -> d_w | backward stage 0 microbatch 0
              5 compute SquaredNorm(accumulate=false guard=false len=64) d_w -> norm | optimizer stage 0
              6 compute Sgd(clip_norm=0.0 len=64) d_w norm scalars -> w | optimizer stage 0
            rank 1
              0 posted recv x.m0 from 0 tag 0 | forward stage 1 microbatch 0
              1 compute Add(len=64) x.m0 w -> y.m0 | forward stage 1 microbatch 0
              2 compute Add(len=64) w y.m0 -> d_x.m0 | backward stage 1 microbatch 0
              3 pp>0 send d_x.m0 to 0 tag 1 | backward stage 1 microbatch 0
              4 compute SumRanks(accumulate=false len=64 own=null ranks=1) d_x.m0 -> d_w | backward stage 1 microbatch 0
              5 compute SquaredNorm(accumulate=false guard=false len=64) d_w -> norm | optimizer stage 1
              6 compute Sgd(clip_norm=0.0 len=64) d_w norm scalars -> w | optimizer stage 1
        "#]]
        .assert_eq(&text);
        assert_eq!(parse(&text).unwrap(), plan);
    }

    #[test]
    fn odd_names_ops_and_values_come_back() {
        let mut sample = Sample::new(2);
        let x = sample.step(0, "a label", 8);
        let twin = sample.step(0, "twin", 8);
        let twin_2 = sample.step(0, "twin", 8);
        let there = sample.step(1, "y", 8);
        let loss = Life::Output(Output::LossSum { counted: true });
        sample.declare(1, "loss \"sum\"", Role::Workspace, loss, 1);
        let tokens = Life::Input(Input::Tokens { first_row: 3, rows: 2 });
        sample.declare(1, "tokens", Role::Workspace, tokens, 4);
        let table = Input::RopeTable { seq: 4, head_dim: 2, theta_bits: 10_000f64.to_bits() };
        sample.declare(1, "rope", Role::Workspace, Life::Input(table), 4);
        sample.weight(0, "with space", 4);
        let heads = Heads {
            seq: 4,
            batch: 1,
            heads: 2,
            kv_heads: 1,
            head_dim: 2,
            group: 2,
            first_head: 0,
            first_kv_head: 0,
        };
        sample.launch(0, Op::Attention(Attention { heads }), &[x, twin], &[twin_2, there]);
        sample.origin = Origin {
            phase: Phase::GradReduce,
            stage: Some(1),
            layer: Some(2),
            microbatch: Some(3),
            collective: Some(Collective { kind: CollectiveKind::AllReduce, id: u64::MAX }),
            axis: Some(Axis::Dp),
        };
        let sum = SumRanks { ranks: 3, own: Some(1), len: 0, accumulate: false };
        sample.launch(0, Op::SumRanks(sum), &[], &[x.slice(2..5)]);
        sample.launch(0, Op::Scale(Scale { len: 8, factor: f32::NEG_INFINITY }), &[], &[x]);
        sample.push(0, Lane::Reduce, Action::Copy { from: x, to: twin });
        let hops = Action::Recv { view: x, from: Rank(1), tag: Tag(1), hops: 7 };
        sample.push(0, Lane::Posted, hops);
        let plan = sample.plan;
        assert_eq!(parse(&print(&plan)).unwrap(), plan);
    }

    #[test]
    fn not_a_number_comes_back_as_not_a_number() {
        let mut sample = Sample::new(1);
        let x = sample.step(0, "x", 8);
        sample.launch(0, Op::Fill(Fill { len: 8, value: f32::NAN }), &[], &[x]);
        let text = print(&sample.plan);
        assert!(text.contains("Fill(len=8 value=NaN) -> x"), "{text}");
        assert_eq!(print(&parse(&text).unwrap()), text);
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let good = print(&pipeline(&one_f_one_b(2, 1)));
        let error = |from: &str, to: &str| {
            assert!(good.contains(from), "{from} is in the text");
            parse(&good.replacen(from, to, 1)).unwrap_err().to_string()
        };
        let errors = [
            error("pp=2", "pp=x"),
            error("f32[64] Persistent", "f32[64] Forever"),
            error("rank 1\n", "rank 2\n"),
            error("  1 pp>1", "  2 pp>1"),
            error("send y.m0 to 1", "send nothing to 1"),
            error("Add(len=64)", "Sub(len=64)"),
            error("Add(len=64)", "Add(len=-1)"),
            error("Add(len=64)", "Add(len=64"),
            error("w w -> y.m0", "w w"),
            error("forward stage", "forwards stage"),
        ];
        expect![[r#"
            line 1: expected a number for pp, found x
            line 4: expected a life such as Step or Persistent (unknown variant `Forever`), found Forever
            line 28: expected 1: ranks come in order, found 2
            line 22: expected instruction 1 or the next rank, found 2
            line 22: expected a view such as y.m0[0..8] of a buffer of this rank, found nothing
            line 21: expected an op such as Add(len=8) (unknown variant `Sub`), found Sub(len=64)
            line 21: expected an op such as Add(len=8) (invalid value: integer `-1`, expected u32), found Add(len=-1)
            line 21: expected =, found w
            line 21: expected a view such as y.m0[0..8] of a buffer of this rank, found |
            line 21: expected a phase such as forward, found forwards"#]].assert_eq(&errors.join("\n"));
    }

    proptest! {
        #[test]
        fn any_program_comes_back(plan in random_program()) {
            prop_assert_eq!(parse(&print(&plan)).unwrap(), plan);
        }

        #[test]
        fn any_float_and_any_schedule_come_back(
            bits in any::<u32>(), p in 1u32..4, m in 1u32..4, start in 0u32..8, len in 0u32..8,
        ) {
            let mut plan = pipeline(&one_f_one_b(p, m));
            let factor = f32::from_bits(bits);
            prop_assume!(!factor.is_nan());
            let view = View { buffer: BufferId(start % 3), offset: start, len };
            let op = Op::Scale(Scale { len, factor });
            let action = Action::Launch { op, inputs: vec![], outputs: vec![view] };
            plan.programs[0].instrs[0].action = action;
            prop_assert_eq!(parse(&print(&plan)).unwrap(), plan);
        }
    }
}
