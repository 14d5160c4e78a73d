//! `perfbisect run`: bisecting a repository here, without a daemon, beside the real git program.

use lab::git_repository::Draft;
use lab::level_repository::{LevelRepository, NOISY, step};
use lab::{binaries, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Child, Command, Output};
use std::time::Duration;

const NAMED: i32 = 0;
const NO_LOSS: i32 = 3;
const NOT_NAMED: i32 = 4;
const STOPPED: i32 = 5;
const INTERRUPTED: i32 = 130;

const LIMIT: Duration = Duration::from_secs(300);

#[track_caller]
fn ended(output: &Output, code: i32) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}\n{printed}");
    serde_json::from_str(&printed).unwrap_or(Value::Null)
}

#[track_caller]
fn names(output: &Output, commit: &str) {
    let end = ended(output, NAMED);
    let first_bad = end.pointer("/conclusion/first_bad/0").and_then(Value::as_str);
    assert_eq!(first_bad, Some(commit), "{end}");
}

#[test]
fn a_noisy_loss_is_named_and_the_checkout_left_alone() {
    let here = LevelRepository::line(&step(40, 23, 100.0, 110.0));
    let args = ["run", "--json", "--notes", "v0", "main", "--", NOISY];
    let output = here.perfbisect(&args);
    names(&output, &here.ids[23]);
    assert_eq!(
        here.git(&["status", "--porcelain"]),
        "",
        "the checkout was touched"
    );
    let worktrees = here.git(&["worktree", "list"]);
    assert_eq!(worktrees.lines().count(), 1, "worktrees stay behind: {worktrees}");
    let note = here.git(&["notes", "--ref=perfbisect", "show", &here.ids[23]]);
    assert!(note.contains("culprit found: +"), "{note}");
    let piped = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !piped.contains('\u{1b}') && !piped.contains('\r'),
        "plain lines in a pipe: {piped:?}"
    );
    assert!(
        piped.lines().count() > here.observed().len(),
        "a line a measurement"
    );
}

#[test]
fn ends_that_do_not_differ_and_a_gain_have_exit_codes_of_their_own() {
    let here = LevelRepository::line(&step(9, 99, 100.0, 100.0));
    let end = ended(
        &here.perfbisect(&[
            "run",
            "--json",
            "--min-effect-pct",
            "8",
            "v0",
            "main",
            "--",
            NOISY,
        ]),
        NO_LOSS,
    );
    assert_eq!(
        end.pointer("/conclusion/status"),
        Some(&"endpoints_indistinguishable".into())
    );
    let faster = LevelRepository::line(&step(9, 5, 110.0, 90.0));
    let args = ["run", "--json", "v0", "main", "--", NOISY];
    assert_eq!(
        ended(&faster.perfbisect(&args), NO_LOSS).pointer("/conclusion/status"),
        Some(&"improved_not_regressed".into())
    );
    let gain = ["run", "--json", "--gain", "v0", "main", "--", NOISY];
    names(&faster.perfbisect(&gain), &faster.ids[5]);
}

#[test]
fn a_search_begun_by_git_goes_on_here_and_ours_is_replayed_to_the_same_commit() {
    let here = LevelRepository::line(&step(40, 27, 110.0, 90.0));
    here.git(&[
        "bisect",
        "start",
        "--term-old=slow",
        "--term-new",
        "fast",
        "HEAD",
        "v0",
    ]);
    here.git(&["bisect", "slow", &here.ids[10]]);
    here.git(&["bisect", "skip", &here.ids[20]]);
    let args = ["run", "--json", "--bisect-log", "--gain", "--", NOISY];
    let output = here.perfbisect(&args);
    names(&output, &here.ids[27]);
    let end = ended(&output, NAMED);
    assert_eq!(end.pointer("/terms/new"), Some(&"fast".into()));
    // A person's word is taken for true: nothing before it is measured, but the ends.
    let before: BTreeSet<String> = here.ids[1..10].iter().chain([&here.ids[20]]).cloned().collect();
    let measured: BTreeSet<String> = here.starts().into_iter().collect();
    assert!(measured.is_disjoint(&before), "{measured:?}");

    here.git(&["bisect", "reset"]);
    let log = here.perfbisect(&["log", "--refs"]);
    assert_eq!(
        here.git(&["rev-parse", "refs/perfbisect/run/fast"]).trim(),
        here.ids[27]
    );
    let left = [
        "rev-list",
        "refs/perfbisect/run/fast",
        "--not",
        "--glob=refs/perfbisect/run/slow-*",
    ];
    assert_eq!(
        here.git(&left).trim(),
        here.ids[27],
        "nothing else is left between them"
    );
    let log = here.file("log", &String::from_utf8_lossy(&log.stdout));
    let replayed = here.git(&["bisect", "replay", &log]);
    let told = here.git(&["bisect", "log"]);
    let wanted = format!("# first fast commit: [{}]", here.ids[27]);
    assert!(told.contains(&wanted), "git ends elsewhere: {replayed}\n{told}");
}

