//! Trees by thin packs, checkouts that keep what did not change, and builds by a command.

use crate::agent::*;
use protocol::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

struct Source {
    dir: tempfile::TempDir,
}

impl Source {
    fn new() -> Source {
        let source = Source {
            dir: tempfile::tempdir().unwrap(),
        };
        source.git(&["init", "-q"], b"");
        source
    }

    fn git(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut child = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(arguments)
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        output.stdout
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The tree of all files as they are now.
    fn tree(&self) -> String {
        self.git(&["add", "-A", "-f", "."], b"");
        String::from_utf8(self.git(&["write-tree"], b""))
            .unwrap()
            .trim()
            .to_string()
    }

    fn pack(&self, tree: &str, without: &[&str]) -> Vec<u8> {
        let mut wanted = format!("{tree}\n");
        wanted.extend(without.iter().map(|t| format!("^{t}\n")));
        self.git(
            &["pack-objects", "--revs", "--thin", "--stdout", "-q"],
            wanted.as_bytes(),
        )
    }
}

fn build(id: &str, token: u64, tree: &str, script: &str, artefacts: &[&str]) -> Order {
    let recipe = CommandBuild {
        command: shell(script),
        artefacts: words(artefacts),
        arch: "x86_64".into(),
    };
    let recipe = Recipe::Command(recipe);
    let slot = "s1".to_string();
    order(
        id,
        token,
        Work::Build(Build {
            tree: tree.into(),
            slot,
            recipe,
            limit_s: 60,
        }),
    )
}

fn modified(path: &Path) -> SystemTime {
    std::fs::metadata(path).unwrap().modified().unwrap()
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into())
        .collect();
    names.sort();
    names
}

#[test]
fn a_checkout_changes_only_what_differs() {
    let (agent, source) = (Agent::new(), Source::new());
    source.write("same.c", "int same;\n");
    source.write("dir/changed.c", "int old;\n");
    source.write("gone.c", "int gone;\n");
    source.write(".gitignore", "*.o\n");
    let first = source.tree();
    source.write("dir/changed.c", "int new;\n");
    source.write("added.c", "int added;\n");
    std::fs::remove_file(source.dir.path().join("gone.c")).unwrap();
    let second = source.tree();

    // A thin pack against a tree that is not here is no use, and is said to be none.
    assert_eq!(
        agent.refusal(&["put-tree", &second], &source.pack(&second, &[&first])),
        "corrupt"
    );
    let asked = serde_json::to_vec(&Names {
        files: vec![],
        trees: vec![first.clone(), second.clone()],
    })
    .unwrap();
    assert_eq!(agent.ask::<Names>(&["have"], &asked), Names::default());
    let whole = source.pack(&first, &[]);
    assert_eq!(
        agent.ask::<Stored>(&["put-tree", &first], &whole).bytes,
        whole.len() as u64
    );
    let thin = source.pack(&second, &[&first]);
    assert!(thin.len() < whole.len());
    assert_eq!(
        agent.ask::<Stored>(&["put-tree", &second], &thin).bytes,
        thin.len() as u64
    );
    assert_eq!(
        agent.ask::<Names>(&["have"], &asked).trees,
        [first.clone(), second.clone()]
    );

    agent.start(&build(
        "tree-1",
        1,
        &first,
        "cp same.c \"$PERFBISECT_OUT/\"",
        &["same.c"],
    ));
    assert!(matches!(report(&agent.follow("tree-1", 0)), Report::Built(_)));
    let src = agent.root().join("slots/s1/src");
    assert_eq!(
        names(&src),
        [".gitignore", "dir", "gone.c", "same.c"].map(PathBuf::from)
    );
    let before = (
        modified(&src.join("same.c")),
        modified(&src.join("dir/changed.c")),
    );
    // What a build, or a person, left behind or spoiled does not reach the next build.
    std::fs::write(src.join("left.o"), "x").unwrap();
    std::fs::write(src.join("dir/left.txt"), "x").unwrap();
    std::fs::write(src.join(".gitignore"), "spoiled\n").unwrap();

    agent.start(&build(
        "tree-2",
        2,
        &second,
        "cat dir/changed.c > \"$PERFBISECT_OUT/r\"",
        &["r"],
    ));
    let seen = agent.follow("tree-2", 0);
    let Report::Built(built) = report(&seen) else {
        panic!("{seen:?}")
    };
    assert_eq!(
        names(&src),
        [".gitignore", "added.c", "dir", "same.c"].map(PathBuf::from)
    );
    assert_eq!(names(&src.join("dir")), [PathBuf::from("changed.c")]);
    assert_eq!(std::fs::read_to_string(src.join(".gitignore")).unwrap(), "*.o\n");
    assert_eq!(
        modified(&src.join("same.c")),
        before.0,
        "make must not build this again"
    );
    assert_ne!(modified(&src.join("dir/changed.c")), before.1);
    let file = &built.manifest.files[0];
    assert_eq!(agent.call(&["get-file", &file.sha256], b"").stdout, b"int new;\n");
    assert_eq!((file.role.as_str(), file.bytes), ("r", 9));
    assert_eq!(built.manifest.kind, ImageKind::Userspace);
}

