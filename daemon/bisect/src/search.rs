//! The search of one span, and of the spans it falls apart into.
//!
//! One change is looked for at a time. A kernel whose level fits neither end shows that there is more than one:
//! it becomes a pivot, and both halves are searched by themselves, all boots reused.

use crate::belief::{Belief, MachineBelief, believe};
use crate::confirm;
use crate::ends::{Look, MOST_BOOTS, next_end};
use crate::facts::Facts;
use crate::mass;
use crate::pivot::{self, Pivot};
use crate::scan::{Scanned, scan};
use crate::select::Chooser;
use crate::span::{Base, Span};
use crate::switch;
use crate::{Check, CheckResult, Checked, Kernel, LookFor};
use std::sync::Arc;

/// One boot that is wanted.
#[derive(Clone, Debug)]
pub struct Want {
    pub kernel: Kernel,
    pub machine: usize,
    pub runs: u32,
    /// 0: to choose; n: one of n boots that size an effect.
    pub of: u32,
}

/// What has to be measured before more can be said; nothing wanted means: wait.
#[derive(Debug, Default)]
pub struct Ask {
    pub wants: Vec<Want>,
    pub ahead: Vec<u32>,
    pub reason: String,
    /// Bits a second of the best choice, for the estimate of what is left.
    pub rate: Option<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Change {
    /// One commit, or a set that can't be told apart.
    pub members: Vec<u32>,
    pub probability: f64,
    pub effect: confirm::Size,
    /// What the search made of it: positive is a loss.
    pub loss: f64,
    pub low: u32,
    pub high: u32,
}

#[derive(Clone, Debug)]
pub enum Found {
    Change(Change),
    /// What is left can't be decided by more boots.
    Undecided {
        suspects: Vec<u32>,
        probability: f64,
    },
}

pub struct Searcher<'a> {
    pub facts: &'a Facts<'a>,
    /// Machines whose ends show the loss.
    pub looks: &'a [Look],
    /// The belief about the span that is searched now.
    pub active: Option<(Arc<Span>, Belief)>,
}

const DEPTH: u32 = 12;
const OFFSET: &str = "no other kernel lies between the two that differ, so the layout of one image might look the same: \
                      culprit and parent laid out anew would tell";
/// Probability of one commit from which its confirmation is measured, before the confidence asked for is reached.
const CONFIRM_FROM: f64 = 0.7;
/// Share of the boot's variance that drift may add before an end is measured again.
const DRIFT_SHARE: f64 = 0.25;

impl<'a> Searcher<'a> {
    pub fn ready(&self) -> Vec<usize> {
        self.looks.iter().map(|l| l.machine).collect()
    }

    pub fn look(&self, machine: usize) -> Option<&MachineBelief> {
        self.looks
            .iter()
            .find(|l| l.machine == machine)
            .and_then(|l| l.belief.as_ref())
    }

    /// Finds the change between `low` and `high`; `size_it`: with confirmation boots.
    pub fn search(&mut self, low: u32, high: u32, size_it: bool, depth: u32) -> Result<Vec<Found>, Ask> {
        let facts = self.facts;
        let span = facts.span(low, high);
        let belief = believe(facts, &span, &self.ready());
        if depth < DEPTH {
            match pivot::find(self, &span, &belief) {
                Some(Pivot::Split(x)) => return self.search_halves(low, x, high, size_it, depth),
                Some(Pivot::More(want)) => {
                    let reason = format!("{} fits neither end: once more, to be sure", want.kernel.commit);
                    let wants = vec![want];
                    self.active = Some((span, belief));
                    return Err(Ask {
                        wants,
                        reason,
                        ..Ask::default()
                    });
                }
                None => {}
            }
        }
        let confidence = facts.record.policy.confidence;
        let best = belief.best_class();
        let last = best.filter(|&k| {
            // One commit nearly located: the boots that size it also settle whether it is the one.
            let single = belief.members(k).len() == 1;
            let enough = if single && size_it {
                confidence.min(CONFIRM_FROM)
            } else {
                confidence
            };
            belief.probability[k] >= enough && is_final(facts, &span, &belief, k)
        });
        let mut result = match last {
            Some(class) => self.settle(&span, &belief, class, size_it),
            None => self.ask(&span, &belief),
        };
        if let (Ok(_), Some(class)) = (&result, last)
            && belief.probability[class] < confidence
        {
            result = self.ask(&span, &belief);
        }
        self.active = Some((span, belief));
        let mut found = result?;
        if facts.record.policy.look_for == LookFor::All && depth < DEPTH {
            found.extend(self.search_rest(&found, size_it, depth)?);
        }
        Ok(found)
    }

