//! The quickstart's kernel tree for tests, and the truth about it, which no daemon gets to see.

use crate::binaries::cache_dir;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub struct KernelTree {
    pub repository: PathBuf,
    truth: BTreeMap<String, Vec<String>>,
}

impl KernelTree {
    /// The tree of a seed, with the tags `v1.0` and `v1.1`. The first one made takes some 20 s, others one.
    pub fn new(seed: u64) -> KernelTree {
        KernelTree::made(seed, None, false)
    }

    /// For a machine of its own, with a commit that hangs at boot.
    pub fn for_machine(seed: u64, loss_pct: f64) -> KernelTree {
        KernelTree::made(seed, Some(loss_pct), true)
    }

    fn made(seed: u64, loss_pct: Option<f64>, for_machine: bool) -> KernelTree {
        let wish = ::kernel_tree::Wish {
            tarball: "/usr/src/linux-source-6.1.tar.xz".into(),
            cache: cache_dir("kernel-trees"),
            seed,
            loss_pct,
            for_machine,
        };
        let made = ::kernel_tree::make(&wish).unwrap_or_else(|e| panic!("{e}"));
        let text = std::fs::read_to_string(&made.truth).expect("made with the repository");
        let line = |l: &str| {
            let mut words = l.split_whitespace().map(String::from);
            Some((words.next()?, words.collect()))
        };
        KernelTree {
            repository: made.repository,
            truth: text.lines().filter_map(line).collect(),
        }
    }

    pub fn first_bad(&self) -> &str {
        &self.commits("first_bad")[0]
    }

    /// Commits of one kind: `breaks`, `panics`, `same_binary`, `does_not_run`, …
    pub fn commits(&self, kind: &str) -> &[String] {
        self.truth
            .get(kind)
            .unwrap_or_else(|| panic!("the truth knows no `{kind}`"))
    }
}

/// What builds a kernel for a machine of its own.
pub fn machine_recipe(jobs: u32) -> String {
    let fragment = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/kernels/x86-lab.fragment");
    format!(
        "build = {{ kind = \"kbuild\", fragment = {fragment:?}, forced = [\"CONFIG_64BIT=y\", \"CONFIG_KEXEC=y\"], jobs = {jobs} }}\n\
         build_limit_s = 14400"
    )
}

/// What builds it, as a `[trees.NAME]` section's `build` table.
pub fn recipe(jobs: u32) -> String {
    let fragment = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/kernels/x86-tiny.fragment");
    format!(
        "build = {{ kind = \"kbuild\", fragment = {fragment:?}, forced = [\"CONFIG_64BIT=y\"], jobs = {jobs} }}"
    )
}
