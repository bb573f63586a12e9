//! A step as Chrome trace events in the words of PyTorch's profiler (Kineto), so that Perfetto draws
//! it and Holistic Trace Analysis reads it: one file a rank, or all ranks in one.
//!
//! A rank is a process. Its lanes are threads, numbered as streams: each runs in order, so no two
//! slices of a thread overlap. A message is a slice on both sides, joined by a flow. Times are
//! microseconds with three digits, exact to the nanosecond.

mod groups;
mod spaced;
mod threads;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use self::groups::{Group, groups};
use self::spaced::spaced;
use self::threads::Threads;
use crate::ledger::ByRole;
use crate::mesh::Rank;
use crate::ops::Kernel as _;
use crate::plan::{Action, Collective, CollectiveKind, Instr, Lane, Origin, Plan, View};
use crate::trace::draw::{Work, label};
use crate::trace::{Badge, Span, Trace};
use crate::units::{Bytes, Nanos, grouped};

/// Added to a rank: the process of its step marks, which are no work of a device.
const MARKS: u32 = 100_000;
/// Instructions of a rank from which the size of its file is estimated.
const SAMPLES: usize = 256;

/// One event; what is absent is not written.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Event {
    /// The kind: `X` a slice, `M` a name, `s` and `f` the ends of a flow, `C` a counter.
    pub ph: &'static str,
    /// Category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cat: Option<&'static str>,
    /// Name.
    pub name: String,
    /// Process: the rank.
    pub pid: u32,
    /// Thread: the lane.
    pub tid: u64,
    /// Start in microseconds.
    pub ts: Micros,
    /// Duration in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<Micros>,
    /// Joins the ends of a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Binds the end of a flow to the slice around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bp: Option<&'static str>,
    /// Whatever else is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<&'static str, Value>,
}

/// A time that is written in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub Nanos);

impl Serialize for Micros {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.0 as f64 / 1e3)
    }
}

/// How large a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// How many events it has.
    pub events: u64,
    /// How long it is.
    pub bytes: Bytes,
}

impl Size {
    /// What trace viewers show reliably. Above it some stay blank or lose events (Kineto 805: 500 MB;
    /// Chrome's viewer: about a million events).
    pub const LIMIT: Self = Self { events: 1_000_000, bytes: Bytes(500_000_000) };

    /// Whether viewers may fail on it.
    pub fn is_too_large(self) -> bool {
        self.events > Self::LIMIT.events || self.bytes > Self::LIMIT.bytes
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {}", grouped(self.events), self.bytes)
    }
}

/// A step that is exported.
#[derive(Debug)]
pub struct Kineto<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    devices: &'a [String],
    memory: &'a [Vec<ByRole>],
    /// What is left of the step, and the time that it takes.
    window: Option<(Span, Span)>,
    groups: Vec<Group>,
    /// A number for each message, by sender, receiver and tag: unique in the file.
    flows: BTreeMap<(Rank, Rank, u64), u64>,
}

impl<'a> Kineto<'a> {
    /// A step on devices of these names, with what is live at every instruction,
    /// `[rank][instruction]`; both may be empty.
    pub fn new(
        plan: &'a Plan,
        trace: &'a Trace,
        devices: &'a [String],
        memory: &'a [Vec<ByRole>],
    ) -> Self {
        let mut flows = BTreeMap::new();
        for (from, program) in plan.mesh.ranks().zip(&plan.programs) {
            for instr in &program.instrs {
                if let Action::Send { to, tag, .. } = instr.action {
                    let next = flows.len() as u64;
                    flows.insert((from, to, tag.0), next);
                }
            }
        }
        let groups = groups(plan.mesh);
        Self { plan, trace, devices, memory, window: None, groups, flows }
    }

    /// The same with what runs in a window alone, if one is given; what only reaches into it is kept
    /// whole.
    #[must_use]
    pub fn within(self, window: Option<Span>) -> Self {
        let all = |all: Span, span: &Span| Span {
            start: all.start.min(span.start),
            end: all.end.max(span.end),
        };
        let window = window.map(|window| {
            let spans = self.trace.spans.iter().flatten().filter(|span| span.touches(window));
            (window, spans.fold(window, all))
        });
        Self { window, ..self }
    }

