//! What `perfbisect simulate` prints: text for people, JSON for programs.

use super::Reasons;
use bisect::simulate::{Forecast, Setting, Tally, exact95};
use serde_json::{Value, json};

type Played = (String, Tally, Reasons);

fn percent(hits: usize, trials: usize) -> String {
    let (low, high) = exact95(hits, trials);
    let share = 100.0 * hits as f64 / trials.max(1) as f64;
    format!(
        "{share:5.1} %   (95 % interval {:.1} to {:.1})",
        100.0 * low,
        100.0 * high
    )
}

fn duration(minutes: f64) -> String {
    match minutes {
        m if m < 10.0 => format!("{m:.1} min"),
        m if m < 120.0 => format!("{m:.0} min"),
        m if m < 48.0 * 60.0 => format!("{:.1} h", m / 60.0),
        m => format!("{:.1} days", m / 1440.0),
    }
}

fn endings(tally: &Tally) -> String {
    let one = |(status, count): (&&str, &usize)| format!("{status} {count}");
    tally.statuses.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub fn range(setting: &Setting, forecast: &Forecast, seed: u64, least_min: Option<f64>) {
    let tally = &forecast.tally;
    let trials = tally.trials();
    println!("{}", forecast.sentence(setting.changes.len()));
    println!();
    println!("right      {}", percent(tally.right, trials));
    println!("wrong      {}", percent(tally.wrong, trials));
    println!("undecided  {}", percent(tally.undecided, trials));
    if let Some((claimed, actual)) = tally.claimed_and_actual() {
        println!(
            "claimed    {:5.1} % on average where a commit was named; {:.1} % of these were right",
            100.0 * claimed,
            100.0 * actual
        );
    }
    let spread = |(low, middle, high): (f64, f64, f64), say: &dyn Fn(f64) -> String| {
        format!(
            "{} (8 of 10 searches: {} to {})",
            say(middle),
            say(low),
            say(high)
        )
    };
    let whole = |x: f64| format!("{x:.0}");
    println!("kernels    {}", spread(forecast.kernels, &whole));
    println!("boots      {}", spread(forecast.boots, &whole));
    println!("time       {}", spread(forecast.minutes, &duration));
    if let Some(least) = least_min {
        println!(
            "           no search could take less than {} (information bound and ends)",
            duration(least)
        );
    }
    println!("endings    {}", endings(tally));
    println!("{trials} plays, seeds from {seed}");
}

fn tally_json(tally: &Tally) -> Value {
    let trials = tally.trials();
    let share = |hits: usize| {
        let (low, high) = exact95(hits, trials);
        json!({ "count": hits, "share": hits as f64 / trials.max(1) as f64, "ci95": [low, high] })
    };
    let spread = |values: &[f64], factor: f64| {
        let at = |q| factor * Tally::quantile(values, q);
        json!({ "p10": at(0.1), "p50": at(0.5), "p90": at(0.9) })
    };
    let claims = tally.claimed_and_actual();
    json!({
        "trials": trials,
        "right": share(tally.right), "wrong": share(tally.wrong), "undecided": share(tally.undecided),
        "claimed": claims.map(|c| c.0), "actual": claims.map(|c| c.1),
        "kernels": spread(&tally.kernels, 1.0), "boots": spread(&tally.boots, 1.0),
        "time_s": spread(&tally.minutes, 60.0),
        "endings": tally.statuses,
        "wrong_seeds": tally.wrong_seeds,
    })
}

pub fn range_json(setting: &Setting, forecast: &Forecast, seed: u64, least_min: Option<f64>) {
    let mut object = tally_json(&forecast.tally);
    object["seed"] = json!(seed);
    object["summary"] = json!(forecast.sentence(setting.changes.len()));
    object["bound_s"] = json!(least_min.map(|m| 60.0 * m));
    println!("{object}");
}

pub fn scenario_line(name: &str, tally: &Tally, why: &Reasons) {
    let at = |values: &[f64], q| Tally::quantile(values, q);
    println!(
        "{name:40} right {:3} wrong {:3} undecided {:3} | {:3.0} kernels {:4.0} boots {:>8} (9 of 10: {})",
        tally.right,
        tally.wrong,
        tally.undecided,
        at(&tally.kernels, 0.5),
        at(&tally.boots, 0.5),
        duration(at(&tally.minutes, 0.5)),
        duration(at(&tally.minutes, 0.9)),
    );
    let mut why: Vec<_> = why.iter().collect();
    why.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    for (reason, count) in why.into_iter().take(3) {
        println!("    {count} x {reason}");
    }
}

pub fn scenarios_sum(lines: &[Played]) {
    let sum = |of: fn(&Tally) -> usize| lines.iter().map(|(_, tally, _)| of(tally)).sum::<usize>();
    let trials = sum(Tally::trials);
    println!("{} scenarios, {trials} plays", lines.len());
    println!("right      {}", percent(sum(|t| t.right), trials));
    println!("wrong      {}", percent(sum(|t| t.wrong), trials));
    println!("undecided  {}", percent(sum(|t| t.undecided), trials));
}

pub fn scenarios_json(lines: &[Played]) {
    let one = |(name, tally, why): &Played| {
        let mut object = tally_json(tally);
        object["name"] = json!(name);
        object["reasons"] = json!(why);
        object
    };
    println!(
        "{}",
        json!({ "scenarios": lines.iter().map(one).collect::<Vec<_>>() })
    );
}
