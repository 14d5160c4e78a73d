//! What people read at the end of a bisection: a snapshot for every way it may end.

use bisect::{
    Check, CheckResult, Checked, CommitId, Conclusion, Effect, MachineId, Metric, MinEffect, Noise,
    OtherMetric, Plan, Remaining, Status, Step, Suspect, Verdict, VerdictLine,
};
use chrono::DateTime;
use coordinator::post::report::{CommitText, End, Ending, Evidence, Report, Spent, render};
use std::collections::BTreeMap;

const GOOD: &str = "1f8c2a70e35b64d9a0c1b2e3f4051627384950a1";
const BAD: &str = "9e04d1c7b8a6f5e4d3c2b1a09f8e7d6c5b4a3928";
const CULPRIT: &str = "4b9d0e6fa1c2835746afbecdd0e1f20314253647";
const OTHER: &str = "77aa0c1d2e3f405162738495a6b7c8d9eafb0c1d";
const BROKEN: &str = "c0ffee00112233445566778899aabbccddeeff01";

fn id(text: &str) -> CommitId {
    CommitId::new(text)
}

fn commit(subject: &str, author: &str, day: u32) -> CommitText {
    let date = DateTime::parse_from_rfc3339(&format!("2026-10-{day:02}T12:00:00Z"))
        .unwrap()
        .to_utc();
    CommitText {
        subject: subject.into(),
        author: author.into(),
        date: Some(date),
    }
}

fn conclusion(status: Status) -> Conclusion {
    Conclusion {
        status,
        first_bad: vec![],
        improved: vec![],
        suspects: vec![],
        confidence: 0.995,
        size_confidence: None,
        effect_pct: None,
        ci95_pct: None,
        share_of_loss: None,
        machines: vec![MachineId::new("m1")],
        not_reproduced_on: vec![],
        checks: vec![],
        notes: vec![],
    }
}

fn plan(conclusion: &Conclusion, pct: f64, ci95_pct: (f64, f64)) -> Plan {
    let tried = |commit: &str, verdict, boots, level| VerdictLine {
        commit: id(commit),
        verdict,
        boots,
        level,
        p_bad: None,
    };
    Plan {
        step: Step::Conclude(conclusion.clone()),
        build_ahead: vec![],
        suspects: vec![
            Suspect {
                commit: id(CULPRIT),
                probability: 0.61,
            },
            Suspect {
                commit: id(OTHER),
                probability: 0.37,
            },
        ],
        suspects_left: 2,
        p_no_change: 0.02,
        verdicts: vec![
            tried(GOOD, Verdict::Good, 8, Some(194_165.0)),
            tried(BAD, Verdict::Bad, 8, Some(184_662.0)),
            tried(OTHER, Verdict::Good, 4, Some(194_010.5)),
            tried(
                BROKEN,
                Verdict::Skip {
                    why: "build_failed".into(),
                },
                0,
                None,
            ),
            tried(CULPRIT, Verdict::Bad, 6, Some(184_701.0)),
        ],
        effect: Some(Effect { pct, ci95_pct }),
        good_level: Some((194_165.0, 193_800.0, 194_530.0)),
        bad_level: Some((194_165.0 * (1.0 + pct / 100.0), 183_900.0, 185_420.0)),
        noise: Noise {
            boot_pct: 0.41,
            run_pct: 0.22,
            ..Noise::default()
        },
        min_detectable_pct: Some(1.9),
        others: vec![OtherMetric {
            name: "perf_bench.time".into(),
            effect: Some(Effect {
                pct: 5.1,
                ci95_pct: (3.9, 6.2),
            }),
            note: String::new(),
        }],
        remaining: Remaining {
            kernels: 2,
            boots: 14,
            time_s: 5400.0,
        },
        reason: String::new(),
    }
}

