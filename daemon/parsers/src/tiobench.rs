//! `tiobench.pl` and `tiotest -T`.
//!
//! What is `seq_read`, `rand_read`, `seq_write` or `rand_write` below is written `OP`.
//!
//! | metric | unit | |
//! |---|---|---|
//! | `tiobench.OP.tN` | MB/s | with N threads; `.sSIZE.bBLOCK` follows where N alone does not tell rows apart |
//! | `tiobench.OP` | MB/s | where the block has one row only |
//! | `….cpu`, `….cpu_eff` | %, MB/s | more than 100 % is possible; the efficiency is rate over CPU share |
//! | `….lat_avg`, `….lat_max` | ms | |
//! | `….lat_over_2s`, `….lat_over_10s` | % | of requests |
//! | `tiotest.OP`, `tiotest.OP.cpu`, `tiotest.OP.lat_avg`, … | as above | `tiotest.total.lat_avg`, … for all |
//!
//! `tiobench.pl --numruns N` with N > 1 prints latencies and percentages that are sums over its runs, and
//! nothing in the output says so: workloads use `--numruns 1` and let perfbisect repeat.

use crate::{Metrics, Number, ParseError, malformed, number, put};
use std::collections::BTreeMap;

const BLOCKS: [(&str, &str); 4] = [
    ("Sequential Reads", "seq_read"),
    ("Random Reads", "rand_read"),
    ("Sequential Writes", "seq_write"),
    ("Random Writes", "rand_write"),
];

struct Row {
    size: String,
    block: String,
    threads: String,
    numbers: [f64; 7],
}

pub fn parse_tiobench(stdout: &str) -> Result<Metrics, ParseError> {
    let mut rows: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    let mut block = None;
    for (at, line) in stdout.lines().enumerate() {
        if let Some((_, op)) = BLOCKS.iter().find(|(heading, _)| *heading == line.trim()) {
            block = Some((*op, false));
            continue;
        }
        let Some((op, under_dashes)) = &mut block else {
            continue;
        };
        if line.starts_with("-----") {
            *under_dashes = true;
        } else if *under_dashes && !line.trim().is_empty() {
            rows.entry(*op).or_default().push(row(at, line)?);
        }
    }
    if rows.is_empty() {
        return Err(ParseError::NotFound {
            looked_for: "rows under `Sequential Reads`, `Random Writes`, …".into(),
        });
    }
    let mut metrics = Metrics::new();
    for (op, rows) in &rows {
        if let [only] = rows.as_slice() {
            put_row(&mut metrics, &format!("tiobench.{op}"), only)?;
        }
        for row in rows {
            let alone = rows.iter().filter(|r| r.threads == row.threads).count() == 1;
            let short = format!("tiobench.{op}.t{}", row.threads);
            let name = if alone {
                short
            } else {
                format!("{short}.s{}.b{}", row.size, row.block)
            };
            put_row(&mut metrics, &name, row)?;
        }
    }
    Ok(metrics)
}

/// By fields from the right, since the identifier may hold anything, spaces too:
/// `identifier size blk thr rate cpu% avglat maxlat lat>2s% lat>10s% cpueff`.
fn row(at: usize, line: &str) -> Result<Row, ParseError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let fields = words.len().checked_sub(10).map(|cut| &words[cut..]);
    let Some(
        [
            size,
            block,
            threads,
            rate,
            cpu,
            average,
            maximum,
            over_2s,
            over_10s,
            efficiency,
        ],
    ) = fields
    else {
        return Err(malformed(at, line, "a row has at least 10 fields"));
    };
    if words.len() == 10 {
        return Err(malformed(
            at,
            line,
            "the identifier is missing: no telling which column is which",
        ));
    }
    let whole = |w: &&str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_digit());
    if ![size, block, threads].into_iter().all(whole) {
        return Err(malformed(
            at,
            line,
            "size, block and threads are not whole numbers",
        ));
    }
    let cpu = cpu
        .strip_suffix('%')
        .ok_or_else(|| malformed(at, line, "the CPU column is no percentage"))?;
    let mut numbers = [0.0; 7];
    for (slot, word) in numbers
        .iter_mut()
        .zip([*rate, cpu, average, maximum, over_2s, over_10s, efficiency])
    {
        *slot = number(word).ok_or_else(|| malformed(at, line, format!("`{word}` is no number")))?;
    }
    Ok(Row {
        size: (*size).into(),
        block: (*block).into(),
        threads: (*threads).into(),
        numbers,
    })
}

