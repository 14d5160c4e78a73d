//! The mass of every commit's ancestors at once, exactly, on graphs of hundreds of thousands of commits.
//!
//! A commit with one parent has its parent's mass and its own: only merges need unions of sets. So the graph is
//! contracted first (a commit whose only parent has no other child joins its parent's segment; edges then run from
//! the last commit of one segment to the first of another), and unions are taken over segments, 512 sources at a
//! time: one pass in topological order ORs the parents' bits, and what a word of 64 bits weighs is looked up by
//! bytes. Sources that carry next to nothing are left out: after a few measurements few are left.
//!
//! git counts the same numbers merge by merge (`bisect.c`, `count_distance`): merges x commits.

use fixedbitset::FixedBitSet;

const WORDS: usize = 8;
const SOURCES: usize = 64 * WORDS;
type Bits = [u64; WORDS];
/// Segments together lighter than this share of the whole carry nothing.
const NEGLIGIBLE: f64 = 1e-12;

/// A directed acyclic graph by places, parents before children.
#[derive(Clone, Debug, Default)]
pub struct Dag {
    start: Vec<u32>,
    parent: Vec<u32>,
}

impl Dag {
    /// `parents` lists, for each place in turn, places below it.
    pub fn new<P: IntoIterator<Item = u32>>(parents: impl IntoIterator<Item = P>) -> Dag {
        let mut dag = Dag {
            start: vec![0],
            parent: Vec::new(),
        };
        for own in parents {
            let place = dag.start.len() as u32 - 1;
            let begin = dag.parent.len();
            for p in own {
                if p < place && !dag.parent[begin..].contains(&p) {
                    dag.parent.push(p);
                }
            }
            dag.start.push(dag.parent.len() as u32);
        }
        dag
    }

    pub fn len(&self) -> usize {
        self.start.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn parents(&self, place: usize) -> &[u32] {
        &self.parent[self.start[place] as usize..self.start[place + 1] as usize]
    }
}

/// A graph contracted to its segments; weights may change, the graph stays.
#[derive(Clone, Debug)]
pub struct Segments {
    segment: Vec<u32>,
    edges: Dag,
    merges: FixedBitSet,
}

impl Segments {
    pub fn new(dag: &Dag) -> Segments {
        let mut children = vec![0u32; dag.len()];
        for &p in &dag.parent {
            children[p as usize] += 1;
        }
        let mut segment: Vec<u32> = Vec::with_capacity(dag.len());
        let mut edges = Dag::new(std::iter::empty::<Vec<u32>>());
        for place in 0..dag.len() {
            let own = match dag.parents(place) {
                [p] if children[*p as usize] == 1 => segment[*p as usize],
                parents => {
                    let number = edges.len() as u32;
                    edges.parent.extend(parents.iter().map(|p| segment[*p as usize]));
                    edges.start.push(edges.parent.len() as u32);
                    number
                }
            };
            segment.push(own);
        }
        let mut merges = FixedBitSet::with_capacity(edges.len());
        merges.extend((0..edges.len()).filter(|&s| edges.parents(s).len() > 1));
        Segments {
            segment,
            edges,
            merges,
        }
    }

    /// For each place the weight of it and all its ancestors. `weight` has an entry for each place.
    pub fn masses(&self, weight: &[f64]) -> Vec<f64> {
        let own = self.own(weight);
        let mut before = self.unions(&own);
        for s in 0..self.edges.len() {
            if let [p] = self.edges.parents(s) {
                before[s] = before[*p as usize] + own[*p as usize];
            }
        }
        let mut so_far = before;
        self.segment
            .iter()
            .zip(weight)
            .map(|(&s, w)| {
                so_far[s as usize] += w;
                so_far[s as usize]
            })
            .collect()
    }

    /// Words of 64 sources that [`Segments::masses`] handles where every commit weighs something.
    pub fn most_work(&self) -> usize {
        let last = self.last_merge();
        (0..last)
            .step_by(SOURCES)
            .map(|first| (last - first) * WORDS)
            .sum()
    }

    fn last_merge(&self) -> usize {
        self.merges.maximum().unwrap_or(0)
    }

    fn own(&self, weight: &[f64]) -> Vec<f64> {
        let mut own = vec![0.0; self.edges.len()];
        for (&s, w) in self.segment.iter().zip(weight) {
            own[s as usize] += w;
        }
        own
    }

    /// Segments that matter to some merge.
    fn sources(&self, own: &[f64]) -> Vec<u32> {
        let least = NEGLIGIBLE * own.iter().sum::<f64>() / own.len().max(1) as f64;
        let below = self.last_merge() as u32;
        (0..below).filter(|&s| own[s as usize] > least).collect()
    }

