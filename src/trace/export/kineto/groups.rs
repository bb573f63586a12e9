//! The groups of ranks that talk to one another, as profilers list them.

use serde_json::{Value, json};

use crate::mesh::{Axis, Mesh, Rank};

/// The default group, then every group of ranks along an axis.
pub(super) fn groups(mesh: Mesh) -> Vec<Group> {
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
pub(super) struct Group {
    pub(super) name: String,
    pub(super) axis: Option<Axis>,
    pub(super) ranks: Vec<Rank>,
}

impl Group {
    pub(super) fn description(&self) -> String {
        self.axis.map_or_else(|| "default_pg".into(), |axis| axis.to_string())
    }

    /// `[0, 2]`, as a word.
    pub(super) fn list(&self) -> String {
        let ranks: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
        format!("[{}]", ranks.join(", "))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "pg_name": self.name, "pg_desc": self.description(),
            "backend_config": "cuda:nccl", "pg_size": self.ranks.len(), "ranks": self.ranks,
        })
    }
}
