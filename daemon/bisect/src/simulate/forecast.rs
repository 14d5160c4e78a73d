//! What a search will cost and how it will likely end, before it is submitted: a few hundred plays of it.

use super::lab::{Lab, play};
use super::tally::Tally;
use super::world::Setting;

/// Low, middle and high: the 10th, 50th and 90th of a hundred searches.
pub type Spread = (f64, f64, f64);

#[derive(Clone, Debug)]
pub struct Forecast {
    pub tally: Tally,
    pub kernels: Spread,
    pub boots: Spread,
    pub minutes: Spread,
    /// Share of searches that end with the commits that did it, all others named none or the wrong one.
    pub right: f64,
    pub wrong: f64,
}

/// Draws one world, plays it and counts how it ended.
pub fn one(setting: &Setting, seed: u64, tally: &mut Tally) {
    let mut world = setting.draw(seed);
    let mut lab = Lab::of(setting.machines);
    lab.builders = setting.builders;
    let history = world.shape.history();
    let played = play(&history, setting.policy(), &lab, &mut world);
    tally.add(seed, &world, setting.changes.len() > 1, &played);
}

impl Forecast {
    pub fn of(tally: Tally) -> Forecast {
        let spread = |values: &[f64]| {
            let at = |q| Tally::quantile(values, q);
            (at(0.1), at(0.5), at(0.9))
        };
        let share = |count: usize| count as f64 / tally.trials().max(1) as f64;
        Forecast {
            kernels: spread(&tally.kernels),
            boots: spread(&tally.boots),
            minutes: spread(&tally.minutes),
            right: share(tally.right),
            wrong: share(tally.wrong),
            tally,
        }
    }

    /// Never more certain than so many plays can show (Jeffreys' mean: 60 of 60 are 99.2 %).
    fn likely_right(&self) -> f64 {
        (self.tally.right as f64 + 0.5) / (self.tally.trials() as f64 + 1.0)
    }

    /// "about 14 kernels, 40 to 70 boots, 9 to 13 h; 98 % likely to end with one commit".
    pub fn sentence(&self, changes: usize) -> String {
        let end = match changes {
            0 => "to say that nothing changed",
            1 => "to end with one commit",
            _ => "to end with every commit that did it",
        };
        format!(
            "about {:.0} kernels, {} boots, {}; {} likely {end}",
            self.kernels.1,
            from_to(self.boots.0, self.boots.2, 1.0),
            duration(self.minutes.0, self.minutes.2),
            percent(self.likely_right()),
        )
    }
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        p if p > 99.5 => "over 99 %".to_owned(),
        p if p < 0.5 => "under 1 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

fn from_to(low: f64, high: f64, step: f64) -> String {
    let (low, high) = (libm::round(low / step) * step, libm::round(high / step) * step);
    if low == high {
        format!("{low}")
    } else {
        format!("{low} to {high}")
    }
}

fn duration(low_min: f64, high_min: f64) -> String {
    if high_min < 100.0 {
        format!("{} min", from_to(low_min, high_min, 1.0))
    } else if high_min < 600.0 {
        format!("{} h", from_to(low_min / 60.0, high_min / 60.0, 0.5))
    } else if high_min < 72.0 * 60.0 {
        format!("{} h", from_to(low_min / 60.0, high_min / 60.0, 1.0))
    } else {
        format!("{} days", from_to(low_min / 1440.0, high_min / 1440.0, 0.5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_reads_like_one() {
        let mut tally = Tally::default();
        for i in 0..100 {
            tally.kernels.push(14.0);
            tally.boots.push(40.0 + 0.3 * f64::from(i));
            tally.minutes.push(540.0 + 2.4 * f64::from(i));
        }
        (tally.right, tally.undecided) = (98, 2);
        assert_eq!(
            Forecast::of(tally).sentence(1),
            "about 14 kernels, 43 to 67 boots, 9 to 13 h; 98 % likely to end with one commit"
        );
    }
}
