//! A daemon that asks for tokens, from its first start on: the real programs, as an administrator meets them.

use coordinator::config::Config;
use lab::binaries;
use lab::daemon::Setup;
use std::process::{Command, Output};

fn perfbisect(url: &str, token: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(binaries::daemon());
    command
        .args(args)
        .env("PERFBISECT_SERVER", url)
        .env_remove("PERFBISECT_TOKEN");
    if let Some(token) = token {
        command.env("PERFBISECT_TOKEN", token);
    }
    command.output().expect("the program runs")
}

const WORKLOAD: &str = r#"
name = "pipe"
command = ["true"]
parser = { name = "perf_bench" }
[[metrics]]
name = "perf_bench.usecs_per_op"
unit = "us/op"
higher_is_better = false
"#;

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn tokens_in(text: &str) -> Vec<String> {
    text.split_whitespace()
        .filter(|w| w.starts_with("pbt_"))
        .map(String::from)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_prints_an_admin_token_and_no_later_one_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut setup = Setup::new(folder.path());
    setup.more = "[auth]\n".into();
    setup.local_machine("box", "method = \"none\"");
    setup.workloads.push(WORKLOAD.into());
    let mut daemon = setup.start(0).await;
    let log = |d: &lab::daemon::Daemon| std::fs::read_to_string(&d.log).expect("the log is there");
    let printed = tokens_in(&log(&daemon));
    assert_eq!(printed.len(), 1, "{}", log(&daemon));
    let admin = printed[0].as_str();

    let refused = perfbisect(&daemon.url, None, &["list"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("token"), "{}", said(&refused));
    let made = perfbisect(
        &daemon.url,
        Some(admin),
        &["tokens", "create", "night", "--role", "viewer"],
    );
    let viewer = String::from_utf8_lossy(&made.stdout).trim().to_string();
    assert!(
        viewer.starts_with("pbt_"),
        "only the token, for a script to take: {}",
        said(&made)
    );
    let listed = perfbisect(&daemon.url, Some(&viewer), &["list"]);
    assert!(listed.status.success(), "{}", said(&listed));
    for (args, wanted) in [
        (["machines"].as_slice(), "box"),
        (&["workloads"], "usecs_per_op in us/op, less is better"),
        (&["machines", "--json"], "\"machines\""),
    ] {
        let listed = perfbisect(&daemon.url, Some(&viewer), args);
        assert!(
            listed.status.success() && said(&listed).contains(wanted),
            "{args:?}: {}",
            said(&listed)
        );
    }
    let none = perfbisect(&daemon.url, Some(&viewer), &["log", "99"]);
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    let more = perfbisect(
        &daemon.url,
        Some(&viewer),
        &["tokens", "create", "mine", "--role", "admin"],
    );
    assert_eq!(
        more.status.code(),
        Some(2),
        "a viewer makes no admin: {}",
        said(&more)
    );

    let tokens = said(&perfbisect(&daemon.url, Some(admin), &["tokens", "list"]));
    let row = tokens
        .lines()
        .find(|l| l.ends_with("night"))
        .expect("it is listed");
    let id = row.split_whitespace().next().expect("an id");
    let revoked = perfbisect(&daemon.url, Some(admin), &["tokens", "revoke", id]);
    assert!(revoked.status.success(), "{}", said(&revoked));
    assert_eq!(
        perfbisect(&daemon.url, Some(&viewer), &["list"]).status.code(),
        Some(2)
    );

    daemon.kill();
    daemon.start().await;
    assert_eq!(tokens_in(&log(&daemon)), [admin], "printed once");
    assert!(
        perfbisect(&daemon.url, Some(admin), &["list"]).status.success(),
        "and it holds"
    );
}

#[test]
fn without_auth_no_other_address_than_loopback_is_listened_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["machines", "workloads"] {
        std::fs::create_dir(folder.path().join(name)).expect("writable");
    }
    let path = folder.path().join("perfbisect.toml");
    let load = |listen: &str, more: &str| {
        std::fs::write(
            &path,
            format!("state_dir = \"state\"\nlisten = \"{listen}\"\n{more}"),
        )
        .expect("writable");
        Config::load(&path).map(|_| ()).map_err(|e| format!("{e:#}"))
    };
    for loopback in ["127.0.0.1:8642", "127.3.2.1:1", "[::1]:8642"] {
        assert_eq!(load(loopback, ""), Ok(()), "{loopback}");
    }
    for other in ["10.0.0.1:8642", "0.0.0.0:8642", "[::]:8642", "[2001:db8::1]:80"] {
        let refused = load(other, "").expect_err(other);
        assert!(refused.contains("add an [auth] section"), "{other}: {refused}");
        let named = load(other, "base_url = \"https://perf.example.org\"\n[auth]\n");
        assert_eq!(named, Ok(()), "{other}");
    }
    assert!(
        load("0.0.0.0:1", "[auth]\n")
            .expect_err("no name")
            .contains("base_url")
    );
    assert!(
        load("127.0.0.1:1", "[auth]\npasswords = true\n")
            .expect_err("unknown")
            .contains("passwords")
    );
}