    /// How large the file of all ranks will be about, without writing it: from every n-th
    /// instruction of each rank.
    pub fn estimate(&self) -> Size {
        let mut size = Size::default();
        let mut whole = Counted::new(io::sink());
        for rank in self.plan.mesh.ranks() {
            let threads = Threads::of(self.plan, rank);
            let memory = self.live(rank);
            let kept: Vec<usize> = self.kept(rank).collect();
            let samples = kept.iter().step_by(kept.len().div_ceil(SAMPLES).max(1));
            let slices: Vec<Event> =
                samples.clone().flat_map(|&instr| self.slices(rank, &threads, instr)).collect();
            let counters = memory.iter().step_by(memory.len().div_ceil(SAMPLES).max(1));
            let counters: Vec<Event> = counters.map(|live| counter(rank, live)).collect();
            for (events, sampled, all) in [
                (&self.heading(rank, &threads), 1, 1),
                (&slices, samples.len(), kept.len()),
                (&counters, counters.len(), memory.len()),
            ] {
                let scaled = |sum: u64| (sum as f64 * all as f64 / sampled.max(1) as f64) as u64;
                let before = whole.bytes;
                // A sink takes everything.
                if events.iter().all(|event| whole.event(event).is_ok()) {
                    size.events += scaled(events.len() as u64);
                    size.bytes += Bytes(scaled(whole.bytes - before));
                }
            }
        }
        size
    }