    /// For each merge the weight of what lies below it.
    fn unions(&self, own: &[f64]) -> Vec<f64> {
        let mut below = vec![0.0; own.len()];
        let last = self.last_merge();
        let sources = self.sources(own);
        let mut bits: Vec<Bits> = vec![[0; WORDS]; own.len()];
        for block in sources.chunks(SOURCES) {
            let table = Table::new(block, own);
            let first = block[0] as usize;
            let mut next = 0;
            for s in first..=last {
                let mut set = [0; WORDS];
                for &p in self.edges.parents(s).iter().filter(|p| **p as usize >= first) {
                    for (word, more) in set.iter_mut().zip(&bits[p as usize]) {
                        *word |= more;
                    }
                }
                if self.merges.contains(s) {
                    below[s] += table.weigh(&set);
                }
                if block.get(next) == Some(&(s as u32)) {
                    set[next / 64] |= 1 << (next % 64);
                    next += 1;
                }
                bits[s] = set;
            }
        }
        below
    }
}

/// What a set of one block's sources weighs.
struct Table {
    /// Per byte of a set and each value of it.
    bytes: Vec<[f64; 256]>,
    full: [(u64, f64); WORDS],
}

impl Table {
    fn new(block: &[u32], own: &[f64]) -> Table {
        let weight = |i: usize| block.get(i).map_or(0.0, |s| own[*s as usize]);
        let mut bytes = vec![[0.0; 256]; SOURCES / 8];
        for (byte, table) in bytes.iter_mut().enumerate() {
            for value in 1..256usize {
                let lowest = value.trailing_zeros() as usize;
                table[value] = table[value & (value - 1)] + weight(8 * byte + lowest);
            }
        }
        let mut full = [(0, 0.0); WORDS];
        for (word, full) in full.iter_mut().enumerate() {
            let used = block.len().saturating_sub(64 * word).min(64);
            full.0 = if used == 64 { u64::MAX } else { (1 << used) - 1 };
            full.1 = (8 * word..8 * word + 8).map(|b| bytes[b][255]).sum();
        }
        Table { bytes, full }
    }

    fn weigh(&self, set: &Bits) -> f64 {
        let mut sum = 0.0;
        for (word, &bits) in set.iter().enumerate() {
            if bits == 0 {
                continue;
            }
            if bits == self.full[word].0 {
                sum += self.full[word].1;
                continue;
            }
            for (byte, value) in bits.to_le_bytes().into_iter().enumerate() {
                sum += self.bytes[8 * word + byte][value as usize];
            }
        }
        sum
    }
}

/// Masses estimated from 256 systematic samples of the weights, carried through the graph as bits: within 1.7 % of
/// the whole on a history of 250,000 commits, and a split at 0.49 instead of 0.5 loses 0.0003 bit.
pub fn sampled(dag: &Dag, weight: &[f64]) -> Vec<f64> {
    const WORDS: usize = 4;
    let samples = 64 * WORDS;
    let total: f64 = weight.iter().sum();
    let mut bits = vec![[0u64; WORDS]; dag.len()];
    let mut mass = Vec::with_capacity(dag.len());
    let (mut sum, mut next) = (0.0, 0usize);
    for (place, w) in weight.iter().enumerate().take(dag.len()) {
        let mut own = [0u64; WORDS];
        for &p in dag.parents(place) {
            for (o, b) in own.iter_mut().zip(&bits[p as usize]) {
                *o |= b;
            }
        }
        sum += w;
        while next < samples && sum >= total * (next as f64 + 0.5) / samples as f64 {
            own[next / 64] |= 1 << (next % 64);
            next += 1;
        }
        bits[place] = own;
        let hit: u32 = own.iter().map(|w| w.count_ones()).sum();
        mass.push(total * f64::from(hit) / samples as f64);
    }
    mass
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Dice;

    /// Merges of two to five parents anywhere below, several roots, criss-crosses.
    fn random(places: usize, dice: &mut Dice) -> Dag {
        Dag::new((0..places).map(|place| {
            let many = match dice.below(10) {
                0 => 0,
                1..=5 => 1,
                6..=8 => 2,
                _ => 2 + dice.below(4),
            };
            let near = 1 + dice.below(12);
            (0..many)
                .filter_map(|_| place.checked_sub(1 + dice.below(near)))
                .map(|p| p as u32)
                .collect::<Vec<u32>>()
        }))
    }

    fn brute(dag: &Dag, weight: &[f64], place: usize) -> f64 {
        let mut seen = FixedBitSet::with_capacity(dag.len());
        let mut stack = vec![place];
        while let Some(at) = stack.pop() {
            if !seen.put(at) {
                stack.extend(dag.parents(at).iter().map(|p| *p as usize));
            }
        }
        seen.ones().map(|p| weight[p]).sum()
    }

    #[test]
    fn masses_are_those_of_counting_one_by_one() {
        let mut dice = Dice::new(11);
        for round in 0..60 {
            let dag = random(1 + dice.below(1500), &mut dice);
            let weight: Vec<f64> = (0..dag.len())
                .map(|_| {
                    if round % 2 == 0 {
                        1.0
                    } else {
                        dice.unit() * dice.unit()
                    }
                })
                .collect();
            let masses = Segments::new(&dag).masses(&weight);
            for place in (0..dag.len()).step_by(1 + round / 4) {
                let wanted = brute(&dag, &weight, place);
                let off = (masses[place] - wanted).abs();
                assert!(
                    off <= 1e-9 * wanted.max(1.0),
                    "{place}: {} for {wanted}",
                    masses[place]
                );
            }
        }
    }

    #[test]
    fn samples_are_near_the_masses() {
        let mut dice = Dice::new(12);
        let dag = random(5000, &mut dice);
        let weight: Vec<f64> = (0..dag.len()).map(|_| dice.unit()).collect();
        let total: f64 = weight.iter().sum();
        let exact = Segments::new(&dag).masses(&weight);
        for (estimate, mass) in sampled(&dag, &weight).iter().zip(exact) {
            assert!((estimate - mass).abs() < 0.03 * total, "{estimate} for {mass}");
        }
    }
}
