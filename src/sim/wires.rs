//! The links of a replay: free ones, one kind between all ranks, or those of a described cluster.
//!
//! Every message has its link for itself: contention is a matter of predictions (`cost`).

use std::collections::BTreeMap;
use std::fmt;

use super::Links;
use crate::config::{Cluster, ConfigError};
use crate::mesh::Rank;
use crate::units::{Bytes, Nanos, with_unit};

/// What messages of a replay cost, by who sends to whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Wires {
    /// What they are called, for the words beside a number.
    name: String,
    /// Between ranks of a node.
    near: Links,
    /// Ranks of a node, and links to other nodes; `None`: all ranks are in one.
    far: Option<(u32, Links)>,
    /// Links that are slowed on purpose: all that a message takes there.
    slow: BTreeMap<(Rank, Rank), Links>,
}

impl Default for Wires {
    fn default() -> Self {
        Self::free()
    }
}

/// The name, as in `links: pcie`.
impl fmt::Display for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Wires {
    /// Messages take no time.
    pub fn free() -> Self {
        Self::of_links("free", Links::FREE)
    }

    /// The same links between all ranks.
    pub fn of_links(name: impl Into<String>, links: Links) -> Self {
        Self { name: name.into(), near: links, far: None, slow: BTreeMap::new() }
    }

    /// Ranks in number order on the GPUs of a cluster.
    pub fn of_cluster(cluster: &Cluster) -> Self {
        let links = |latency_us: f64, gb_per_sec: f64| Links {
            latency: Nanos((latency_us * 1e3).round() as u64),
            bytes_per_sec: Some(gb_per_sec * 1e9),
        };
        let (node, network) = (&cluster.node, &cluster.network);
        Self {
            name: cluster.name.clone(),
            near: links(node.latency_us, node.gb_per_sec),
            far: Some((node.gpus, links(network.latency_us, network.gb_per_sec))),
            slow: BTreeMap::new(),
        }
    }

    /// Reads `free`, `pcie` (inside a workstation, version 4), `nvlink` (inside an H100 node),
    /// bandwidth and latency as in `50GB/s,5us`, a preset of a cluster, or a file that describes one.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn read(word: &str) -> Result<Self, ConfigError> {
        let inside = |cluster: &str| -> Result<Self, ConfigError> {
            let cluster = Self::of_cluster(&Cluster::preset(cluster)?);
            Ok(Self { name: word.into(), far: None, ..cluster })
        };
        if let Some(links) = measures(word) {
            return Ok(Self::of_links(word, links));
        }
        match word {
            "free" => Ok(Self::free()),
            "pcie" => inside("rtx4090"),
            "nvlink" => inside("h100"),
            _ if word.contains('.') || Cluster::presets().any(|name| name == word) => {
                Cluster::read(word).map(|cluster| Self::of_cluster(&cluster))
            }
            _ => {
                let clusters: Vec<&str> = Cluster::presets().collect();
                let remedy = format!(
                    "Use free, pcie, nvlink, 50GB/s,5us, or a cluster: {}",
                    clusters.join(", ")
                );
                Err(ConfigError::value("links", format!("`{word}` is not known"), remedy))
            }
        }
    }

    /// With some links that are slowed on purpose: a message there takes what they say, and not
    /// less than it would.
    #[must_use]
    pub fn with_slow(mut self, slow: &BTreeMap<(Rank, Rank), Links>) -> Self {
        self.slow.clone_from(slow);
        self
    }

    /// The same latencies, but bytes take no time.
    #[must_use]
    pub fn with_unlimited_bandwidth(&self) -> Self {
        let unlimited = |links: Links| Links { bytes_per_sec: None, ..links };
        let mut slow = self.slow.clone();
        slow.values_mut().for_each(|links| *links = unlimited(*links));
        let far = self.far.map(|(node, links)| (node, unlimited(links)));
        Self { name: self.name.clone(), near: unlimited(self.near), far, slow }
    }

    /// How long a message takes.
    pub fn duration(&self, from: Rank, to: Rank, bytes: Bytes) -> Nanos {
        let links = match self.far {
            Some((node, far)) if from.0 / node != to.0 / node => far,
            _ => self.near,
        };
        let slow = self.slow.get(&(from, to)).map_or(Nanos(0), |slow| slow.duration(bytes));
        links.duration(bytes).max(slow)
    }
}

/// Bandwidth and latency: `50GB/s,10ns`.
fn measures(word: &str) -> Option<Links> {
    let (bandwidth, latency) = word.split_once(',')?;
    let rates = [("GB/s", 1e9), ("MB/s", 1e6), ("TB/s", 1e12)];
    let bytes_per_sec = with_unit(bandwidth, &rates).filter(|rate| *rate > 0.0)?;
    let latency = latency.parse().ok()?;
    Some(Links { latency, bytes_per_sec: Some(bytes_per_sec) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_what_the_links_between_its_ends_take() {
        let [free, pcie, nvlink, h100] =
            ["free", "pcie", "nvlink", "h100"].map(|word| Wires::read(word).unwrap());
        let long = |wires: &Wires, to| wires.duration(Rank(6), Rank(to), Bytes(1_000_000)).0;
        // 1 MB at 24, 370 and 50 GB/s, behind 5.7, 3.4 and 14 µs.
        assert_eq!([long(&free, 7), long(&pcie, 7), long(&pcie, 8)], [0, 47_367, 47_367]);
        assert_eq!([long(&nvlink, 8), long(&h100, 7), long(&h100, 8)], [6_103, 6_103, 34_000]);
        assert_eq!([free, pcie, h100].map(|wires| wires.to_string()), ["free", "pcie", "h100"]);
        let error = Wires::read("pci").unwrap_err().to_string();
        assert!(error.contains("nvlink, 50GB/s,5us, or a cluster: v100, "), "{error}");
    }

    #[test]
    fn bandwidth_and_latency_are_read_with_their_units_and_nothing_else_is() {
        let links = |word: &str| Wires::read(word).map(|wires| wires.near).ok();
        let expected =
            |nanos, rate| Some(Links { latency: Nanos(nanos), bytes_per_sec: Some(rate) });
        assert_eq!(links("50GB/s,10ns"), expected(10, 50e9));
        assert_eq!(links("1.5 TB/s, 2.5us"), expected(2_500, 1.5e12));
        for word in ["50,10", "GB/s,10ns", "0GB/s,1us", "-1GB/s,1us", "50GB/s,1min", "50GB/s"] {
            assert_eq!(links(word), None, "{word}");
        }
        let unlimited = Wires::read("1GB/s,7us").unwrap().with_unlimited_bandwidth();
        assert_eq!(unlimited.duration(Rank(0), Rank(1), Bytes(1 << 30)), Nanos(7_000));
    }

    #[test]
    fn a_slowed_link_is_never_faster_than_the_others() {
        let slow = Links { latency: Nanos(50_000), bytes_per_sec: None };
        let wires = Wires::read("pcie").unwrap().with_slow(&[((Rank(0), Rank(1)), slow)].into());
        let long = |from, to, bytes| wires.duration(Rank(from), Rank(to), Bytes(bytes)).0;
        assert_eq!([long(0, 1, 1_000), long(1, 0, 0)], [50_000, 5_700]);
        assert_eq!(long(0, 1, 24_000_000), 1_005_700);
    }
}
