//! Collectives and messages: bytes over the narrowest link, and the latency of their steps.
//!
//! A ring of n ranks on k nodes makes n − k steps inside nodes and k − 1 between them, and twice as
//! many for an all-reduce (NCCL's own model, tuning.cc). Every member in a node drives its own share
//! of the node's adapters.

use super::{Pricer, constants};
use crate::config::cluster::Network;
use crate::plan::CollectiveKind;
use crate::planner::cluster::classes::Group;
use crate::planner::cluster::{Beside, Exchange};

impl Pricer<'_> {
    /// Seconds that equal collectives in a row keep a rank from computing, if the work that they
    /// follow takes `work` seconds and `flash` of these are attention.
    pub fn exchange(&self, exchange: &Exchange, work: f64, flash: f64) -> f64 {
        let Exchange { kind, bytes, group, repeats, beside, .. } = *exchange;
        if kind == CollectiveKind::PointToPoint {
            return repeats * self.message(bytes, group.per_node < group.members, group.slow);
        }
        let one = self.collective(kind, bytes, group);
        match beside {
            Beside::Nothing => {
                repeats * (one + self.start(exchange)) + self.skew(group, exchange, work)
            }
            Beside::Products => {
                let exposed = 1.0 - constants::CHUNKS_HIDDEN;
                repeats * exposed * (one + self.start(exchange)) + self.skew(group, exchange, work)
            }
            Beside::Attention => {
                let steps = f64::from(group.members) * constants::RING_STEP;
                (repeats * one - constants::RING_HIDDEN * flash).max(0.0) + repeats * steps
            }
        }
    }

    /// Seconds of collectives one after the other, as [`Pricer::exchange`].
    pub(crate) fn exchanges(&self, list: &[Exchange], work: f64, flash: f64) -> f64 {
        list.iter().map(|exchange| self.exchange(exchange, work, flash)).sum()
    }

    /// Seconds of one of so many pieces of collectives that take `whole` in one: those between passes
    /// have the latency of a whole one each.
    pub(crate) fn piece(&self, list: &[Exchange], whole: f64, pieces: f64) -> f64 {
        let inside = |exchange: &Exchange| {
            exchange.after.is_some() || exchange.kind == CollectiveKind::PointToPoint
        };
        if pieces <= 1.0 || list.iter().any(inside) {
            return whole / pieces;
        }
        let piece = |exchange: &Exchange| {
            let Exchange { kind, bytes, group, repeats, .. } = *exchange;
            repeats * self.collective(kind, bytes / pieces, group)
        };
        list.iter().map(piece).sum()
    }

    /// Kernels of collectives inside layers; those over replicas are started long before.
    fn start(&self, exchange: &Exchange) -> f64 {
        if exchange.after.is_some() { constants::LAUNCH_COLLECTIVE } else { 0.0 }
    }

    /// Members do not end their work at the same time: the slowest of n normal variables is about
    /// √(2 ln n) deviations late.
    fn skew(&self, group: Group, exchange: &Exchange, work: f64) -> f64 {
        let late = (2.0 * f64::from(group.members).ln()).sqrt();
        if exchange.after.is_some() { self.constants.tensor_skew * late * work } else { 0.0 }
    }

    /// Seconds of one collective on `bytes`.
    pub fn collective(&self, kind: CollectiveKind, bytes: f64, group: Group) -> f64 {
        let Group { members, per_node, slow } = group;
        if members <= 1 {
            return 0.0;
        }
        let ways = match kind {
            CollectiveKind::AllReduce => 2.0,
            _ => 1.0,
        };
        let nodes = (members / per_node).max(1);
        let node = &self.cluster.node;
        let inside = node.gb_per_sec * 1e9 * constants::NODE_SHARE;
        let bandwidth = if nodes > 1 {
            inside.min(f64::from(per_node) * self.network_bandwidth())
        } else {
            inside
        };
        let n = f64::from(members);
        let near = f64::from(members.min(per_node) - 1) * node.latency_us * 1e-6;
        let far = f64::from((nodes - 1).min(constants::RING_NODES - 1));
        let far = far * self.cluster.network.latency_us * 1e-6;
        let transfer = ways * (n - 1.0) / n * bytes / bandwidth * f64::from(slow) / 1000.0;
        transfer + constants::BASE_LATENCY + constants::FILL_LATENCY + ways * (near + far)
    }

    /// Bytes a second of one GPU's share of the network.
    fn network_bandwidth(&self) -> f64 {
        let Network { gb_per_sec, measured, .. } = self.cluster.network;
        let share = if measured { 1.0 } else { self.constants.network };
        gb_per_sec * 1e9 * share
    }

    /// Seconds of a message to another stage; `far`: it leaves the node.
    pub fn message(&self, bytes: f64, far: bool, slow: u32) -> f64 {
        let bandwidth = if far {
            self.network_bandwidth()
        } else {
            self.cluster.node.gb_per_sec * 1e9 * constants::NODE_SHARE
        };
        constants::MESSAGE_LATENCY + bytes / bandwidth * f64::from(slow) / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Cluster;
    use crate::sim::cost::Constants;

    /// nccl-tests, `all_reduce_perf` on 8 A100 of one node (Azure `NDv4`): bytes, microseconds.
    const MEASURED: [(f64, f64); 6] = [
        (8_388_608.0, 149.8),
        (16_777_216.0, 235.6),
        (33_554_432.0, 361.0),
        (67_108_864.0, 566.1),
        (268_435_456.0, 2096.0),
        (1_073_741_824.0, 8139.2),
    ];

    #[test]
    fn an_all_reduce_takes_what_nccl_tests_measured() {
        let (cluster, constants) = (Cluster::preset("a100-80").unwrap(), Constants::default());
        let pricer = Pricer { cluster: &cluster, constants: &constants };
        let group = Group { members: 8, per_node: 8, slow: 1000 };
        for (bytes, micros) in MEASURED {
            let predicted = 1e6 * pricer.collective(CollectiveKind::AllReduce, bytes, group);
            let error = predicted / micros - 1.0;
            assert!(error.abs() < 0.25, "{bytes} bytes: {predicted} for {micros} µs");
        }
    }

    #[test]
    fn more_members_in_a_node_bring_more_adapters_until_the_node_is_the_narrowest() {
        let (cluster, constants) = (Cluster::preset("a100-80").unwrap(), Constants::default());
        let pricer = Pricer { cluster: &cluster, constants: &constants };
        let time = |per_node| {
            let group = Group { members: 64, per_node, slow: 1000 };
            pricer.collective(CollectiveKind::ReduceScatter, 8e9, group)
        };
        assert!(time(1) > 1.9 * time(2) && time(2) > 1.9 * time(4));
        assert!(time(8) < time(4));
    }
}
