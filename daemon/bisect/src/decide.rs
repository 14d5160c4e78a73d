//! From the record to the next step: ends, merge base, search, conclusion.

mod step;

use crate::belief::{Belief, believe};
use crate::disagree::{disagree, search_each};
use crate::ends::{Ends, Look, look, next_end};
use crate::facts::{CONFIRM, Facts};
use crate::memo::Memo;
use crate::plan::{Plan, Step};
use crate::search::{Ask, Found, Searcher, Want, want};
use crate::select::Chooser;
use crate::span::{Base, Span};
use crate::{Conclusion, History, Job, Kernel, Record, Status, report, switch};
use std::cell::RefCell;
use std::sync::Arc;

/// Runs in a boot of the ends, warm-up not counted: three tell runs and boots apart.
const END_RUNS: u32 = 3;
/// Boots a side that have them.
const END_BOOTS: usize = 4;
/// Jobs of one kernel on one machine are numbered below this, so that confirmations stay apart.
const MOST_REPLICATES: u32 = CONFIRM;
/// Without a limit of the user's, an end there must be.
const MOST_BOOTS: u32 = 1000;

/// Plans, and remembers what it worked out: the next plan of the same bisection costs the new boots only.
#[derive(Default)]
pub struct Planner {
    memo: RefCell<Memo>,
}

impl Planner {
    pub fn new() -> Planner {
        Planner::default()
    }

    /// What to do next. Total and deterministic: the same history and record give the same plan, bit for bit,
    /// whatever this planner saw before and whatever the order of the record's rows.
    pub fn plan(&mut self, history: &History, record: &Record) -> Plan {
        let facts = Facts::new(history, record, &self.memo);
        let (Some(good), Some(bad)) = (history.place(history.good()), history.place(history.bad())) else {
            return Mind::new(&facts, 0, 0).conclude(
                report::blank(Status::InfraFailed),
                "the ends are not in the history",
            );
        };
        let mut mind = Mind::new(&facts, good, bad);
        match mind.decide() {
            Ok((conclusion, reason)) => mind.conclude(conclusion, &reason),
            Err(ask) => mind.go_on(ask),
        }
    }

    /// Filter updates so far: the work done, each boot folded into one filter (see `bank`).
    pub fn updates(&self) -> u64 {
        self.memo.borrow().updates
    }
}

/// What to do next, from nothing but the record.
pub fn plan(history: &History, record: &Record) -> Plan {
    Planner::new().plan(history, record)
}

struct Mind<'a> {
    facts: &'a Facts<'a>,
    good: u32,
    bad: u32,
    looks: Vec<Look>,
    active: Option<(Arc<Span>, Belief)>,
    rate: Option<(f64, f64)>,
}

