//! A step as Chrome trace events in the words of PyTorch's profiler (Kineto), so that Perfetto draws
//! it and Holistic Trace Analysis reads it: one file a rank, or all ranks in one.
//!
//! A rank is a process. Its lanes are threads, numbered as streams: each runs in order, so no two
//! slices of a thread overlap. A message is a slice on both sides, joined by a flow. Times are
//! microseconds with three digits, exact to the nanosecond.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::mesh::{Axis, Mesh, Rank};
use crate::ops::Kernel as _;
use crate::plan::{Action, Collective, CollectiveKind, Instr, Lane, Origin, Plan, Role, View};
use crate::trace::draw::{Work, label};
use crate::trace::{Badge, Span, Trace};
use crate::units::Nanos;

/// Thread of the Compute lane: the number of a stream, as profilers show it.
const COMPUTE: u64 = 7;
/// Thread of the Reduce lane.
const REDUCE: u64 = 8;
/// First thread of the messages that a rank sends; those that it receives follow.
const MESSAGES: u64 = 20;
/// Added to a rank: the process of its step marks, which are no work of a device.
const MARKS: u32 = 100_000;

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

/// Live bytes by [`Role::ALL`].
pub type Live = [u64; Role::ALL.len()];

/// A step that is exported.
#[derive(Debug)]
pub struct Kineto<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    devices: &'a [String],
    memory: &'a [Vec<Live>],
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
        memory: &'a [Vec<Live>],
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
        Self { plan, trace, devices, memory, groups: groups(plan.mesh), flows }
    }

    /// Writes one rank's file.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_rank(&self, rank: Rank, out: &mut dyn Write) -> io::Result<()> {
        self.write(rank, &self.events(rank), out)
    }

    /// Writes all ranks into one file.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_all(&self, out: &mut dyn Write) -> io::Result<()> {
        let events: Vec<Event> =
            self.plan.mesh.ranks().flat_map(|rank| self.events(rank)).collect();
        self.write(Rank(0), &events, out)
    }

    /// One event a line, so that text tools can read it.
    fn write(&self, rank: Rank, events: &[Event], out: &mut dyn Write) -> io::Result<()> {
        let mesh = self.plan.mesh;
        let groups: Vec<Value> = self.groups.iter().map(Group::json).collect();
        let info = json!({
            "backend": "nccl", "rank": rank, "world_size": mesh.size(),
            "pg_count": groups.len(), "pg_config": groups,
        });
        let device = |rank: Rank| {
            let name = self.devices.get(rank.index()).map_or("a device", String::as_str);
            json!({ "id": rank, "name": format!("virtual rank {rank} on {name}") })
        };
        let devices: Vec<Value> = mesh.ranks().map(device).collect();
        // Analysers look for the rank with a pattern that wants a space after the colon.
        writeln!(out, "{{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\",")?;
        writeln!(out, "\"distributedInfo\": {},", spaced(&info)?)?;
        writeln!(out, "\"deviceProperties\": {},", spaced(&devices)?)?;
        writeln!(out, "\"traceEvents\": [")?;
        for (index, event) in events.iter().enumerate() {
            let comma = if index + 1 < events.len() { "," } else { "" };
            writeln!(out, "{}{comma}", spaced(event)?)?;
        }
        writeln!(out, "]}}")
    }

    /// The events of a rank: its names, its step, its slices, its flows, its memory.
    pub fn events(&self, rank: Rank) -> Vec<Event> {
        let threads = Threads::of(self.plan, rank);
        let mut events = self.names(rank, &threads);
        events.push(self.mark(rank));
        let program = &self.plan.programs[rank.index()].instrs;
        for (index, instr) in program.iter().enumerate() {
            let span = self.trace.span(rank, index);
            let tid = threads.of_instr(instr);
            let slice = match instr.action {
                Action::Launch { .. } | Action::Copy { .. } => kernel(instr),
                Action::Send { view, .. } | Action::Recv { view, .. } => {
                    self.message(rank, instr.origin, view)
                }
            };
            events.push(placed(slice, (rank, tid), span));
            events.extend(self.flow(rank, tid, instr, span));
        }
        events.extend(self.counters(rank));
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
        let span = Span { start: Nanos(0), end: self.trace.end() };
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

    /// Live memory wherever it changes.
    fn counters(&self, rank: Rank) -> Vec<Event> {
        let Some(rows) = self.memory.get(rank.index()) else { return Vec::new() };
        let mut timed: Vec<(Nanos, &Live)> = Vec::new();
        let program = self.plan.programs[rank.index()].instrs.iter().zip(rows).enumerate();
        for (index, (instr, row)) in program {
            if instr.lane == Lane::Compute {
                timed.push((self.trace.span(rank, index).start, row));
            }
        }
        timed.dedup_by_key(|(_, row)| *row);
        let names = ["weights", "gradients", "optimizer", "activations", "workspace"];
        let counter = |(start, row): (Nanos, &Live)| Event {
            ph: "C",
            name: "memory".into(),
            pid: rank.0,
            ts: Micros(start),
            args: names.into_iter().zip(row.iter().map(|bytes| json!(bytes))).collect(),
            ..Event::default()
        };
        timed.into_iter().map(counter).collect()
    }
}

