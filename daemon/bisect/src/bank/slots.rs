//! Where the offsets of images and forks live in a filter's state: a slot is taken at the first boot that sees
//! the offset and given back at the last, so that the state stays as small as what is alive.

use super::{Row, Stands};

/// Where offsets of images and forks live while their boots last.
pub struct Slots {
    /// For each row the slot of its image, and of its fork if it has one.
    pub image: Vec<Slot>,
    pub fork: Vec<Option<Slot>>,
    pub count: usize,
}

/// An offset's place in the state, as one row uses it.
#[derive(Clone, Copy)]
pub struct Slot {
    pub index: usize,
    /// This row is the first that sees the offset, or the last.
    pub opens: bool,
    pub closes: bool,
}

pub fn slots(rows: &[Row]) -> Slots {
    let mut taken: Vec<Option<usize>> = Vec::new();
    let mut image = Vec::with_capacity(rows.len());
    let mut fork = vec![None; rows.len()];
    let last_image = |key: usize| rows.iter().rposition(|r| r.image == key);
    let fork_of = |row: &Row| match row.stands {
        Stands::On { fork, .. } => fork,
        Stands::Off => None,
    };
    let last_fork = |key: usize| rows.iter().rposition(|r| fork_of(r) == Some(key));
    let mut live: Vec<(bool, usize, usize, usize)> = Vec::new(); // is fork, key, slot, last row
    for (i, row) in rows.iter().enumerate() {
        live.retain(|l| {
            let ends = l.3 < i;
            if ends {
                taken[l.2] = None;
            }
            !ends
        });
        let mut place = |is_fork: bool, key: usize, last: usize| -> Slot {
            if let Some(l) = live.iter().find(|l| l.0 == is_fork && l.1 == key) {
                return Slot {
                    index: l.2,
                    opens: false,
                    closes: last == i,
                };
            }
            let slot = taken.iter().position(Option::is_none).unwrap_or_else(|| {
                taken.push(None);
                taken.len() - 1
            });
            taken[slot] = Some(key);
            live.push((is_fork, key, slot, last));
            Slot {
                index: slot,
                opens: true,
                closes: last == i,
            }
        };
        image.push(place(false, row.image, last_image(row.image).unwrap_or(i)));
        if let Some(key) = fork_of(row) {
            fork[i] = Some(place(true, key, last_fork(key).unwrap_or(i)));
        }
    }
    Slots {
        image,
        fork,
        count: taken.len(),
    }
}
