//! One mirror: made, fetched, checked to be whole, pinned.

use super::{TreeError, git};
use bisect::CommitId;
use git2::{Oid, Repository};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use uuid::Uuid;

/// The first fetch of a kernel tree over a slow line takes about half an hour.
const FETCH_LIMIT: Duration = Duration::from_secs(2 * 3600);
const GRAPH_LIMIT: Duration = Duration::from_secs(1800);
const QUICK_LIMIT: Duration = Duration::from_secs(60);

/// A request waits so long for a fetch that runs; the fetch itself goes on.
const FETCH_WAIT: Duration = Duration::from_secs(90);

/// Every fetch leaves a pack, and every look-up asks all packs: beyond so many they are joined.
const MAX_PACKS: usize = 32;

/// Branches, tags and HEAD under a name space of their own; the source's refs/pull, refs/notes and the like stay
/// away. Forced and pruned, for a mirror shows what is there now; what must stay is pinned.
const REFSPECS: [&str; 2] = [
    "+refs/heads/*:refs/mirror/heads/*",
    "+refs/tags/*:refs/mirror/tags/*",
];

#[derive(Debug)]
pub struct Mirror {
    pub tree: String,
    pub url: String,
    pub folder: PathBuf,
    /// When the last successful fetch began; the lock is held while one runs.
    fetched: Mutex<Option<Instant>>,
}

impl Mirror {
    pub async fn open(state_dir: &Path, tree: &str, url: &str) -> Result<Mirror, TreeError> {
        let mirrors = state_dir.join("mirrors");
        git::write_config(&mirrors).await?;
        let folder = mirrors.join(format!("{tree}.git"));
        if !folder.join("HEAD").exists() {
            let path = folder.to_string_lossy().into_owned();
            git::output(
                &folder,
                &["init", "--quiet", "--bare", "--template=", &path],
                QUICK_LIMIT,
            )
            .await?;
        }
        refuse_incomplete(&folder, "the mirror", "Remove it; it will be made anew.")?;
        Ok(Mirror {
            tree: tree.into(),
            url: url.into(),
            folder,
            fetched: Mutex::new(None),
        })
    }

    /// Runs `question` on the mirror, away from the async threads.
    pub async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Repository) -> Result<T, TreeError> + Send + 'static,
    ) -> Result<T, TreeError> {
        let folder = self.folder.clone();
        let task = tokio::task::spawn_blocking(move || question(&Repository::open_bare(folder)?));
        task.await
            .unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    }

    /// Fetches, unless a fetch that began after this call has done it. Waits [`FETCH_WAIT`] at most; the fetch
    /// goes on without the caller.
    pub async fn fetch(self: Arc<Self>) -> Result<(), TreeError> {
        let asked = Instant::now();
        let mirror = self.clone();
        let task = tokio::spawn(async move {
            let mut fetched = mirror.fetched.lock().await;
            if fetched.is_some_and(|at| at > asked) {
                return Ok(());
            }
            let began = Instant::now();
            mirror.fetch_now().await?;
            *fetched = Some(began);
            Ok(())
        });
        match tokio::time::timeout(FETCH_WAIT, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(e)) => std::panic::resume_unwind(e.into_panic()),
            Err(_) => Err(TreeError::Busy {
                tree: self.tree.clone(),
                waited_s: FETCH_WAIT.as_secs(),
            }),
        }
    }

    async fn fetch_now(&self) -> Result<(), TreeError> {
        let source = self.source_folder();
        if let Some(source) = &source {
            let place = format!("the source {}", source.display());
            refuse_incomplete(source, &place, "Point the tree's url at a full clone.")?;
        }
        let advertised = self.advertised().await?;
        if advertised.replaced {
            let place = format!("the source {}", self.url);
            return Err(not_whole(
                &place,
                "rewritten by refs/replace",
                "Point the tree's url at a full clone.",
            ));
        }
        let before = self.refs().await?;
        let mut args = vec![
            "fetch",
            "--quiet",
            "--prune",
            "--no-tags",
            "--no-write-fetch-head",
            "--",
            &self.url,
        ];
        args.extend(REFSPECS);
        if advertised.head {
            args.push("+HEAD:refs/mirror/HEAD");
        }
        let ended = git::run(&self.folder, &args, FETCH_LIMIT).await?;
        let message = String::from_utf8_lossy(&ended.stderr).into_owned();
        // git warns about refs of a shallow source, leaves them out, and may still say that all went well.
        let says_shallow = ["shallow roots", "shallow update", "is shallow"]
            .iter()
            .any(|s| message.contains(s));
        if says_shallow || self.folder.join("shallow").exists() {
            let place = format!("the source {}", self.url);
            return Err(not_whole(
                &place,
                "a shallow clone",
                "Run `git fetch --unshallow` there, or use a full clone.",
            ));
        }
        if !ended.status.success() {
            return Err(self.fetch_error(message.trim()));
        }
        refuse_incomplete(&self.folder, "the mirror", "Remove it; it will be made anew.")?;
        if self.refs().await? != before || !self.folder.join("objects/info/commit-graph").exists() {
            self.write_commit_graph().await?;
        }
        self.join_packs().await
    }

    /// Fetches one object that hangs on no branch or tag, where the source gives such away.
    pub async fn fetch_by_id(&self, id: &str) -> Result<(), TreeError> {
        let _one_at_a_time = self.fetched.lock().await;
        let args = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--",
            &self.url,
            id,
        ];
        git::output(&self.folder, &args, FETCH_LIMIT).await.map(drop)
    }

    /// libgit2 ignores a commit-graph with a chunk it does not know, and git's default has one (generation
    /// dates); with generation numbers alone walks are seven times as fast. It reads this single file only.
    async fn write_commit_graph(&self) -> Result<(), TreeError> {
        if self.refs().await?.is_empty() {
            return Ok(());
        }
        let args = [
            "-c",
            "commitGraph.generationVersion=1",
            "commit-graph",
            "write",
            "--reachable",
            "--no-progress",
        ];
        git::output(&self.folder, &args, GRAPH_LIMIT).await.map(drop)
    }

    async fn join_packs(&self) -> Result<(), TreeError> {
        let packs = std::fs::read_dir(self.folder.join("objects/pack"))?.flatten();
        if packs
            .filter(|e| e.path().extension().is_some_and(|x| x == "pack"))
            .count()
            <= MAX_PACKS
        {
            return Ok(());
        }
        git::output(
            &self.folder,
            &["repack", "-q", "-d", "--geometric=2"],
            GRAPH_LIMIT,
        )
        .await
        .map(drop)
    }

    /// What the source offers that decides how to fetch; also says early that it cannot be reached.
    async fn advertised(&self) -> Result<Advertised, TreeError> {
        let args = ["ls-remote", "--", &self.url, "HEAD", "refs/replace/*"];
        let ended = git::run(&self.folder, &args, QUICK_LIMIT).await?;
        if !ended.status.success() {
            return Err(self.fetch_error(String::from_utf8_lossy(&ended.stderr).trim()));
        }
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let mut names = text.lines().filter_map(|line| line.split('\t').nth(1));
        let (mut head, mut replaced) = (false, false);
        names.by_ref().for_each(|name| {
            head |= name == "HEAD";
            replaced |= name.starts_with("refs/replace/");
        });
        Ok(Advertised { head, replaced })
    }

    async fn refs(&self) -> Result<String, TreeError> {
        let args = [
            "for-each-ref",
            "--format=%(objectname) %(refname)",
            "refs/mirror/",
        ];
        git::output(&self.folder, &args, QUICK_LIMIT).await
    }

    /// The folder that holds the source's objects and refs, if it is a path on this machine.
    fn source_folder(&self) -> Option<PathBuf> {
        let path = Path::new(self.url.strip_prefix("file://").unwrap_or(&self.url));
        let plain = [path.join(".git"), path.to_path_buf()]
            .into_iter()
            .find(|p| p.join("objects").is_dir());
        // A work tree made by `git worktree` has its objects elsewhere.
        plain.or_else(|| Some(Repository::open(path).ok()?.commondir().to_path_buf()))
    }

    fn fetch_error(&self, message: &str) -> TreeError {
        TreeError::Fetch {
            tree: self.tree.clone(),
            url: self.url.clone(),
            message: message.into(),
        }
    }
}

