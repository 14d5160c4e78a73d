//! Machines that show the loss at different commits: one history, several culprits, each on a machine of its own.

use crate::belief::Belief;
use crate::ends::Look;
use crate::facts::Facts;
use crate::report;
use crate::search::{Ask, Found, Searcher};
use crate::{Conclusion, Status};

/// Log Bayes factor for 'each machine a culprit of its own' at which the machines are searched apart: 1000 to 1.
const APART: f64 = 6.9;

/// Do the machines rule out each other's culprits?
pub fn disagree(belief: &Belief) -> bool {
    if belief.machines.len() < 2 {
        return false;
    }
    let weights: Vec<f64> = (0..belief.classes.len()).map(|k| belief.class_prior(k)).collect();
    let total: f64 = weights.iter().skip(1).sum();
    let evidence = |log_likelihood: &dyn Fn(usize) -> f64| {
        let terms: Vec<f64> = (1..weights.len())
            .filter(|&k| weights[k] > 0.0)
            .map(|k| libm::log(weights[k] / total) + log_likelihood(k).max(-1e6))
            .collect();
        let best = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        best + libm::log(terms.iter().map(|t| libm::exp(t - best)).sum::<f64>())
    };
    let own = |m: usize, k: usize| belief.machines[m].log_likelihood[k];
    let together = evidence(&|k| (0..belief.machines.len()).map(|m| own(m, k).max(-1e6)).sum());
    let apart: f64 = (0..belief.machines.len()).map(|m| evidence(&|k| own(m, k))).sum();
    apart - together > APART
}

/// Searches each machine by itself.
pub fn search_each(
    facts: &Facts<'_>,
    looks: &[Look],
    low: u32,
    high: u32,
) -> Result<(Conclusion, String), Ask> {
    let mut found: Vec<(&Look, Vec<Found>)> = Vec::new();
    let mut asked: Option<Ask> = None;
    for (i, look) in looks.iter().enumerate() {
        let mut searcher = Searcher {
            facts,
            looks: &looks[i..=i],
            active: None,
        };
        match searcher.search(low, high, true, 0) {
            Ok(own) => found.push((look, own)),
            Err(ask) => match &mut asked {
                None => asked = Some(ask),
                Some(all) => {
                    all.wants.extend(ask.wants);
                    all.reason = format!("{}; {}", all.reason, ask.reason);
                }
            },
        }
    }
    match asked {
        Some(mut ask) => {
            ask.reason = format!(
                "the machines rule out each other's culprits, so each is searched by itself: {}",
                ask.reason
            );
            Err(ask)
        }
        None => Ok(conclude(facts, looks, &found)),
    }
}

fn conclude(facts: &Facts<'_>, looks: &[Look], found: &[(&Look, Vec<Found>)]) -> (Conclusion, String) {
    let own: Vec<(&Look, Conclusion)> = found
        .iter()
        .map(|(look, found)| {
            let total = look.belief.as_ref().map(|b| b.delta.0);
            (*look, report::conclude(facts, looks, found, total))
        })
        .collect();
    let named: Vec<String> = own
        .iter()
        .map(|(look, c)| {
            let commits = if c.first_bad.is_empty() {
                &c.suspects
            } else {
                &c.first_bad
            };
            let commits: Vec<&str> = commits.iter().map(|c| c.as_str()).collect();
            format!(
                "on {} the loss came with {}",
                facts.machines[look.machine].id,
                commits.join(", ")
            )
        })
        .collect();
    let located = own.iter().all(|(_, c)| c.first_bad.len() == 1);
    let differ = own.windows(2).any(|w| w[0].1.first_bad != w[1].1.first_bad);
    let mut conclusion = match own.iter().max_by_key(|(look, _)| look.boots) {
        Some((_, telling)) if located && !differ => return (telling.clone(), named.join("; ")),
        Some((_, telling)) => telling.clone(),
        None => report::blank(Status::Inconclusive),
    };
    let union = |field: &dyn Fn(&Conclusion) -> Vec<crate::CommitId>| {
        let mut all: Vec<crate::CommitId> = own.iter().flat_map(|(_, c)| field(c)).collect();
        all.sort_by_key(|c| facts.history.place(c));
        all.dedup();
        all
    };
    conclusion.suspects = union(&|c| c.suspects.clone());
    conclusion.improved = union(&|c| c.improved.clone());
    (conclusion.status, conclusion.first_bad) = if located {
        (Status::MachineDependent, union(&|c| c.first_bad.clone()))
    } else {
        (Status::Inconclusive, Vec::new())
    };
    conclusion.confidence = own.iter().map(|(_, c)| c.confidence).fold(1.0, f64::min);
    conclusion.notes.splice(0..0, named.iter().cloned());
    (conclusion, named.join("; "))
}
