//! stress-ng, perf stat, bonnie++, dd: real outputs (tests/data) and the traps of each; and a minute of damage to all.

use parsers::{Metrics, ParseError, Parser, Wanted, judge_one};
use std::path::Path;
use std::time::{Duration, Instant};

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn values(metrics: &Metrics) -> Vec<(&str, f64)> {
    metrics.iter().map(|(name, n)| (name.as_str(), n.value)).collect()
}

fn not_found(result: Result<Metrics, ParseError>) -> String {
    match result {
        Err(ParseError::NotFound { looked_for }) => looked_for,
        other => panic!("{other:?}"),
    }
}

#[test]
fn stress_ng_in_three_forms() {
    let brief = Parser::StressNg.parse("", &data("stress-ng-brief.txt")).unwrap();
    assert_eq!(
        values(&brief),
        [
            ("stress_ng.cpu.ops_per_cpu_s", 1757.48),
            ("stress_ng.cpu.ops_per_s", 1936.52)
        ]
    );
    let table = Parser::StressNg
        .parse(&data("stress-ng-metrics.txt"), "")
        .unwrap();
    assert_eq!(
        values(&table),
        [
            ("stress_ng.mmap.ops_per_cpu_s", 5.94),
            ("stress_ng.mmap.ops_per_s", 5.20),
            ("stress_ng.switch.ops_per_cpu_s", 178582.25),
            ("stress_ng.switch.ops_per_s", 188045.73),
        ],
        "the further metrics are none of these"
    );
    let yaml = Parser::StressNg.parse(&data("stress-ng.yaml"), "").unwrap();
    assert_eq!(yaml["stress_ng.switch.ops_per_s"].value, 188045.725527);
    assert_eq!(yaml.keys().collect::<Vec<_>>(), table.keys().collect::<Vec<_>>());
    let failed = format!(
        "{}\nstress-ng: fail:  [9] mmap: no luck\n",
        data("stress-ng-metrics.txt")
    );
    assert!(matches!(
        Parser::StressNg.parse(&failed, ""),
        Err(ParseError::Reported { .. })
    ));
    not_found(Parser::StressNg.parse(
        "stress-ng: info:  [1] setting to a 2 second run per stressor\n",
        "",
    ));
}

#[test]
fn perf_stat_knows_missing_from_nought() {
    let csv = Parser::PerfStat.parse("", &data("perf-stat-csv.txt")).unwrap();
    assert_eq!(csv["perf_stat.task-clock"].value, 205.19);
    assert_eq!(csv["perf_stat.task-clock"].unit, Some("ms"));
    assert_eq!(csv["perf_stat.context-switches"].value, 2791.0);
    assert!(
        !csv.contains_key("perf_stat.cycles"),
        "<not supported> is missing"
    );
    let json = Parser::PerfStat.parse("", &data("perf-stat-json.txt")).unwrap();
    assert_eq!(json["perf_stat.page-faults"].value, 1203.0);
    not_found(Parser::PerfStat.parse("", &data("perf-stat-r3.txt")));

    let repeated =
        "1439,,context-switches,107.14%,105240000,100.00,12.6,K/sec\n<not counted>,,cycles,0.00%,0,0.00,,\n";
    let repeated = Parser::PerfStat.parse(repeated, "").unwrap();
    assert_eq!(values(&repeated), [("perf_stat.context-switches", 1439.0)]);
    let shared = Parser::PerfStat.parse("1000,,cycles,500,25.00,,\n", "").unwrap();
    assert_eq!(
        values(&shared),
        [("perf_stat.cycles", 1000.0), ("perf_stat.cycles.running", 25.0)]
    );
    let why = not_found(Parser::PerfStat.parse("<not supported>,,cycles,0,100.00,,\n", ""));
    assert!(why.contains("all are `<not supported>`"), "{why}");
}

