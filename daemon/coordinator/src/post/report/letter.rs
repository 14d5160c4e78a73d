//! The mail: result first, then the numbers, what was checked, every kernel tried, the log, how to do it again.

use super::Evidence;
use super::subject::named;
use super::tables::{checks, conclusion, line, log, numbers, tried};
use super::words::{Scale, clean, count, duration, effect_phrase, probability, short, wrap};
use bisect::{CommitId, Conclusion, Plan, Status};
use std::fmt::Write;

/// Suspects that are listed; the page has them all.
const SUSPECTS_LISTED: usize = 40;

pub fn text(evidence: &Evidence) -> String {
    let sections = [
        result(evidence),
        numbers(evidence),
        checks(evidence),
        notes(evidence),
        tried(evidence),
        log(evidence),
        method(evidence),
        again(evidence),
    ];
    let mut text = sections
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join("\n");
    write!(
        text,
        "\n-- \nperfbisect, bisection {}\n{}\n",
        evidence.number, evidence.url
    )
    .expect("a string takes it");
    text
}

fn result(evidence: &Evidence) -> String {
    let Some(conclusion) = conclusion(evidence) else {
        let text = "This bisection was cancelled. Nothing was concluded; what was measured until then is below \
                    and on the page.";
        return wrap(text, "", "");
    };
    let scale = Scale::of(evidence);
    let metric = &evidence.metric.name;
    let (good, bad) = (clean(&evidence.good.rev), clean(&evidence.bad.rev));
    let smallest = scale.smallest(evidence.min_effect);
    let between = evidence.plan.as_ref().and_then(|plan| plan.effect);
    let size = |change: f64, ci: (f64, f64)| {
        format!(
            "{} (95 % interval {})",
            scale.signed(change),
            scale.signed_interval(ci)
        )
    };
    let change = between.map_or("by an amount that is not known".into(), |e| {
        size(e.pct, e.ci95_pct)
    });
    match conclusion.status {
        Status::CulpritFound => culprit(evidence, conclusion, &scale),
        Status::CulpritsFound | Status::SeveralChanges => {
            let head =
                format!("From {good} to {bad}, {metric} changes by {change}. More than one commit does it.");
            let mut text = wrap(&head, "", "");
            text += &listed(evidence, "\nMade it worse:\n", &conclusion.first_bad);
            text += &listed(evidence, "\nMade it better:\n", &conclusion.improved);
            text + "\n" + &wrap(&sure(conclusion), "", "")
        }
        Status::CulpritRange => {
            let n = conclusion.suspects.len();
            let head = format!(
                "From {good} to {bad}, {metric} changes by {change}. The first bad commit is one of these {n}, which \
                 cannot be told apart, since the commits between them could not be tested. {}",
                sure(conclusion)
            );
            wrap(&head, "", "") + &listed(evidence, "\n", &conclusion.suspects)
        }
        Status::EndpointsIndistinguishable => {
            let seen = evidence.plan.as_ref().and_then(|plan| plan.min_detectable_pct);
            let seen = seen.map_or(String::new(), |d| {
                format!(" A loss of {} would have been seen.", scale.size(d))
            });
            let head = format!(
                "Not reproduced: {metric} is the same on {good} and on {bad}, as far as this can be told: it changes by \
                 {change}.{seen} You asked for losses from {smallest} on. No commit was searched for."
            );
            wrap(&head, "", "")
        }
        Status::BelowThreshold => {
            let head = format!(
                "There is a loss of {metric} from {good} to {bad}, but it is smaller than you asked for: it changes by \
                 {change}, and a loss of {smallest} is excluded. No commit was searched for; ask again with a smaller \
                 effect if this one matters."
            );
            wrap(&head, "", "")
        }
        Status::ImprovedNotRegressed => {
            let head = format!(
                "No loss: {metric} is better on {bad} than on {good}: it changes by {change}. Are good and bad in the \
                 right order, and is `higher_is_better` right for this metric? No commit was searched for."
            );
            wrap(&head, "", "")
        }
        Status::MergeBaseBad => {
            let head = format!(
                "{good} is no ancestor of {bad}, and where the two part {metric} is already as bad as on {bad}. So \
                 nothing on the way to {bad} made it worse: {good} has a fix that {bad} lacks. Search for the fix \
                 between the merge base and {good}."
            );
            wrap(&head, "", "")
        }
        Status::MachineDependent => {
            let head = format!(
                "From {good} to {bad}, {metric} gets worse, but not at the same commit on every machine. Each of \
                 these is a first bad commit on some machine; the notes say which. {}",
                sure(conclusion)
            );
            wrap(&head, "", "") + &listed(evidence, "\n", &conclusion.first_bad)
        }
        Status::Inconclusive => undecided(evidence, conclusion, &change),
        Status::InfraFailed => {
            let head = format!(
                "This could not be measured: nothing can be said about {metric} from {good} to {bad}. That is the \
                 lab's or the ends' trouble, not a result; the notes below say what went wrong."
            );
            wrap(&head, "", "")
        }
    }
}

