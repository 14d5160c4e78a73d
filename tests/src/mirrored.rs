//! A repository of any shape, and the daemon's mirror of it.

use crate::git_repository::{Draft, Repository};
use bisect::CommitId;
use coordinator::config::{BuildRecipe, Tree};
use coordinator::tree::{TreeError, Trees};
use std::collections::BTreeMap;
use std::path::Path;

pub fn configured(url: &Path) -> BTreeMap<String, Tree> {
    let build = BuildRecipe::Command {
        command: vec!["true".into()],
        artefacts: vec![],
        arch: "x86_64".into(),
    };
    let tree = Tree {
        url: url.to_string_lossy().into_owned(),
        build,
        build_limit_s: 1,
    };
    BTreeMap::from([("t".to_string(), tree)])
}

pub struct Mirrored {
    pub folder: tempfile::TempDir,
    pub source: Repository,
    pub trees: Trees,
}

impl Mirrored {
    pub async fn new(drafts: &[Draft]) -> Mirrored {
        let folder = tempfile::tempdir().unwrap();
        let mut source = Repository::new(&folder.path().join("source.git"));
        source.add(drafts);
        let trees = Trees::open(&folder.path().join("state"), &configured(&source.folder))
            .await
            .unwrap();
        Mirrored {
            folder,
            source,
            trees,
        }
    }

    pub fn id(&self, number: usize) -> CommitId {
        CommitId::new(&self.source.ids[number])
    }

    pub async fn resolve(&self, revision: &str) -> Result<usize, TreeError> {
        let id = self.trees.resolve("t", revision).await?;
        Ok(self
            .source
            .ids
            .iter()
            .position(|known| known == id.as_str())
            .unwrap())
    }

    pub fn mirror(&self) -> std::path::PathBuf {
        self.folder.path().join("state/mirrors/t.git")
    }
}

pub fn line(count: usize) -> Vec<Draft> {
    (0..count)
        .map(|n| Draft::new(n, &n.checked_sub(1).into_iter().collect::<Vec<_>>()))
        .collect()
}

/// 0 - 1 - 2 ----- 4 - 5      main
///      \- 3 -----/           topic, merged by 4
///          \- 6              side
pub fn forked() -> Vec<Draft> {
    [&[][..], &[0], &[1], &[1], &[2, 3], &[4], &[3]]
        .iter()
        .enumerate()
        .map(|(n, p)| Draft::new(n, p))
        .collect()
}