fn evidence(conclusion: Conclusion, pct: f64, ci95_pct: (f64, f64)) -> Evidence {
    Evidence {
        number: 12,
        id: uuid::Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_000c),
        url: "https://perf.example.org/bisections/12".into(),
        tree: "linux".into(),
        good: End {
            rev: "v6.17".into(),
            commit: id(GOOD),
        },
        bad: End {
            rev: "v6.18-rc1".into(),
            commit: id(BAD),
        },
        candidates: 13_402,
        workload: "pipe".into(),
        parameters: BTreeMap::from([("loops".to_string(), "20000".to_string())]),
        command: ["{agent}", "micro", "pipe", "--loops", "20000"]
            .map(String::from)
            .to_vec(),
        metric: Metric {
            name: "perf_bench.ops_per_s".into(),
            unit: "ops/s".into(),
            higher_is_better: true,
            may_be_zero: false,
        },
        min_effect: MinEffect::Pct(3.0),
        confidence: 0.99,
        machines: vec!["m1 (qemu, x86_64)".into()],
        compiler: Some("gcc (Debian 12.2.0-14) 12.2.0".into()),
        commits: BTreeMap::from([
            (
                id(GOOD),
                commit(
                    "Linux 6.17",
                    "Linus Torvalds <torvalds@linux-foundation.example.org>",
                    1,
                ),
            ),
            (
                id(BAD),
                commit(
                    "Linux 6.18-rc1",
                    "Linus Torvalds <torvalds@linux-foundation.example.org>",
                    20,
                ),
            ),
            (
                id(CULPRIT),
                commit(
                    "pipe: wake up the reader while still holding the lock",
                    "Jörg Beispiel <joerg@example.org>",
                    11,
                ),
            ),
            (
                id(OTHER),
                commit(
                    "Merge tag 'vfs-6.18-rc1.pipe' of git://git.example.org/pub/scm/linux/kernel/git/vfs/vfs with a long name",
                    "Linus Torvalds <torvalds@linux-foundation.example.org>",
                    12,
                ),
            ),
            (
                id(BROKEN),
                commit("mm: shuffle\nthe \x1b[31mdeck", "A <a@example.org>", 5),
            ),
        ]),
        plan: Some(plan(&conclusion, pct, ci95_pct)),
        ending: Ending::Concluded(conclusion),
        spent: Spent {
            builds: 15,
            boots: 61,
            time_s: 27_130.0,
        },
        ended_at: DateTime::from_timestamp(1_796_000_000, 0).unwrap(),
    }
}

/// Where no commit was searched for, only the ends were tried.
fn ends_only(status: Status, pct: f64, ci95_pct: (f64, f64)) -> Evidence {
    let mut evidence = evidence(conclusion(status), pct, ci95_pct);
    evidence.plan.as_mut().unwrap().verdicts.truncate(2);
    evidence
}

/// What every mail has to keep to, whatever it says.
fn shown(evidence: &Evidence) -> String {
    let Report { subject, text, json } = render(evidence);
    assert!(
        !subject.contains('\n') && subject.chars().count() < 200,
        "{subject}"
    );
    for line in text.lines() {
        let may_be_long = line.starts_with("git bisect")
            || line.starts_with('#')
            || line.starts_with("    ")
            || line.contains("://");
        assert!(
            line.chars().count() <= 72 || may_be_long,
            "over 72 columns: {line}"
        );
        assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["type"].as_str().unwrap().starts_with("bisection."));
    format!("Subject: {subject}\n\n{text}")
}

fn culprit_found() -> Evidence {
    let mut found = conclusion(Status::CulpritFound);
    found.first_bad = vec![id(CULPRIT)];
    found.suspects = vec![id(CULPRIT)];
    found.effect_pct = Some(-4.9);
    found.ci95_pct = Some((-6.0, -3.8));
    found.size_confidence = Some(0.97);
    found.share_of_loss = Some(0.98);
    found.not_reproduced_on = vec![MachineId::new("m2")];
    let checked = |check, result, detail: &str| Checked {
        check,
        result,
        detail: detail.into(),
    };
    found.checks = vec![
        checked(Check::Parents, CheckResult::Passed, ""),
        checked(Check::Revert, CheckResult::NotPossible, "not asked for"),
        checked(
            Check::Layout,
            CheckResult::Failed,
            "with functions aligned to 64 bytes the loss is 0.3 %",
        ),
        checked(Check::SameBinary, CheckResult::Passed, ""),
    ];
    found.notes = vec!["the loss between the ends is explained by this commit".into()];
    evidence(found, -4.9, (-5.5, -4.2))
}