fn culprit(evidence: &Evidence, conclusion: &Conclusion, scale: &Scale<'_>) -> String {
    let metric = &evidence.metric.name;
    let mut text = listed(evidence, "First bad commit:\n", &conclusion.first_bad) + "\n";
    let mut head = format!("It {}", effect_phrase(scale, metric, conclusion.effect_pct));
    if let Some(ci) = conclusion.ci95_pct {
        head += &format!(" (95 % interval {})", scale.interval(ci));
    }
    head += &format!(" in workload {}", case(evidence));
    if !conclusion.machines.is_empty() {
        let names: Vec<&str> = conclusion.machines.iter().map(|m| m.as_str()).collect();
        head += &format!(", on {}", names.join(", "));
    }
    head += ". ";
    head += &sure(conclusion);
    if let Some(p) = conclusion.size_confidence {
        let smallest = scale.smallest(evidence.min_effect);
        head += &format!(" That the loss is at least {smallest}: {}.", probability(p));
    }
    if let Some(share) = conclusion.share_of_loss {
        let share = (share * 100.0).clamp(0.0, 999.0);
        head += &format!(" It explains {share:.0} % of the loss between good and bad.");
    }
    text += &wrap(&head, "", "");
    text + &listed(
        evidence,
        "\nBeside it, these made it better:\n",
        &conclusion.improved,
    )
}

fn undecided(evidence: &Evidence, conclusion: &Conclusion, change: &str) -> String {
    let (good, bad) = (clean(&evidence.good.rev), clean(&evidence.bad.rev));
    let mut head = format!(
        "Undecided: a limit was reached before the first bad commit could be named. What is known: from {good} to \
         {bad}, {} changes by {change}.",
        evidence.metric.name
    );
    if let Some(plan) = &evidence.plan {
        if plan.remaining.boots > 0 {
            let more = count(plan.remaining.boots as usize, "boot");
            head += &format!(
                " It would take about {more} more, {}.",
                duration(plan.remaining.time_s)
            );
        }
        head += &format!(" {} left.", count(plan.suspects_left as usize, "suspect"));
    }
    let mut text = wrap(&head, "", "");
    let suspects = evidence.plan.as_ref().map_or(&[][..], |plan| &plan.suspects[..]);
    if !suspects.is_empty() {
        text += "\nMost probable first:\n";
        for suspect in suspects.iter().take(SUSPECTS_LISTED) {
            let probability = format!("{:>5.1} %", suspect.probability * 100.0);
            text += &line(&format!("  {probability}  {}", named(evidence, &suspect.commit)));
        }
    } else {
        text += &listed(evidence, "\n", &conclusion.suspects);
    }
    text
}

fn sure(conclusion: &Conclusion) -> String {
    format!(
        "Probability that the place is right: {}.",
        probability(conclusion.confidence)
    )
}

