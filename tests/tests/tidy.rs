//! The floor rules: who may use what, read from the sources themselves.
//!
//! Manifests keep the pure rooms pure; `use` lines and paths keep the others apart. Each rule says which lines break
//! it, so that a failure is a list of places to mend.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A line of Rust without its comment, with where it stands.
struct Line {
    file: String,
    number: usize,
    code: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Every file of the project, as paths relative to its root: not what builds, runs and package tools leave there.
fn files() -> Vec<(String, PathBuf)> {
    const NOT_OURS: [&str; 8] = [
        "target",
        ".git",
        ".sqlx",
        "state",
        "node_modules",
        "artefacts",
        "Cargo.lock",
        "package-lock.json",
    ];
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if NOT_OURS.iter().any(|name| path.file_name().unwrap() == *name) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                walk(&path, found)
            } else {
                found.push(path)
            }
        }
    }
    let (root, mut paths) = (root(), Vec::new());
    walk(&root, &mut paths);
    paths.sort();
    let name = |p: &PathBuf| {
        p.strip_prefix(&root)
            .unwrap()
            .to_str()
            .expect("names are UTF-8")
            .to_string()
    };
    paths.into_iter().map(|p| (name(&p), p)).collect()
}

/// Text written here, as against recorded outputs and snapshots, which are as long and say what they like.
fn written(file: &str) -> bool {
    let recorded = [
        "/fixtures/",
        "/data/",
        "/scenarios/",
        "/samples/",
        "/snapshots/",
        "/dags/",
        "/seed-numbers/",
    ];
    let binary = [".gz", ".xz", ".png", ".ico", ".woff2", ".zst"];
    !recorded.iter().any(|r| file.contains(r)) && !binary.iter().any(|b| file.ends_with(b))
}

fn rust_files() -> Vec<(String, String)> {
    let rust = files().into_iter().filter(|(name, _)| name.ends_with(".rs"));
    rust.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// Lines of code of the Rust files for which `wanted` holds; line comments are cut off.
fn code(wanted: impl Fn(&str) -> bool) -> Vec<Line> {
    let mut lines = Vec::new();
    for (file, text) in rust_files().into_iter().filter(|(name, _)| wanted(name)) {
        for (at, line) in text.lines().enumerate() {
            let code = if line.trim_start().starts_with("//") {
                ""
            } else {
                line
            };
            lines.push(Line {
                file: file.clone(),
                number: at + 1,
                code: code.to_string(),
            });
        }
    }
    assert!(
        !lines.is_empty(),
        "the rule looks at no file at all: its paths are out of date"
    );
    lines
}

fn breaches(lines: &[Line], broken: impl Fn(&Line) -> bool) -> Vec<String> {
    let shown = |l: &Line| format!("{}:{}: {}", l.file, l.number, l.code.trim());
    lines.iter().filter(|l| broken(l)).map(shown).collect()
}

#[track_caller]
fn none(rule: &str, breaches: Vec<String>) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

/// The room of the coordinator that a file belongs to: `store` for `…/store.rs` and `…/store/jobs.rs`.
fn room(file: &str) -> Option<&str> {
    let rest = file.strip_prefix("daemon/coordinator/src/")?;
    rest.split(['/', '.']).next()
}

/// `word` as a whole word of `code`: not a part of a longer name.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !(part(before) || word.ends_with(|c: char| c.is_alphanumeric()) && part(after))
    })
}

#[test]
fn an_outside_thing_has_one_home() {
    let lines = code(|f| f.starts_with("daemon/") || f.starts_with("agent/"));
    for (library, home) in [
        ("sqlx", "store"),
        ("git2", "tree"),
        ("ssh2", "fleet"),
        ("object_store", "images"),
    ] {
        let used = |l: &Line| {
            room(&l.file) != Some(home)
                && (names(&l.code, &format!("{library}::")) || names(&l.code, &format!("use {library};")))
        };
        none(
            &format!("`{library}` is used in `{home}` only"),
            breaches(&lines, used),
        );
    }
}

#[test]
fn rooms_use_only_the_floors_below_them() {
    const OUTSIDE: [&str; 5] = ["store", "tree", "fleet", "images", "post"];
    let lines = code(|f| f.starts_with("daemon/coordinator/src/"));
    let mut found = Vec::new();
    for line in &lines {
        let Some(room) = room(&line.file) else { continue };
        let forbidden: Vec<&str> = match room {
            "web" => vec!["fleet", "post", "passes", "cli"],
            "passes" => vec!["web", "cli"],
            r if OUTSIDE.contains(&r) => OUTSIDE
                .into_iter()
                .filter(|o| *o != r)
                .chain(["passes", "web", "cli"])
                .collect(),
            _ => continue,
        };
        let crate_path = |other: &str| {
            names(&line.code, &format!("crate::{other}::")) || names(&line.code, &format!("crate::{other};"))
        };
        if forbidden.iter().any(|other| crate_path(other)) {
            found.push(format!("{}:{}: {}", line.file, line.number, line.code.trim()));
        }
    }
    none("a room uses a room of its own floor or above", found);
}

#[test]
fn a_pass_uses_no_other_pass() {
    const PASSES: [&str; 4] = ["drive", "dispatch", "deliver", "sweep"];
    let lines = code(|f| f.starts_with("daemon/coordinator/src/passes"));
    let uses_another = |l: &Line| {
        let own = l.file.trim_start_matches("daemon/coordinator/src/passes/");
        own != l.file
            && PASSES.iter().any(|p| {
                !own.starts_with(p)
                    && ["super::", "crate::passes::"]
                        .iter()
                        .any(|from| names(&l.code, &format!("{from}{p}")))
            })
    };
    none(
        "a pass is called by nobody but the loop",
        breaches(&lines, uses_another),
    );
}