    fn search_halves(
        &mut self,
        low: u32,
        x: u32,
        high: u32,
        size_it: bool,
        depth: u32,
    ) -> Result<Vec<Found>, Ask> {
        let gap = |a, b| pivot::gap(self, a, b).map_or(0.0, |g| self.facts.scale.loss(g.difference));
        let mut halves = [(low, x, gap(low, x)), (x, high, gap(x, high))];
        halves.sort_by(|a, b| b.2.total_cmp(&a.2));
        let first_only = self.facts.record.policy.look_for == LookFor::First;
        let mut all = Vec::new();
        let mut main = None;
        for (i, (from, to, loss)) in halves.into_iter().enumerate() {
            // A second loss beside a first is reported as the rest; a gain is always looked for, since it hides loss.
            if i > 0 && loss > 0.0 && first_only {
                continue;
            }
            all.extend(match self.facts.record.policy.look_for {
                LookFor::First => self.search(from, to, size_it && loss > 0.0, depth + 1)?,
                LookFor::All => self.look_into(from, to, size_it, depth + 1)?,
            });
            main = main.or(self.active.take());
        }
        self.active = main;
        Ok(all)
    }

    /// With everything asked for: what lies before and behind a located loss may hold more.
    fn search_rest(&mut self, found: &[Found], size_it: bool, depth: u32) -> Result<Vec<Found>, Ask> {
        let mut more = Vec::new();
        for one in found {
            let Found::Change(change) = one else { continue };
            let [culprit] = change.members[..] else { continue };
            let parent = self.facts.history.parents(culprit).first().copied();
            let before = parent.filter(|&p| p != change.low && self.facts.skip_at(p).is_none());
            let rests = [
                before.map(|p| (change.low, p)),
                (culprit != change.high).then_some((culprit, change.high)),
            ];
            for (from, to) in rests.into_iter().flatten() {
                if self.facts.span(from, to).candidates.is_clear() {
                    continue;
                }
                let main = self.active.take();
                more.extend(self.look_into(from, to, size_it, depth + 1)?);
                self.active = main;
            }
        }
        Ok(more)
    }

    /// With everything asked for: one change is looked for where the ends of a stretch clearly differ; elsewhere for
    /// a kernel in it that differs from one of them.
    fn look_into(&mut self, from: u32, to: u32, size_it: bool, depth: u32) -> Result<Vec<Found>, Ask> {
        if depth >= DEPTH {
            return Ok(Vec::new());
        }
        let least = self.facts.scale.least;
        if let Some(gap) = pivot::gap(self, from, to).filter(|g| g.clear(least)) {
            let loss = self.facts.scale.loss(gap.difference) > 0.0;
            return self.search(from, to, size_it && loss, depth);
        }
        match scan(self, from, to) {
            Scanned::Alike => Ok(Vec::new()),
            Scanned::Look(ask) => Err(ask),
            Scanned::Split(x) => {
                let mut found = self.look_into(from, x, size_it, depth + 1)?;
                found.extend(self.look_into(x, to, size_it, depth + 1)?);
                Ok(found)
            }
        }
    }

    fn settle(&self, span: &Span, belief: &Belief, class: usize, size_it: bool) -> Result<Vec<Found>, Ask> {
        let members = belief.members(class);
        let switching =
            |m: &&MachineBelief| m.folded.switch > 0.5 && self.facts.usable().contains(&m.machine);
        let mut effect = match (&members[..], belief.machines.iter().find(switching)) {
            (&[culprit], Some(on)) => {
                let sized = confirm::from_belief(self, belief);
                match switch::confirm(self, on.machine, culprit, sized) {
                    Ok(sized) => sized,
                    Err(Some(ask)) => return Err(ask),
                    Err(None) => return Ok(vec![undecided(belief)]),
                }
            }
            (&[culprit], None) if size_it => confirm::confirm(self, belief, culprit)?,
            _ => confirm::from_belief(self, belief),
        };
        if size_it && belief.is_sole() && !effect.checks.iter().any(layout_passed) {
            effect.notes.push(OFFSET.to_owned());
        }
        let probability = belief.probability[class];
        Ok(vec![Found::Change(Change {
            members,
            probability,
            effect,
            loss: self
                .facts
                .scale
                .loss(confirm::from_belief(self, belief).difference),
            low: span.low,
            high: span.high,
        })])
    }

