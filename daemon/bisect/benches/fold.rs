//! What the mind costs: CPU of a boot folded in, of a whole search, and time and memory on a huge range.
//!
//! `cargo bench -p bisect`; `SEARCHES=200` for more of them. Times are CPU of this thread where the system tells
//! them (`/proc/thread-self/schedstat`), else wall clock.

use bisect::simulate::{Dice, Lab, Noise, Setting, Shape, play_with};
use bisect::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn main() {
    let searches = number("SEARCHES", 40);
    println!("seeds 1..={searches}, a loss of 5 %, 2 % noise a run\n");
    println!(
        "{:32} {:>7} {:>12} {:>14} {:>12} {:>12} {:>15}",
        "range and noise",
        "boots",
        "ms a search",
        "ms a boot",
        "worst plan",
        "from scratch",
        "updates a boot"
    );
    let [gauss, boot] = ["gauss", "boot"].map(|n| Noise::named(n, 0.02).expect("a model"));
    for (name, commits, noise) in [
        ("1,024 commits, runs only", 1024, gauss),
        ("1,024 commits, boots too", 1024, boot),
        ("16,384 commits, runs only", 16_384, gauss),
        ("16,384 commits, boots too", 16_384, boot),
    ] {
        search(name, commits, noise, searches);
    }
    println!();
    huge(250_000);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

fn search(name: &str, commits: usize, noise: Noise, searches: u64) {
    let (mut boots, mut spent, mut worst, mut scratch) = (0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut updates, mut right, mut kernels, mut plans, mut minutes) = (0, 0, 0, 0, 0.0);
    for seed in 1..=searches {
        let setting = Setting::new(commits, noise);
        let mut world = setting.draw(seed);
        let history = world.shape.history();
        let mut planner = Planner::new();
        let played = play_with(setting.policy(), &Lab::of(1), &mut world, &mut |record| {
            let begun = cpu();
            let plan = planner.plan(&history, record);
            let took = cpu() - begun;
            (spent, worst) = (spent + took, worst.max(took));
            plan
        });
        let conclusion = played.conclusion.as_ref().expect("every search ends");
        right += u64::from(conclusion.first_bad == [Shape::name(world.losses()[0])]);
        (kernels, plans) = (kernels + played.kernels, plans + played.plans);
        minutes += played.minutes();
        boots += played.boots();
        updates += planner.updates();
        let begun = cpu();
        std::hint::black_box(plan(&history, &played.record));
        scratch += cpu() - begun;
    }
    let ms = |d: Duration| 1000.0 * d.as_secs_f64();
    println!(
        "{name}: {right} of {searches} right, {:.1} kernels, {:.1} plans and {:.0} minutes a search",
        kernels as f64 / searches as f64,
        plans as f64 / searches as f64,
        minutes / searches as f64,
    );
    println!(
        "{:32} {:7.0} {:12.2} {:14.3} {:12.2} {:12.2} {:15.0}",
        "",
        boots as f64 / searches as f64,
        ms(spent) / searches as f64,
        ms(spent) / boots as f64,
        ms(worst),
        ms(scratch) / searches as f64,
        updates as f64 / boots as f64,
    );
}

/// A range like a kernel's: a main line of merges, topic branches, some merged across.
fn huge(commits: usize) {
    let before = resident_mb();
    let begun = cpu();
    let history = Shape::kernel_like(commits, 0, &mut Dice::new(3)).history();
    println!(
        "{commits} commits, {} merges: read in {:.0} ms, {:.0} MB",
        history.commits().iter().filter(|c| c.parents.len() > 1).count(),
        1000.0 * (cpu() - begun).as_secs_f64(),
        resident_mb() - before,
    );
    let setting = Setting::new(64, Noise::default());
    let mut record = Record {
        policy: setting.policy(),
        machines: vec![Machine {
            id: MachineId::new("m1"),
            busy: false,
        }],
        builders: 2,
        now_s: 4000.0,
        images: Vec::new(),
        observations: Vec::new(),
        pending: Vec::new(),
        overrides: Vec::new(),
    };
    let mut dice = Dice::new(7);
    for i in 0..8u32 {
        let bad = matches!(i % 4, 1 | 2);
        let end = if bad { history.bad() } else { history.good() };
        let y = 7.0 + if bad { -0.0513 } else { 0.0 };
        let values = (0..3)
            .map(|_| Value::Exact((y + 0.01 * dice.normal()).exp()))
            .collect();
        record.observations.push(Observation {
            kernel: Kernel::plain(end.clone()),
            machine: MachineId::new("m1"),
            replicate: i,
            at_s: f64::from(i) * 480.0,
            outcome: Outcome::Measured {
                values,
                others: BTreeMap::new(),
            },
        });
    }
    let mut planner = Planner::new();
    for what in ["first plan of a search", "again, nothing new"] {
        let begun = cpu();
        std::hint::black_box(planner.plan(&history, &record));
        println!(
            "{what}: {:.0} ms, {:.0} MB in all",
            1000.0 * (cpu() - begun).as_secs_f64(),
            resident_mb() - before
        );
    }
}

/// CPU time of this thread, as far as the system tells it; else the time since the first call.
fn cpu() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|t| t.split_whitespace().next()?.parse().ok());
    nanoseconds.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kb = line
        .and_then(|l| l.split_whitespace().nth(1))
        .and_then(|n| n.parse().ok());
    kb.unwrap_or(f64::NAN) / 1024.0
}
