//! The figures that the mind is measured by: `cargo run --release -p bisect --example mind -- --help`.

#[path = "../../coordinator/src/cli/simulate/many.rs"]
mod many;
#[path = "mind/rows.rs"]
mod rows;

use bisect::simulate::{Tally, bound, exact95, one};
use many::many;
use rows::{Row, Target};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Plays the mind in invented labs and prints how often it is right, wrong or undecided, what it claims, what it costs.

  --sweep        every noise model x line and DAG x 64, 1024 and 16384 commits, instead of the table of figures
  --trials N     trials a row (default 4000; 10000 where nothing changed)
  --seed S       seeds from S on (default: drawn from the clock, and printed)
  --rows WORDS   only rows whose name holds one of these words, divided by commas
  --threads N    default: as many as there are processors
  --show         print the seeds of worlds in which something wrong was said
";

struct Options {
    sweep: bool,
    trials: Option<usize>,
    seed: u64,
    rows: Vec<String>,
    threads: usize,
    show: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprint!("{why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let all = if options.sweep {
        rows::sweep()
    } else {
        rows::figures()
    };
    let wanted =
        |row: &Row| options.rows.is_empty() || options.rows.iter().any(|w| row.name.contains(w.as_str()));
    println!(
        "seed {}, {} threads; shares in per cent with exact 95 % intervals\n",
        options.seed, options.threads
    );
    println!("{}", rows::HEADER);
    let mut missed = 0;
    for row in all.into_iter().filter(wanted) {
        let trials = options.trials.unwrap_or(row.trials);
        let begun = Instant::now();
        let tally = many(trials, options.threads, |trial, tally| {
            one(&row.setting, options.seed.wrapping_add(trial), tally)
        });
        let reached = line(&row, &tally, begun.elapsed().as_secs_f64());
        missed += usize::from(!reached);
        if options.show && tally.wrong > 0 {
            println!("    wrong: {:?}", tally.wrong_seeds);
        }
    }
    println!("\n{missed} rows miss their target");
    ExitCode::SUCCESS
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options {
        sweep: false,
        trials: None,
        seed: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| d.as_nanos() as u64 % 1_000_000_000_000),
        rows: Vec::new(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        show: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{arg} {text}: {e}"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--sweep" => options.sweep = true,
            "--show" => options.show = true,
            "--trials" => options.trials = Some(number(value()?)?.max(1) as usize),
            "--seed" => options.seed = number(value()?)?,
            "--threads" => options.threads = number(value()?)?.clamp(1, 1024) as usize,
            "--rows" => options.rows = value()?.split(',').map(str::to_owned).collect(),
            _ => return Err(format!("{arg} is unknown")),
        }
    }
    Ok(Some(options))
}

fn share(hits: usize, trials: usize) -> String {
    let (low, high) = exact95(hits, trials);
    let of = 100.0 * hits as f64 / trials.max(1) as f64;
    format!("{of:5.1} ({:.2}-{:.2})", 100.0 * low, 100.0 * high)
}

/// Prints a row; whether its target is reached.
fn line(row: &Row, tally: &Tally, seconds: f64) -> bool {
    let trials = tally.trials();
    let at = |values: &[f64], q| Tally::quantile(values, q);
    let (p50, p90) = (at(&tally.minutes, 0.5), at(&tally.minutes, 0.9));
    let claims = tally.claimed_and_actual();
    let setting = &row.setting;
    let effect = setting.changes.iter().find_map(|c| match c {
        bisect::simulate::What::Level(step) => Some(*step),
        _ => None,
    });
    let reference = effect.map(|e| {
        bound::search_min(setting.commits, e, &setting.noise, &setting.costs)
            + bound::ends_min(&setting.costs)
    });
    let statuses: Vec<String> = tally.statuses.iter().map(|(s, n)| format!("{s} {n}")).collect();
    let reached = match row.target {
        Target::Right(least) => tally.right as f64 >= least * trials as f64,
        Target::Wrong(most) => tally.wrong as f64 <= most * trials as f64,
        Target::Calibrated(points) => claims.is_none_or(|(c, a)| (c - a).abs() <= points),
        Target::Cost(most) => reference.is_none_or(|r| p50 <= most * r),
        Target::Kernels(more) => {
            at(&tally.kernels, 0.5) <= libm::ceil(libm::log2(setting.commits as f64)) + more
        }
    };
    println!(
        "{:34} {:14} {:3} | {:20} | {:18} | {:20} | {:13} | {:5.0} {:5.0} {:6} {:5} | {:3.0} {:4.0} | {:5.0} ms | {}",
        row.name,
        row.target.word(),
        if reached { "yes" } else { "NO" },
        share(tally.right, trials),
        share(tally.wrong, trials),
        share(tally.undecided, trials),
        claims.map_or(String::new(), |(c, a)| format!("{c:.4} {a:.4}")),
        p50,
        p90,
        reference.map_or(String::new(), |r| format!("{r:.0}")),
        reference.map_or(String::new(), |r| format!("{:.2}", p50 / r)),
        at(&tally.kernels, 0.5),
        at(&tally.boots, 0.5),
        1000.0 * seconds / trials.max(1) as f64,
        statuses.join(", "),
    );
    reached
}