#[test]
fn a_pack_that_lacks_a_file_of_its_tree_is_refused() {
    let (agent, source) = (Agent::new(), Source::new());
    source.write("a.c", "int a;\n");
    let tree = source.tree();
    let only_the_tree = source.git(
        &["pack-objects", "--stdout", "-q"],
        format!("{tree}\n").as_bytes(),
    );
    assert_eq!(agent.refusal(&["put-tree", &tree], &only_the_tree), "corrupt");
    assert_eq!(agent.refusal(&["put-tree", &tree], b"no pack"), "corrupt");
    let blob = String::from_utf8(source.git(&["rev-parse", ":a.c"], b"")).unwrap();
    let pack = source.pack(&tree, &[]);
    assert_eq!(agent.refusal(&["put-tree", blob.trim()], &pack), "corrupt");
    agent.start(&build("tree-lacks", 1, &"1".repeat(40), "true", &[]));
    assert!(
        matches!(report(&agent.follow("tree-lacks", 0)), Report::Trouble { what } if what.contains("put"))
    );
}

#[test]
fn a_failed_build_keeps_its_class_and_the_lines_that_matter() {
    let (agent, source) = (Agent::new(), Source::new());
    source.write("main.c", "int main(void) {\n\treturn missing_name;\n}\n");
    source.write(
        "link.c",
        "void nowhere(void);\nint main(void) { nowhere(); return 0; }\n",
    );
    let tree = source.tree();
    let _: Stored = agent.ask(&["put-tree", &tree], &source.pack(&tree, &[]));
    let failed = |id: &str, token, script: &str| {
        agent.start(&build(id, token, &tree, script, &["never"]));
        let seen = agent.follow(id, 0);
        let Report::BuildFailed(failed) = report(&seen) else {
            panic!("{seen:?}")
        };
        failed.clone()
    };
    let compile = failed(
        "fail-1",
        1,
        "for i in $(seq 9000); do echo \"  CC lib/$i.o\"; done; gcc -c main.c -o /dev/null",
    );
    assert_eq!(compile.class, "compile");
    assert!(
        compile.excerpt.contains("main.c:2:16: error: ") && compile.excerpt.len() < 4200,
        "{compile:?}"
    );
    assert!(!compile.excerpt.contains("  CC "), "{compile:?}");
    let link = failed("fail-2", 2, "gcc link.c -o \"$PERFBISECT_OUT/never\"");
    assert_eq!(link.class, "link");
    assert!(
        link.excerpt.contains("undefined reference to `nowhere'"),
        "{link:?}"
    );
    assert_eq!(failed("fail-3", 3, "exit 1").class, "other");
    let missing = failed("fail-4", 4, "true");
    assert!(missing.excerpt.contains("never"), "{missing:?}");
}
