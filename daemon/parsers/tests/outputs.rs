//! Every parser on real outputs (tests/data), on the traps of its format (fio's in `fio.rs`), and on garbage.

use parsers::{Metrics, ParseError, Parser, Wanted, Why, judge, judge_one};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// `name value unit` a line, as people would read it.
fn listing(metrics: &Metrics) -> String {
    let line = |(name, n): (&String, &parsers::Number)| {
        let arrow = match n.higher_is_better {
            Some(true) => "↑",
            Some(false) => "↓",
            None => "·",
        };
        format!("{name} {} {} {arrow}\n", n.value, n.unit.unwrap_or("?"))
    };
    metrics.iter().map(line).collect()
}

fn value(metrics: &Metrics, name: &str) -> f64 {
    metrics
        .get(name)
        .unwrap_or_else(|| panic!("{name} not in {:?}", metrics.keys()))
        .value
}

fn not_found(result: Result<Metrics, ParseError>) -> bool {
    matches!(result, Err(ParseError::NotFound { .. }))
}

macro_rules! snapshot {
    ($test:ident, $parser:expr, $file:literal) => {
        #[test]
        fn $test() {
            insta::assert_snapshot!(listing(&$parser.parse(&data($file), "").unwrap()));
        }
    };
}

snapshot!(fio_3_33, Parser::Fio, "fio-json.json");
snapshot!(fio_3_33_in_a_guest, Parser::Fio, "fio-guest.json");
snapshot!(tiobench, Parser::Tiobench, "tiobench.pl-numruns1.txt");
snapshot!(tiotest_terse, Parser::Tiotest, "tiotest-terse-T.txt");
snapshot!(tiotest_in_a_guest, Parser::Tiotest, "tiotest-guest.txt");
snapshot!(dbench_4, Parser::Dbench, "dbench-t5-2.txt");
snapshot!(tbench_4, Parser::Dbench, "tbench-t5-2.txt");
snapshot!(dbench_4_in_a_guest, Parser::Dbench, "dbench-guest.txt");
snapshot!(hackbench_processes, Parser::Hackbench, "hackbench-pipe.txt");
snapshot!(
    hackbench_threads,
    Parser::Hackbench,
    "hackbench-threads-socket.txt"
);
snapshot!(perf_bench_pipe, Parser::PerfBench, "perf-bench-sched-pipe.txt");
snapshot!(
    perf_bench_messaging,
    Parser::PerfBench,
    "perf-bench-sched-messaging.txt"
);
snapshot!(perf_bench_syscall, Parser::PerfBench, "perf-bench-syscall.txt");
snapshot!(perf_bench_futex, Parser::PerfBench, "perf-bench-futex-hash.txt");
snapshot!(perf_bench_memcpy, Parser::PerfBench, "perf-bench-mem-memcpy.txt");

#[test]
fn tiobench_rows_are_read_from_the_right() {
    let one_row = |row: &str| format!("Random Writes\n=====\nhead\n-------- ------\n{row}\n");
    let text = one_row("my kernel 2.6 64 4096 8 12.50 508.9% 0.003 0.06 0.00000 0.00000 700");
    let metrics = Parser::Tiobench.parse(&text, "").unwrap();
    assert_eq!(value(&metrics, "tiobench.rand_write"), 12.5);
    assert_eq!(value(&metrics, "tiobench.rand_write.t8"), 12.5);
    assert_eq!(value(&metrics, "tiobench.rand_write.t8.cpu"), 508.9);
    for broken in [
        "k 64 4096 8 12.50 50.0 0.003 0.06 0.0 0.0 7",
        "k 64 4096 8 12.50 50.0%",
        "64 4096 8 1.5 5.0% 1 1 0 0 7",
    ] {
        let result = Parser::Tiobench.parse(&one_row(broken), "");
        assert!(
            matches!(result, Err(ParseError::Malformed { line: 5, .. })),
            "{broken}: {result:?}"
        );
    }
}

#[test]
fn tiobench_names_sizes_where_threads_do_not_tell_rows_apart() {
    let text = "Sequential Reads\n====\n-----\nk 64 4096 2 1.0 1% 1 1 0 0 1\nk 128 4096 2 2.0 1% 1 1 0 0 1\n";
    let metrics = Parser::Tiobench.parse(text, "").unwrap();
    assert_eq!(value(&metrics, "tiobench.seq_read.t2.s128.b4096"), 2.0);
    let twice = text.replace("128", "64");
    assert!(matches!(
        Parser::Tiobench.parse(&twice, ""),
        Err(ParseError::Ambiguous { .. })
    ));
}

#[test]
fn tiotest_for_people_says_what_to_do() {
    let Err(error) = Parser::Tiotest.parse(&data("tiotest-human.txt"), "") else {
        panic!("read")
    };
    assert!(error.to_string().contains("run tiotest with -T"), "{error}");
}

#[test]
fn tiotest_in_no_time_is_no_rate() {
    let metrics = Parser::Tiotest
        .parse("write:32.0,0.00000,0,0,0.1,0.2,0,0\n", "")
        .unwrap();
    let wanted = Wanted {
        name: "tiotest.seq_write".into(),
        unit: "MB/s".into(),
        may_be_zero: true,
    };
    assert_eq!(judge_one(&metrics, &wanted).unwrap_err().why, Why::NotFinite);
}

