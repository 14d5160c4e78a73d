//! The tables of a mail: the two ends, the checks, every kernel tried, the log.

use super::words::{COLUMNS, Scale, clean, cut, figure, short, wrap};
use super::{Ending, Evidence};
use bisect::{Check, CheckResult, CommitId, Conclusion, Status, Verdict, VerdictLine};

pub fn conclusion(evidence: &Evidence) -> Option<&Conclusion> {
    match &evidence.ending {
        Ending::Concluded(conclusion) => Some(conclusion),
        Ending::Cancelled => None,
    }
}

pub fn numbers(evidence: &Evidence) -> String {
    let Some(plan) = &evidence.plan else {
        return String::new();
    };
    if plan.good_level.is_none() && plan.bad_level.is_none() {
        return String::new();
    }
    let scale = Scale::of(evidence);
    let direction = if evidence.metric.higher_is_better {
        "higher is better"
    } else {
        "lower is better"
    };
    let mut text = format!(
        "{} ({}, {direction})\n\n",
        evidence.metric.name, evidence.metric.unit
    );
    text += &format!(
        "{:<24} {:>12}   {:<24} {:>5}\n",
        "", "level", "95 % interval", "boots"
    );
    let boots_of = |commit: &CommitId| {
        let tried = plan.verdicts.iter().find(|v| &v.commit == commit);
        tried.map_or(String::new(), |v| v.boots.to_string())
    };
    for (name, end, level) in [
        ("good", &evidence.good, plan.good_level),
        ("bad", &evidence.bad, plan.bad_level),
    ] {
        let Some((level, low, high)) = level else { continue };
        let name = cut(&format!("{name:<5}{}", clean(&end.rev)), 24);
        let interval = format!("{} .. {}", figure(low), figure(high));
        let boots = boots_of(&end.commit);
        text += &line(&format!(
            "{name:<24} {:>12}   {interval:<24} {boots:>5}",
            figure(level)
        ));
    }
    if let Some(effect) = plan.effect {
        let interval = scale.signed_interval(effect.ci95_pct);
        text += &line(&format!(
            "{:<24} {:>12}   {interval}",
            "change",
            scale.signed(effect.pct)
        ));
    }
    let others = plan
        .others
        .iter()
        .filter_map(|other| other.effect.map(|effect| (other, effect)));
    for (at, (other, effect)) in others.enumerate() {
        if at == 0 {
            text += "\nOther numbers of the same runs:\n";
        }
        let change = format!("{:+.1} %", effect.pct);
        let interval = format!("{:+.1} .. {:+.1} %", effect.ci95_pct.0, effect.ci95_pct.1);
        text += &line(&format!(
            "{:<24} {change:>12}   {interval:<24} {}",
            cut(&other.name, 24),
            other.note
        ));
    }
    text
}

pub fn checks(evidence: &Evidence) -> String {
    let checks = conclusion(evidence).map_or(&[][..], |c| &c.checks[..]);
    if checks.is_empty() {
        return String::new();
    }
    let mut text = "What was checked\n\n".to_string();
    for checked in checks {
        let what = match checked.check {
            Check::Parents => "parents are good",
            Check::Revert => "bad end with it reverted is good",
            Check::Layout => "holds in another code layout",
            Check::SameBinary => "builds another binary than its parent",
        };
        let result = match checked.result {
            CheckResult::Passed => "passed",
            CheckResult::Failed => "FAILED",
            CheckResult::NotPossible => "not done",
        };
        let detail = if checked.detail.is_empty() {
            String::new()
        } else {
            format!(": {}", clean(&checked.detail))
        };
        text += &wrap(
            &format!("{what}{detail}"),
            &format!("  {result:<8}  "),
            &" ".repeat(12),
        );
    }
    text
}

pub fn tried(evidence: &Evidence) -> String {
    let verdicts = evidence.plan.as_ref().map_or(&[][..], |plan| &plan.verdicts[..]);
    if verdicts.is_empty() {
        return String::new();
    }
    let mut text = "Kernels tried\n\n".to_string();
    text += &format!(
        "  {:<12} {:<8} {:>5} {:>10}  {}\n",
        "commit", "verdict", "boots", "level", "subject"
    );
    for tried in verdicts {
        let VerdictLine {
            commit,
            verdict,
            boots,
            level,
            p_bad: _,
        } = tried;
        let verdict = match verdict {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Skip { .. } => "skip",
            Verdict::Open => "open",
        };
        let subject = match &tried.verdict {
            Verdict::Skip { why } => format!("({}) {}", why.replace('_', " "), subject_of(evidence, commit)),
            Verdict::Good | Verdict::Bad | Verdict::Open => subject_of(evidence, commit),
        };
        let level = level.map_or("-".to_string(), figure);
        let boots = if *boots == 0 {
            "-".to_string()
        } else {
            boots.to_string()
        };
        text += &line(&format!(
            "  {:<12} {verdict:<8} {boots:>5} {level:>10}  {subject}",
            short(commit)
        ));
    }
    text
}

/// In the form of `git bisect log`: `git bisect replay` takes it.
pub fn log(evidence: &Evidence) -> String {
    let verdicts = evidence.plan.as_ref().map_or(&[][..], |plan| &plan.verdicts[..]);
    let is_end = |v: &&VerdictLine| v.commit == evidence.bad.commit || v.commit == evidence.good.commit;
    if verdicts.iter().all(|v| is_end(&v)) {
        return String::new();
    }
    let mut text = "Log, as git bisect replay takes it\n\ngit bisect start\n".to_string();
    let mut step = |word: &str, commit: &CommitId| {
        text += &line(&format!(
            "# {word}: [{}] {}",
            commit,
            subject_of(evidence, commit)
        ));
        text += &format!("git bisect {word} {commit}\n");
    };
    step("bad", &evidence.bad.commit);
    step("good", &evidence.good.commit);
    for tried in verdicts.iter().filter(|v| !is_end(v)) {
        match &tried.verdict {
            Verdict::Good => step("good", &tried.commit),
            Verdict::Bad => step("bad", &tried.commit),
            Verdict::Skip { .. } => step("skip", &tried.commit),
            Verdict::Open => {}
        }
    }
    let found = conclusion(evidence).filter(|c| c.status == Status::CulpritFound);
    for commit in found.into_iter().flat_map(|c| &c.first_bad) {
        text += &format!(
            "# first bad commit: [{commit}] {}
",
            subject_of(evidence, commit)
        );
    }
    text
}

fn subject_of(evidence: &Evidence, commit: &CommitId) -> String {
    evidence
        .commits
        .get(commit)
        .map_or(String::new(), |c| clean(&c.subject))
}

/// One line of a table, cut to the mail's width.
pub fn line(text: &str) -> String {
    format!("{}\n", cut(text.trim_end(), COLUMNS))
}
