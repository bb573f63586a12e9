//! `simulate --explain-collective`: why one algorithm beats another. Each is unfolded into its
//! messages, which are counted and laid out over the links.

use serde::Serialize;
use serde_json::json;

use super::super::args::SimulateArgs;
use super::super::text::decimal_bytes;
use super::super::{Failure, Outcome, output};
use crate::config::{Cluster, CollectiveChoice, ConfigError};
use crate::mesh::{Axis, Mesh, RankOrder};
use crate::plan::{Action, Lane, Life, Plan, Role, order};
use crate::planner::collective::{self, Algorithm, Seat, Style};
use crate::planner::program::on_every_rank;
use crate::shape::{DType, parts};
use crate::sim::{Wires, hops, replay_over};
use crate::trace::Badge;
use crate::units::{Bytes, Nanos};

/// Ranks if nothing is said.
const RANKS: u32 = 8;

/// Prints a row for each algorithm.
///
/// # Errors
/// If the links cannot be read, or there is nothing to reduce.
pub(super) fn run(bytes: Bytes, args: &SimulateArgs) -> Result<Outcome, Failure> {
    let ranks = args.gpus.unwrap_or(RANKS);
    let fault = |what: &str, why: String, remedy: &str| ConfigError::value(what, why, remedy);
    // Every message of every rank is planned: their count grows with the square of the ranks.
    if !(2..=256).contains(&ranks) {
        let why = format!("{ranks} ranks");
        return Err(fault("gpus", why, "Use 2 to 256").into());
    }
    let floats = bytes.0 / 4;
    let len = u32::try_from(floats).ok().filter(|len| *len >= ranks).ok_or_else(|| {
        let few = floats < u64::from(ranks);
        let why = format!("{bytes} are too {}", if few { "few" } else { "many" });
        let remedy = match few {
            true => format!("Give a float to each of the {ranks} ranks: {} B at least", 4 * ranks),
            false => "Use less than 16GiB".into(),
        };
        fault("explain-collective", why, &remedy)
    })?;
    let cluster = Cluster::read(&args.cluster)?;
    let wires = match &args.links {
        Some(word) => Wires::read(word)?,
        None => Wires::of_cluster(&cluster),
    };
    let node = args.layout.node_size.or(Some(cluster.node.gpus));
    let rows = rows(ranks, len, node, &wires);
    if args.json {
        let badges = json!({
            "steps": Badge::Counted,
            "rank_bytes": Badge::Counted,
            "link_bytes": Badge::Counted,
            "links": Badge::Counted,
            "seconds": Badge::Predicted,
            "latency_share": Badge::Predicted,
            "one_port_seconds": Badge::Predicted,
        });
        let wires = wires.to_string();
        output::print_json(&json!({
            "collective": "all-reduce", "bytes": len * 4, "ranks": ranks, "wires": wires,
            "algorithms": rows, "badges": badges,
        }))?;
    } else {
        output::print(&text(Bytes(u64::from(len) * 4), ranks, &wires, &rows))?;
    }
    Ok(Outcome::Success)
}

/// One algorithm.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    algorithm: String,
    /// Messages that wait for one another.
    steps: u64,
    /// What the rank sends that sends most.
    rank_bytes: u64,
    /// What the link carries that carries most.
    link_bytes: u64,
    /// Links that carry anything, each way for itself.
    links: usize,
    /// With a link for each pair of ranks.
    seconds: f64,
    /// What is left of that if bandwidth is unlimited.
    latency_share: f64,
    /// With one port a rank, through which its messages go one after another.
    one_port_seconds: f64,
}

/// All algorithms that differ on a group, of which `node` ranks share a node.
fn rows(ranks: u32, len: u32, node: Option<u32>, wires: &Wires) -> Vec<Row> {
    let bytes = u64::from(len) * 4;
    let choices = [
        CollectiveChoice::Ring,
        CollectiveChoice::Tree,
        CollectiveChoice::Direct,
        CollectiveChoice::Hierarchical,
    ];
    // Where nodes do not cut the group, there is nothing hierarchical about it.
    let auto = collective::choose(CollectiveChoice::Auto, bytes, ranks as usize, node);
    let differs = |choice: &CollectiveChoice| {
        *choice != CollectiveChoice::Hierarchical || auto == Algorithm::Hierarchical
    };
    let row = |choice| {
        let algorithm = collective::choose(choice, bytes, ranks as usize, node);
        Row::of(choice.to_string(), &plan(ranks, len, node, algorithm), wires)
    };
    choices.into_iter().filter(differs).map(row).collect()
}

