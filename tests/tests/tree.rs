//! The mirror: what is named, fetched, pinned, refused, composed and packed, against the git program.

use bisect::Kernel;
use coordinator::tree::{RangeError, TreeError, Trees};
use lab::git_repository::{Draft, Repository};
use lab::mirrored::{Mirrored, configured, forked, line};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn every_way_to_name_a_commit_is_understood() {
    let lab = Mirrored::new(&forked()).await;
    lab.source.branch("main", 5);
    lab.source.branch("topic/one", 3);
    lab.source.branch("side", 6);
    lab.source.tag("v1.0", 2);
    lab.source.git(&["tag", "light", &lab.source.ids[4]]);
    let full = lab.source.ids[1].clone();
    let described = format!("v1.0-2-g{}", &lab.source.ids[4][..12]);
    let written = [
        ("main", 5),
        ("HEAD", 5),
        ("@", 5),
        ("@~1", 4),
        ("topic/one", 3),
        ("refs/heads/side", 6),
        ("heads/side", 6),
        ("origin/main", 5),
        ("v1.0", 2),
        ("v1.0^{commit}", 2),
        ("v1.0^{}", 2),
        ("tags/light", 4),
        ("main~3", 1),
        ("main^^2", 3),
        ("light^2~1", 1),
        ("v1.0~2", 0),
        ("main^{/step 2}", 2),
        (full.as_str(), 1),
        (&full[..10], 1),
        (described.as_str(), 4),
    ];
    for (revision, number) in written {
        assert_eq!(lab.resolve(revision).await.unwrap(), number, "{revision}");
    }
    for refused in [
        "",
        "main..side",
        "main@{1}",
        "main@{yesterday}",
        ":file-1",
        "main:file-1",
        "~1",
        "-main",
    ] {
        let error = lab.resolve(refused).await.unwrap_err();
        assert!(
            matches!(
                error,
                TreeError::BadRevision { .. } | TreeError::UnknownRevision { .. }
            ),
            "{refused}: {error:?}"
        );
    }
    assert!(matches!(
        lab.resolve("main^{tree}").await,
        Err(TreeError::NotACommit { .. } | TreeError::BadRevision { .. })
    ));
    assert!(matches!(
        lab.resolve("main~99").await,
        Err(TreeError::UnknownRevision { .. })
    ));
    assert!(matches!(
        lab.trees.resolve("x", "main").await,
        Err(TreeError::UnknownTree { .. })
    ));
}

#[tokio::test]
async fn what_is_new_in_the_source_is_fetched_when_it_is_named() {
    let mut lab = Mirrored::new(&forked()).await;
    lab.source.branch("main", 4);
    assert_eq!(lab.resolve("main").await.unwrap(), 4);
    lab.source.branch("main", 5);
    assert_eq!(
        lab.resolve("main").await.unwrap(),
        5,
        "a branch is where it is now"
    );
    lab.source.add(&[Draft::new(7, &[5])]);
    lab.source.tag("v2", 7);
    assert_eq!(lab.resolve("v2").await.unwrap(), 7, "a new tag");
    lab.source.add(&[Draft::new(8, &[7])]);
    let dangling = lab.source.ids[8].clone();
    assert_eq!(lab.resolve(&dangling).await.unwrap(), 8, "an id on no branch");
    std::fs::rename(&lab.source.folder, lab.folder.path().join("gone")).unwrap();
    assert_eq!(lab.resolve("v2").await.unwrap(), 7, "a tag needs no source");
    let error = lab.resolve("main").await.unwrap_err();
    assert!(matches!(error, TreeError::Fetch { .. }), "{error}");
}

