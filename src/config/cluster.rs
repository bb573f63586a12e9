//! A cluster that one need not have: its GPU, the links inside a node, the network between nodes.
//!
//! Read from TOML. The presets are the files of `assets/clusters`; every number there says its
//! source. How fast kernels really run on a described GPU is `sim::cost`'s business.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::error::unknown_word;

/// A described cluster of equal nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// The GPU of every rank.
    pub gpu: Gpu,
    /// Links between the GPUs of a node.
    pub node: NodeLinks,
    /// Links between nodes.
    pub network: Network,
}

/// A GPU by its data sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Which kernels run on it.
    pub architecture: Architecture,
    /// Peak of dense 16-bit products.
    pub tflops_16bit: f64,
    /// Peak of dense 8-bit products; as for 16 bits where there are none.
    pub tflops_8bit: Option<f64>,
    /// The share of the peak that the best single product reaches.
    pub matmul_share: f64,
    /// Processors that take tiles of a product.
    pub multiprocessors: u32,
    /// Memory in units of 10⁹ bytes.
    pub memory_gb: f64,
    /// Bandwidth of that memory.
    pub memory_gb_per_sec: f64,
    /// Power limit over that of the part `matmul_share` was measured on.
    #[serde(default = "one")]
    pub power_share: f64,
    /// The share of `matmul_share` that training keeps up; what was fitted for the architecture if
    /// it is not said.
    pub sustained_share: Option<f64>,
}

const fn one() -> f64 {
    1.0
}

/// A generation of GPUs: kernels are written for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// V100.
    Volta,
    /// A100.
    Ampere,
    /// H100, H200.
    Hopper,
    /// B200, GB200.
    Blackwell,
    /// RTX 4090.
    Ada,
    /// M-series.
    Apple,
}

/// Links between the GPUs of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLinks {
    /// GPUs that reach one another over these links.
    pub gpus: u32,
    /// What a large all-reduce keeps up between them (nccl-tests' bus bandwidth).
    pub gb_per_sec: f64,
    /// Latency of one step of a collective.
    pub latency_us: f64,
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Line rate of one GPU's share of the node's adapters.
    pub gb_per_sec: f64,
    /// Latency of one step of a collective.
    pub latency_us: f64,
    /// Whether the bandwidth is a measured rate that needs no discount.
    #[serde(default)]
    pub measured: bool,
}

/// The presets: name and text of their file.
const PRESETS: [(&str, &str); 12] = [
    ("v100", include_str!("../../assets/clusters/v100.toml")),
    ("a100-40", include_str!("../../assets/clusters/a100-40.toml")),
    ("a100-80", include_str!("../../assets/clusters/a100-80.toml")),
    ("h100", include_str!("../../assets/clusters/h100.toml")),
    ("h100-hbm2e", include_str!("../../assets/clusters/h100-hbm2e.toml")),
    ("h200", include_str!("../../assets/clusters/h200.toml")),
    ("b200", include_str!("../../assets/clusters/b200.toml")),
    ("b300", include_str!("../../assets/clusters/b300.toml")),
    ("gb200", include_str!("../../assets/clusters/gb200.toml")),
    ("gb300", include_str!("../../assets/clusters/gb300.toml")),
    ("rtx4090", include_str!("../../assets/clusters/rtx4090.toml")),
    ("apple-m3-max", include_str!("../../assets/clusters/apple-m3-max.toml")),
];

impl Cluster {
    /// The names of the presets, in the order in which help lists them.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// A preset.
    ///
    /// # Errors
    /// If the name is unknown, with all names.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        match PRESETS.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Self::parse(text, name),
            None => {
                let names: Vec<&str> = Self::presets().chain(["FILE.toml"]).collect();
                Err(unknown_word("cluster", name, &names))
            }
        }
    }

    /// A preset by name, or a file: a word that ends in `.toml` is one.
    ///
    /// # Errors
    /// If there is no such preset, or the file cannot be read or describes no cluster.
    pub fn read(word: &str) -> Result<Self, ConfigError> {
        let is_file =
            Path::new(word).extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"));
        if !is_file {
            return Self::preset(word);
        }
        let text = std::fs::read_to_string(word).map_err(|source| ConfigError::File {
            path: word.into(),
            source,
            remedy: format!(
                "Give a cluster in TOML, or a preset: {}",
                Self::presets().collect::<Vec<_>>().join(", ")
            ),
        })?;
        Self::parse(&text, word)
    }

    /// Reads the text of a cluster; `file` names it in errors.
    ///
    /// # Errors
    /// If it is not TOML, if fields are missing, or if numbers describe nothing; all faults.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let cluster: Self = toml::from_str(text).map_err(|error| {
            let remedy = "Take a file of assets/clusters as a pattern";
            ConfigError::value(file, format!("describes no cluster ({})", error.message()), remedy)
        })?;
        ConfigError::collect(cluster.faults(file))?;
        Ok(cluster)
    }

    fn faults(&self, file: &str) -> Vec<ConfigError> {
        let Self { gpu, node, network, .. } = self;
        let positive = [
            ("gpu.tflops_16bit", gpu.tflops_16bit),
            ("gpu.tflops_8bit", gpu.tflops_8bit.unwrap_or(1.0)),
            ("gpu.matmul_share", gpu.matmul_share),
            ("gpu.multiprocessors", gpu.multiprocessors.into()),
            ("gpu.memory_gb", gpu.memory_gb),
            ("gpu.memory_gb_per_sec", gpu.memory_gb_per_sec),
            ("gpu.power_share", gpu.power_share),
            ("gpu.sustained_share", gpu.sustained_share.unwrap_or(1.0)),
            ("node.gpus", node.gpus.into()),
            ("node.gb_per_sec", node.gb_per_sec),
            ("node.latency_us", node.latency_us),
            ("network.gb_per_sec", network.gb_per_sec),
            ("network.latency_us", network.latency_us),
        ];
        let faulty = positive.iter().filter(|(_, value)| !value.is_finite() || *value <= 0.0);
        let fault = |(what, value): &(&str, f64)| {
            let why = format!("{value} is not a number above 0");
            ConfigError::value(format!("{file}: {what}"), why, "Give what the data sheet says")
        };
        faulty.map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_cluster_of_its_name_and_says_its_sources() {
        for (name, text) in PRESETS {
            let cluster = Cluster::preset(name).unwrap();
            assert_eq!(cluster.name, name);
            // A line with a number has its source beside it or above it.
            let mut said = false;
            for line in text.lines() {
                let has_number = line.contains('=') && line.contains(|c: char| c.is_ascii_digit());
                let says = line.contains('#');
                assert!(!has_number || says || said || line.starts_with("name"), "{name}: {line}");
                said = line.trim_start().starts_with('#');
            }
        }
    }

    #[test]
    fn what_is_no_cluster_is_refused_with_the_field() {
        let error = Cluster::read("h101").unwrap_err().to_string();
        assert!(error.contains("Did you mean `h100`?"), "{error}");
        let (_, text) = PRESETS[3];
        let of = |text: &str| Cluster::parse(text, "mine.toml").unwrap_err().to_string();
        let error = of(&text.replace("gpus = 8", "gpus = 0"));
        assert!(error.contains("mine.toml: node.gpus: 0 is not a number above 0"), "{error}");
        let error = of(&text.replace("[network]", "[net]"));
        assert!(error.contains("mine.toml: describes no cluster"), "{error}");
    }
}