#[test]
fn an_unfinished_search_is_handed_to_git() {
    let here = LevelRepository::line(&step(40, 23, 100.0, 110.0));
    ended(
        &here.perfbisect(&["run", "--limit-boots", "9", "v0", "main", "--", NOISY]),
        NOT_NAMED,
    );
    let log = here.perfbisect(&["log"]);
    let log = here.file("log", &String::from_utf8_lossy(&log.stdout));
    here.git(&["bisect", "replay", &log]);
    // git goes on by itself, with a judge that knows.
    let judge = r#"test "$(cut -d. -f1 level)" -lt 105"#;
    let said = here.git(&["bisect", "run", "sh", "-c", judge]);
    assert!(
        said.contains(&format!("{} is the first bad commit", here.ids[23])),
        "{said}"
    );
}

fn kill(child: &mut Child, signal: Signal) -> Option<i32> {
    let pid = Pid::from_raw(child.id() as i32).expect("a process has a number");
    kill_process(pid, signal).expect("it runs");
    child.wait().expect("it was ours").code()
}

#[test]
fn killed_in_the_middle_it_goes_on_and_measures_nothing_twice() {
    let here = LevelRepository::line(&step(64, 41, 100.0, 106.0));
    let mut kills = 0;
    let mut child = here.begin(&["run", "v0", "main", "--", NOISY]);
    for wanted in [3, 7, 12] {
        wait::until("measurements", LIMIT, || {
            (here.observed().len() >= wanted).then_some(())
        });
        kill(&mut child, Signal::KILL);
        kills += 1;
        child = here.begin(&["run", "--continue"]);
    }
    wait::until("measurements", LIMIT, || {
        (here.observed().len() >= 14).then_some(())
    });
    assert_eq!(kill(&mut child, Signal::INT), Some(INTERRUPTED));
    kills += 1;
    let before = here.observed();
    names(&here.perfbisect(&["run", "--continue", "--json"]), &here.ids[41]);
    let after = here.observed();
    assert_eq!(
        after[..before.len()],
        before[..],
        "what was measured stays as it is"
    );
    let once: BTreeSet<_> = after.iter().collect();
    assert_eq!(once.len(), after.len(), "a measurement is there twice");
    // What ran while it was killed was not measured; at most that is started again.
    let starts = here.starts().len();
    assert!(
        (after.len()..=after.len() + kills).contains(&starts),
        "{starts} starts for {} measurements and {kills} kills",
        after.len()
    );
}

#[test]
fn an_unfinished_run_is_not_overwritten_unasked() {
    let here = LevelRepository::line(&step(9, 5, 100.0, 110.0));
    let mut child = here.begin(&["run", "v0", "main", "--", NOISY]);
    wait::until("a measurement", LIMIT, || {
        (!here.observed().is_empty()).then_some(())
    });
    assert_eq!(kill(&mut child, Signal::INT), Some(INTERRUPTED));
    let again = here.perfbisect(&["run", "v0", "main", "--", NOISY]);
    ended(&again, 1);
    assert!(String::from_utf8_lossy(&again.stderr).contains("--continue"));
    names(
        &here.perfbisect(&["run", "--restart", "--json", "v0", "main", "--", NOISY]),
        &here.ids[5],
    );
}

