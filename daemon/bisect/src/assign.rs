//! Who does what: which bisection is granted a free machine.

/// A bisection that wants a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim<Id> {
    pub id: Id,
    /// Higher goes first.
    pub priority: i32,
    /// Seconds since this bisection last got the machine (or since it was submitted).
    pub waited_s: f64,
}

/// Seconds of waiting that weigh as much as one step of priority: so that nobody starves.
pub const AGEING_S_PER_PRIORITY: f64 = 3600.0;

/// The claim to grant, or `None` where nobody claims. Ties go to the smallest id.
pub fn grant<Id: Ord + Clone>(claims: &[Claim<Id>]) -> Option<Id> {
    let weight = |c: &Claim<Id>| f64::from(c.priority) + c.waited_s.max(0.0) / AGEING_S_PER_PRIORITY;
    claims
        .iter()
        .max_by(|a, b| weight(a).total_cmp(&weight(b)).then_with(|| b.id.cmp(&a.id)))
        .map(|c| c.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_goes_first_until_waiting_outweighs_it() {
        let claim = |id, priority, waited_s| Claim {
            id,
            priority,
            waited_s,
        };
        assert_eq!(grant(&[claim(1, 0, 10.0), claim(2, 1, 0.0)]), Some(2));
        assert_eq!(
            grant(&[claim(1, 0, 2.0 * AGEING_S_PER_PRIORITY), claim(2, 1, 0.0)]),
            Some(1)
        );
        assert_eq!(grant(&[claim(2, 0, 0.0), claim(1, 0, 0.0)]), Some(1));
        assert_eq!(grant::<u8>(&[]), None);
    }
}