#[test]
fn dbench_3_has_no_latency() {
    let metrics = Parser::Dbench
        .parse("Throughput 123.4 MB/sec (sync open) (sync dirs) 8 procs\n", "")
        .unwrap();
    assert_eq!(listing(&metrics), "dbench.throughput 123.4 MB/s ↑\n");
}

#[test]
fn dbench_5_for_machines() {
    let text = "@W@1:2:3@\n:NTCreateX:10:0.1:0.2:\n;41.5;2;2;33.854;\n";
    let metrics = Parser::Dbench.parse(text, "").unwrap();
    assert_eq!(value(&metrics, "dbench.throughput"), 41.5);
    assert_eq!(value(&metrics, "dbench.max_latency"), 33.854);
}

#[test]
fn dbench_that_does_not_compare_is_refused() {
    let scaled = Parser::Dbench.parse("Throughput 55.1 MB/sec (NB=68.9 MB/sec  551 MBit/sec)\n", "");
    assert!(
        matches!(scaled, Err(ParseError::Unsupported { .. })),
        "{scaled:?}"
    );
    let unit = Parser::Dbench.parse("Throughput 55.1 GB/sec  2 clients  2 procs\n", "");
    assert!(matches!(unit, Err(ParseError::Malformed { .. })), "{unit:?}");
    let cut = Parser::Dbench.parse("Throughput 55.1 MB/s", "");
    assert!(matches!(cut, Err(ParseError::Malformed { .. })), "{cut:?}");
    let failed = Parser::Dbench.parse(
        &format!("Child failed with status 1\n{}", data("dbench-t5-2.txt")),
        "",
    );
    assert!(matches!(failed, Err(ParseError::Reported { .. })), "{failed:?}");
    let progress: String = data("dbench-t5-2.txt")
        .lines()
        .take(8)
        .map(|l| format!("{l}\n"))
        .collect();
    assert!(
        not_found(Parser::Dbench.parse(&progress, "")),
        "progress is no result"
    );
}

#[test]
fn hackbench_needs_one_time() {
    assert!(not_found(
        Parser::Hackbench.parse("Running in process mode\n", "")
    ));
    assert!(matches!(
        Parser::Hackbench.parse("Time: 1.0\nTime: 2.0\n", ""),
        Err(ParseError::Ambiguous { .. })
    ));
    assert!(matches!(
        Parser::Hackbench.parse("Time: 1,5\n", ""),
        Err(ParseError::Malformed { .. })
    ));
}

#[test]
fn perf_bench_of_several_has_the_name_of_each() {
    let text = data("perf-bench-sched-pipe.txt") + &data("perf-bench-sched-messaging.txt");
    let metrics = Parser::PerfBench.parse(&text, "").unwrap();
    assert_eq!(value(&metrics, "perf_bench.sched_pipe.time"), 0.103);
    assert_eq!(value(&metrics, "perf_bench.sched_messaging.time"), 0.372);
    assert!(!metrics.contains_key("perf_bench.time"));
}

#[test]
fn perf_bench_memory_in_scaled_units_and_times_in_other_units() {
    let metrics = Parser::PerfBench
        .parse(
            "# function 'default' (x)\n# Copying 1MB bytes ...\n\n 2.5 GB/sec\n",
            "",
        )
        .unwrap();
    assert_eq!(value(&metrics, "perf_bench.mem.default"), 2.5 * 1073741824.0);
    let milliseconds = Parser::PerfBench.parse("     Total time: 103 [msec]\n", "");
    assert!(matches!(milliseconds, Err(ParseError::Malformed { .. })));
    let wake = Parser::PerfBench
        .parse("Wokeup 2 of 2 threads in 0.0431 ms (+-33.33%)\n", "")
        .unwrap();
    assert_eq!(value(&wake, "perf_bench.wakeup"), 0.0431);
}

fn map(name: &str, text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_string(), text.to_string())])
}

#[test]
fn patterns_take_the_first_group_of_their_only_match() {
    let parser = Parser::regex(&map("cpu", r"^\s*events per second:\s*(\S+)$")).unwrap();
    let metrics = parser.parse(&data("sysbench-cpu.txt"), "").unwrap();
    assert_eq!(metrics.len(), 1);
    assert!(value(&metrics, "cpu") > 0.0 && metrics["cpu"].unit.is_none());
    let dd = Parser::regex(&map("rate", r", ([0-9.]+) MB/s")).unwrap();
    assert_eq!(
        value(&dd.parse("", "1 byte copied, 1 s, 12.5 MB/s\n").unwrap(), "rate"),
        12.5
    );
    assert!(matches!(
        dd.parse("a, 1 MB/s, 2 MB/s", ""),
        Err(ParseError::Ambiguous { .. })
    ));
    assert!(not_found(dd.parse("", "")));
    let word = Parser::regex(&map("x", r"is (\S+)")).unwrap();
    assert!(matches!(
        word.parse("it is 1,234", ""),
        Err(ParseError::Malformed { .. })
    ));
    assert!(
        Parser::regex(&map("x", "no group"))
            .unwrap_err()
            .to_string()
            .contains("parentheses")
    );
    assert!(Parser::regex(&map("x", "(")).is_err());
}