    /// Writes one rank's file, and says how large it is.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_rank(&self, rank: Rank, out: &mut dyn Write) -> io::Result<Size> {
        self.write(rank, [rank].into_iter(), out)
    }

    /// Writes all ranks into one file, and says how large it is.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_all(&self, out: &mut dyn Write) -> io::Result<Size> {
        self.write(Rank(0), self.plan.mesh.ranks(), out)
    }

    /// One event a line, so that text tools can read it.
    fn write(
        &self,
        named: Rank,
        ranks: impl Iterator<Item = Rank>,
        out: &mut dyn Write,
    ) -> io::Result<Size> {
        let mesh = self.plan.mesh;
        let groups: Vec<Value> = self.groups.iter().map(Group::json).collect();
        let info = json!({
            "backend": "nccl", "rank": named, "world_size": mesh.size(),
            "pg_count": groups.len(), "pg_config": groups,
        });
        let device = |rank: Rank| {
            let name = self.devices.get(rank.index()).map_or("a device", String::as_str);
            json!({ "id": rank, "name": format!("virtual rank {rank} on {name}") })
        };
        let devices: Vec<Value> = mesh.ranks().map(device).collect();
        let mut out = Counted::new(out);
        // Analysers look for the rank with a pattern that wants a space after the colon.
        writeln!(out, "{{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\",")?;
        writeln!(out, "\"distributedInfo\": {},", spaced(&info)?)?;
        writeln!(out, "\"deviceProperties\": {},", spaced(&devices)?)?;
        write!(out, "\"traceEvents\": [")?;
        for rank in ranks {
            for event in self.events(rank) {
                out.event(&event)?;
            }
        }
        writeln!(out, "\n]}}")?;
        Ok(Size { events: out.events, bytes: Bytes(out.bytes) })
    }

    /// The events of a rank: its names, its step, its slices, its flows, its memory.
    pub fn events(&self, rank: Rank) -> Vec<Event> {
        let threads = Threads::of(self.plan, rank);
        let mut events = self.heading(rank, &threads);
        events.extend(self.kept(rank).flat_map(|instr| self.slices(rank, &threads, instr)));
        events.extend(self.live(rank).iter().map(|live| counter(rank, live)));
        events
    }

    /// The instructions of a rank that run in the window.
    fn kept(&self, rank: Rank) -> impl Iterator<Item = usize> {
        let spans = self.trace.spans[rank.index()].iter().enumerate();
        let is_kept = |span: &Span| self.window.is_none_or(|(window, _)| span.touches(window));
        spans.filter(move |(_, span)| is_kept(span)).map(|(instr, _)| instr)
    }

    /// The slice of an instruction, and its end of a flow.
    fn slices(&self, rank: Rank, threads: &Threads, index: usize) -> impl Iterator<Item = Event> {
        let instr = &self.plan.programs[rank.index()].instrs[index];
        let span = self.trace.span(rank, index);
        let tid = threads.of_instr(instr);
        let slice = match instr.action {
            Action::Launch { .. } | Action::Copy { .. } => kernel(instr),
            Action::Send { view, .. } | Action::Recv { view, .. } => {
                self.message(rank, instr.origin, view)
            }
        };
        let slice = placed(slice, (rank, tid), span);
        [slice].into_iter().chain(self.flow(rank, tid, instr, span))
    }

    /// What a rank is called, and its step.
    fn heading(&self, rank: Rank, threads: &Threads) -> Vec<Event> {
        let mut events = self.names(rank, threads);
        events.push(self.mark(rank));
        events
    }

    fn names(&self, rank: Rank, threads: &Threads) -> Vec<Event> {
        let at = self.plan.mesh.coord(rank);
        let meta = |pid: u32, tid, name: &str, key, value: Value| Event {
            ph: "M",
            name: name.into(),
            pid,
            tid,
            args: BTreeMap::from([(key, value)]),
            ..Event::default()
        };
        let digits = self.plan.mesh.size().saturating_sub(1).to_string().len();
        let name = format!("rank {:0digits$} (dp{} tp{} pp{})", rank.0, at.dp, at.tp, at.pp);
        let clock = format!("{} clock", Badge::from(self.trace.clock).word());
        let mut events = vec![
            meta(rank.0, 0, "process_name", "name", json!(name)),
            meta(rank.0, 0, "process_labels", "labels", json!(clock)),
            meta(rank.0, 0, "process_sort_index", "sort_index", json!(rank)),
        ];
        for (tid, name) in &threads.names {
            let stream = format!("stream {tid} {name}");
            events.push(meta(rank.0, *tid, "thread_name", "name", json!(stream)));
            events.push(meta(rank.0, *tid, "thread_sort_index", "sort_index", json!(tid)));
        }
        events
    }

    /// The whole step, on a process that is no device.
    fn mark(&self, rank: Rank) -> Event {
        let whole = Span { start: Nanos(0), end: self.trace.end() };
        let span = self.window.map_or(whole, |(_, extent)| extent);
        let mark = Event {
            ph: "X",
            cat: Some("user_annotation"),
            name: format!("ProfilerStep#{}", self.trace.step),
            args: BTreeMap::from([("External id", json!(1))]),
            ..Event::default()
        };
        placed(mark, (Rank(MARKS + rank.0), 1), span)
    }

    /// Half of a message, named as analysers know communication.
    fn message(&self, rank: Rank, origin: Origin, view: View) -> Event {
        let (name, word) = match origin.collective.map(|Collective { kind, .. }| kind) {
            Some(CollectiveKind::AllReduce) => ("ncclKernel_AllReduce_Sum_f32", "allreduce"),
            Some(CollectiveKind::ReduceScatter) => {
                ("ncclKernel_ReduceScatter_Sum_f32", "reduce_scatter")
            }
            Some(CollectiveKind::AllGather) => ("ncclKernel_AllGather_f32", "allgather"),
            Some(CollectiveKind::Broadcast) => ("ncclKernel_Broadcast_f32", "broadcast"),
            Some(CollectiveKind::PointToPoint) | None => ("ncclKernel_SendRecv_f32", "send_recv"),
        };
        let group = self.groups.iter().find(|group| {
            group.axis.is_some() && group.axis == origin.axis && group.ranks.contains(&rank)
        });
        let group = group.or(self.groups.first());
        let mut args = work_args(origin);
        args.extend([
            ("Collective name", json!(word)),
            ("In msg nelems", json!(view.len)),
            ("Out msg nelems", json!(view.len)),
            ("dtype", json!("Float")),
            ("In split size", json!("[]")),
            ("Out split size", json!("[]")),
            ("bytes", json!(self.plan.view_bytes(view))),
        ]);
        if let Some(group) = group {
            args.extend([
                ("Group size", json!(group.ranks.len())),
                ("Process Group Name", json!(group.name)),
                ("Process Group Description", json!(group.description())),
                ("Process Group Ranks", json!(group.list())),
            ]);
        }
        Event { ph: "X", cat: Some("kernel"), name: name.into(), args, ..Event::default() }
    }

    /// This rank's end of the flow of a message.
    fn flow(&self, rank: Rank, tid: u64, instr: &Instr, span: Span) -> Option<Event> {
        let (ph, bp, from, to, tag) = match instr.action {
            Action::Send { to, tag, .. } => ("s", None, rank, to, tag),
            Action::Recv { from, tag, .. } => ("f", Some("e"), from, rank, tag),
            Action::Launch { .. } | Action::Copy { .. } => return None,
        };
        let id = *self.flows.get(&(from, to, tag.0))?;
        let (cat, name) = (Some("message"), "message".into());
        let (pid, ts, id) = (rank.0, Micros(span.start), Some(id));
        Some(Event { ph, cat, name, pid, tid, ts, id, bp, ..Event::default() })
    }

    /// Live memory wherever it changes, from what it is when the window begins.
    fn live(&self, rank: Rank) -> Vec<(Nanos, &ByRole)> {
        let Some(rows) = self.memory.get(rank.index()) else { return Vec::new() };
        let program = self.plan.programs[rank.index()].instrs.iter().zip(rows).enumerate();
        let timed = program.filter(|(_, (instr, _))| instr.lane == Lane::Compute);
        let timed = timed.map(|(index, (_, row))| (self.trace.span(rank, index).start, row));
        let mut timed: Vec<(Nanos, &ByRole)> = timed.collect();
        if let Some((Span { start, end }, _)) = self.window {
            timed.truncate(timed.partition_point(|(at, _)| *at < end));
            let before = timed.partition_point(|(at, _)| *at < start).saturating_sub(1);
            timed.drain(..before);
            timed.iter_mut().for_each(|(at, _)| *at = start.max(*at));
        }
        timed.dedup_by_key(|(_, row)| *row);
        timed
    }
}

