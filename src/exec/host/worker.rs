//! The loop of a worker: take a ready task, run it, release what waited for it.
//!
//! A worker takes any ready task of any host rank: first of the rank that it ran last, whose
//! data its core still holds, then the one that comes earliest in its program. It joins an op
//! that another worker has opened before it goes to sleep.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::exec::ExecError;
use crate::exec::step::Run;
use crate::exec::tasks::Kind;
use crate::plan::Action;

/// Rounds without work before a worker goes to sleep: some microseconds, less than a wake-up costs.
const SPINS: u32 = 200;

/// Runs host tasks until the step is over.
pub(in crate::exec) fn work(run: &Run, me: usize) {
    let set_count = run.tasks.host_set_count;
    if set_count == 0 {
        return;
    }
    let mut last_set = me % set_count;
    let mut spins = 0;
    while !run.is_over() {
        if let Some(task) = run.claim_host(&mut last_set) {
            execute(run, me, task);
        } else if !join(run) && !run.end_due() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            run.pool.sleep(me, run.until_due(), || run.is_over() || has_work(run));
        }
        spins = 0;
    }
}

/// Runs a claimed host task.
pub(in crate::exec) fn execute(run: &Run, me: usize, task: u32) {
    let start = run.clock.now();
    match run.tasks.list[task as usize].kind {
        Kind::Launch => launch(run, me, task),
        Kind::Copy | Kind::Stage { .. } => {
            run.bindings.copy(task);
        }
        Kind::Message { link } | Kind::Deliver { link } => {
            run.count(link, run.bindings.copy(task));
        }
        Kind::Upload { .. } | Kind::Download { .. } | Kind::Unmatched => {
            unreachable!("these never become ready on the host")
        }
    }
    run.close(task, start, run.clock.now(), 1);
}

/// Whether an idle worker could do something.
fn has_work(run: &Run) -> bool {
    run.has_host_task() || run.pool.open_ops().any(|op| op.is_open(|task| run.part_count(task)))
}

/// Runs all parts of a launch, with the help of workers that are idle.
fn launch(run: &Run, me: usize, task: u32) {
    let part_count = run.part_count(task);
    if part_count <= 1 || run.pool.worker_count() <= 1 {
        for part in 0..part_count {
            run_part(run, task, part);
        }
        return;
    }
    let op = run.pool.open_op(me);
    op.open(task, part_count);
    if run.tasks.list[task as usize].is_worth_waking {
        run.pool.wake(part_count as usize - 1);
    }
    while let Some((task, part)) = op.claim(|task| run.part_count(task)) {
        run_part(run, task, part);
        op.end_part();
    }
    op.close();
}

/// Helps another worker with one part of its op; whether there was one.
fn join(run: &Run) -> bool {
    for op in run.pool.open_ops() {
        if let Some((task, part)) = op.claim(|task| run.part_count(task)) {
            run_part(run, task, part);
            op.end_part();
            return true;
        }
    }
    false
}

/// Runs one part; a kernel that panics fails the step instead of the worker.
fn run_part(run: &Run, task: u32, part: u32) {
    let at = &run.tasks.list[task as usize];
    let instr = &run.plan.programs[at.rank.index()].instrs[at.instr as usize];
    let Action::Launch { op, .. } = &instr.action else { unreachable!("a launch holds an op") };
    let ran = catch_unwind(AssertUnwindSafe(|| run.bindings.launch(task, op, part)));
    if let Err(payload) = ran {
        run.fail(ExecError::Panic {
            rank: at.rank,
            instr: at.instr as usize,
            op: op.to_string(),
            message: panic_message(payload.as_ref()),
        });
    }
}

/// The text of a panic.
pub(in crate::exec) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