#[test]
fn a_culprit() {
    insta::assert_snapshot!(shown(&culprit_found()));
}

#[test]
fn a_culprit_of_a_time() {
    let mut evidence = culprit_found();
    evidence.metric = Metric {
        name: "perf_bench.usecs_per_op".into(),
        unit: "us/op".into(),
        higher_is_better: false,
        may_be_zero: false,
    };
    if let Ending::Concluded(found) = &mut evidence.ending {
        (found.effect_pct, found.ci95_pct) = (Some(5.2), Some((4.0, 6.4)));
    }
    let text = shown(&evidence);
    assert!(text.starts_with("Subject: [perfbisect] 4b9d0e6fa1c2 (\"pipe: wake up the reader while still holding the lock\") adds 5.2 % to perf_bench.usecs_per_op\n"), "{text}");
}

/// Where zero is a number there are no per cents: changes are in the metric's unit.
#[test]
fn a_culprit_of_a_number_that_may_be_zero() {
    let mut evidence = culprit_found();
    evidence.metric = Metric {
        name: "errors".into(),
        unit: "1".into(),
        higher_is_better: false,
        may_be_zero: true,
    };
    evidence.min_effect = MinEffect::Abs(2.0);
    if let Ending::Concluded(found) = &mut evidence.ending {
        (found.effect_pct, found.ci95_pct) = (Some(7.0), Some((5.5, 8.5)));
    }
    let report = render(&evidence);
    assert!(
        report.subject.ends_with("adds 7.0000 1 to errors"),
        "{}",
        report.subject
    );
    assert!(
        !report.text.lines().take(8).any(|l| l.contains("7.0 %")),
        "{}",
        report.text
    );
}

#[test]
fn several_culprits() {
    let mut found = conclusion(Status::CulpritsFound);
    found.first_bad = vec![id(CULPRIT), id(OTHER)];
    found.notes = vec!["4b9d0e6fa1c2: -3.0 %".into(), "77aa0c1d2e3f: -2.1 %".into()];
    insta::assert_snapshot!(shown(&evidence(found, -4.9, (-5.5, -4.2))));
}

#[test]
fn losses_and_gains() {
    let mut found = conclusion(Status::SeveralChanges);
    found.first_bad = vec![id(CULPRIT), id(BROKEN)];
    found.improved = vec![id(OTHER)];
    insta::assert_snapshot!(shown(&evidence(found, -4.9, (-5.5, -4.2))));
}

#[test]
fn a_range() {
    let mut found = conclusion(Status::CulpritRange);
    found.suspects = vec![
        id(BROKEN),
        id(CULPRIT),
        id("aaaabbbbccccddddeeeeffff0000111122223333"),
    ];
    insta::assert_snapshot!(shown(&evidence(found, -4.9, (-5.5, -4.2))));
}

#[test]
fn a_long_range_is_cut_and_says_so() {
    let mut found = conclusion(Status::CulpritRange);
    found.suspects = (0..90).map(|n| id(&format!("{n:040}"))).collect();
    let text = shown(&evidence(found, -4.9, (-5.5, -4.2)));
    assert!(text.contains("  and 50 more: see the page\n"), "{text}");
}

#[test]
fn not_reproduced() {
    insta::assert_snapshot!(shown(&ends_only(
        Status::EndpointsIndistinguishable,
        -0.2,
        (-1.4, 1.1)
    )));
}

#[test]
fn below_the_threshold() {
    insta::assert_snapshot!(shown(&ends_only(Status::BelowThreshold, -1.1, (-1.9, -0.4))));
}