#[test]
fn bonnie_that_was_too_fast_is_missing() {
    let metrics = Parser::Bonnie.parse(&data("bonnie-csv.txt"), "").unwrap();
    assert_eq!(metrics["bonnie.put_char"].value, 1356.0);
    assert_eq!(metrics["bonnie.get_char"].value, 2229.0);
    assert_eq!(metrics["bonnie.put_char.latency"].value, 9979.0);
    assert_eq!(metrics["bonnie.ran_delete.latency"].value, 56.0);
    for gone in [
        "put_block",
        "rewrite",
        "get_block",
        "seeks",
        "seq_create",
        "ran_delete",
    ] {
        assert!(
            !metrics.contains_key(&format!("bonnie.{gone}")),
            "{gone}: +++++ is missing"
        );
    }
    let wanted = Wanted {
        name: "bonnie.seeks".into(),
        unit: "1/s".into(),
        may_be_zero: true,
    };
    assert!(judge_one(&metrics, &wanted).is_err());
    let other = data("bonnie-csv.txt").replacen("1.98", "1.97", 1);
    assert!(matches!(
        Parser::Bonnie.parse(&other, ""),
        Err(ParseError::Unsupported { .. })
    ));
}

#[test]
fn dds_side_by_side_are_summed() {
    let metrics = Parser::Dd.parse("", &data("dd-parallel.txt")).unwrap();
    let (a, b) = (4_096_000.0 / 0.0126611 / 1e6, 8_192_000.0 / 0.0166863 / 1e6);
    assert!((metrics["dd.rate"].value - (a + b)).abs() < 1e-9);
    assert!((metrics["dd.slowest"].value - a).abs() < 1e-9);
    assert_eq!(metrics["dd.time"].value, 0.0166863);
    let full = "dd: error writing 'x': No space left on device\n100 bytes copied, 1 s, 100 B/s\n";
    assert!(matches!(
        Parser::Dd.parse("", full),
        Err(ParseError::Reported { .. })
    ));
    not_found(Parser::Dd.parse("", "1+0 records in\n"));
}

/// tiobench's rates are means over `--numruns`, all else are sums, and nothing in the output says so: the workload must.
#[test]
fn tiobench_over_several_runs_gives_sums_of_latencies() {
    let one = Parser::Tiobench
        .parse(&data("tiobench.pl-numruns1.txt"), "")
        .unwrap();
    let three = Parser::Tiobench
        .parse(&data("tiobench.pl-numruns3.txt"), "")
        .unwrap();
    let rate = |m: &Metrics| {
        m.iter()
            .find(|(n, _)| n.starts_with("tiobench.seq_read"))
            .unwrap()
            .1
            .value
    };
    assert!(rate(&three) / rate(&one) < 2.0, "a rate is a mean");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/workloads");
    for entry in std::fs::read_dir(shipped).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        if text.contains("\"tiobench.pl\"") {
            assert!(text.contains("\"--numruns\", \"1\""), "{text}");
        }
    }
}

/// splitmix64: the same damage in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

#[test]
#[ignore = "takes a minute"]
fn a_minute_of_damaged_outputs_makes_no_parser_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    let outputs: Vec<Vec<u8>> = paths
        .iter()
        .map(|p| std::fs::read(p).unwrap().into_iter().take(6000).collect())
        .collect();
    let parsers = [
        Parser::Fio,
        Parser::Tiotest,
        Parser::Tiobench,
        Parser::Dbench,
        Parser::Hackbench,
        Parser::PerfBench,
        Parser::PerfStat,
        Parser::StressNg,
        Parser::Bonnie,
        Parser::Dd,
    ];
    let pieces: [&[u8]; 12] = [
        b",",
        b"\n",
        b"{",
        b"}",
        b"\"",
        b"-",
        b"1e999",
        b"nan",
        b"+++++",
        b"<not counted>",
        b"\xff",
        "µ".as_bytes(),
    ];
    let mut seeded = Seeded(1);
    let (start, mut tried) = (Instant::now(), 0u64);
    while start.elapsed() < Duration::from_secs(60) {
        let mut text = outputs[seeded.below(outputs.len())].clone();
        for _ in 0..=seeded.below(8) {
            let at = seeded.below(text.len() + 1);
            match seeded.below(4) {
                0 => text.truncate(at),
                1 => drop(text.splice(at..at, pieces[seeded.below(pieces.len())].iter().copied())),
                2 if at < text.len() => text[at] = seeded.below(256) as u8,
                _ => {
                    let to = (at + seeded.below(200)).min(text.len());
                    let again = text[at..to].to_vec();
                    drop(text.splice(at..at, again));
                }
            }
        }
        let text = String::from_utf8_lossy(&text);
        parsers.iter().for_each(|p| drop(p.parse(&text, &text)));
        tried += 1;
    }
    println!("{tried} damaged outputs by {} parsers", parsers.len());
    assert!(tried > 1000, "{tried}");
}
