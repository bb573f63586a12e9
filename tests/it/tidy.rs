//! Goal: the house stays as ARCHITECTURE.md draws it. Method: read the sources.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms from the ground up: a room may name rooms of lower floors, and itself.
const FLOORS: [&[&str]; 16] = [
    &["units", "random"],
    &["shape"],
    &["mesh"],
    &["config", "ops"],
    &["plan"],
    &["ledger"],
    &["trace"],
    &["planner"],
    &["sim"],
    &["formulas", "predict"],
    &["search"],
    &["exec"],
    &["data"],
    &["checkpoint"],
    &["train"],
    &["cli"],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    sources(&root().join(folder), &mut found);
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// The code of a file: no comments, nothing after its tests begin.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn imports_point_downwards() {
    let mut faults = Vec::new();
    for (name, text) in rust_files("src") {
        let room = name.trim_start_matches("src/").split(['/', '.']).next().unwrap();
        let Some(mine) = floor(room) else { continue };
        for part in code(&text).split("crate::").skip(1) {
            let other: String =
                part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            match floor(&other) {
                Some(theirs) if theirs < mine || other == room => {}
                Some(_) => faults.push(format!("{name} names {other}")),
                None => faults.push(format!("{name} names {other}, which is in no room")),
            }
        }
    }
    assert!(faults.is_empty(), "imports must point downwards:\n{}", faults.join("\n"));
}

#[test]
fn wgpu_is_named_in_exec_gpu_alone_and_clocks_in_exec_alone() {
    for (name, text) in rust_files("src") {
        let code = code(&text);
        if !name.starts_with("src/exec/gpu") {
            assert!(!code.contains("wgpu::"), "{name} names wgpu");
        }
        if !name.starts_with("src/exec/") && !name.starts_with("src/cli/") {
            assert!(!code.contains("Instant"), "{name} looks at a clock");
        }
    }
}

#[test]
fn every_file_says_what_lives_in_it() {
    let folders = ["src", "tests", "examples", "benches", "visualizer"].into_iter();
    for folder in folders.filter(|folder| root().join(folder).is_dir()) {
        for (name, text) in rust_files(folder) {
            assert!(text.starts_with("//! "), "{name} opens with what lives in it");
            // The formatter holds code, and texts for people cannot be broken.
            let is_long =
                |line: &str| line.trim_start().starts_with("//") && line.chars().count() > 110;
            let long = text.lines().position(is_long);
            assert!(long.is_none(), "{name}:{} is too long", long.unwrap_or_default() + 1);
        }
    }
}

#[test]
fn every_shader_has_an_op_of_the_same_stem() {
    for entry in fs::read_dir(root().join("shaders")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} opens with what lives in it", path.display());
    }
}

/// What is written in tests and beside code, as one text.
fn all_tests(folders: &[&str]) -> String {
    let files = folders.iter().flat_map(|folder| rust_files(folder));
    files.map(|(_, text)| text).collect()
}

/// Holds that the row of a table names tests that are there, or says in its last cell why not.
fn assert_names_tests(table: &str, case: &str, tests: &str) {
    let row = table.lines().find(|line| line.starts_with(&format!("| {case} ")));
    let row = row.unwrap_or_else(|| panic!("{case} is in no row"));
    let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    let reason = row.split('|').nth(3).unwrap_or_default().trim();
    assert!(!names.is_empty() || reason.len() > 20, "{case} names a test or says why not");
    for name in names {
        let is_test = tests.match_indices(&format!("fn {name}()")).any(|(at, _)| {
            let before = tests[..at].trim_end().lines().next_back();
            before.is_some_and(|line| line.trim_start().starts_with("#["))
        });
        assert!(is_test, "{case} names {name}, which is no test");
    }
}

#[test]
fn every_case_from_the_field_names_a_test_that_exists_or_says_why_not() {
    let table = fs::read_to_string(root().join("tests/CASES.md")).unwrap();
    let tests = all_tests(&["src", "tests"]);
    for number in 1..=50 {
        assert_names_tests(&table, &format!("C{number:02}"), &tests);
    }
}

/// Reports of tools like the app that are about something it has.
const REPORTS: [u32; 20] =
    [1, 3, 4, 6, 7, 8, 10, 11, 12, 14, 15, 17, 18, 19, 21, 22, 24, 26, 27, 28];

#[test]
fn every_report_about_tools_like_the_app_names_the_tests_that_hold_it() {
    let table = fs::read_to_string(root().join("visualizer/tests/REPORTS.md")).unwrap();
    let tests = all_tests(&["src", "tests", "visualizer/src", "visualizer/tests"]);
    for number in REPORTS {
        assert_names_tests(&table, &format!("R{number:02}"), &tests);
    }
    let rows = table.lines().filter(|line| line.starts_with("| R")).count();
    assert_eq!(rows, REPORTS.len(), "each report has one row");
}