#[test]
fn an_improvement() {
    insta::assert_snapshot!(shown(&ends_only(Status::ImprovedNotRegressed, 6.3, (5.0, 7.5))));
}

#[test]
fn a_bad_merge_base() {
    insta::assert_snapshot!(shown(&ends_only(Status::MergeBaseBad, -4.9, (-5.5, -4.2))));
}

#[test]
fn machines_that_disagree() {
    let mut found = conclusion(Status::MachineDependent);
    found.first_bad = vec![id(CULPRIT), id(OTHER)];
    found.notes = vec!["m1: 4b9d0e6fa1c2".into(), "m2: 77aa0c1d2e3f".into()];
    insta::assert_snapshot!(shown(&evidence(found, -4.9, (-5.5, -4.2))));
}

#[test]
fn undecided() {
    let mut found = conclusion(Status::Inconclusive);
    found.confidence = 0.61;
    found.notes = vec!["the limit of 61 boots is reached".into()];
    insta::assert_snapshot!(shown(&evidence(found, -4.9, (-9.5, -0.4))));
}

#[test]
fn not_measurable() {
    let mut found = conclusion(Status::InfraFailed);
    found.confidence = 0.0;
    found.notes = vec!["v6.18-rc1 does not build: cc1: internal compiler error".into()];
    let mut evidence = evidence(found, 0.0, (0.0, 0.0));
    let plan = evidence.plan.as_mut().unwrap();
    (plan.effect, plan.good_level, plan.bad_level) = (None, None, None);
    plan.verdicts = vec![VerdictLine {
        commit: id(BAD),
        verdict: Verdict::Skip {
            why: "build_failed".into(),
        },
        boots: 0,
        level: None,
        p_bad: None,
    }];
    insta::assert_snapshot!(shown(&evidence));
}

#[test]
fn cancelled_before_the_first_plan() {
    let mut evidence = culprit_found();
    evidence.ending = Ending::Cancelled;
    evidence.plan = None;
    insta::assert_snapshot!(shown(&evidence));
}

#[test]
fn the_webhook_has_the_same_facts() {
    let json: serde_json::Value = serde_json::from_str(&render(&culprit_found()).json).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}

/// The log in the mail is one that git takes: replayed on a real repository, it ends at the same commit.
#[test]
fn git_replays_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| -> String {
        let identity = [
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "-c",
            "commit.gpgsign=false",
        ];
        let output = std::process::Command::new("git")
            .args(identity)
            .args(args)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    };
    git(&["init", "-q"]);
    let commits: Vec<String> = (0..5)
        .map(|n| {
            git(&["commit", "-q", "--allow-empty", "-m", &format!("c{n}")]);
            git(&["rev-parse", "HEAD"])
        })
        .collect();
    let mut evidence = culprit_found();
    evidence.good.commit = id(&commits[0]);
    evidence.bad.commit = id(&commits[4]);
    let line = |n: usize, verdict| VerdictLine {
        commit: id(&commits[n]),
        verdict,
        boots: 3,
        level: None,
        p_bad: None,
    };
    evidence.plan.as_mut().unwrap().verdicts = vec![
        line(0, Verdict::Good),
        line(4, Verdict::Bad),
        line(2, Verdict::Good),
        line(3, Verdict::Bad),
    ];
    if let Ending::Concluded(found) = &mut evidence.ending {
        found.first_bad = vec![id(&commits[3])];
    }
    let text = render(&evidence).text;
    let log: String = text
        .lines()
        .skip_while(|l| *l != "git bisect start")
        .take_while(|l| !l.is_empty())
        .map(|l| format!("{l}\n"))
        .collect();
    std::fs::write(folder.path().join("log"), &log).unwrap();
    let replayed = git(&["bisect", "replay", "log"]);
    assert!(
        replayed.contains(&format!("{} is the first bad commit", commits[3])),
        "{replayed}\n{log}"
    );
}
