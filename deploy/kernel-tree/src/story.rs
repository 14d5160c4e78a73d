//! Draws a history from a seed: which commits come in which order, what lies on topic branches, where the harm is.
//!
//! A commit's tree is the base plus the edits of every commit it descends from, so a merge cannot conflict, and
//! whether a commit builds and boots follows from which edits it has.

use crate::edit::{self, Draft, Kind};
use crate::random::Random;
use crate::{Result, fail};
use std::collections::BTreeSet;

/// Per cent of a 64-byte pipe write and read that one round of a loss costs when instructions are counted: 5.8 to
/// 6.6 of some 1465, by where the loop stands. Measured with gcc 12 on 6.1.
const ROUND_PCT: f64 = 0.42;

/// Drawn losses stay clear of both ends of the 3 to 8 % that the quickstart promises.
const DRAWN_LOSS_PCT: (f64, f64) = (4.0, 7.0);

/// Innocent commits are drawn from more than are needed, so that seeds differ in more than their order.
const HARMLESS: usize = 38;
const TOPICS: usize = 4;

const AUTHORS: [(&str, &str); 9] = [
    ("Ada Lindqvist", "ada"),
    ("Bo Marchetti", "bo"),
    ("Chen Okafor", "chen"),
    ("Dana Whitfield", "dana"),
    ("Emil Sørensen", "emil"),
    ("Farida Nasser", "farida"),
    ("Goran Petrić", "goran"),
    ("Hana Yamada", "hana"),
    ("Ines Duarte", "ines"),
];

/// A commit to be: indices are places in [`Story::commits`], parents come first.
#[derive(Clone, PartialEq, Debug)]
pub struct Commit {
    pub parents: Vec<Option<usize>>, // None: the base
    pub author: (&'static str, &'static str),
    pub subject: String,
    pub body: String,
    /// Place in [`Story::drafts`]; merges have none.
    pub draft: Option<usize>,
    /// Drafts in its tree.
    pub has: BTreeSet<usize>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Story {
    pub seed: u64,
    pub rounds: u32,
    pub drafts: Vec<Draft>,
    pub commits: Vec<Commit>,
}

impl Story {
    /// `hangs`: with a commit that hangs, and its mend.
    pub fn draw(seed: u64, loss_pct: Option<f64>, hangs: bool) -> Result<Story> {
        let all = edit::drafts()?;
        // Most draws will do; those that hide the culprit next to kernels that cannot be measured are drawn again.
        for attempt in 0..1000 {
            let mut random = Random::new(seed.wrapping_add(attempt << 48));
            let drawn_pct = DRAWN_LOSS_PCT.0
                + (DRAWN_LOSS_PCT.1 - DRAWN_LOSS_PCT.0) * random.range(0, 1001) as f64 / 1000.0;
            let rounds = (loss_pct.unwrap_or(drawn_pct) / ROUND_PCT).round().max(1.0) as u32;
            let story = draw_once(&all, seed, rounds, hangs, &mut random);
            if story.is_searchable() {
                return Ok(story);
            }
        }
        fail(format!(
            "seed {seed}: no draw is searchable; history.txt has too much harm in it"
        ))
    }

    /// The culprit and its parents build and boot; the good end is the base, the bad end is whole again.
    fn is_searchable(&self) -> bool {
        let culprit = &self.commits[self.culprit()];
        let parents_run = culprit
            .parents
            .iter()
            .all(|p| p.is_none_or(|p| self.runs(&self.commits[p])));
        let ends = self.commits.last().is_some_and(|tip| self.runs(tip));
        let hidden = |kind| {
            self.commits
                .iter()
                .any(|c| self.draft_kind(c) == Some(kind) && self.runs(c))
        };
        ends && parents_run
            && self.runs(culprit)
            && !hidden(Kind::Break)
            && !hidden(Kind::Panic)
            && !hidden(Kind::Hang)
    }

    pub fn culprit(&self) -> usize {
        let place = self
            .commits
            .iter()
            .position(|c| self.draft_kind(c) == Some(Kind::Loss));
        place.expect("every draw has exactly one loss")
    }

