//! A device without a GPU: memory of its own, the host's kernels, and a queue that may run late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use crate::exec::device::{Batch, Device, DeviceInfo, DeviceKind, Download};
use crate::exec::{DeviceSlot, ExecError};
use crate::mesh::Rank;
use crate::ops::{Args, Kernel};
use crate::plan::{Action, Arena, Plan, View};
use crate::units::{Bytes, Nanos};

/// When what was encoded runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// At the submit, as on a very fast device.
    AtSubmit,
    /// When the batch was asked after this many times.
    Late(u32),
    /// Never: the device is stuck.
    Never,
}

/// What a test may know of a device that the executor owns.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) submits: AtomicUsize,
    pub(super) commands: AtomicUsize,
}

#[derive(Debug)]
enum Command {
    Instr { plan: usize, rank: Rank, instr: usize },
    Message { plan: usize, from: (Rank, View), to: (Rank, View) },
    Download { plan: usize, view: View, slot: usize },
    Upload { plan: usize, view: View, bytes: Vec<u8> },
}

/// The device.
#[derive(Debug)]
pub(super) struct Loopback {
    info: DeviceInfo,
    mode: Mode,
    /// Commands after which it is lost.
    pub(super) lost_after: usize,
    /// Command at which it panics.
    pub(super) panics_at: usize,
    /// Whether it has timestamps: one microsecond for each instruction, from an odd origin.
    pub(super) has_timestamps: bool,
    plans: BTreeMap<usize, Plan>,
    /// Persistent arenas have no plan.
    arenas: BTreeMap<(Option<usize>, Rank, Arena), Vec<u8>>,
    queue: Vec<Command>,
    waiting: VecDeque<(Batch, Vec<Command>, u32)>,
    next_batch: u64,
    downloads: Vec<Option<Vec<u8>>>,
    timed: BTreeMap<Batch, Vec<(Rank, usize, Nanos, Nanos)>>,
    log: Arc<Log>,
}

impl Loopback {
    pub(super) fn new(name: &str, mode: Mode) -> Self {
        let info = DeviceInfo {
            name: name.into(),
            kind: DeviceKind::Software,
            api: "loopback".into(),
            driver: "none".into(),
        };
        Self {
            info,
            mode,
            lost_after: usize::MAX,
            panics_at: usize::MAX,
            has_timestamps: false,
            plans: BTreeMap::new(),
            arenas: BTreeMap::new(),
            queue: Vec::new(),
            waiting: VecDeque::new(),
            next_batch: 0,
            downloads: Vec::new(),
            timed: BTreeMap::new(),
            log: Arc::default(),
        }
    }

    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    pub(super) fn slot(self) -> DeviceSlot {
        DeviceSlot::Device(Box::new(self))
    }

    fn lost(&self) -> ExecError {
        ExecError::Device {
            device: self.info.name.clone(),
            why: "the device was lost".into(),
            remedy: "Restart".into(),
        }
    }

    fn push(&mut self, command: Command) -> Result<(), ExecError> {
        let count = self.log.commands.fetch_add(1, SeqCst);
        assert!(count < self.panics_at, "on purpose");
        if count >= self.lost_after {
            return Err(self.lost());
        }
        self.queue.push(command);
        Ok(())
    }

    fn memory(&mut self, plan: usize, view: View) -> &mut [u8] {
        let (arena, bytes) = self.plans[&plan].view_place(view);
        let rank = self.plans[&plan].buffer(view.buffer).rank;
        let owner = (arena != Arena::Persistent).then_some(plan);
        let memory = self.arenas.get_mut(&(owner, rank, arena)).unwrap();
        &mut memory[bytes.start as usize..bytes.end as usize]
    }

    fn floats(&mut self, plan: usize, view: View) -> Vec<f32> {
        let words = self.memory(plan, view).as_chunks::<4>().0.iter();
        words.map(|&word| f32::from_ne_bytes(word)).collect()
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Message { plan, from: (_, from), to: (_, to) } => {
                let bytes = self.memory(plan, from).to_vec();
                self.memory(plan, to).copy_from_slice(&bytes);
            }
            Command::Download { plan, view, slot } => {
                self.downloads[slot] = Some(self.memory(plan, view).to_vec());
            }
            Command::Upload { plan, view, bytes } => {
                self.memory(plan, view).copy_from_slice(&bytes);
            }
            Command::Instr { plan, rank, instr } => self.instr(plan, rank, instr),
        }
    }

    fn instr(&mut self, plan: usize, rank: Rank, instr: usize) {
        match self.plans[&plan].programs[rank.index()].instrs[instr].action.clone() {
            Action::Copy { from, to } => {
                let bytes = self.memory(plan, from).to_vec();
                self.memory(plan, to).copy_from_slice(&bytes);
            }
            Action::Launch { op, inputs, outputs } => {
                let read: Vec<_> = inputs.iter().map(|&view| self.floats(plan, view)).collect();
                let mut written: Vec<_> =
                    outputs.iter().map(|&view| self.floats(plan, view)).collect();
                let inputs: Vec<&[f32]> = read.iter().map(Vec::as_slice).collect();
                let mut slices: Vec<&mut [f32]> =
                    written.iter_mut().map(Vec::as_mut_slice).collect();
                Args::with(&inputs, &mut slices, |args| {
                    (0..op.parts()).for_each(|part| op.run(part, args));
                });
                for (view, values) in outputs.into_iter().zip(written) {
                    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
                    self.memory(plan, view).copy_from_slice(&bytes);
                }
            }
            Action::Send { .. } | Action::Recv { .. } => panic!("messages are not encoded so"),
        }
    }

    /// Runs a batch and all before it.
    fn run_until(&mut self, batch: Batch) {
        while self.waiting.front().is_some_and(|(first, ..)| *first <= batch) {
            let (first, commands, _) = self.waiting.pop_front().unwrap();
            let mut timed = Vec::new();
            for command in commands {
                if let Command::Instr { rank, instr, .. } = command {
                    let start = 1_000_000_007 + 1_000 * timed.len() as u64;
                    timed.push((rank, instr, Nanos(start), Nanos(start + 1_000)));
                }
                self.execute(command);
            }
            if self.has_timestamps {
                self.timed.insert(first, timed);
            }
        }
    }
}

