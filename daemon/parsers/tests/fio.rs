//! fio's JSON and its traps: warnings, several documents, errors, jobs side by side or one after the other.

use parsers::{Metrics, ParseError, Parser};
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
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

#[test]
fn fio_json_plus_has_the_same_metrics_as_json() {
    let names = |file| {
        Parser::Fio
            .parse(&data(file), "")
            .unwrap()
            .into_keys()
            .collect::<Vec<_>>()
    };
    assert_eq!(names("fio-json.json"), names("fio-json-plus.json"));
}

#[test]
fn fio_reads_the_last_complete_document() {
    let text = data("fio-json-status-interval.txt");
    let last = text.rfind("\n{").unwrap();
    let whole = Parser::Fio.parse(&text, "").unwrap();
    assert_eq!(whole, Parser::Fio.parse(&text[last..], "").unwrap());
    let cut = Parser::Fio.parse(&text[..text.len() - 200], "").unwrap();
    assert_eq!(
        cut,
        Parser::Fio.parse(&text[..last], "").unwrap(),
        "a last one cut off does not count"
    );
    assert_ne!(cut, whole);
}

#[test]
fn fio_warnings_around_the_document_do_not_matter() {
    let json = data("fio-json.json");
    let plain = Parser::Fio.parse(&json, "").unwrap();
    let noisy = format!(
        "fio: this platform does not support {{x}}\n{{ oops\nnote: both iodepth >= 1\n{json}\nbye {{\n"
    );
    assert_eq!(Parser::Fio.parse(&noisy, "").unwrap(), plain);
}

#[test]
fn fio_numbers_of_a_failed_job_do_not_count() {
    let text = data("fio-json.json").replacen("\"error\" : 0", "\"error\" : 5", 1);
    let Err(ParseError::Reported { error }) = Parser::Fio.parse(&text, "") else {
        panic!("not refused")
    };
    assert_eq!(error, "job `seqw` ended with error 5");
}

fn fio_job(name: &str, group: u32, iops: f64, mean_ns: f64, count: u32) -> String {
    format!(
        r#"{{"jobname": "{name}", "groupid": {group}, "error": 0, "read": {{"total_ios": {count}, "bw": 7, "bw_bytes": 2048,
        "iops": {iops}, "clat_ns": {{"min": 1000, "max": 9000, "mean": {mean_ns}, "N": {count},
        "percentile": {{"99.000000": 8000, "99.900000": 8500}}}}}}, "write": {{"total_ios": 0, "iops": 0.0}}}}"#
    )
}

#[test]
fn fio_rates_of_jobs_side_by_side_are_summed_and_percentiles_are_not() {
    let text = format!(
        "{{\"jobs\": [{}, {}]}}",
        fio_job("a", 0, 100.0, 2000.0, 10),
        fio_job("a", 0, 50.0, 5000.0, 30)
    );
    let metrics = Parser::Fio.parse(&text, "").unwrap();
    assert_eq!(value(&metrics, "fio.read.iops"), 150.0);
    assert_eq!(value(&metrics, "fio.read.bw"), 4.0);
    assert_eq!(
        value(&metrics, "fio.read.clat_mean"),
        (10.0 * 2.0 + 30.0 * 5.0) / 40.0
    );
    assert_eq!(value(&metrics, "fio.job.a.read.iops"), 150.0);
    assert!(
        !metrics.keys().any(|name| name.contains("_p9")),
        "{:?}",
        metrics.keys()
    );
    assert!(
        !metrics.keys().any(|name| name.contains("write")),
        "no request: missing, not 0"
    );

    let one = Parser::Fio
        .parse(&format!("{{\"jobs\": [{}]}}", fio_job("a b", 0, 1.0, 2.0, 3)), "")
        .unwrap();
    assert_eq!(value(&one, "fio.read.clat_p99.9"), 8.5);
    assert_eq!(value(&one, "fio.job.a_b.read.clat_p99"), 8.0);
}

#[test]
fn fio_rates_of_jobs_one_after_the_other_are_not_summed() {
    let text = format!(
        "{{\"jobs\": [{}, {}]}}",
        fio_job("a", 0, 100.0, 2000.0, 10),
        fio_job("b", 1, 50.0, 5000.0, 30)
    );
    let metrics = Parser::Fio.parse(&text, "").unwrap();
    assert!(!metrics.contains_key("fio.read.iops"));
    assert_eq!(value(&metrics, "fio.job.b.read.iops"), 50.0);
}

#[test]
fn fio_2_has_microseconds_and_no_bw_bytes() {
    let text = r#"{"fio version": "fio-2.16", "jobs": [{"jobname": "j", "error": 0, "read": {"io_bytes": 1024,
        "total_ios": 256, "bw": 341, "iops": 85.3, "clat": {"min": 10, "max": 40, "mean": 20.5, "stddev": 1.0,
        "percentile": {"99.000000": 39, "0.00": 0}}}}]}"#;
    let metrics = Parser::Fio.parse(text, "").unwrap();
    assert_eq!(value(&metrics, "fio.read.bw"), 341.0);
    assert_eq!(value(&metrics, "fio.read.clat_mean"), 20.5);
    assert_eq!(value(&metrics, "fio.read.clat_p99"), 39.0);
    assert!(!metrics.contains_key("fio.read.clat_p0"));
}

#[test]
fn fio_client_mode_is_not_counted_twice() {
    let all = fio_job("All clients", 0, 150.0, 4250.0, 40);
    let text = format!(
        "{{\"client_stats\": [{}, {}, {all}]}}",
        fio_job("a", 0, 100.0, 2.0, 10),
        fio_job("a", 0, 50.0, 5.0, 30)
    );
    let metrics = Parser::Fio.parse(&text, "").unwrap();
    assert_eq!(value(&metrics, "fio.read.iops"), 150.0);
}

#[test]
fn fio_nan_is_missing_and_the_rest_stands() {
    let json = data("fio-guest.json");
    let text = json.lines().map(|l| {
        if l.trim().starts_with("\"iops\"") {
            "\"iops\" : -nan,\n".into()
        } else {
            format!("{l}\n")
        }
    });
    let metrics = Parser::Fio.parse(&text.collect::<String>(), "").unwrap();
    assert!(!metrics.contains_key("fio.read.iops"));
    assert!(metrics.contains_key("fio.read.bw"));
}

#[test]
fn other_formats_of_fio_are_no_json() {
    assert!(not_found(Parser::Fio.parse(&data("fio-terse.txt"), "")));
    assert!(not_found(Parser::Fio.parse(&data("fio-normal.txt"), "")));
}