    /// Whether a commit's tree builds and boots.
    pub fn runs(&self, commit: &Commit) -> bool {
        let has = |kind| commit.has.iter().any(|&d| self.drafts[d].kind == kind);
        [
            (Kind::Break, Kind::MendBreak),
            (Kind::Panic, Kind::MendPanic),
            (Kind::Hang, Kind::MendHang),
        ]
        .into_iter()
        .all(|(harm, mend)| !has(harm) || has(mend))
    }

    fn draft_kind(&self, commit: &Commit) -> Option<Kind> {
        commit.draft.map(|d| self.drafts[d].kind)
    }

    /// What the search is compared with, a line each: a word, then commits. `id` names a commit.
    pub fn truth(&self, id: impl Fn(usize) -> String) -> String {
        let of_kind = |kind| {
            let places = (0..self.commits.len()).filter(|&c| self.draft_kind(&self.commits[c]) == Some(kind));
            places.map(&id).collect::<Vec<_>>().join(" ")
        };
        let broken = (0..self.commits.len())
            .filter(|&c| !self.runs(&self.commits[c]))
            .map(&id);
        format!(
            "seed {}\nrounds {}\nfirst_bad {}\nbreaks {}\nmends_build {}\npanics {}\nhangs {}\nmends_boot {}\nsame_binary {}\n\
             does_not_run {}\n",
            self.seed,
            self.rounds,
            of_kind(Kind::Loss),
            of_kind(Kind::Break),
            of_kind(Kind::MendBreak),
            of_kind(Kind::Panic),
            of_kind(Kind::Hang),
            of_kind(Kind::MendPanic),
            of_kind(Kind::Comment),
            broken.collect::<Vec<_>>().join(" "),
        )
    }
}

fn draw_once(all: &[Draft], seed: u64, rounds: u32, hangs: bool, random: &mut Random) -> Story {
    let of = |kind: Kind| all.iter().filter(move |d| d.kind == kind).collect::<Vec<_>>();
    let one = |kind: Kind, random: &mut Random| (*random.pick(&of(kind))).clone();
    let mending = |kind: Kind, harm: &Draft| {
        let mend = of(kind).into_iter().find(|d| d.name == harm.name);
        mend.expect("history.txt pairs them, a test sees to it").clone()
    };

    // Comments stay in: at least one of them must lie where a search may meet it.
    let mut harmless: Vec<Draft> = [Kind::Innocent, Kind::Docs]
        .into_iter()
        .flat_map(of)
        .cloned()
        .collect();
    random.shuffle(&mut harmless);
    let comments = of(Kind::Comment);
    harmless.truncate(HARMLESS - comments.len());
    harmless.extend(comments.into_iter().cloned());
    random.shuffle(&mut harmless);

    let mut line: Vec<Draft> = harmless;
    line.insert(random.range(2, line.len() - 1), one(Kind::Loss, random));
    let mut harms = vec![(Kind::Break, Kind::MendBreak), (Kind::Panic, Kind::MendPanic)];
    harms.extend(hangs.then_some((Kind::Hang, Kind::MendHang)));
    for (kind, mend) in harms {
        let harm = one(kind, random);
        let at = random.range(1, line.len() - 5);
        let mended = at + random.range(2, 5);
        line.insert(mended, mending(mend, &harm));
        line.insert(at, harm);
    }
    branch(
        Story {
            seed,
            rounds,
            drafts: line,
            commits: Vec::new(),
        },
        random,
    )
}

/// Lays the drafts onto a main line and topic branches. The first topic forks from inside the broken range, so its
/// commits do not build before they meet the mending commit in their merge.
fn branch(mut story: Story, random: &mut Random) -> Story {
    let count = story.drafts.len();
    let place = |kind| {
        story
            .drafts
            .iter()
            .position(|d| d.kind == kind)
            .expect("every draw has one")
    };
    let (broken, mended) = (place(Kind::Break), place(Kind::MendBreak));

    // Which stretch of drafts each topic takes: three or four in a row, never a commit that harms or mends.
    let mut topic_of: Vec<Option<usize>> = vec![None; count];
    let plain = |d: &Draft| matches!(d.kind, Kind::Innocent | Kind::Comment | Kind::Docs | Kind::Loss);
    for topic in 0..TOPICS {
        for _ in 0..200 {
            let length = random.range(3, 5);
            let start = match topic {
                0 => mended + random.range(1, 4),
                _ => random.range(1, count - length - 1),
            };
            let stretch = start..(start + length).min(count);
            // A free place on either side keeps topics apart.
            let around = start.saturating_sub(1)..(stretch.end + 1).min(count);
            if stretch.end < count
                && around.into_iter().all(|d| topic_of[d].is_none())
                && stretch.clone().all(|d| plain(&story.drafts[d]))
                && (topic > 0 || stretch.clone().all(|d| story.drafts[d].kind != Kind::Loss))
            {
                stretch.for_each(|d| topic_of[d] = Some(topic));
                break;
            }
        }
    }

    let mut main: Option<usize> = None; // tip of the main line
    let mut main_at: Vec<Option<usize>> = Vec::new(); // the main line's tip before each draft
    let mut open: Option<(usize, usize)> = None; // (topic, its tip)
    let mut waiting = 0;
    for draft in 0..count {
        main_at.push(main);
        match topic_of[draft] {
            Some(topic) => {
                let fork = match open {
                    Some((_, tip)) => Some(tip),
                    None if topic == 0 => main_at[random.range(broken + 1, mended + 1)],
                    None => main_at[draft - random.range(0, draft.min(4))],
                };
                let tip = story.commit(vec![fork], Some(draft), random);
                open = Some((topic, tip));
                waiting = random.range(1, 3);
            }
            None => {
                main = Some(story.commit(vec![main], Some(draft), random));
                if let Some((topic, tip)) = open.take_if(|_| waiting <= 1 || draft + 2 >= count) {
                    let last = story
                        .drafts
                        .iter()
                        .zip(&topic_of)
                        .find(|(_, t)| **t == Some(topic));
                    let area = last.map_or("misc", |(d, _)| d.subject.split(':').next().unwrap_or("misc"));
                    let area = area.replace('/', "-").to_lowercase();
                    let merge = story.commit(vec![main, Some(tip)], None, random);
                    story.commits[merge].subject = format!("Merge branch '{area}-cleanups' into main");
                    main = Some(merge);
                }
                waiting = waiting.saturating_sub(1);
            }
        }
    }
    story
}

impl Story {
    fn commit(&mut self, parents: Vec<Option<usize>>, draft: Option<usize>, random: &mut Random) -> usize {
        let mut has: BTreeSet<usize> = parents
            .iter()
            .flatten()
            .flat_map(|&p| self.commits[p].has.iter().copied())
            .collect();
        has.extend(draft);
        let (subject, body) = draft.map_or_else(Default::default, |d| {
            (self.drafts[d].subject.clone(), self.drafts[d].body.clone())
        });
        self.commits.push(Commit {
            parents,
            author: *random.pick(&AUTHORS),
            subject,
            body,
            draft,
            has,
        });
        self.commits.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_gives_a_history_that_can_be_searched() {
        for seed in 0..300 {
            let story = Story::draw(seed, None, seed % 2 == 1).unwrap();
            let merges = story.commits.iter().filter(|c| c.parents.len() == 2).count();
            let losses = story
                .commits
                .iter()
                .filter(|c| story.draft_kind(c) == Some(Kind::Loss))
                .count();
            assert!(
                story.commits.len() - merges >= 40,
                "seed {seed}: {} commits",
                story.commits.len()
            );
            assert!(merges >= 2, "seed {seed}: {merges} merges");
            assert_eq!(losses, 1);
            let tip = story.commits.last().unwrap();
            assert_eq!(
                tip.has.len(),
                story.drafts.len(),
                "seed {seed}: something was never merged"
            );
            let (all, lost) = (
                0..story.drafts.len(),
                BTreeSet::from_iter(tip.has.iter().copied()),
            );
            assert!(all.into_iter().all(|d| lost.contains(&d)));
            // The first topic's commits do not build: they come from inside the broken range.
            let broken_side = story
                .commits
                .iter()
                .filter(|c| c.draft.is_some() && !story.runs(c))
                .count();
            assert!(
                broken_side >= 4,
                "seed {seed}: {broken_side} commits that do not run"
            );
        }
    }

    #[test]
    fn a_seed_is_a_history() {
        assert_eq!(
            Story::draw(7, None, true).unwrap(),
            Story::draw(7, None, true).unwrap()
        );
        let places: BTreeSet<usize> = (0..40)
            .map(|s| Story::draw(s, None, false).unwrap().culprit())
            .collect();
        assert!(places.len() > 15, "the culprit hardly moves: {places:?}");
    }
}
