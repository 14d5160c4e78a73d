//! Gathers what a report on a conclusion is made of. What it says is `post::report`'s affair.

use super::{Passes, order::read};
use crate::case::Case;
use crate::post::report::{CommitText, End, Ending, Evidence, Spent, render};
use crate::store::bisections::Open;
use crate::store::notices::Words;
use crate::store::record::Account;
use bisect::{CommitId, Conclusion, History, Plan, Policy};
use chrono::Utc;
use std::collections::{BTreeMap, BTreeSet};

/// The message that every recipient of this bisection is owed.
pub async fn words(
    p: &Passes,
    open: &Open,
    history: &History,
    policy: &Policy,
    plan: &Plan,
    conclusion: &Conclusion,
) -> anyhow::Result<Words> {
    let account = p.store.account(open.id).await?;
    let case: Case = read("case", &account.case)?;
    let evidence = Evidence {
        number: open.number,
        id: open.id,
        url: format!("{}/bisections/{}", p.config.base_url(), open.number),
        tree: open.tree.clone(),
        good: End {
            rev: account.good_rev.clone(),
            commit: open.good_commit.as_str().into(),
        },
        bad: End {
            rev: account.bad_rev.clone(),
            commit: open.bad_commit.as_str().into(),
        },
        candidates: history.candidates(),
        workload: case.workload,
        parameters: case.parameters,
        command: case.command,
        metric: policy.metric.clone(),
        min_effect: policy.min_effect,
        confidence: policy.confidence,
        machines: open.machines.iter().map(|name| machine(p, name)).collect(),
        compiler: account.compiler.clone(),
        commits: commits(p, open, plan, conclusion).await?,
        plan: Some(plan.clone()),
        ending: Ending::Concluded(conclusion.clone()),
        spent: spent(&account, open.now_s),
        ended_at: Utc::now(),
    };
    let report = render(&evidence);
    Ok(Words {
        subject: report.subject,
        mail: report.text,
        webhook: report.json,
    })
}

fn spent(account: &Account, time_s: f64) -> Spent {
    let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    Spent {
        builds: count(account.builds),
        boots: count(account.boots),
        time_s,
    }
}

fn machine(p: &Passes, name: &str) -> String {
    match p.config.machines.get(name) {
        None => name.to_string(),
        Some(m) => match m.boot.word() {
            Some(how) => format!("{name} ({how}, {})", m.arch),
            None => format!("{name} ({})", m.arch),
        },
    }
}

/// What git says of the commits that the plan and the conclusion name.
async fn commits(
    p: &Passes,
    open: &Open,
    plan: &Plan,
    conclusion: &Conclusion,
) -> anyhow::Result<BTreeMap<CommitId, CommitText>> {
    let mut named: BTreeSet<CommitId> =
        [open.good_commit.as_str().into(), open.bad_commit.as_str().into()].into();
    named.extend(plan.suspects.iter().map(|s| s.commit.clone()));
    named.extend(plan.verdicts.iter().map(|v| v.commit.clone()));
    for list in [&conclusion.first_bad, &conclusion.improved, &conclusion.suspects] {
        named.extend(list.iter().cloned());
    }
    let ids: Vec<CommitId> = named.into_iter().collect();
    let known = p.trees.commits(&open.tree, &ids).await?;
    let text = |c: crate::tree::CommitInfo| CommitText {
        subject: c.subject,
        author: format!("{} <{}>", c.author, c.email),
        date: Some(c.date),
    };
    Ok(known.into_iter().map(|c| (c.id.clone(), text(c))).collect())
}