/// Commits, each with author and date below it.
fn listed(evidence: &Evidence, head: &str, commits: &[CommitId]) -> String {
    if commits.is_empty() {
        return String::new();
    }
    let mut text = head.to_string();
    let with_author = commits.len() <= 5;
    for commit in commits.iter().take(SUSPECTS_LISTED) {
        text += &wrap(&named(evidence, commit), "  ", "      ");
        if let Some(known) = evidence.commits.get(commit).filter(|_| with_author) {
            let date = known
                .date
                .map_or(String::new(), |d| format!(", {}", d.format("%Y-%m-%d")));
            text += &wrap(&format!("{}{date}", clean(&known.author)), "      ", "      ");
        }
    }
    if commits.len() > SUSPECTS_LISTED {
        text += &format!("  and {} more: see the page\n", commits.len() - SUSPECTS_LISTED);
    }
    text
}

fn notes(evidence: &Evidence) -> String {
    let Some(conclusion) = conclusion(evidence) else {
        return String::new();
    };
    let mut notes: Vec<String> = conclusion.notes.iter().map(|n| clean(n)).collect();
    if !conclusion.not_reproduced_on.is_empty() {
        let names: Vec<&str> = conclusion.not_reproduced_on.iter().map(|m| m.as_str()).collect();
        notes.push(format!("not reproduced on {}", names.join(", ")));
    }
    if notes.is_empty() {
        return String::new();
    }
    notes.iter().fold("Notes\n\n".to_string(), |text, note| {
        text + &wrap(note, "  * ", "    ")
    })
}

fn method(evidence: &Evidence) -> String {
    let Evidence {
        tree,
        candidates,
        spent,
        ..
    } = evidence;
    let mut text = "How it was measured\n\n".to_string();
    let mut row =
        |name: &str, value: String| text += &wrap(&value, &format!("  {name:<10} "), &" ".repeat(13));
    row("range", format!("{} in {tree}", count(*candidates, "commit")));
    row("workload", case(evidence));
    row("machines", evidence.machines.join(", "));
    evidence
        .compiler
        .iter()
        .for_each(|compiler| row("compiler", clean(compiler)));
    let smallest = Scale::of(evidence).smallest(evidence.min_effect);
    row(
        "asked for",
        format!(
            "a loss of at least {smallest}, its place {} % sure or more",
            (evidence.confidence * 1e4).round() / 100.0
        ),
    );
    if let Some(plan) = &evidence.plan {
        let Plan { noise, .. } = plan;
        row(
            "noise",
            format!(
                "{:.2} % between boots, {:.2} % between runs of a boot",
                noise.boot_pct, noise.run_pct
            ),
        );
    }
    let (builds, boots) = (
        count(spent.builds as usize, "build"),
        count(spent.boots as usize, "boot"),
    );
    row("spent", format!("{builds}, {boots}, {}", duration(spent.time_s)));
    text
}

fn again(evidence: &Evidence) -> String {
    let found = conclusion(evidence).filter(|c| c.status == Status::CulpritFound);
    let (before, after) = match found.and_then(|c| c.first_bad.first()) {
        Some(commit) => (format!("{}^", short(commit)), short(commit)),
        None => (short(&evidence.good.commit), short(&evidence.bad.commit)),
    };
    let mut text = "How to see it again\n\n".to_string();
    let command: Vec<String> = evidence
        .command
        .iter()
        .map(|word| quoted(&word.replace("{agent}", "perfbisect-agent")))
        .collect();
    text += &wrap(
        &format!(
            "Build and boot {before} and {after} with the config that the page links to, several times each, and run:"
        ),
        "  ",
        "  ",
    );
    text += &format!("\n    {}\n", command.join(" "));
    if let Some(commit) = found.and_then(|c| c.first_bad.first()) {
        text += "\n  If you fix it, please add\n\n";
        let subject = evidence
            .commits
            .get(commit)
            .map_or(String::new(), |c| format!(" (\"{}\")", clean(&c.subject)));
        // Tags are never wrapped.
        text += &format!("    Fixes: {}{subject}\n", short(commit));
    }
    text
}

fn case(evidence: &Evidence) -> String {
    let parameters = evidence
        .parameters
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let parameters: Vec<String> = parameters.collect();
    let name = &evidence.workload;
    if parameters.is_empty() {
        name.clone()
    } else {
        format!("{name} ({})", parameters.join(", "))
    }
}

/// A word of a command, as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%{}".contains(c);
    let word = clean(word);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
