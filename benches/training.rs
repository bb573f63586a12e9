//! Tokens per second of one rank and of 2 × 2 × 2 ranks on the same cores, in one run.
//!
//! `cargo bench --bench training [-- STEPS]`. The two take turns, and medians are compared: virtual
//! ranks share the cores, so the ratio says what cutting the step costs (smaller products, messages,
//! additions, copies), and the table below it says where. Then: how much eight equal layers on four
//! positions wait, and what makes the difference to the textbook.

use std::collections::BTreeMap;

use shardlab::config::{Data, Layout, Model, ModelSource, Scenario, Training, ZeroStage};
use shardlab::plan::Plan;
use shardlab::sim::ladder::PARTS;
use shardlab::trace::Trace;
use shardlab::trace::bubble::formula_waiting_over_span;
use shardlab::trace::rates::{Kind, Rates};
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
fn work(plan: &Plan, trace: &Trace) -> BTreeMap<Kind, f64> {
    let kinds = Rates::of(plan, [trace]).longest_first();
    kinds.into_iter().map(|(kind, work)| (kind, work.busy.as_secs())).collect()
}

/// The replayed waiting of a pipeline whose layers outweigh embedding and head.
fn waiting(steps: usize) {
    let sizes = Model { num_hidden_layers: 8, ..Model::preset("bench").expect("a preset") };
    let (pp, microbatches) = (4, 16);
    let layout = Layout { pp, microbatches, ..Layout::default() };
    let scenario = Scenario { model: ModelSource::Sizes(sizes), ..scenario(layout) };
    let options = Options { devices: DeviceRequest::cpu(), ..Options::default() };
    let mut session = Session::start(scenario, options).expect("it runs on the CPU");
    for _ in 0..=steps {
        session.step().expect("a step");
    }
    let (ladder, formula) = (session.ladder(), formula_waiting_over_span(pp, microbatches));
    let (replayed, percent) = (ladder.with_links, |share: f64| 100.0 * share);
    let verdict = if (replayed - formula).abs() <= 0.03 { "within" } else { "NOT within" };
    println!(
        "\n8 equal layers, p {pp}, m {microbatches}, links: free: waiting/span {:.1} % replayed, \
         formula {:.1} %: {verdict} 3 points",
        percent(replayed),
        percent(formula)
    );
    println!("{:24} {:>+10.1}", "forward : backward", percent(ladder.equal_stages - formula));
    for (part, share) in PARTS.iter().zip(ladder.parts()) {
        println!("{part:24} {:>+10.1}", percent(share));
    }
    println!("{:24} {:>10.1}", "measured", percent(ladder.measured));
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
    let kinds: Vec<Kind> = last[1].keys().chain(last[0].keys()).copied().collect();
    let mut shown = std::collections::BTreeSet::new();
    for kind in kinds.into_iter().filter(|kind| shown.insert(*kind)) {
        let [one, many] = last.each_mut().map(|work| work.remove(&kind).unwrap_or(0.0) * 1e3);
        println!("{kind:24} {one:10.1} {many:10.1}");
    }
    waiting(steps);
}