    fn ask(&self, span: &Span, belief: &Belief) -> Result<Vec<Found>, Ask> {
        let facts = self.facts;
        let chooser = Chooser::new(facts, span, belief);
        let mut under_way: Vec<u32> = facts
            .pending
            .iter()
            .filter(|p| facts.kernels[p.0].kernel.is_plain())
            .map(|p| facts.kernels[p.0].place)
            .collect();
        let mut ask = Ask::default();
        let mut exhausted = true;
        for &machine in &self.ready() {
            let Some(on) = belief.on(machine) else { continue };
            if !facts.machines[machine].free {
                exhausted = false;
                continue;
            }
            if let Some(end) = self.control(span, belief, on) {
                let runs = on.best_runs(facts);
                ask.wants.push(want(facts, end, machine, runs));
                note(
                    &mut ask.reason,
                    &format!(
                        "{} once more: the machine may have drifted",
                        facts.history.id(end)
                    ),
                );
                exhausted = false;
                continue;
            }
            let Some(choice) = chooser.best(on, &under_way) else {
                if let Some(end) = self.doubted(span, belief, on) {
                    let runs = on.best_runs(facts);
                    ask.wants.push(want(facts, end, machine, runs));
                    let id = facts.history.id(end);
                    note(
                        &mut ask.reason,
                        &format!("{id} once more: one suspect is left, but is there a loss at all?"),
                    );
                    exhausted = false;
                }
                continue;
            };
            exhausted = false;
            if let Some(end) = self.starved(span, belief, on, choice.boots) {
                let runs = 2 + facts.summaries.warm_up;
                ask.wants.push(want(facts, end, machine, runs));
                let id = facts.history.id(end);
                note(
                    &mut ask.reason,
                    &format!("{id} once more: its level is less sure than that of the kernel judged by it"),
                );
                continue;
            }
            ask.rate
                .get_or_insert((choice.bits / choice.seconds, choice.seconds));
            let fork = unmeasured_fork(facts, span, choice.place, machine);
            let place = fork.unwrap_or(choice.place);
            ask.wants.push(want(facts, place, machine, choice.runs));
            let d = on.delta.0.abs() / on.boot_sd().max(1e-9);
            note(&mut ask.reason, &describe(facts, &choice, fork, d));
            if ask.ahead.is_empty() {
                ask.ahead = chooser.ahead(choice.place, facts.record.builders as usize);
            }
            under_way.push(choice.place);
        }
        if exhausted && facts.pending.is_empty() {
            return Ok(vec![undecided(belief)]);
        }
        if ask.wants.is_empty() {
            ask.reason = "a boot is under way, or no machine is free".to_owned();
        }
        Err(ask)
    }

    /// An end to measure again, where nothing parts the suspects any more and only 'no change' keeps them from
    /// the confidence asked for.
    fn doubted(&self, span: &Span, belief: &Belief, on: &MachineBelief) -> Option<u32> {
        let facts = self.facts;
        let located = belief.best_class().map_or(0.0, |k| belief.probability[k]);
        let confidence = facts.record.policy.confidence;
        let end = next_end(facts, span.low, span.high, on.machine);
        let more = facts.boots_on(end, on.machine).len() < MOST_BOOTS && facts.skip_at(end).is_none();
        (located < confidence && located + belief.p_no_change() >= confidence && more).then_some(end)
    }

    /// An end to measure rather than a kernel that had `boots` already. A kernel is judged by where its mean lies about
    /// the middle of the two levels: the variance of that is `s^2 / n + s^2 / 4 n_low + s^2 / 4 n_high`, so past twice
    /// the boots of a level (Neyman's allocation) a boot of the level tells more. Boots of other kernels whose side is
    /// settled count for it, old ones less as the machine drifts: `s^2 / (s^2 + walk^2 age)`.
    fn starved(&self, span: &Span, belief: &Belief, on: &MachineBelief, boots: usize) -> Option<u32> {
        let facts = self.facts;
        let s2 = (on.boot_sd() * on.boot_sd()).max(1e-12);
        let (mut low, mut high) = (0.0, 0.0);
        for boot in facts.boots.iter().filter(|b| b.machine == on.machine) {
            let kernel = &facts.kernels[boot.kernel];
            let Some(bad) = side(span, belief, kernel.place).filter(|_| kernel.kernel.is_plain()) else {
                continue;
            };
            let hours = ((facts.record.now_s - boot.at_s) / 3600.0).max(0.0);
            *if bad { &mut high } else { &mut low } += s2 / (s2 + on.folded.walk2 * hours);
        }
        let (end, worth) = if low < high {
            (span.low, low)
        } else {
            (span.high, high)
        };
        (boots as f64 > 2.0 * worth && facts.skip_at(end).is_none()).then_some(end)
    }