/// The live memory of a rank at an instant.
fn counter(rank: Rank, (start, live): &(Nanos, &ByRole)) -> Event {
    let names = ["weights", "gradients", "optimizer", "activations", "workspace"];
    Event {
        ph: "C",
        name: "memory".into(),
        pid: rank.0,
        ts: Micros(*start),
        args: names.into_iter().zip(live.bytes().map(|bytes| json!(bytes))).collect(),
        ..Event::default()
    }
}

/// A file that counts what is written into it.
struct Counted<W> {
    out: W,
    bytes: u64,
    events: u64,
}

impl<W: Write> Counted<W> {
    fn new(out: W) -> Self {
        Self { out, bytes: 0, events: 0 }
    }

    /// Writes an event on a line of its own.
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let comma = if self.events > 0 { "," } else { "" };
        self.events += 1;
        write!(self, "{comma}\n{}", spaced(event)?)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A launch or a copy: `F3 L0 rmsnorm`.
fn kernel(instr: &Instr) -> Event {
    let work = Work::of(instr.origin);
    let mut name = label(work, instr.origin.microbatch);
    if let Some(layer) = instr.origin.layer {
        name += &format!(" L{layer}");
    }
    name += &match &instr.action {
        Action::Launch { op, .. } => format!(" {}", op.name()),
        Action::Copy { .. } | Action::Send { .. } | Action::Recv { .. } => " copy".into(),
    };
    let args = work_args(instr.origin);
    Event { ph: "X", cat: Some("kernel"), name, args, ..Event::default() }
}

fn work_args(origin: Origin) -> BTreeMap<&'static str, Value> {
    let mut args = BTreeMap::from([("phase", json!(Work::of(origin).letters()))]);
    let numbers =
        [("stage", origin.stage), ("layer", origin.layer), ("microbatch", origin.microbatch)];
    for (name, number) in numbers {
        args.extend(number.map(|number| (name, json!(number))));
    }
    args
}

/// A slice in its place; a rank's own threads are streams of a device.
fn placed(slice: Event, (rank, tid): (Rank, u64), span: Span) -> Event {
    let Event { mut args, mut cat, .. } = slice;
    let takes_time = span.end > span.start;
    if cat == Some("kernel") && takes_time {
        args.extend([("device", json!(rank)), ("stream", json!(tid))]);
    } else if cat == Some("kernel") {
        // Over free links a message takes no time. Analysers add up the gaps between kernels and
        // stumble over one that is nowhere; the flow needs the slice all the same.
        cat = Some("message");
    }
    let (ts, dur) = (Micros(span.start), Some(Micros(span.duration())));
    Event { pid: rank.0, tid, ts, dur, cat, args, ..slice }
}