/// A line of commits, some of which end the benchmark with an exit code.
fn with_exits(count: usize, culprit: usize, exits: &[(usize, i32)]) -> LevelRepository {
    let levels = step(count, culprit, 100.0, 115.0);
    let mut drafts: Vec<Draft> = Vec::new();
    for (number, level) in levels.iter().enumerate() {
        let parents: Vec<usize> = number.checked_sub(1).into_iter().collect();
        let mut draft = Draft::new(number, &parents);
        draft.files.insert("level".into(), format!("{level}\n"));
        let code = exits
            .iter()
            .find(|(at, _)| *at == number)
            .map_or(0, |(_, code)| *code);
        let text = if code == 0 {
            String::new()
        } else {
            format!("exit {code}\n")
        };
        draft.files.insert("gate".into(), text);
        drafts.push(draft);
    }
    LevelRepository::of(&drafts)
}

const GATED: &str = r#". ./gate; exec "$0""#;

#[test]
fn exit_codes_are_those_of_git_bisect_run() {
    // 125 and failures: the commit says nothing, its neighbours do. 16 is where the halving begins.
    let here = with_exits(33, 20, &[(16, 125), (15, 1)]);
    let args = ["run", "--json", "v0", "main", "--", "sh", "-c", GATED, NOISY];
    names(&here.perfbisect(&args), &here.ids[20]);
    assert!(!here.observed().iter().any(|(commit, _)| *commit == here.ids[16]));
    // The culprit cannot be told from its parent that cannot be tested.
    let hidden = with_exits(17, 8, &[(7, 125)]);
    let end = ended(&hidden.perfbisect(&args), NOT_NAMED);
    assert_eq!(end.pointer("/conclusion/status"), Some(&"culprit_range".into()));

    let here = LevelRepository::line(&step(9, 5, 100.0, 110.0));
    for (script, why) in [
        ("exit 127", "broken (exit code 127)"),
        ("exit 126", "broken (exit code 126)"),
        ("exit 130", "said stop (exit code 130)"),
        ("kill -9 $$", "ended by signal 9"),
        ("echo fast", "no line that is a number"),
    ] {
        let stopped = here.perfbisect(&["run", "v0", "main", "--", "sh", "-c", script]);
        ended(&stopped, STOPPED);
        let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
        assert!(said.contains(why), "{script}: {said}");
        assert!(here.observed().is_empty(), "{script}");
    }
    ended(
        &here.perfbisect(&["run", "v0", "main", "--", "no-such-program"]),
        STOPPED,
    );
    ended(&here.perfbisect(&["run", "v0", "v-none", "--", "true"]), 1);
    ended(&here.perfbisect(&["run", "main", "v0", "--", "true"]), 1);
    ended(&here.perfbisect(&["run", "--no-such-option"]), 2);
}

#[test]
fn a_build_comes_first_and_one_that_fails_is_skipped() {
    let here = with_exits(33, 20, &[(16, 1)]);
    let build = ". ./gate; cp level built";
    let bench = r#"test -f built && exec "$0""#;
    let args = [
        "run",
        "--json",
        "--build",
        build,
        "--artifact",
        "built",
        "v0",
        "main",
        "--",
        "sh",
        "-c",
        bench,
        NOISY,
    ];
    let output = here.perfbisect(&args);
    names(&output, &here.ids[20]);
    // Commits of equal binaries are one: no boot is spent on a second one of them.
    let measured: BTreeSet<String> = here.starts().into_iter().collect();
    assert!(!measured.contains(&here.ids[16]), "it does not build");
}

#[test]
fn a_good_end_is_found_among_the_tags() {
    let here = LevelRepository::line(&step(64, 21, 100.0, 110.0));
    let output = here.perfbisect(&["run", "--json", "--find-good=v*", "main", "--", NOISY]);
    names(&output, &here.ids[21]);
    assert_eq!(
        ended(&output, NAMED).get("good").and_then(Value::as_str),
        Some(here.ids[0].as_str())
    );
    let nothing = here.perfbisect(&["run", "--restart", "--find-good=w*", "main", "--", NOISY]);
    ended(&nothing, 1);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no tag before"));
}

