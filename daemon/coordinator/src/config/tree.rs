//! A git repository the daemon keeps a mirror of, and how its commits are built.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A git repository the daemon keeps a mirror of, and how its commits are built.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Anything `git fetch` takes: a path or a URL.
    pub url: String,
    pub build: BuildRecipe,
    #[serde(default = "default_build_limit_s")]
    pub build_limit_s: u32,
}

fn default_build_limit_s() -> u32 {
    3600
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum BuildRecipe {
    Kbuild {
        #[serde(default = "default_arch")]
        arch: String,
        #[serde(default = "default_base_target")]
        base_target: String,
        /// A whole `.config` to start from instead of `base_target`.
        base_config: Option<PathBuf>,
        /// Lines merged over the base.
        fragment: Option<PathBuf>,
        /// Lines that must hold after `olddefconfig`.
        #[serde(default)]
        forced: Vec<String>,
        #[serde(default = "default_cc")]
        cc: String,
        #[serde(default = "default_targets")]
        targets: Vec<String>,
        #[serde(default = "default_image")]
        image: String,
        /// 0: as many as the builder has CPUs.
        #[serde(default)]
        jobs: u32,
    },
    Command {
        command: Vec<String>,
        artefacts: Vec<String>,
        #[serde(default = "default_arch")]
        arch: String,
    },
}

pub(super) fn default_arch() -> String {
    "x86_64".into()
}
fn default_base_target() -> String {
    "tinyconfig".into()
}
fn default_cc() -> String {
    "gcc".into()
}
fn default_targets() -> Vec<String> {
    vec!["bzImage".into()]
}
fn default_image() -> String {
    "arch/x86/boot/bzImage".into()
}
