//! Histories of any shape, held against git's own answers.

use bisect::CommitId;
use coordinator::tree::TreeError;
use lab::git_repository::{Draft, Repository};
use lab::mirrored::Mirrored;
use std::collections::BTreeSet;

/// Small, quick and the same everywhere: which shapes of history are tried depends on the seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn tangle(count: usize, dice: &mut Dice) -> Vec<Draft> {
    (0..count)
        .map(|n| {
            let near = |dice: &mut Dice| n - 1 - dice.below(n.min(12));
            let mut parents = BTreeSet::new();
            if n > 0 {
                for _ in 0..1 + dice.below(5) / 3 + dice.below(9) / 8 {
                    parents.insert(near(dice));
                }
            }
            let mut parents: Vec<usize> = parents.into_iter().collect();
            if dice.below(2) == 0 {
                parents.reverse();
            }
            Draft::new(n, &parents)
        })
        .collect()
}

/// What the history must hold, by the words of its definition and git's own set operations.
fn expected(source: &Repository, good: &str, bad: &str) -> BTreeSet<String> {
    let not_good = format!("^{good}");
    let between = source.lines(&["rev-list", bad, &not_good]);
    let with_parents = source.git(&["rev-list", "--parents", bad, &not_good]);
    let forks: BTreeSet<&str> = with_parents
        .split_whitespace()
        .filter(|id| !between.contains(*id) && *id != good)
        .collect();
    let mut all = between.clone();
    all.insert(good.into());
    for fork in forks {
        all.insert(fork.into());
        all.extend(source.lines(&["rev-list", "--ancestry-path", good, &format!("^{fork}")]));
    }
    all
}

#[tokio::test]
async fn histories_are_what_git_says() {
    let mut with_forks = 0;
    for seed in 1..=8u64 {
        let mut dice = Dice(seed);
        let lab = Mirrored::new(&tangle(90, &mut dice)).await;
        lab.source.branch("main", 89);
        (0..90).for_each(|n| lab.source.branch(&format!("c{n}"), n));
        lab.trees.fetch("t").await.unwrap();
        for _ in 0..10 {
            let (good, bad) = (dice.below(80), 60 + dice.below(30));
            let (good, bad) = (lab.id(good), lab.id(bad));
            let history = match lab.trees.history("t", &good, &bad, false).await {
                Ok(history) => history,
                Err(TreeError::History(
                    bisect::HistoryError::EqualEnds | bisect::HistoryError::ReversedRange,
                )) => continue,
                Err(e) => panic!("seed {seed}: {e}"),
            };
            let listed: BTreeSet<String> = history.commits().iter().map(|c| c.id.to_string()).collect();
            let wanted = expected(&lab.source, good.as_str(), bad.as_str());
            assert_eq!(listed, wanted, "seed {seed}, {good}..{bad}");
            let range = [bad.as_str(), &format!("^{good}")].map(str::to_string);
            let count = |mode: &[&str]| {
                let args: Vec<&str> = ["rev-list", "--count"]
                    .iter()
                    .chain(mode)
                    .copied()
                    .chain(range.iter().map(String::as_str))
                    .collect();
                lab.source.git(&args).parse::<usize>().unwrap()
            };
            assert_eq!(history.candidates(), count(&[]), "seed {seed}, {good}..{bad}");
            with_forks += usize::from(wanted.len() > history.candidates() + 1);
            let chain = lab.trees.history("t", &good, &bad, true).await.unwrap();
            assert_eq!(
                chain.candidates(),
                count(&["--first-parent"]),
                "seed {seed}, first parents of {good}..{bad}"
            );
        }
    }
    assert!(
        with_forks > 20,
        "only {with_forks} histories had fork points: the test tries too little"
    );
}

#[tokio::test]
async fn both_merge_bases_of_a_criss_cross_are_found() {
    //  0 - 1 - 3 - 5
    //   \    X
    //     2 - 4 - 6
    let parents: [&[usize]; 7] = [&[], &[0], &[0], &[1, 2], &[2, 1], &[3], &[4]];
    let drafts: Vec<Draft> = parents
        .iter()
        .enumerate()
        .map(|(n, p)| Draft::new(n, p))
        .collect();
    let lab = Mirrored::new(&drafts).await;
    lab.source.branch("one", 5);
    lab.source.branch("two", 6);
    let bounds = lab.trees.check_range("t", "one", "two", false).await.unwrap();
    let bases: BTreeSet<CommitId> = bounds.merge_bases.into_iter().collect();
    assert_eq!(bases, BTreeSet::from([lab.id(1), lab.id(2)]));
    assert_eq!(bounds.commits, 2);
    let history = lab
        .trees
        .history("t", &bounds.good, &bounds.bad, false)
        .await
        .unwrap();
    assert_eq!(
        history.commits().len(),
        6,
        "all but the root, which is below both bases"
    );
    let again = lab
        .trees
        .history("t", &bounds.good, &bounds.bad, false)
        .await
        .unwrap();
    assert!(std::sync::Arc::ptr_eq(&history, &again), "read once, then kept");
}