#[test]
fn the_pure_rooms_see_no_clock_no_disk_and_no_network() {
    const IMPURE: [&str; 9] = [
        "SystemTime",
        "Instant",
        "chrono",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "tokio",
    ];
    let lines = code(|f| f.starts_with("daemon/bisect/src") || f.starts_with("daemon/parsers/src"));
    none(
        "time, files and randomness are arguments",
        breaches(&lines, |l| IMPURE.iter().any(|i| names(&l.code, i))),
    );
}

#[test]
fn manifests_allow_no_more_than_the_floor() {
    let allowed: [(&str, &[&str]); 4] = [
        ("daemon/bisect", &["libm", "fixedbitset"]),
        ("daemon/parsers", &["regex", "serde_json"]),
        ("agent/protocol", &["serde"]),
        (
            "agent/runner",
            &["protocol", "serde", "serde_json", "sha2", "rustix", "object"],
        ),
    ];
    for (package, allowed) in allowed {
        let text = std::fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        let mut section = "";
        let mut found = BTreeSet::new();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            if line.starts_with('[') {
                section = line;
            } else if section == "[dependencies]" || section == "[build-dependencies]" {
                found.insert(line.split(['.', ' ', '=']).next().unwrap().to_string());
            } else {
                let hidden = section.contains("dependencies") && section != "[dev-dependencies]";
                assert!(
                    !hidden,
                    "{package}: {section}: write dependencies in [dependencies]"
                );
            }
        }
        let more: Vec<String> = found
            .into_iter()
            .filter(|d| !allowed.contains(&d.as_str()))
            .collect();
        none(&format!("{package} depends on more than its floor allows"), more);
    }
}

#[test]
fn tests_wait_for_events_and_never_sleep() {
    // Test code is what lies under tests/ and what follows a `#[cfg(test)]` in a source file.
    let mut in_tests = Vec::new();
    let mut testing = (String::new(), false);
    for line in code(|f| !f.ends_with("/wait.rs") && f != "tests/tests/tidy.rs") {
        if testing.0 != line.file {
            testing = (
                line.file.clone(),
                line.file.starts_with("tests/") || line.file.contains("/tests/"),
            );
        }
        testing.1 |= line.code.contains("#[cfg(test)]");
        if testing.1 {
            in_tests.push(line);
        }
    }
    let sleeps = |l: &Line| {
        ["sleep(", "sleep_ms(", "sleep_until("]
            .iter()
            .any(|s| names(&l.code, s))
    };
    none(
        "a pause stands in for an event; use lab::wait",
        breaches(&in_tests, sleeps),
    );
}

#[test]
fn a_file_is_one_idea() {
    const CODE: [&str; 9] = ["rs", "mjs", "js", "css", "html", "sql", "sh", "md", "toml"];
    let mut long = Vec::new();
    for (name, path) in files().into_iter().filter(|(name, _)| written(name)) {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if CODE.contains(&extension) || (extension.is_empty() && name.starts_with("deploy/")) {
            let count = std::fs::read_to_string(&path).unwrap().lines().count();
            if count > 500 {
                long.push(format!("{name}: {count} lines"));
            }
        }
    }
    none("longer than 500 lines", long);
}

#[test]
fn every_module_says_what_it_is_for() {
    // A module's own tests stand under the module's words.
    let modules = rust_files()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("/tests.rs"));
    let silent = modules.filter(|(_, text)| {
        let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("");
        !first.starts_with("//!") || first.len() < 18
    });
    none(
        "a module begins with its purpose, `//! …`",
        silent.map(|(name, _)| name).collect(),
    );
}

#[test]
fn nothing_is_left_open_and_no_lint_is_silenced() {
    let lines = code(|f| f != "tests/tests/tidy.rs");
    let open = ["todo!(", "unimplemented!(", "dbg!(", "#[allow(", "#![allow("];
    none(
        "finish it, or use #[expect]",
        breaches(&lines, |l| open.iter().any(|o| l.code.contains(o))),
    );
    let kinds = ["struct ", "enum ", "trait "];
    let vague = ["Manager", "Handler", "Helper", "Util", "Utils", "Service"];
    let is_vague = |l: &Line| {
        let name = kinds
            .iter()
            .find_map(|k| l.code.split_once(k))
            .map_or("", |(_, rest)| rest);
        let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
        vague.iter().any(|v| name.ends_with(v))
    };
    none("a name that says nothing", breaches(&lines, is_vague));
}

/// The project stands alone: no path of somebody's machine, none that leads out of the project.
#[test]
fn nothing_names_what_lies_outside() {
    const HOMES: [&str; 4] = ["/root/", "/home/", "/Users/", "/mnt/"];
    let mut found = Vec::new();
    for (name, path) in files() {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        if !written(&name) || name == "tests/tests/tidy.rs" {
            continue;
        }
        let depth = name.matches('/').count();
        for (at, line) in text.lines().enumerate() {
            let begins =
                |i: usize| !line[..i].ends_with(|c: char| c.is_alphanumeric() || "}/._-*)~".contains(c));
            let home = HOMES
                .iter()
                .any(|h| line.match_indices(h).any(|(i, _)| begins(i)));
            let ups = line
                .split(|c: char| !"./".contains(c))
                .map(|run| run.matches("../").count())
                .max()
                .unwrap_or(0);
            if home || ups > depth {
                found.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    none("a path outside the project", found);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for (name, path) in files().into_iter().filter(|(name, _)| name.ends_with(".md")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split([')', '#', ' ']).next().unwrap_or("");
            let local = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
            if local && !path.parent().unwrap().join(target).exists() {
                broken.push(format!("{name}: {target}"));
            }
        }
    }
    none("a link to a file that is not there", broken);
}