#[tokio::test]
async fn an_abbreviation_must_fit_one_commit_only() {
    let lab = Mirrored::new(&line(700)).await;
    lab.source.branch("main", 699);
    lab.trees.fetch("t").await.unwrap();
    let everything = lab
        .source
        .lines(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
    let mut by_prefix: HashMap<&str, Vec<&String>> = HashMap::new();
    everything
        .iter()
        .for_each(|id| by_prefix.entry(&id[..4]).or_default().push(id));
    let commits: BTreeSet<&String> = lab.source.ids.iter().collect();
    let shared = |commits_wanted: usize| {
        let fits = |ids: &Vec<&String>| {
            ids.len() > 1 && ids.iter().filter(|id| commits.contains(**id)).count() == commits_wanted
        };
        let mut all: Vec<&str> = by_prefix
            .iter()
            .filter(|(_, ids)| fits(ids))
            .map(|(prefix, _)| *prefix)
            .collect();
        all.sort();
        all[0]
    };
    let error = lab.resolve(shared(2)).await.unwrap_err();
    assert!(
        matches!(&error, TreeError::Ambiguous { candidates, .. } if candidates.len() == 2),
        "{error}"
    );
    let one = shared(1);
    let found = lab.resolve(one).await.unwrap();
    assert!(
        lab.source.ids[found].starts_with(one),
        "a commit is preferred over files and trees"
    );
}

#[tokio::test]
async fn a_range_that_cannot_be_searched_is_refused_with_its_reason() {
    let mut drafts = forked();
    drafts.push(Draft::new(7, &[]));
    let lab = Mirrored::new(&drafts).await;
    lab.source.branch("main", 5);
    lab.source.branch("side", 6);
    lab.source.branch("island", 7);
    let check = async |good: &str, bad: &str| lab.trees.check_range("t", good, bad, false).await;
    let bounds = check("main~4", "main").await.unwrap();
    assert_eq!((bounds.commits, bounds.merge_bases.clone()), (5, vec![lab.id(0)]));
    assert!(check("side~1", "main").await.unwrap().good_is_ancestor());
    let aside = check("side", "main").await.unwrap();
    assert_eq!((aside.commits, aside.merge_bases.clone()), (3, vec![lab.id(3)]));
    assert!(!aside.good_is_ancestor());
    assert!(matches!(
        check("main", "main~0").await,
        Err(RangeError::EqualEnds { .. })
    ));
    assert!(matches!(
        check("main", "main~2").await,
        Err(RangeError::ReversedRange { .. })
    ));
    assert!(matches!(
        check("island", "main").await,
        Err(RangeError::NoCommonAncestor { .. })
    ));
    let error = check("main", "nowhere").await.unwrap_err();
    assert_eq!((error.field(), error.kind()), (Some("bad"), "unknown_revision"));
    let error = lab
        .trees
        .check_range("x", "main", "side", false)
        .await
        .unwrap_err();
    assert_eq!((error.field(), error.kind()), (Some("tree"), "unknown_tree"));
}

#[tokio::test]
async fn what_is_pinned_survives_a_force_push_and_a_collection() {
    let mut lab = Mirrored::new(&line(6)).await;
    lab.source.branch("main", 5);
    let bounds = lab.trees.check_range("t", "main~4", "main", false).await.unwrap();
    let bisection = uuid::Uuid::new_v4();
    lab.trees
        .pin("t", bisection, &[bounds.good.clone(), bounds.bad.clone()])
        .await
        .unwrap();
    lab.source.add(&[Draft::new(6, &[0])]);
    lab.source.branch("main", 6);
    (0..6).for_each(|n| drop(lab.source.git(&["update-ref", "-d", &format!("refs/made/{n}")])));
    lab.source.git(&["gc", "--quiet", "--prune=now"]);
    assert_eq!(lab.resolve("main").await.unwrap(), 6);
    assert_eq!(lab.resolve(bounds.bad.as_str()).await.unwrap(), 5);
    // Even a collection by hand keeps it, for a pin is a ref like any other.
    let mirror = Repository {
        folder: lab.mirror(),
        ids: Vec::new(),
    };
    mirror.git(&["gc", "--quiet", "--prune=now"]);
    let fresh = Trees::open(&lab.folder.path().join("state"), &configured(&lab.source.folder))
        .await
        .unwrap();
    assert_eq!(
        fresh
            .history("t", &bounds.good, &bounds.bad, false)
            .await
            .unwrap()
            .candidates(),
        4
    );
    let pins = || mirror.lines(&["for-each-ref", "--format=%(objectname)", "refs/perfbisect/"]);
    assert_eq!(
        pins(),
        BTreeSet::from([bounds.good.to_string(), bounds.bad.to_string()])
    );
    fresh.unpin("t", bisection).await.unwrap();
    assert_eq!(pins(), BTreeSet::new());
}

#[tokio::test]
async fn histories_that_are_not_whole_are_refused() {
    let lab = Mirrored::new(&line(6)).await;
    lab.source.branch("main", 5);
    lab.source.git(&["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", lab.source.folder.display());
    let clone = |name: &str, how: &[&str]| {
        let path = lab.folder.path().join(name);
        let to = path.to_string_lossy().into_owned();
        lab.source
            .git(&[&["clone", "--quiet", "--bare"], how, &[&url, &to]].concat());
        path
    };
    let grafted = clone("grafted.git", &[]);
    std::fs::create_dir_all(grafted.join("info")).unwrap();
    std::fs::write(grafted.join("info/grafts"), format!("{}\n", lab.source.ids[3])).unwrap();
    let replaced = clone("replaced.git", &[]);
    let repository = Repository {
        folder: replaced.clone(),
        ids: Vec::new(),
    };
    repository.git(&["replace", "--graft", &lab.source.ids[3]]);
    let cases = [
        (clone("shallow.git", &["--depth=2"]), "a shallow clone"),
        (clone("partial.git", &["--filter=blob:none"]), "a partial clone"),
        (grafted, "grafted (info/grafts)"),
        (replaced, "rewritten by refs/replace"),
    ];
    for (source, what) in &cases {
        let state = source.with_extension("state");
        let trees = Trees::open(&state, &configured(source)).await.unwrap();
        let error = trees.fetch("t").await.unwrap_err();
        assert!(
            matches!(&error, TreeError::NotWhole { what: found, .. } if found == what),
            "{what}: {error}"
        );
        let mirror = Repository {
            folder: state.join("mirrors/t.git"),
            ids: Vec::new(),
        };
        assert_eq!(mirror.git(&["for-each-ref"]), "", "{what}: nothing was taken");
    }
    // A mirror that was made shallow behind our back.
    lab.trees.fetch("t").await.unwrap();
    std::fs::write(lab.mirror().join("shallow"), format!("{}\n", lab.source.ids[3])).unwrap();
    let error = lab.trees.fetch("t").await.unwrap_err();
    assert!(matches!(error, TreeError::NotWhole { .. }), "{error}");
}

#[tokio::test]
async fn the_commit_graph_is_one_that_libgit2_reads() {
    let lab = Mirrored::new(&forked()).await;
    lab.source.branch("main", 5);
    lab.trees.fetch("t").await.unwrap();
    let graph = std::fs::read(lab.mirror().join("objects/info/commit-graph")).unwrap();
    let chunks = graph[6] as usize;
    let names: Vec<&[u8]> = (0..chunks).map(|n| &graph[8 + 12 * n..12 + 12 * n]).collect();
    assert!(names.contains(&b"CDAT".as_slice()), "{names:?}");
    assert!(
        !names.contains(&b"GDA2".as_slice()),
        "libgit2 would ignore it: {names:?}"
    );
}

fn draft(parents: &[usize], path: &str, content: &str) -> Draft {
    let files = BTreeMap::from([(path.to_string(), content.to_string())]);
    Draft {
        parents: parents.to_vec(),
        files,
        message: format!("{path}: Write\n\nFixes: 1234 (\"x\")\nAcked-by: A <a@x>\n"),
        ..Draft::default()
    }
}

#[tokio::test]
async fn reverts_are_merged_as_git_merges_them() {
    let text = |changed: &[usize]| -> String {
        (0..30)
            .map(|n| {
                if changed.contains(&n) {
                    format!("changed {n}\n")
                } else {
                    format!("line {n}\n")
                }
            })
            .collect()
    };
    let lab = Mirrored::new(&[
        draft(&[], "a", &text(&[])),
        draft(&[0], "a", &text(&[3])),
        draft(&[1], "a", &text(&[3, 20])),
        draft(&[0], "b", "other\n"),
        draft(&[2, 3], "b", "other\n"),
        draft(&[4], "a", &text(&[3, 4, 20])),
    ])
    .await;
    lab.source.branch("main", 5);
    lab.trees.fetch("t").await.unwrap();
    let compose = async |commit: usize, revert: &[usize]| {
        let revert = revert.iter().map(|n| lab.id(*n)).collect();
        lab.trees
            .compose(
                "t",
                &Kernel {
                    revert,
                    ..Kernel::plain(lab.id(commit))
                },
            )
            .await
    };
    let tree_of = |commit: usize| {
        lab.source
            .git(&["rev-parse", &format!("{}^{{tree}}", lab.source.ids[commit])])
    };
    assert_eq!(compose(4, &[]).await.unwrap(), tree_of(4));
    let mirror = Repository {
        folder: lab.mirror(),
        ids: Vec::new(),
    };
    let content = |tree: &str, path: &str| mirror.git(&["cat-file", "-p", &format!("{tree}:{path}")]);
    let one = compose(4, &[2]).await.unwrap();
    assert_eq!(content(&one, "a"), text(&[3]).trim());
    let both = compose(4, &[2, 1]).await.unwrap();
    assert_eq!(content(&both, "a"), text(&[]).trim());
    let without_merge = compose(4, &[4]).await.unwrap();
    assert_eq!(
        without_merge,
        tree_of(2),
        "a merge is taken back against its first parent"
    );
    let error = compose(5, &[1]).await.unwrap_err();
    assert!(
        matches!(&error, TreeError::Conflict { files, .. } if files == &["a"]),
        "{error}"
    );
    assert!(matches!(
        compose(4, &[0]).await,
        Err(TreeError::RevertsRoot { .. })
    ));
    let patched = Kernel {
        patches: vec!["p".into()],
        ..Kernel::plain(lab.id(4))
    };
    assert!(matches!(
        lab.trees.compose("t", &patched).await,
        Err(TreeError::UnknownPatches { .. })
    ));
    let infos = lab.trees.commits("t", &[lab.id(4), lab.id(0)]).await.unwrap();
    assert_eq!(infos[0].subject, "b: Write");
    assert_eq!(infos[0].parents, [lab.id(2), lab.id(3)]);
    assert_eq!(
        (infos[1].author.as_str(), infos[1].date.timestamp()),
        ("Lab", 1_700_000_000)
    );
    assert_eq!(
        infos[1].trailers[1],
        ("Acked-by".to_string(), "A <a@x>".to_string())
    );
    let refs = lab.trees.refs("t", "ma", 10).await.unwrap();
    assert_eq!(refs.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["main"]);
}

#[tokio::test]
async fn a_thin_pack_completes_a_tree_where_its_base_is() {
    let big: String = (0..4000)
        .map(|n| format!("line {n} of a file that deflates badly {}\n", n * 7919 % 10007))
        .collect();
    let lab = Mirrored::new(&[draft(&[], "big", &big), draft(&[0], "small", "one more\n")]).await;
    lab.source.branch("main", 1);
    lab.trees.fetch("t").await.unwrap();
    let store = Repository::new(&lab.folder.path().join("store.git"));
    let mut trees = Vec::new();
    let mut sizes = Vec::new();
    for commit in 0..2 {
        let tree = lab
            .trees
            .compose("t", &Kernel::plain(lab.id(commit)))
            .await
            .unwrap();
        // One that the mirror does not know must not spoil the pack.
        let have = [trees.clone(), vec!["f".repeat(40)]].concat();
        let mut pack = Vec::new();
        lab.trees
            .pack("t", &tree, &have)
            .await
            .unwrap()
            .read_to_end(&mut pack)
            .await
            .unwrap();
        std::fs::write(store.folder.join("in.pack"), &pack).unwrap();
        let mut index = std::process::Command::new("git");
        index
            .arg("-C")
            .arg(&store.folder)
            .args(["index-pack", "--stdin", "--fix-thin"]);
        let input = std::fs::File::open(store.folder.join("in.pack")).unwrap();
        assert!(index.stdin(input).output().unwrap().status.success());
        store.git(&["rev-list", "--objects", "--quiet", &tree]);
        sizes.push(pack.len());
        trees.push(tree);
    }
    assert!(
        sizes[1] * 10 < sizes[0],
        "the second pack holds the difference only: {sizes:?}"
    );
    let missing = lab.trees.pack("t", &"e".repeat(40), &[]).await.err();
    assert!(matches!(missing, Some(TreeError::MissingObject { .. })));
}