fn put_row(metrics: &mut Metrics, name: &str, row: &Row) -> Result<(), ParseError> {
    let [rate, cpu, average, maximum, over_2s, over_10s, efficiency] = row.numbers;
    put(metrics, name.to_string(), Number::rate(rate, "MB/s"))?;
    put(metrics, format!("{name}.cpu"), Number::neutral(cpu, "%"))?;
    put(
        metrics,
        format!("{name}.cpu_eff"),
        Number::rate(efficiency, "MB/s"),
    )?;
    put_latencies(metrics, name, [average, maximum, over_2s, over_10s])
}

fn put_latencies(metrics: &mut Metrics, name: &str, latencies: [f64; 4]) -> Result<(), ParseError> {
    let [average, maximum, over_2s, over_10s] = latencies;
    put(metrics, format!("{name}.lat_avg"), Number::cost(average, "ms"))?;
    put(metrics, format!("{name}.lat_max"), Number::cost(maximum, "ms"))?;
    put(metrics, format!("{name}.lat_over_2s"), Number::cost(over_2s, "%"))?;
    put(
        metrics,
        format!("{name}.lat_over_10s"),
        Number::cost(over_10s, "%"),
    )
}

pub fn parse_tiotest(stdout: &str) -> Result<Metrics, ParseError> {
    let mut metrics = Metrics::new();
    for (at, line) in stdout.lines().enumerate() {
        let Some((key, rest)) = line.trim().split_once(':') else {
            continue;
        };
        let op = match key {
            "write" => "seq_write",
            "rwrite" => "rand_write",
            "read" => "seq_read",
            "rread" => "rand_read",
            "total" => "total",
            _ => continue,
        };
        let fields: Option<Vec<f64>> = rest.split(',').map(|f| number(f.trim())).collect();
        let name = format!("tiotest.{op}");
        match (op, fields.as_deref()) {
            ("total", Some(&[average, maximum, over_2s, over_10s])) => {
                put_latencies(&mut metrics, &name, [average, maximum, over_2s, over_10s])?;
            }
            ("total", _) => return Err(malformed(at, line, "expected 4 numbers")),
            (
                _,
                Some(
                    &[
                        megabytes,
                        seconds,
                        user_s,
                        system_s,
                        average,
                        maximum,
                        over_2s,
                        over_10s,
                    ],
                ),
            ) => {
                put(
                    &mut metrics,
                    name.clone(),
                    Number::rate(megabytes / seconds, "MB/s"),
                )?;
                let cpu = (user_s + system_s) / seconds * 100.0;
                put(&mut metrics, format!("{name}.cpu"), Number::neutral(cpu, "%"))?;
                put_latencies(&mut metrics, &name, [average, maximum, over_2s, over_10s])?;
            }
            (_, _) => return Err(malformed(at, line, "expected 8 numbers")),
        }
    }
    if metrics.keys().all(|name| name.starts_with("tiotest.total")) {
        let human = stdout.contains("Tiotest results for");
        let hint = if human {
            " (this is the table for people: run tiotest with -T)"
        } else {
            ""
        };
        return Err(ParseError::NotFound {
            looked_for: format!("lines `write:…`, `read:…` of tiotest -T{hint}"),
        });
    }
    Ok(metrics)
}
