//! From what is wanted to the plan: within the limits, on free machines, with builds ahead and all that is shown.

use super::*;

impl Mind<'_> {
    /// How many boot standard deviations the ends are apart.
    pub(super) fn distance(&self) -> f64 {
        let belief = report::telling(&self.looks).and_then(|l| l.belief.as_ref());
        belief.map_or(2.0, |b| b.delta.0.abs() / b.boot_sd().max(1e-9))
    }

    pub(super) fn first_midpoints(&self) -> Vec<u32> {
        let builders = self.facts.record.builders as usize;
        if builders == 0 {
            return Vec::new();
        }
        let span = self.facts.span(self.good, self.bad);
        let belief = believe(self.facts, &span, &[]);
        Chooser::new(self.facts, &span, &belief).ahead(self.bad, builders)
    }

    /// Boots that may still be asked for: those under way are as good as spent.
    pub(super) fn boots_left(&self) -> u32 {
        let most = self.facts.record.policy.limits.boots.unwrap_or(MOST_BOOTS);
        let under_way = self.facts.pending.len() as u32;
        most.saturating_sub(self.facts.boots_spent.saturating_add(under_way))
    }

    pub(super) fn over_limit(&self) -> Option<String> {
        let limits = &self.facts.record.policy.limits;
        let most = limits.boots.unwrap_or(MOST_BOOTS);
        if self.boots_left() == 0 {
            return Some(format!("the limit of {most} boots is reached"));
        }
        let now = self.facts.record.now_s;
        limits
            .time_s
            .filter(|t| now >= *t)
            .map(|t| format!("the limit of {t} seconds is reached"))
    }

    pub(super) fn go_on(&mut self, ask: Ask) -> Plan {
        if let Some(why) = self.over_limit() {
            if self.facts.pending.is_empty() {
                let (conclusion, reason) = self.stopped(&why);
                return self.conclude(conclusion, &reason);
            }
            return self.show(Step::Wait, Vec::new(), why);
        }
        let mut jobs: Vec<Job> = Vec::new();
        let left = self.boots_left();
        for want in ask.wants {
            if jobs.len() as u32 >= left {
                break;
            }
            let from = want.of.saturating_mul(CONFIRM);
            let replicate = self.facts.next_replicate(&want.kernel, want.machine, from);
            if want.of == 0 && replicate >= MOST_REPLICATES {
                continue;
            }
            let machine = self.facts.machines[want.machine].id.clone();
            if jobs.iter().all(|j| j.machine != machine) {
                jobs.push(Job {
                    kernel: want.kernel,
                    machine,
                    replicate,
                    runs: want.runs.clamp(1, 1000),
                });
            }
        }
        let step = if jobs.is_empty() {
            Step::Wait
        } else {
            Step::Run(jobs)
        };
        let history = self.facts.history;
        let ahead = ask
            .ahead
            .into_iter()
            .map(|p| Kernel::plain(history.id(p).clone()));
        let asked = |k: &Kernel| match &step {
            Step::Run(jobs) => jobs.iter().any(|j| j.kernel == *k),
            Step::Wait | Step::Conclude(_) => false,
        };
        let ahead = ahead.filter(|k| !asked(k)).collect();
        self.show(step, ahead, ask.reason)
    }

    pub(super) fn conclude(&mut self, conclusion: Conclusion, reason: &str) -> Plan {
        self.show(Step::Conclude(conclusion), Vec::new(), reason.to_owned())
    }

    fn show(&mut self, step: Step, build_ahead: Vec<Kernel>, reason: String) -> Plan {
        let facts = self.facts;
        if self.active.is_none() && !facts.history.is_empty() {
            let span = facts.span(self.good, self.bad);
            let machines: Vec<usize> = self.looks.iter().map(|l| l.machine).collect();
            let belief = believe(facts, &span, &machines);
            self.active = Some((span, belief));
        }
        let belief = self.active.as_ref().map(|a| &a.1);
        let telling = report::telling(&self.looks);
        let on = belief.and_then(|b| telling.and_then(|l| b.on(l.machine)));
        let on = on.or_else(|| telling.and_then(|l| l.belief.as_ref()));
        let (suspects, suspects_left) = belief.map(|b| report::suspects(facts, b)).unwrap_or_default();
        let ends_differ = self.looks.iter().any(|l| l.ends == Ends::Loss);
        let done = matches!(step, Step::Conclude(_));
        let remaining = report::remaining(facts, belief, self.rate, self.distance());
        Plan {
            step,
            build_ahead,
            suspects,
            suspects_left,
            p_no_change: belief.map_or(1.0, Belief::p_no_change),
            verdicts: report::verdicts(facts, belief, ends_differ),
            effect: report::effect(facts, telling),
            good_level: report::level(facts, self.good, telling),
            bad_level: report::level(facts, self.bad, telling),
            noise: report::noise(facts, on),
            min_detectable_pct: telling
                .and_then(Look::detectable)
                .map(|d| facts.scale.shown_size(d)),
            others: report::others(facts),
            remaining: if done { Default::default() } else { remaining },
            reason,
        }
    }
}
