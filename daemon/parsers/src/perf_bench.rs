//! `perf bench`, and the agent's micro benchmarks, which print the same form.
//!
//! | metric | unit | printed by |
//! |---|---|---|
//! | `perf_bench.time` | s | `Total time: x [sec]` |
//! | `perf_bench.usecs_per_op` | us/op | `x usecs/op` |
//! | `perf_bench.ops_per_s` | ops/s | `n ops/sec`; futex and epoll: `Averaged n operations/sec (+- p%)` |
//! | `perf_bench.spread` | % | that p |
//! | `perf_bench.wakeup`, `perf_bench.requeue` | ms | futex: `Wokeup 2 of 2 threads in x ms` |
//! | `perf_bench.mem.FUNCTION` | B/s | mem: per function, plain or in `GB/sec` (2^30) |
//!
//! Where one output holds several benchmarks (`perf bench sched all`), each has its own name in between:
//! `perf_bench.sched_pipe.time`. A bare number (`--format=simple`) is only read under a mem function.

use crate::{Metrics, Number, ParseError, malformed, number, put};

pub fn parse(stdout: &str) -> Result<Metrics, ParseError> {
    let several = stdout.lines().filter(|l| benchmark_of(l).is_some()).count() > 1;
    let mut metrics = Metrics::new();
    let mut prefix = "perf_bench".to_string();
    let mut function: Option<&str> = None;
    for (at, line) in stdout.lines().enumerate() {
        if let Some(benchmark) = benchmark_of(line) {
            function = None;
            if several {
                prefix = format!("perf_bench.{}", benchmark.replace('/', "_"));
            }
            continue;
        }
        if let Some(rest) = line.trim().strip_prefix("# function '") {
            function = rest.split('\'').next();
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let read = |word: &str| number(word).ok_or_else(|| malformed(at, line, "no plain number"));
        let (name, number) = match words.as_slice() {
            ["Total", "time:", value, "[sec]"] => ("time", Number::cost(read(value)?, "s")),
            ["Total", "time:", ..] => return Err(malformed(at, line, "the total time is not in [sec]")),
            [value, "usecs/op"] => ("usecs_per_op", Number::cost(read(value)?, "us/op")),
            [value, "ops/sec"] => ("ops_per_s", Number::rate(read(value)?, "ops/s")),
            ["Averaged", value, "operations/sec", rest @ ..] => {
                if let ["(+-", spread, ..] = rest {
                    let spread = spread.trim_end_matches(',').strip_suffix("%)").unwrap_or(spread);
                    put(
                        &mut metrics,
                        format!("{prefix}.spread"),
                        Number::cost(read(spread)?, "%"),
                    )?;
                }
                ("ops_per_s", Number::rate(read(value)?, "ops/s"))
            }
            ["Wokeup", _, "of", _, "threads", "in", value, "ms", ..] => {
                ("wakeup", Number::cost(read(value)?, "ms"))
            }
            ["Requeued", _, "of", _, "threads", "in", value, "ms", ..] => {
                ("requeue", Number::cost(read(value)?, "ms"))
            }
            rest => {
                if let Some(function) = function
                    && let Some(bytes_per_s) = memory_rate(rest)
                {
                    put(
                        &mut metrics,
                        format!("{prefix}.mem.{function}"),
                        Number::rate(bytes_per_s, "B/s"),
                    )?;
                }
                continue;
            }
        };
        put(&mut metrics, format!("{prefix}.{name}"), number)?;
    }
    if metrics.is_empty() {
        let looked_for =
            "`Total time: … [sec]`, `… usecs/op`, `… ops/sec`, `Averaged … operations/sec`".into();
        return Err(ParseError::NotFound { looked_for });
    }
    Ok(metrics)
}

/// `# Running 'sched/pipe' benchmark:`
fn benchmark_of(line: &str) -> Option<&str> {
    line.trim()
        .strip_prefix("# Running '")?
        .split_once("' benchmark")
        .map(|(name, _)| name)
}

/// The binary units are perf's own (`print_bps` divides by 1024).
fn memory_rate(words: &[&str]) -> Option<f64> {
    let scale = match words {
        [_] | [_, "B/sec"] => 1.0,
        [_, "KB/sec"] => 1024.0,
        [_, "MB/sec"] => 1024.0 * 1024.0,
        [_, "GB/sec"] => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    number(words.first()?).map(|value| value * scale)
}