#[test]
fn paths_and_first_parents_narrow_the_search() {
    // 1-2 on the mainline, 3-6 a branch from 1, merged by 7; 5 is slow.
    let level = |number: usize, parents: &[usize], level: f64| {
        let mut draft = Draft::new(number, parents);
        draft.files.clear();
        let path = if number.is_multiple_of(2) {
            "doc/n"
        } else {
            "src/n"
        };
        draft.files.insert(path.into(), format!("{number}\n"));
        draft.files.insert("level".into(), format!("{level}\n"));
        draft
    };
    let mut drafts = vec![
        level(0, &[], 100.0),
        level(1, &[0], 100.0),
        level(2, &[1], 100.0),
        level(3, &[1], 100.0),
        level(4, &[3], 100.0),
        level(5, &[4], 112.0),
        level(6, &[5], 112.0),
        level(7, &[2, 6], 112.0),
        level(8, &[7], 112.0),
    ];
    // A merge takes the branch's side of what only the branch changed.
    drafts[7].files.insert("doc/n".into(), "6\n".into());
    let here = LevelRepository::of(&drafts);
    let run =
        |args: &[&str]| here.perfbisect(&[&["run", "--json"], args, &["v0", "main", "--", NOISY]].concat());
    names(&run(&[]), &here.ids[5]);
    names(&run(&["--first-parent"]), &here.ids[7]);
    names(&run(&["--path", "src", "--path", "level"]), &here.ids[5]);
    let nothing = run(&["--path", "nowhere"]);
    ended(&nothing, 1);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("changes nowhere"));
}

#[test]
fn the_time_of_the_command_may_be_the_number() {
    let here = LevelRepository::line(&step(9, 4, 0.0, 1.0));
    // Slow commits run into the limit: at least so slow is a number, too.
    let wait = r#"test "$(cat level)" = 0 || exec tail -f /dev/null"#;
    let args = [
        "run",
        "--json",
        "--time",
        "--timeout-s",
        "0.5",
        "v0",
        "main",
        "--",
        "sh",
        "-c",
        wait,
    ];
    names(&here.perfbisect(&args), &here.ids[4]);
}

#[test]
fn a_preview_says_what_a_search_of_the_range_would_cost() {
    let here = LevelRepository::line(&step(40, 23, 100.0, 110.0));
    let output = here.perfbisect(&["preview", "v0", "main", "--effect-pct", "10", "--seeds", "20"]);
    ended(&output, 0);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.starts_with("39 commits: about ") && said.contains("likely to end with one commit"),
        "{said}"
    );
    let dearer = [
        "preview",
        "v0",
        "main",
        "--effect-pct",
        "2",
        "--seeds",
        "4",
        "--json",
    ];
    let end = ended(&here.perfbisect(&dearer), 0);
    assert!(end.is_object(), "one JSON object: {end}");
    ended(&here.perfbisect(&["preview"]), 2);
}

/// The benchmark of tests/bench/run in small: a loss that no seed hides.
#[test]
fn beside_git_bisect_run_it_is_right() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/run");
    let output = Command::new(script)
        .args(["3", "11"])
        .envs([("COMMITS", "24"), ("EFFECT_PCT", "14"), ("NOISE_PCT", "2")])
        .env("PERFBISECT", binaries::daemon())
        .output()
        .expect("the script starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{said}");
    let ours = text
        .lines()
        .find(|l| l.starts_with("perfbisect run"))
        .unwrap_or_default();
    assert!(ours.contains("right   3"), "{text}\n{said}");
}

#[test]
fn completions_and_manual_pages_are_there_for_every_command() {
    let here = LevelRepository::line(&[100.0, 100.0]);
    for shell in ["bash", "zsh", "fish"] {
        let script = here.perfbisect(&["completion", shell]);
        assert!(
            String::from_utf8_lossy(&script.stdout).contains("bisect-log"),
            "{shell}"
        );
    }
    let folder = here.file("man.place", "").replace("man.place", "man");
    ended(&here.perfbisect(&["man", &folder]), 0);
    let page = std::fs::read_to_string(format!("{folder}/perfbisect-run.1")).expect("a page a command");
    assert!(page.contains("125"), "{page}");
}