impl<'a> Mind<'a> {
    fn new(facts: &'a Facts<'a>, good: u32, bad: u32) -> Mind<'a> {
        Mind {
            facts,
            good,
            bad,
            looks: Vec::new(),
            active: None,
            rate: None,
        }
    }

    fn decide(&mut self) -> Result<(Conclusion, String), Ask> {
        if let Some(broken) = self.broken() {
            return broken;
        }
        self.looks = self.look_at(self.good, self.bad);
        let losses = self.with(Ends::Loss);
        if losses.is_empty() {
            return self.no_loss();
        }
        let low = match self.merge_base() {
            None => self.good,
            Some(base) => {
                let looks = self.look_at(base, self.bad);
                let of_losses: Vec<&Look> = looks.iter().filter(|l| losses.contains(&l.machine)).collect();
                if let Some(settled) = self.judge_base(base, &of_losses) {
                    return settled;
                }
                base
            }
        };
        self.search(low)
    }

    /// Nothing can be measured at all.
    fn broken(&self) -> Option<Result<(Conclusion, String), Ask>> {
        let facts = self.facts;
        let fail = |reason: String| {
            let mut conclusion = report::blank(Status::InfraFailed);
            conclusion.notes.push(reason.clone());
            Some(Ok((conclusion, reason)))
        };
        if facts.usable().is_empty() {
            if !facts.pending.is_empty() {
                return Some(Err(Ask {
                    reason: "a boot is under way".into(),
                    ..Ask::default()
                }));
            }
            return fail("no machine is left to measure on".into());
        }
        for (place, end) in [(self.good, "good"), (self.bad, "bad")] {
            if facts.words.contains(&(place, end == "good")) {
                let id = facts.history.id(place);
                let reason = format!("{id} is the {end} end, but the user's word on it is the contrary");
                let mut conclusion = report::blank(Status::Inconclusive);
                conclusion.notes = vec![reason.clone(), "no more boots would tell".into()];
                return Some(Ok((conclusion, reason)));
            }
            if let Some(why) = facts.skip_at(place) {
                return fail(format!(
                    "the {end} end {} can't be measured: {why}",
                    facts.history.id(place)
                ));
            }
        }
        None
    }

    fn look_at(&self, low: u32, high: u32) -> Vec<Look> {
        let between = |k: &crate::facts::Tried| k.kernel.is_plain() && k.place != low && k.place != high;
        let searching = self
            .facts
            .kernels
            .iter()
            .any(|k| between(k) && !k.boots.is_empty());
        let machines = (0..self.facts.machines.len())
            .filter(|&m| self.facts.usable().contains(&m) || self.facts.boots.iter().any(|b| b.machine == m));
        machines
            .map(|m| look(self.facts, low, high, m, searching))
            .collect()
    }

    fn with(&self, ends: Ends) -> Vec<usize> {
        self.looks
            .iter()
            .filter(|l| l.ends == ends)
            .map(|l| l.machine)
            .collect()
    }

    /// One boot of an end on each free machine of these.
    fn ask_ends(&self, low: u32, high: u32, machines: &[usize]) -> Vec<Want> {
        let free = machines
            .iter()
            .filter(|&&m| self.facts.machines[m].free && self.facts.usable().contains(&m));
        let facts = self.facts;
        let boots = |end, m| facts.boots_on(end, m).len();
        // Once runs and boots are told apart, as many as pay.
        let told = |m: usize| {
            self.looks
                .iter()
                .find(|l| l.machine == m)
                .and_then(|l| l.belief.as_ref())
        };
        let runs = |m| match (boots(low, m).min(boots(high, m)), told(m)) {
            (END_BOOTS.., Some(belief)) => belief.best_runs(facts),
            _ => END_RUNS + facts.summaries.warm_up,
        };
        free.map(|&m| want(facts, next_end(facts, low, high, m), m, runs(m)))
            .collect()
    }

    fn no_loss(&mut self) -> Result<(Conclusion, String), Ask> {
        let facts = self.facts;
        let usable = facts.usable();
        let open: Vec<usize> = self
            .with(Ends::Open)
            .into_iter()
            .filter(|m| usable.contains(m))
            .collect();
        if !open.is_empty() {
            let wants = self.ask_ends(self.good, self.bad, &open);
            let reason = if wants.is_empty() {
                "waiting for a boot of the ends, or for a machine".to_owned()
            } else {
                "both ends first, in turn: is there a difference, and how large is the noise?".to_owned()
            };
            return Err(Ask {
                wants,
                ahead: self.first_midpoints(),
                reason,
                ..Ask::default()
            });
        }
        let any = |ends| self.looks.iter().any(|l| l.ends == ends);
        let status = if any(Ends::Small) {
            Status::BelowThreshold
        } else if any(Ends::Gain) {
            Status::ImprovedNotRegressed
        } else if any(Ends::Same) {
            Status::EndpointsIndistinguishable
        } else {
            Status::Inconclusive
        };
        Ok(self.end_of_ends(status))
    }

    fn end_of_ends(&self, status: Status) -> (Conclusion, String) {
        let facts = self.facts;
        let mut conclusion = report::blank(status);
        let wanted = match status {
            Status::BelowThreshold => Ends::Small,
            Status::ImprovedNotRegressed => Ends::Gain,
            Status::EndpointsIndistinguishable => Ends::Same,
            _ => Ends::Undecided,
        };
        let telling = self
            .looks
            .iter()
            .filter(|l| l.ends == wanted)
            .max_by_key(|l| l.boots);
        let telling = telling.or_else(|| report::telling(&self.looks));
        self.size_of_ends(telling, &mut conclusion);
        let reason = match (telling.and_then(|l| l.detectable().map(|d| (l, d))), status) {
            (Some((look, size)), _) => {
                let unit = facts.scale.unit(&facts.record.policy.metric.unit);
                format!(
                    "{} boots of each end, in turn: a change of {:.2} {unit} would have been found nine times in ten",
                    look.boots,
                    facts.scale.shown_size(size)
                )
            }
            (None, _) => "the ends could not be compared".to_owned(),
        };
        conclusion.notes.push(reason.clone());
        if status == Status::Inconclusive
            && let Some((look, boots)) = telling.and_then(|l| l.boots_for(facts.scale.least).map(|b| (l, b)))
        {
            let more = (2.0 * (boots - look.boots as f64)).max(2.0);
            conclusion.notes.push(format!(
                "about {more:.0} more boots would show a loss as small as asked for"
            ));
        } else if status == Status::Inconclusive {
            let left = report::remaining(facts, None, None, self.distance());
            conclusion.notes.push(more_boots(left.boots));
        }
        let spread = telling.and_then(|l| switch::spread(facts, self.good, self.bad, l.machine));
        conclusion.notes.extend(spread);
        report::name_machines(facts, &self.looks, &mut conclusion);
        (conclusion, reason)
    }

    fn size_of_ends(&self, look: Option<&Look>, conclusion: &mut Conclusion) {
        if let Some(effect) = report::effect(self.facts, look) {
            conclusion.effect_pct = Some(effect.pct);
            conclusion.ci95_pct = Some(effect.ci95_pct);
        }
        if let Some(belief) = look.and_then(|l| l.belief.as_ref()) {
            let scale = &self.facts.scale;
            conclusion.size_confidence = Some(belief.p_loss_at_least(scale.loss_sign, scale.least));
            conclusion.confidence = match conclusion.status {
                Status::EndpointsIndistinguishable => belief.p_no_change,
                Status::Inconclusive => 0.0,
                _ => 1.0 - belief.p_no_change,
            };
        }
    }

    /// The latest common ancestor, where good is no ancestor of bad.
    fn merge_base(&self) -> Option<u32> {
        match self.facts.span(self.good, self.bad).base(self.bad) {
            Base::Fork(base) if self.facts.skip_at(base).is_none() => Some(base),
            Base::Fork(_) | Base::Low | Base::Outside => None,
        }
    }

    /// Merge base against bad on the machines that show the loss; nothing where it is good: then it is the low end.
    fn judge_base(&self, base: u32, looks: &[&Look]) -> Option<Result<(Conclusion, String), Ask>> {
        let facts = self.facts;
        if looks.iter().any(|l| l.ends == Ends::Loss) {
            return None;
        }
        let id = facts.history.id(base);
        let open: Vec<usize> = looks
            .iter()
            .filter(|l| l.ends == Ends::Open)
            .map(|l| l.machine)
            .collect();
        if !open.is_empty() {
            let wants = self.ask_ends(base, self.bad, &open);
            let reason = format!("good is no ancestor of bad: is their merge base {id} good?");
            return Some(Err(Ask {
                wants,
                reason,
                ..Ask::default()
            }));
        }
        if looks
            .iter()
            .any(|l| matches!(l.ends, Ends::Same | Ends::Small | Ends::Gain))
        {
            let mut conclusion = report::blank(Status::MergeBaseBad);
            let telling = report::telling(&self.looks);
            self.size_of_ends(telling, &mut conclusion);
            let reason = format!(
                "the merge base {id} is already as slow as the bad end: {} has an improvement that {} lacks",
                facts.history.good(),
                facts.history.bad()
            );
            conclusion.notes.push(reason.clone());
            conclusion.notes.push(format!(
                "the good end was improved by commits after {id}; there is no first bad commit"
            ));
            report::name_machines(facts, &self.looks, &mut conclusion);
            return Some(Ok((conclusion, reason)));
        }
        Some(Ok(self.end_of_ends(Status::Inconclusive)))
    }

    fn search(&mut self, low: u32) -> Result<(Conclusion, String), Ask> {
        let facts = self.facts;
        let usable = facts.usable();
        let (losses, rest): (Vec<Look>, Vec<Look>) = std::mem::take(&mut self.looks)
            .into_iter()
            .partition(|l| l.ends == Ends::Loss);
        if let Some(apart) = self.search_apart(low, &losses) {
            self.looks = losses.into_iter().chain(rest).collect();
            self.looks.sort_by_key(|l| l.machine);
            return apart;
        }
        let mut searcher = Searcher {
            facts,
            looks: &losses,
            active: None,
        };
        let mut result = searcher.search(low, self.bad, true, 0);
        self.active = searcher.active.take();
        let open: Vec<usize> = rest
            .iter()
            .filter(|l| l.ends == Ends::Open && usable.contains(&l.machine))
            .map(|l| l.machine)
            .collect();
        // No machine that shows the loss is left, but another one may learn its ends: the search moves there.
        let moving = !losses.iter().any(|l| usable.contains(&l.machine));
        if let Err(ask) = &mut result {
            ask.wants.extend(self.ask_ends(self.good, self.bad, &open));
            ask.wants.retain(|w| usable.contains(&w.machine));
            self.rate = ask.rate;
        }
        let total = report::telling(&losses)
            .and_then(|l| l.belief.as_ref())
            .map(|b| b.delta.0);
        self.looks = losses;
        self.looks.extend(rest);
        self.looks.sort_by_key(|l| l.machine);
        match result {
            Ok(found) => Ok(self.end_of_search(&found, total)),
            Err(ask) if ask.wants.is_empty() && facts.pending.is_empty() && moving && open.is_empty() => {
                Ok(self.stopped("no machine that shows the loss is left"))
            }
            Err(ask) => Err(ask),
        }
    }

    /// Each machine by itself, where they rule out each other's culprits.
    fn search_apart(&mut self, low: u32, losses: &[Look]) -> Option<Result<(Conclusion, String), Ask>> {
        if losses.len() < 2 {
            return None;
        }
        let span = self.facts.span(low, self.bad);
        let machines: Vec<usize> = losses.iter().map(|l| l.machine).collect();
        let belief = believe(self.facts, &span, &machines);
        if !disagree(&belief) {
            return None;
        }
        self.active = Some((span, belief));
        let usable = self.facts.usable();
        let mut result = search_each(self.facts, losses, low, self.bad);
        if let Err(ask) = &mut result {
            ask.wants.retain(|w| usable.contains(&w.machine));
            if ask.wants.is_empty() && self.facts.pending.is_empty() {
                return Some(Ok(self.stopped("a machine that shows the loss was lost")));
            }
        }
        Some(result)
    }

    fn end_of_search(&self, found: &[Found], total: Option<f64>) -> (Conclusion, String) {
        let mut conclusion = report::conclude(self.facts, &self.looks, found, total);
        if conclusion.status == Status::Inconclusive
            && !conclusion.notes.iter().any(|n| n.contains("more boots"))
        {
            conclusion
                .notes
                .push("no loss stands out where it was looked for: more boots tell nothing more".into());
        }
        let ids: Vec<&str> = conclusion.first_bad.iter().map(|c| c.as_str()).collect();
        let reason = match conclusion.status {
            Status::CulpritRange => format!("{} commits can't be told apart", conclusion.suspects.len()),
            Status::Inconclusive => "more boots tell nothing more".to_owned(),
            _ => format!("{} at probability {:.4}", ids.join(", "), conclusion.confidence),
        };
        (conclusion, reason)
    }

    /// Stopped before anything could be said: what is known.
    fn stopped(&self, why: &str) -> (Conclusion, String) {
        let (mut conclusion, _) = self.end_of_ends(Status::Inconclusive);
        conclusion.notes.insert(0, why.to_owned());
        if let Some((_, belief)) = &self.active {
            let (suspects, _) = report::suspects(self.facts, belief);
            let mut sum = 0.0;
            for suspect in suspects {
                if sum >= 0.95 {
                    break;
                }
                sum += suspect.probability;
                conclusion.suspects.push(suspect.commit);
            }
            conclusion.confidence = sum;
        }
        // Searching, the ends are told apart already: only the search's own number is of use then.
        let belief = self.active.as_ref().map(|a| &a.1);
        let more = |note: &String| note.contains("more boots");
        if belief.is_some() {
            conclusion.notes.retain(|n| !more(n));
            let left = report::remaining(self.facts, belief, self.rate, self.distance());
            conclusion.notes.push(more_boots(left.boots));
        }
        (conclusion, why.to_owned())
    }
}

fn more_boots(left: u32) -> String {
    format!("about {} more boots would be needed", left.max(1))
}