    /// An end to measure again, where the machine's drift since the last decided kernel could matter.
    fn control(&self, span: &Span, belief: &Belief, on: &MachineBelief) -> Option<u32> {
        let facts = self.facts;
        let decided = |place: u32| side(span, belief, place).is_some();
        let mut latest = facts.boots.iter().rev().filter(|b| b.machine == on.machine);
        // The last boot was such a one: how long ago is no reason for another, or nothing else would ever come.
        let last = latest.next()?;
        if decided(facts.kernels[last.kernel].place) {
            return None;
        }
        let latest = latest
            .find(|b| decided(facts.kernels[b.kernel].place))
            .map_or(f64::NEG_INFINITY, |b| b.at_s);
        let hours = ((facts.record.now_s - latest) / 3600.0).max(0.0);
        let walked = on.folded.walk2 * hours;
        let end = next_end(facts, span.low, span.high, on.machine);
        (latest.is_finite() && walked > DRIFT_SHARE * on.folded.s2 && facts.skip_at(end).is_none())
            .then_some(end)
    }
}

/// Whether a kernel stands on the bad side, where that is as good as settled: it is an end, or the belief is sure of it.
fn side(span: &Span, belief: &Belief, place: u32) -> Option<bool> {
    if place == span.low || place == span.high {
        return Some(place == span.high);
    }
    match belief.p_bad(place)? {
        p if p < 0.02 => Some(false),
        p if p > 0.98 => Some(true),
        _ => None,
    }
}

pub fn want(facts: &Facts<'_>, place: u32, machine: usize, runs: u32) -> Want {
    Want {
        kernel: Kernel::plain(facts.history.id(place).clone()),
        machine,
        runs,
        of: 0,
    }
}

fn note(reason: &mut String, more: &str) {
    if !reason.is_empty() {
        reason.push_str("; ");
    }
    reason.push_str(more);
}

fn describe(facts: &Facts<'_>, choice: &crate::select::Choice, fork: Option<u32>, d: f64) -> String {
    let id = facts.history.id(choice.place);
    let distance = format!("good and bad are {d:.1} standard deviations of a boot apart");
    match (fork, choice.boots) {
        (Some(fork), _) => format!(
            "{id} is next; its branch began at {}, whose level is needed first",
            facts.history.id(fork)
        ),
        (None, 0) => format!(
            "{id} parts the suspects {:.0} : {:.0} at the least cost a bit; {distance}",
            100.0 * choice.share,
            100.0 * (1.0 - choice.share)
        ),
        (None, n) => format!(
            "{id} is not decided after {n} boots ({:.0} % bad): once more; {distance}",
            100.0 * choice.share
        ),
    }
}

fn unmeasured_fork(facts: &Facts<'_>, span: &Span, place: u32, machine: usize) -> Option<u32> {
    match span.base(place) {
        Base::Fork(fork) if facts.skip_at(fork).is_none() && facts.boots_on(fork, machine).is_empty() => {
            (facts.pending_at(fork, machine) == 0).then_some(fork)
        }
        _ => None,
    }
}

/// No testable kernel splits this class any more.
fn is_final(facts: &Facts<'_>, span: &Span, belief: &Belief, class: usize) -> bool {
    let members = belief.members(class);
    if members.len() <= 1 {
        return true;
    }
    let open = |place: u32| facts.skip_at(place).is_none() && belief.columns.iter().all(|c| c.0 != place);
    // Of two members one does not contain the other.
    if members.iter().filter(|&&p| open(p)).take(2).count() == 2 {
        return false;
    }
    let inside = mass::counts(facts.history, span, &members);
    let splits = |p: usize| (1..members.len() as u32).contains(&inside[p]) && open(p as u32);
    !span.candidates.ones().any(splits)
}

fn layout_passed(check: &Checked) -> bool {
    (check.check, check.result) == (Check::Layout, CheckResult::Passed)
}

fn undecided(belief: &Belief) -> Found {
    let mut ranked: Vec<(f64, u32)> = (0..)
        .zip(belief.masses())
        .map(|(p, mass)| (mass * (1.0 - belief.p_no_change()), p))
        .filter(|r| r.0 > 0.0)
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let (mut suspects, mut sum) = (Vec::new(), 0.0);
    for (probability, place) in ranked {
        if sum >= 0.95 {
            break;
        }
        sum += probability;
        suspects.push(place);
    }
    suspects.sort_unstable();
    Found::Undecided {
        suspects,
        probability: sum,
    }
}