struct Advertised {
    head: bool,
    replaced: bool,
}

fn not_whole(place: &str, what: &'static str, remedy: &str) -> TreeError {
    TreeError::NotWhole {
        place: place.into(),
        what,
        remedy: remedy.into(),
    }
}

/// Shallow, grafted, replaced, partial: each shows another history than the one that was written. Reads files
/// alone, for git itself refuses to open some of these.
fn refuse_incomplete(folder: &Path, place: &str, remedy: &str) -> Result<(), TreeError> {
    let holds_text = |path: &str| std::fs::metadata(folder.join(path)).is_ok_and(|m| m.len() > 0);
    if holds_text("shallow") {
        let remedy = format!("Run `git fetch --unshallow` there. {remedy}");
        return Err(not_whole(place, "a shallow clone", &remedy));
    }
    if holds_text("info/grafts") {
        return Err(not_whole(place, "grafted (info/grafts)", remedy));
    }
    if has_file(&folder.join("objects/pack"), "promisor") || is_configured_partial(&folder.join("config"))? {
        return Err(not_whole(place, "a partial clone", remedy));
    }
    let loose =
        std::fs::read_dir(folder.join("refs/replace")).is_ok_and(|mut entries| entries.next().is_some());
    let packed = std::fs::read_to_string(folder.join("packed-refs")).unwrap_or_default();
    if loose || packed.contains(" refs/replace/") {
        return Err(not_whole(place, "rewritten by refs/replace", remedy));
    }
    Ok(())
}

fn has_file(folder: &Path, extension: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|e| e.path().extension().is_some_and(|x| x == extension))
}

fn is_configured_partial(config: &Path) -> Result<bool, TreeError> {
    let config = git2::Config::open(config)?;
    let mut entries = config.entries(Some("partialclone|promisor"))?;
    Ok(entries.next().is_some())
}

pub fn pin(repo: &Repository, bisection: Uuid, commits: &[CommitId]) -> Result<(), TreeError> {
    for (n, commit) in commits.iter().enumerate() {
        let oid = Oid::from_str(commit.as_str())?;
        repo.find_commit(oid)?;
        repo.reference(&format!("refs/perfbisect/{bisection}/{n}"), oid, true, "")?;
    }
    Ok(())
}

pub fn unpin(repo: &Repository, bisection: Uuid) -> Result<(), TreeError> {
    for reference in repo.references_glob(&format!("refs/perfbisect/{bisection}/*"))? {
        reference?.delete()?;
    }
    Ok(())
}