/// The default group, then every group of ranks along an axis.
fn groups(mesh: Mesh) -> Vec<Group> {
    let mut groups = vec![Group { name: "0".into(), axis: None, ranks: mesh.ranks().collect() }];
    for axis in Axis::ALL.into_iter().filter(|&axis| mesh.len(axis) > 1) {
        for rank in mesh.ranks() {
            let ranks = mesh.group(rank, axis);
            if ranks.first() == Some(&rank) {
                let name = groups.len().to_string();
                groups.push(Group { name, axis: Some(axis), ranks });
            }
        }
    }
    groups
}

/// A group of ranks that talk to one another.
#[derive(Debug)]
struct Group {
    name: String,
    axis: Option<Axis>,
    ranks: Vec<Rank>,
}

impl Group {
    fn description(&self) -> String {
        self.axis.map_or_else(|| "default_pg".into(), |axis| axis.to_string())
    }

    /// `[0, 2]`, as a word.
    fn list(&self) -> String {
        let ranks: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
        format!("[{}]", ranks.join(", "))
    }

    fn json(&self) -> Value {
        json!({
            "pg_name": self.name, "pg_desc": self.description(),
            "backend_config": "cuda:nccl", "pg_size": self.ranks.len(), "ranks": self.ranks,
        })
    }
}

/// The threads of a rank: its lanes, and one for what comes from each sender.
struct Threads {
    names: BTreeMap<u64, String>,
    sent: BTreeMap<(Axis, Rank), u64>,
    received: BTreeMap<(Option<Axis>, Rank), u64>,
}

impl Threads {
    fn of(plan: &Plan, rank: Rank) -> Self {
        let names = BTreeMap::from([(COMPUTE, "compute".into()), (REDUCE, "reduce".into())]);
        let mut threads = Self { names, sent: BTreeMap::new(), received: BTreeMap::new() };
        let instrs = &plan.programs[rank.index()].instrs;
        for instr in instrs {
            if let Lane::Out(axis, to) = instr.lane {
                threads.sent.insert((axis, to), 0);
            }
            if let Action::Recv { from, .. } = instr.action {
                threads.received.insert((instr.origin.axis, from), 0);
            }
        }
        let mut next = MESSAGES..;
        for (&(axis, to), tid) in &mut threads.sent {
            *tid = next.next().unwrap_or(u64::MAX);
            threads.names.insert(*tid, format!("{axis} to rank {to}"));
        }
        for (&(axis, from), tid) in &mut threads.received {
            *tid = next.next().unwrap_or(u64::MAX);
            let axis = axis.map_or_else(String::new, |axis| format!("{axis} "));
            threads.names.insert(*tid, format!("{axis}from rank {from}"));
        }
        threads
    }

    fn of_instr(&self, instr: &Instr) -> u64 {
        match (instr.lane, &instr.action) {
            (Lane::Compute, _) => COMPUTE,
            (Lane::Reduce, _) => REDUCE,
            (Lane::Out(axis, to), _) => self.sent[&(axis, to)],
            (Lane::Posted, Action::Recv { from, .. }) => self.received[&(instr.origin.axis, *from)],
            (Lane::Posted, _) => COMPUTE,
        }
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

/// JSON on one line with a space after each colon and comma.
fn spaced(value: &impl Serialize) -> io::Result<String> {
    struct Spaced;
    impl serde_json::ser::Formatter for Spaced {
        fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            writer.write_all(b": ")
        }
        fn begin_object_key<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            writer.write_all(if first { b"" } else { b", " })
        }
        fn begin_array_value<W: ?Sized + Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            writer.write_all(if first { b"" } else { b", " })
        }
    }
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
