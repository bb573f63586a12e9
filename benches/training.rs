//! Tokens per second of one rank and of 2 × 2 × 2 ranks on the same cores, in one run.
//!
//! `cargo bench --bench training [-- STEPS]`. The two take turns, and medians are compared: virtual
//! ranks share the cores, so the ratio says what cutting the step costs (smaller products, messages,
//! additions, copies), and the table below it says where.

use std::collections::BTreeMap;

use shardlab::config::{Data, Layout, ModelSource, Scenario, Training, ZeroStage};
use shardlab::plan::{Action, Plan};
use shardlab::trace::Trace;
use shardlab::train::{DeviceRequest, Options, Session};

fn scenario(layout: Layout) -> Scenario {
    Scenario {
        name: "bench".into(),
        model: ModelSource::Preset("bench".into()),
        layout,
        training: Training { batch: 32, seq: 128, ..Training::default() },
        data: Data::Shakespeare,
    }
}

fn session(layout: Layout) -> Session {
    let options = Options { devices: DeviceRequest::cpu(), ..Options::default() };
    Session::start(scenario(layout), options).expect("the bench layouts run on the CPU")
}

/// Busy seconds by kind of work, over all ranks.
fn work(plan: &Plan, trace: &Trace) -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for (program, spans) in plan.programs.iter().zip(&trace.spans) {
        for (instr, span) in program.instrs.iter().zip(spans) {
            let kind = match &instr.action {
                Action::Launch { op, .. } => op.to_string(),
                Action::Send { .. } => "messages".into(),
                Action::Recv { .. } => continue,
                Action::Copy { .. } => "copies".into(),
            };
            *seconds.entry(kind).or_insert(0.0) += span.duration().as_secs();
        }
    }
    seconds
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let steps: usize = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(9);
    let many = Layout {
        dp: 2,
        tp: 2,
        pp: 2,
        zero: ZeroStage::Zero1,
        microbatches: 4,
        ..Layout::default()
    };
    let layouts = [("1 rank", Layout::default()), ("2 × 2 × 2, ZeRO 1, m 4", many)];
    let mut sessions = layouts.map(|(name, layout)| (name, session(layout), Vec::new()));
    for _ in 0..=steps {
        for (_, session, seconds) in &mut sessions {
            seconds.push(session.step().expect("a step").seconds);
        }
    }
    let mut tokens = Vec::new();
    for (name, session, seconds) in &mut sessions {
        // The first step warms caches up.
        let step = median(&mut seconds[1..]);
        let rate = 32.0 * 128.0 / step;
        tokens.push(rate);
        println!("{name}: {:.1} ms a step, {rate:.0} tokens/s (median of {steps})", step * 1e3);
        let _ = session;
    }
    println!("ratio: {:.2}\n", tokens[1] / tokens[0]);
    println!(
        "{:24} {:>10} {:>10}   busy ms of the last step, all ranks",
        "", "1 rank", "2 × 2 × 2"
    );
    let mut last = sessions.map(|(_, mut session, _)| {
        let report = session.step().expect("a step");
        work(session.plan(), &report.trace)
    });
    let kinds: Vec<String> = last[1].keys().chain(last[0].keys()).cloned().collect();
    let mut shown = std::collections::BTreeSet::new();
    for kind in kinds.into_iter().filter(|kind| shown.insert(kind.clone())) {
        let [one, many] = last.each_mut().map(|work| work.remove(&kind).unwrap_or(0.0) * 1e3);
        println!("{kind:24} {one:10.1} {many:10.1}");
    }
}
