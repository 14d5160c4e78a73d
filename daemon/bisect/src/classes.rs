//! Candidates that the measured kernels cannot tell apart form a class; class 0 is 'no change', without members.
//!
//! The classes are numbered by their first members, whatever the order in which kernels were measured.

use crate::span::Span;
use fixedbitset::FixedBitSet;

pub struct Classes {
    /// By place; 0 for what is no candidate.
    of: Vec<u32>,
    /// Places, rising.
    members: Vec<Vec<u32>>,
}

impl Classes {
    /// All candidates in one class.
    pub fn new(span: &Span, places: usize) -> Classes {
        let members: Vec<u32> = span.candidates.ones().map(|p| p as u32).collect();
        let mut of = vec![0; places];
        members.iter().for_each(|&p| of[p as usize] = 1);
        Classes {
            of,
            members: vec![Vec::new(), members],
        }
    }

    /// Cut by one more kernel, which contains `above`.
    pub fn refined(&self, span: &Span, above: &FixedBitSet) -> Classes {
        let mut renamed = vec![[0u32; 2]; self.members.len()];
        let mut of = vec![0; self.of.len()];
        let mut members = vec![Vec::new()];
        for place in span.candidates.ones() {
            let name = &mut renamed[self.of[place] as usize][usize::from(above.contains(place))];
            if *name == 0 {
                *name = members.len() as u32;
                members.push(Vec::new());
            }
            of[place] = *name;
            members[*name as usize].push(place as u32);
        }
        Classes { of, members }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn members(&self, class: usize) -> &[u32] {
        &self.members[class]
    }
}
