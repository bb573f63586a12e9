//! Every shader, held by reflection against the Rust table of kernels and params.
//!
//! All faults of all files are printed at once. The last tests plant a mismatch and expect it to be
//! found, so that a check that sees nothing cannot pass.
#![cfg(feature = "gpu")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use shardlab::exec::gpu::kernels::{KERNELS, KernelSpec, Source};

/// Parses and validates a text.
fn parse(wgsl: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let mut capabilities = Capabilities::empty();
    if wgsl.contains("subgroup") {
        capabilities |= Capabilities::SUBGROUP;
    }
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(wgsl))?;
    Ok((module, info))
}

/// All faults of one kernel.
fn faults(spec: &KernelSpec, wgsl: &str) -> Vec<String> {
    let (module, info) = match parse(wgsl) {
        Ok(parsed) => parsed,
        Err(error) => return vec![format!("{}: {error}", spec.source.name)],
    };
    let mut faults = Vec::new();
    let mut fault = |what: String| faults.push(format!("{}: {what}", spec.entry));
    let Some(index) = module.entry_points.iter().position(|point| point.name == spec.entry) else {
        fault("no such entry point".to_owned());
        return faults;
    };
    let point = &module.entry_points[index];
    if point.workgroup_size != spec.workgroup {
        fault(format!("workgroup {:?}, the table says {:?}", point.workgroup_size, spec.workgroup));
    }
    let used = info.get_entry_point(index);
    for (handle, variable) in module.global_variables.iter() {
        let (Some(binding), false) = (&variable.binding, used[handle].is_empty()) else { continue };
        let name = variable.name.as_deref().unwrap_or("");
        if binding.group != 0 {
            fault(format!("{name} lies in group {}", binding.group));
        }
        match (binding.binding as usize).checked_sub(1) {
            None => check_params(spec, &module, variable, &mut fault),
            Some(place) => check_argument(spec, place, name, variable, &mut fault),
        }
    }
    for name in spec.bindings {
        if !spec.fields.iter().any(|field| field.name.strip_suffix("_at") == Some(name)) {
            fault(format!("the params have no {name}_at"));
        }
    }
    faults
}

/// A binding has its name, or its name and a word after it, and may be written.
fn check_argument(
    spec: &KernelSpec,
    place: usize,
    name: &str,
    variable: &naga::GlobalVariable,
    fault: &mut impl FnMut(String),
) {
    match spec.bindings.get(place) {
        None => fault(format!("binding {} is not in the table", place + 1)),
        Some(&expected) => {
            let rest = name.strip_prefix(expected);
            if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_')) {
                fault(format!("binding {} is {name}, the table says {expected}", place + 1));
            }
        }
    }
    let writable = naga::StorageAccess::LOAD | naga::StorageAccess::STORE;
    if variable.space != (naga::AddressSpace::Storage { access: writable }) {
        fault(format!("{name} is not read_write: {:?}", variable.space));
    }
}

/// The params are read-only and have the members of the Rust struct.
fn check_params(
    spec: &KernelSpec,
    module: &naga::Module,
    variable: &naga::GlobalVariable,
    fault: &mut impl FnMut(String),
) {
    let read = naga::StorageAccess::LOAD;
    if variable.space != (naga::AddressSpace::Storage { access: read }) {
        fault(format!("params are not a read-only storage buffer: {:?}", variable.space));
    }
    let naga::TypeInner::Struct { members, span } = &module.types[variable.ty].inner else {
        fault("params are not a struct".to_owned());
        return;
    };
    if *span as usize != spec.params_bytes {
        fault(format!("params have {span} bytes, the Rust struct {}", spec.params_bytes));
    }
    let scalar = |ty| match module.types[ty].inner {
        naga::TypeInner::Scalar(naga::Scalar::U32) => "u32",
        naga::TypeInner::Scalar(naga::Scalar::F32) => "f32",
        _ => "?",
    };
    let wgsl: Vec<(String, usize, &str)> = members
        .iter()
        .map(|m| (m.name.clone().unwrap_or_default(), m.offset as usize, scalar(m.ty)))
        .collect();
    let rust: Vec<(String, usize, &str)> =
        spec.fields.iter().map(|f| (f.name.to_owned(), f.offset, f.kind)).collect();
    if wgsl != rust {
        fault(format!("params differ:\n  WGSL {wgsl:?}\n  Rust {rust:?}"));
    }
}

#[test]
fn every_kernel_is_valid_and_as_the_table_says() {
    let faults: Vec<String> =
        KERNELS.iter().flat_map(|spec| faults(spec, spec.source.wgsl)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_entry_point_of_every_file_is_in_the_table() {
    let known: BTreeSet<(&str, &str)> =
        KERNELS.iter().map(|spec| (spec.source.stem, spec.entry)).collect();
    let sources: BTreeSet<(&str, &str)> =
        KERNELS.iter().map(|spec| (spec.source.stem, spec.source.wgsl)).collect();
    for (stem, wgsl) in &sources {
        let (module, _) = parse(wgsl).unwrap_or_else(|error| panic!("{stem}: {error}"));
        for point in &module.entry_points {
            assert!(known.contains(&(*stem, point.name.as_str())), "{stem}: {}", point.name);
        }
    }
    // Files without entry points are pieces of others, so every file is compiled somewhere.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let used = sources.iter().any(|(_, wgsl)| wgsl.contains(&text));
        assert!(used, "{} is used by no kernel", path.display());
        assert!(text.starts_with("//! "), "{} does not say what it holds", path.display());
    }
}

#[test]
fn only_sources_marked_so_need_subgroups() {
    for Source { name, wgsl, subgroups, .. } in KERNELS.iter().map(|spec| spec.source) {
        let module = naga::front::wgsl::parse_str(wgsl).unwrap();
        let valid = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
        assert_eq!(valid.is_err(), *subgroups, "{name}");
    }
}

#[test]
fn planted_mismatches_are_found() {
    let act = "@binding(2) var<storage, read_write> act";
    let plants = [
        ("rope", "batch: u32,\n    heads: u32,", "heads: u32,\n    batch: u32,", "params differ"),
        ("rope", "    width: u32,\n", "    width: u32,\n    more: u32,\n", "params have 40 bytes"),
        ("scale", "value: f32", "value: u32", "error"),
        ("rope", "array<f32>; // [rows", "array<f64>; // [rows", "error"),
        ("copy", "x_bits", "z_bits", "binding 1 is z_bits, the table says x"),
        ("swiglu", act, &act.replace('2', "5"), "binding 5 is not in the table"),
        ("swiglu_grad", "read_write> gate_up", "read> gate_up", "gate_up is not read_write"),
        ("cast_i32_to_f32", "read> params", "read_write> params", "not a read-only storage buffer"),
        ("copy", "256", "128", "workgroup [128, 1, 1], the table says [256, 1, 1]"),
        ("add", "fn add(", "fn plus(", "no such entry point"),
    ];
    for (entry, from, to, expected) in plants {
        let spec = KERNELS.iter().find(|spec| spec.entry == entry).unwrap();
        assert!(spec.source.wgsl.contains(from), "{from} is in the shader");
        let found = faults(spec, &spec.source.wgsl.replace(from, to)).join("\n");
        assert!(found.contains(expected), "{entry}: {to}: {found}");
    }
}