/// An all-reduce and nothing else.
fn plan(ranks: u32, len: u32, node: Option<u32>, algorithm: Algorithm) -> Plan {
    let mesh = Mesh { dp: ranks, tp: 1, pp: 1, order: RankOrder::TpDpPp };
    let style = Style { algorithm, lane: Lane::Compute, chunk_len: u32::MAX, id: 0 };
    on_every_rank(mesh, |program| {
        let life = Life::Persistent;
        let data = program.declare("data", Role::Gradients, DType::F32, len, life);
        let seat = Seat { node, ..Seat::of(mesh, program.rank, Axis::Dp) };
        collective::all_reduce(program, &seat, style, data, &parts(len, ranks));
    })
}

impl Row {
    fn of(algorithm: String, plan: &Plan, wires: &Wires) -> Self {
        let graph = order::graph(plan, &order::derive(plan));
        // Additions take no time: only messages are compared.
        let free: Vec<Vec<Nanos>> =
            plan.programs.iter().map(|program| vec![Nanos(0); program.instrs.len()]).collect();
        let end = |wires: &Wires| {
            let trace = replay_over(plan, &graph, &free, wires, 0);
            trace.expect("a collective does not hang").end()
        };
        let (all, latency) = (end(wires), end(&wires.with_unlimited_bandwidth()));
        let ledger = crate::ledger::Ledger::of(plan);
        // A rank's messages without their latency, one after another.
        let port = |(from, program): (u32, &crate::plan::Program)| -> Nanos {
            let from = crate::mesh::Rank(from);
            let sends = program.instrs.iter().filter_map(|instr| match instr.action {
                Action::Send { view, to, .. } => {
                    let bytes = plan.view_bytes(view);
                    Some(wires.duration(from, to, bytes) - wires.duration(from, to, Bytes(0)))
                }
                _ => None,
            });
            sends.sum()
        };
        let port = (0..).zip(&plan.programs).map(port).max().unwrap_or_default();
        let share = if all == Nanos(0) { 0.0 } else { latency.as_secs() / all.as_secs() };
        Self {
            algorithm,
            steps: hops(plan),
            rank_bytes: ledger.ranks.iter().map(|r| r.bytes_sent().0).max().unwrap_or(0),
            link_bytes: ledger.links.iter().map(|link| link.bytes.0).max().unwrap_or(0),
            links: ledger.links.iter().filter(|link| link.bytes.0 > 0).count(),
            seconds: all.as_secs(),
            latency_share: share,
            one_port_seconds: (port + latency).max(all).as_secs(),
        }
    }
}

fn text(bytes: Bytes, ranks: u32, wires: &Wires, rows: &[Row]) -> String {
    let sized = |bytes: u64| decimal_bytes(bytes as f64);
    let long = |seconds: f64| Nanos((seconds * 1e9).round() as u64).to_string();
    let mut lines = vec![
        format!("All-reduce of {} over {ranks} ranks, links: {wires}", sized(bytes.0)),
        String::new(),
        format!(
            "{:<14}{:>6}{:>14}{:>15}{:>7}{:>13}{:>9}{:>13}",
            "", "steps", "a rank sends", "a link carries", "links", "takes", "latency", "one port"
        ),
    ];
    lines.extend(rows.iter().map(|row| {
        format!(
            "{:<14}{:>6}{:>14}{:>15}{:>7}{:>13}{:>7.1} %{:>13}",
            row.algorithm,
            row.steps,
            sized(row.rank_bytes),
            sized(row.link_bytes),
            row.links,
            long(row.seconds),
            100.0 * row.latency_share,
            long(row.one_port_seconds)
        )
    }));
    let (counted, predicted) = (Badge::Counted.word(), Badge::Predicted.word());
    lines.extend([
        String::new(),
        format!("Steps and bytes are {counted}: messages of the unfolded collective; steps wait for one"),
        format!("another. Times are {predicted}: `takes` with a link for each pair of ranks, `one port` if a"),
        "rank's messages leave one after another.".into(),
    ]);
    lines.extend(compared(bytes.0, ranks, rows));
    lines.join("\n") + "\n"
}