impl Device for Loopback {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn load(&mut self, plan_index: usize, plan: &Plan, ranks: &[Rank]) -> Result<(), ExecError> {
        for (_, decl) in ranks.iter().flat_map(|&rank| plan.buffers_of(rank)) {
            let arena = decl.place.arena;
            let owner = (arena != Arena::Persistent).then_some(plan_index);
            let memory = self.arenas.entry((owner, decl.rank, arena)).or_default();
            let end = (decl.place.offset + decl.bytes().0) as usize;
            memory.resize(memory.len().max(end), 0);
        }
        self.plans.insert(plan_index, plan.clone());
        Ok(())
    }

    fn encode(&mut self, plan: usize, rank: Rank, instr: usize) -> Result<(), ExecError> {
        self.push(Command::Instr { plan, rank, instr })
    }

    fn encode_message(
        &mut self,
        plan: usize,
        from: (Rank, View),
        to: (Rank, View),
    ) -> Result<(), ExecError> {
        self.push(Command::Message { plan, from, to })
    }

    fn encode_download(
        &mut self,
        plan: usize,
        _rank: Rank,
        view: View,
    ) -> Result<Download, ExecError> {
        let slot = self.downloads.len();
        self.downloads.push(None);
        self.push(Command::Download { plan, view, slot })?;
        Ok(Download(slot))
    }

    fn encode_upload(
        &mut self,
        plan: usize,
        _rank: Rank,
        view: View,
        bytes: &[u8],
    ) -> Result<(), ExecError> {
        self.push(Command::Upload { plan, view, bytes: bytes.to_vec() })
    }

    fn submit(&mut self) -> Result<Batch, ExecError> {
        self.log.submits.fetch_add(1, SeqCst);
        let batch = Batch(self.next_batch);
        self.next_batch += 1;
        let polls = if let Mode::Late(polls) = self.mode { polls } else { 0 };
        self.waiting.push_back((batch, std::mem::take(&mut self.queue), polls));
        if self.mode == Mode::AtSubmit {
            self.run_until(batch);
        }
        Ok(batch)
    }

    fn is_done(&mut self, batch: Batch) -> Result<bool, ExecError> {
        if self.mode == Mode::Never {
            return Ok(false);
        }
        let mut first = self.waiting.front_mut().filter(|(first, ..)| *first <= batch);
        match &mut first {
            None => Ok(true),
            Some((.., polls)) if *polls > 0 => {
                *polls -= 1;
                Ok(false)
            }
            Some((first, ..)) => {
                let first = *first;
                self.run_until(first);
                Ok(first == batch)
            }
        }
    }

    fn wait(&mut self, batch: Batch) -> Result<(), ExecError> {
        if self.mode == Mode::Never {
            return Err(self.lost());
        }
        self.run_until(batch);
        Ok(())
    }

    fn finish_download(&mut self, download: Download, into: &mut [u8]) -> Result<(), ExecError> {
        let bytes = self.downloads[download.0].take().expect("the batch has ended");
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn timings(&mut self, batch: Batch) -> Vec<(Rank, usize, Nanos, Nanos)> {
        self.timed.remove(&batch).unwrap_or_default()
    }

    fn read(&mut self, plan: usize, _rank: Rank, view: View) -> Result<Vec<u8>, ExecError> {
        Ok(self.memory(plan, view).to_vec())
    }

    fn write(
        &mut self,
        plan: usize,
        _rank: Rank,
        view: View,
        bytes: &[u8],
    ) -> Result<(), ExecError> {
        self.memory(plan, view).copy_from_slice(bytes);
        Ok(())
    }

    fn allocated(&self, rank: Rank) -> Bytes {
        let of_rank = self.arenas.iter().filter(|((_, owner, _), _)| *owner == rank);
        Bytes(of_rank.map(|(_, memory)| memory.len() as u64).sum())
    }
}
