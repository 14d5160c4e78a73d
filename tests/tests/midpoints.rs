//! `perfbisect midpoints` against the git program: the same commits, distances and order, on histories of any shape.

use bisect::simulate::Dice;
use coordinator::tree::listing::{self, Range};
use lab::git_repository::{Draft, Repository};
use lab::{binaries, real_shape};
use std::path::Path;
use std::process::Command;

/// What `perfbisect midpoints` prints, by the same functions.
fn ours(folder: &Path, range: &Range, all: bool) -> Vec<String> {
    let (ids, listed) = listing::read(folder, range).expect("git lists the range");
    if all {
        let all = listed.all(|a, b| ids.get(a).cmp(ids.get(b)));
        all.into_iter()
            .map(|(at, distance)| format!("{} (dist={distance})", ids.get(at)))
            .collect()
    } else {
        listed
            .best()
            .map(|at| ids.get(at).to_owned())
            .into_iter()
            .collect()
    }
}

fn gits(repository: &Repository, range: &Range, all: bool) -> Vec<String> {
    let not_good = format!("^{}", range.good);
    let mut args = vec!["rev-list", if all { "--bisect-all" } else { "--bisect" }];
    args.extend(range.first_parent.then_some("--first-parent"));
    args.extend([range.bad.as_str(), not_good.as_str(), "--"]);
    args.extend(range.paths.iter().map(String::as_str));
    repository.git(&args).lines().map(without_refs).collect()
}

/// git names the refs at a commit too: `<id> (HEAD -> refs/heads/main, dist=3)`.
fn without_refs(line: &str) -> String {
    match (line.split_once(" ("), line.rsplit_once("dist=")) {
        (Some((id, _)), Some((_, distance))) => format!("{id} (dist={distance}"),
        _ => line.to_owned(),
    }
}

#[track_caller]
fn agree(repository: &Repository, range: &Range, what: &str) -> usize {
    for all in [true, false] {
        let (ours, gits) = (ours(&repository.folder, range, all), gits(repository, range, all));
        let differ = ours.iter().zip(&gits).position(|(a, b)| a != b);
        let show = |list: &[String]| differ.and_then(|at| list.get(at)).cloned();
        assert!(
            ours == gits,
            "{what}, {range:?}, all {all}: {} lines for git's {}; first difference {differ:?}: {:?} for {:?}",
            ours.len(),
            gits.len(),
            show(&ours),
            show(&gits)
        );
    }
    ours(&repository.folder, range, true).len()
}

/// Octopus merges, criss-crosses, several roots, clocks that were wrong, commits that change nothing, merges that
/// take one side as it was.
fn random(commits: usize, dice: &mut Dice) -> Vec<Draft> {
    (0..commits)
        .map(|at| {
            let many = match dice.below(20) {
                0 if dice.chance(0.3) => 0,
                0..=11 => 1,
                12..=17 => 2,
                _ => 2 + dice.below(4),
            };
            let near = 1 + dice.below(14);
            let mut parents = Vec::new();
            for _ in 0..many {
                let parent = at.checked_sub(1 + dice.below(near));
                parents.extend(parent.filter(|p| !parents.contains(p)));
            }
            let mut draft = Draft {
                parents,
                message: format!("step {at}\n"),
                ..Draft::default()
            };
            if dice.chance(0.6) {
                let path = ["src/a", "src/b", "doc"][dice.below(3)];
                draft.files.insert(path.into(), format!("{}\n", dice.below(3)));
            }
            if dice.chance(0.1) {
                draft.ahead_s = 60 * (dice.below(40) as i64 - 20);
            }
            draft
        })
        .collect()
}

#[test]
fn two_hundred_random_histories_are_judged_as_git_judges_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dice = Dice::new(20_261_130);
    let mut lines = 0;
    for round in 0..200 {
        let mut repository = Repository::new(&folder.path().join(round.to_string()));
        let commits = 2 + dice.below(if round % 10 == 0 { 600 } else { 60 });
        repository.add(&random(commits, &mut dice));
        let good = repository.ids[dice.below(commits.div_ceil(2))].clone();
        let mut range = Range {
            good,
            bad: repository.ids[commits - 1 - dice.below(commits.min(5))].clone(),
            ..Range::default()
        };
        lines += agree(&repository, &range, &format!("history {round}"));
        let limits = [
            (true, vec![]),
            (false, vec!["src"]),
            (false, vec!["doc", "src/b"]),
            (true, vec!["src/a"]),
        ];
        let (first_parent, paths) = limits[round % limits.len()].clone();
        range.first_parent = first_parent;
        range.paths = paths.into_iter().map(str::to_owned).collect();
        lines += agree(&repository, &range, &format!("history {round}"));
    }
    assert!(lines > 4000, "only {lines} commits were compared");
}

#[test]
fn a_real_history_is_judged_as_git_judges_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut repository = Repository::new(folder.path());
    repository.add_shape(&real_shape::git());
    let at = |place: usize| repository.ids[place].clone();
    for first_parent in [false, true] {
        let range = Range {
            good: at(real_shape::V2_30),
            bad: at(real_shape::V2_45),
            first_parent,
            ..Range::default()
        };
        let compared = agree(&repository, &range, "git v2.30 to v2.45");
        assert!(compared > if first_parent { 1000 } else { 8000 }, "{compared}");
    }
}

#[test]
fn the_command_prints_what_git_prints() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut repository = Repository::new(folder.path());
    repository.add(&random(120, &mut Dice::new(3)));
    repository.git(&["tag", "v1", &repository.ids[20]]);
    repository.git(&["tag", "v2", &repository.ids[119]]);
    let run = |args: &[&str]| {
        let mut command = Command::new(binaries::daemon());
        command
            .arg("midpoints")
            .arg("--repo")
            .arg(folder.path())
            .args(args);
        command.output().expect("the program starts")
    };
    let range = Range {
        good: "v1".into(),
        bad: "v2".into(),
        paths: vec!["src".into()],
        ..Range::default()
    };
    for (all, args) in [
        (true, &["--all", "v1", "v2", "--", "src"] as &[&str]),
        (false, &["v1", "v2", "--", "src"]),
    ] {
        let output = run(args);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(lines, gits(&repository, &range, all));
        assert!(!lines.is_empty());
    }
    let wrong = run(&["v1", "v3"]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("v3"), "{said}");
    assert_eq!(run(&["--output=x", "v1"]).status.code(), Some(2));
}
