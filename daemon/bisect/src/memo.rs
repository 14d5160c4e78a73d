//! What was worked out for earlier plans and may serve again: ancestors, spans, priors, classes, folded boots.
//!
//! A memo is never truth. Each entry is found by everything that it was made from, so a plan made with a memo is
//! bit for bit the plan made without; a memo may be dropped at any time, and drops itself where it grows large.

use crate::bank::{Bank, Prior, Row, Settings};
use crate::classes::Classes;
use crate::span::Span;
use crate::{CommitId, History};
use fixedbitset::FixedBitSet;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries of a kind past which all are dropped.
const MOST: usize = 400;
const MOST_SPANS: usize = 60;

/// A span's ends, and whether they are a pair compared for themselves.
pub type SpanKey = (u32, u32, bool);

/// What a prior is made from, besides the history.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PriorKey {
    pub span: SpanKey,
    /// Places with the same binary.
    pub twins: Vec<(u32, u32)>,
    pub words: Vec<(u32, bool)>,
}

#[derive(Default)]
pub struct Memo {
    history: Option<(CommitId, CommitId, usize, u64)>,
    ancestors: HashMap<u32, Arc<FixedBitSet>>,
    spans: HashMap<SpanKey, Arc<Span>>,
    priors: HashMap<PriorKey, Arc<Prior>>,
    classes: HashMap<SpanKey, (Vec<u32>, Arc<Classes>)>,
    banks: HashMap<(SpanKey, usize), Bank>,
    /// Filter updates of all folds: the work done.
    pub updates: u64,
}

impl Memo {
    /// Forgets everything where this is another history than before.
    pub fn turn_to(&mut self, history: &History) {
        let key = (
            history.good().clone(),
            history.bad().clone(),
            history.len(),
            history.fingerprint(),
        );
        let small = self.spans.len() < MOST_SPANS && self.ancestors.len() < MOST && self.priors.len() < MOST;
        if self.history.as_ref() != Some(&key) || !small {
            *self = Memo {
                history: Some(key),
                updates: self.updates,
                ..Memo::default()
            };
        }
    }

    pub fn ancestors(&mut self, history: &History, place: u32) -> Arc<FixedBitSet> {
        let new = || Arc::new(history.ancestors(place));
        self.ancestors.entry(place).or_insert_with(new).clone()
    }

    pub fn span(&mut self, history: &History, low: u32, high: u32) -> Arc<Span> {
        let new = || Arc::new(Span::new(history, low, high));
        self.spans.entry((low, high, false)).or_insert_with(new).clone()
    }

    pub fn pair(&mut self, history: &History, low: u32, high: u32) -> Arc<Span> {
        let new = || Arc::new(Span::pair(history, low, high));
        self.spans.entry((low, high, true)).or_insert_with(new).clone()
    }

    pub fn prior(&mut self, key: PriorKey, new: impl FnOnce() -> Prior) -> Arc<Prior> {
        self.priors.entry(key).or_insert_with(|| Arc::new(new())).clone()
    }

    /// The classes that these columns (rising) cut the span's candidates into.
    pub fn classes(&mut self, history: &History, span: &Span, columns: &[u32]) -> Arc<Classes> {
        let known = self.classes.get(&span.key());
        let (mut done, mut classes) = match known {
            Some((done, classes)) if done.iter().all(|c| columns.contains(c)) => {
                (done.clone(), classes.clone())
            }
            _ => (Vec::new(), Arc::new(Classes::new(span, history.len()))),
        };
        for &column in columns {
            if !done.contains(&column) {
                done.push(column);
                if span.has(column) {
                    let above = self.ancestors(history, column);
                    classes = Arc::new(classes.refined(span, &above));
                }
            }
        }
        self.classes.insert(span.key(), (done, classes.clone()));
        classes
    }

    /// The bank with these rows folded in.
    pub fn bank(
        &mut self,
        history: &History,
        span: &Span,
        machine: usize,
        settings: Settings,
        prior: &Arc<Prior>,
        rows: &[Row],
    ) -> &mut Bank {
        let key = (span.key(), machine);
        let mut bank = match self.banks.remove(&key) {
            Some(bank) if bank.begins(&settings, prior, rows) => bank,
            _ => Bank::new(settings, prior.clone()),
        };
        let before = bank.updates();
        for row in &rows[bank.len()..] {
            let above = span.has(row.column).then(|| self.ancestors(history, row.column));
            bank.push(*row, span, above.as_deref());
        }
        self.updates += bank.updates() - before;
        self.banks.entry(key).insert_entry(bank).into_mut()
    }
}