#[test]
fn paths_lead_to_one_number() {
    let parser = Parser::json_path(&map("max", "$.thread.0['max']")).unwrap();
    assert!(value(&parser.parse(&data("cyclictest.json"), "").unwrap(), "max") > 0.0);
    let parser = Parser::json_path(&map("x", r#"$.a.b[1]['c d']["e"]"#)).unwrap();
    let text = r#"{"a": {"b": [0, {"c d": {"e": 4.5}}]}}"#;
    assert_eq!(value(&parser.parse(text, "").unwrap(), "x"), 4.5);
    assert_eq!(
        value(
            &parser
                .parse(&format!("hello\n{{\"a\": 1}}\n{text}\n"), "")
                .unwrap(),
            "x"
        ),
        4.5
    );
    assert_eq!(
        value(&parser.parse(&text.replace("4.5", "\"4.5\""), "").unwrap(), "x"),
        4.5
    );
    assert!(not_found(parser.parse(&text.replace("4.5", "null"), "")));
    assert!(not_found(parser.parse(&text.replace("4.5", "true"), "")));
    for bad in [
        "",
        "a.b",
        "$",
        "$.",
        "$..a",
        "$.*",
        "$[",
        "$[x]",
        "$['a",
        "$['a'",
        "$[-1]",
        "$.a b[0]x",
    ] {
        assert!(Parser::json_path(&map("x", bad)).is_err(), "{bad}");
    }
}

#[test]
fn only_a_finite_positive_number_of_the_right_unit_counts() {
    let wanted = |name: &str, unit: &str, may_be_zero| Wanted {
        name: name.into(),
        unit: unit.into(),
        may_be_zero,
    };
    let text = "good (1.5) zero (0) minus (-2) nan (nan) inf (inf)";
    let names = ["good", "zero", "minus", "nan", "inf"];
    let patterns = names.map(|n| (n.to_string(), format!(r"\b{n} \((\S+)\)"))).into();
    let metrics = Parser::regex(&patterns).unwrap().parse(text, "").unwrap();
    let why = |name, zero| judge_one(&metrics, &wanted(name, "x", zero)).map_err(|r| r.why);
    assert_eq!(why("good", false), Ok(1.5));
    assert_eq!(why("zero", false), Err(Why::Zero));
    assert_eq!(why("zero", true), Ok(0.0));
    assert_eq!(why("minus", false), Err(Why::Negative { value: -2.0 }));
    assert_eq!(why("minus", true), Ok(-2.0));
    assert_eq!(why("nan", true), Err(Why::NotFinite));
    assert_eq!(why("inf", true), Err(Why::NotFinite));
    let Err(Why::Missing { found }) = why("other", true) else {
        panic!("found")
    };
    assert_eq!(found.len(), 5);

    let pipe = Parser::PerfBench
        .parse(&data("perf-bench-sched-pipe.txt"), "")
        .unwrap();
    assert!(
        judge_one(&pipe, &wanted("perf_bench.ops_per_s", "ops/sec", false)).is_ok(),
        "another spelling"
    );
    let other = judge_one(&pipe, &wanted("perf_bench.time", "ms", false)).unwrap_err();
    assert_eq!(
        other.to_string(),
        "perf_bench.time is in s, the workload says ms: correct the unit there"
    );
    let all = [
        wanted("perf_bench.time", "s", false),
        wanted("a", "s", false),
        wanted("b", "s", false),
    ];
    assert_eq!(judge(&pipe, &all).unwrap_err().len(), 2, "every reason is given");
    assert_eq!(judge(&pipe, &all[..1]).unwrap().len(), 1);
}

fn every_parser() -> Vec<Parser> {
    vec![
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
        Parser::regex(&map("x", r"(-?[0-9.,einaf+]+)")).unwrap(),
        Parser::json_path(&map("x", "$.jobs[0].read.iops")).unwrap(),
    ]
}

fn fixtures() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|p| std::fs::read_to_string(p).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_never_panics(text in ".{0,400}") {
        every_parser().iter().for_each(|p| drop(p.parse(&text, &text)));
    }

    /// Real outputs, cut anywhere and with a piece overwritten.
    #[test]
    fn damaged_outputs_never_panic(which in 0usize..1000, cut in 0.0f64..1.0, at in 0.0f64..1.0, junk in ".{0,20}") {
        let all = fixtures();
        let chars: Vec<char> = all[which % all.len()].chars().take(20_000).collect();
        let mut text: String = chars[..(chars.len() as f64 * cut) as usize].iter().collect();
        let place = text.char_indices().nth((text.chars().count() as f64 * at) as usize).map_or(0, |(i, _)| i);
        text.insert_str(place, &junk);
        every_parser().iter().for_each(|p| drop(p.parse(&text, "")));
    }
}