/// How much more than the least the ranks send: 2(n − 1)/n of what is reduced.
fn compared(bytes: u64, ranks: u32, rows: &[Row]) -> Vec<String> {
    let n = f64::from(ranks);
    let least = 2.0 * (n - 1.0) / n * bytes as f64;
    // Parts are whole floats: those of few bytes differ by one.
    let most = 1.1 * least + f64::from(8 * ranks);
    let more: Vec<&Row> = rows.iter().filter(|row| row.rank_bytes as f64 > most).collect();
    if more.is_empty() {
        return vec![
            "All send about the least there is; what differs is over how many links and in how many"
                .into(),
            "steps.".into(),
        ];
    }
    let line = |row: &&Row| {
        let times = row.rank_bytes as f64 / least;
        let Row { algorithm, .. } = row;
        format!(
            "With {algorithm} some rank sends {times:.1} times the least there is ({}).",
            decimal_bytes(least)
        )
    };
    more.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_megabytes_over_eight_ranks_take_what_the_formulas_say() {
        // 50 GB/s and 10 ns: an eighth is 12.5 MB, 250 µs.
        let wires = Wires::read("50GB/s,10ns").unwrap();
        let rows = rows(8, 25_000_000, Some(4), &wires);
        let find = |name: &str| rows.iter().find(|row| row.algorithm == name).unwrap();
        for row in &rows {
            assert!(row.one_port_seconds >= row.seconds, "{row:?}");
            assert!((row.latency_share - row.steps as f64 * 1e-8 / row.seconds).abs() < 1e-9);
        }
        // Names, steps, MB a rank, MB a link, links, µs.
        let expected = [
            ("ring", 14, 175.0, 175.0, 8, 14.0 * 250.01),
            // Halves, quarters, eighths and back: each of three partners gets its part.
            ("tree", 6, 175.0, 100.0, 24, 2.0 * (1000.0 + 500.0 + 250.0) + 6.0 * 0.01),
            ("direct", 2, 175.0, 25.0, 56, 2.0 * 250.01),
        ];
        for (name, steps, rank, link, links, micros) in expected {
            let row = find(name);
            assert_eq!((row.steps, row.links), (steps, links), "{name}");
            assert_eq!((row.rank_bytes as f64, row.link_bytes as f64), (rank * 1e6, link * 1e6));
            assert!((row.seconds * 1e6 - micros).abs() < 0.1, "{row:?}");
            assert!((row.one_port_seconds * 1e6 - 3500.0).abs() < 0.2, "{row:?}");
        }
        // Inside nodes of four the parts are larger, but few bytes leave them.
        let nodes = find("hierarchical");
        assert!(nodes.steps > 2 && nodes.rank_bytes == 175_000_000, "{nodes:?}");
    }

    #[test]
    fn whoever_sends_more_than_the_least_is_named() {
        let wires = Wires::read("h100").unwrap();
        let said = |ranks, bytes: u64| {
            let rows = rows(ranks, (bytes / 4) as u32, None, &wires);
            text(Bytes(bytes), ranks, &wires, &rows)
        };
        let even = said(8, 32_000);
        assert!(even.contains("All send about the least there is"), "{even}");
        assert!(even.contains("56.0 KB") && !even.contains("0.0 MB"), "{even}");
        // A binary tree over seven ranks: an inner rank sends all of it three times, the least is 12/7.
        let odd = said(7, 28_000);
        assert!(odd.contains("With tree some rank sends 1.8 times the least there is"), "{odd}");
        assert!(!odd.contains("All send"), "{odd}");
    }

    #[test]
    fn nothing_is_hierarchical_inside_one_node_and_latency_rules_small_messages() {
        let wires = Wires::read("h100").unwrap();
        let rows = rows(8, 1024, Some(8), &wires);
        assert_eq!(
            rows.iter().map(|row| row.algorithm.as_str()).collect::<Vec<_>>(),
            ["ring", "tree", "direct"]
        );
        assert!(rows.iter().all(|row| row.latency_share > 0.9), "{rows:?}");
        // Fewer steps win.
        assert!(rows[2].seconds < rows[1].seconds && rows[1].seconds < rows[0].seconds);
        let text = text(Bytes(4096), 8, &wires, &rows);
        assert!(text.contains("COUNTED") && text.contains("PREDICTED"), "{text}");
    }
}
