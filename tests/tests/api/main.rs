//! The HTTP door as a program meets it: the real router on a real port, a real Postgres, a real repository.
//!
//! What is asserted is what a client reads: status, field, words, headers, order of events.

mod site;

use serde_json::{Value, json};
use site::{Site, fields};

/// Each row changes one thing of a request that is right; the refusal must name the field and say the words.
#[tokio::test]
async fn every_refusal_names_the_field_and_what_to_do() {
    let site = Site::start().await;
    let old = site.tree.commits[0].clone();
    let young = site.tree.commits[5].clone();
    let rows: Vec<(Value, &str, &str)> = vec![
        (json!({"tree": null}), "tree", "configured are: steps"),
        (json!({"tree": "linux"}), "tree", "no tree is called `linux`"),
        (json!({"tree": 5}), "tree", "must be a string"),
        (json!({"good": null}), "good", "is required"),
        (json!({"good": ""}), "good", "must not be empty"),
        (json!({"good": "no-such-branch"}), "good", "unknown"),
        (json!({"good": "--upload-pack=x"}), "good", "no revision"),
        (json!({"good": "main\u{0}x"}), "good", "control characters"),
        (
            json!({"bad": "0123456789012345678901234567890123456789"}),
            "bad",
            "unknown",
        ),
        (json!({"good": young, "bad": young}), "bad", "same commit"),
        (json!({"good": young, "bad": old}), "bad", "ancestor"),
        (json!({"bad": "elsewhere"}), "good", "no common ancestor"),
        (json!({"workload": "dbench"}), "workload", "configured are: steps"),
        (json!({"workload": null}), "workload", "is required"),
        (json!({"metric": "latency"}), "metric", "it yields: ops"),
        (
            json!({"parameters": {"size": "1"}}),
            "parameters.size",
            "no such parameter",
        ),
        (
            json!({"parameters": {"mode": "c"}}),
            "parameters.mode",
            "the choices are: a, b",
        ),
        (json!({"parameters": []}), "parameters", "must be an object"),
        (json!({"machine": null}), "machine", "is required"),
        (
            json!({"machine": "m9"}),
            "machine",
            "neither a machine nor a pool",
        ),
        (json!({"machine": ["m1", 3]}), "machine[1]", "must be a string"),
        (json!({"pool": "nowhere"}), "pool", "neither a machine nor a pool"),
        (json!({"min_effect_pct": null}), "min_effect_pct", "is required"),
        (
            json!({"min_effect_pct": 0}),
            "min_effect_pct",
            "between 0 and 100",
        ),
        (
            json!({"min_effect_pct": 100}),
            "min_effect_pct",
            "between 0 and 100",
        ),
        (
            json!({"min_effect_pct": "3"}),
            "min_effect_pct",
            "must be a number",
        ),
        (
            json!({"min_effect_abs": 3}),
            "min_effect_abs",
            "give min_effect_pct",
        ),
        (json!({"confidence": 0.5}), "confidence", "between 0.5 and 1"),
        (json!({"confidence": 1}), "confidence", "between 0.5 and 1"),
        (json!({"seed": -1}), "seed", "whole number"),
        (json!({"seed": 1.5}), "seed", "whole number"),
        (json!({"look_for": "some"}), "look_for", "\"first\" or \"all\""),
        (json!({"costs": {"build_s": 0}}), "costs.build_s", "between 0"),
        (
            json!({"limits": {"boots": 0}}),
            "limits.boots",
            "whole number from 1",
        ),
        (json!({"limits": {"time_s": -5}}), "limits.time_s", "between 0"),
        (
            json!({"limits": {"hours": 3}}),
            "limits.hours",
            "known are: boots",
        ),
        (
            json!({"confirm": {"revert": "yes"}}),
            "confirm.revert",
            "true or false",
        ),
        (json!({"first_parent": 1}), "first_parent", "true or false"),
        (json!({"priority": 101}), "priority", "-100 to 100"),
        (
            json!({"recipients": "a@b.example"}),
            "recipients",
            "must be a list",
        ),
        (
            json!({"recipients": [{"mail": "nobody"}]}),
            "recipients[0].mail",
            "no mail address",
        ),
        (
            json!({"recipients": [{"webhook": "https://a.example"}]}),
            "recipients[0].webhook",
            "[webhook]",
        ),
        (
            json!({"recipients": [{}]}),
            "recipients[0]",
            "needs `mail` or `webhook`",
        ),
        (json!({"command": ["rm"]}), "command", "is unknown here"),
    ];
    for (change, field, words) in rows {
        let mut body = site.request();
        for (name, value) in change.as_object().expect("a row is an object") {
            body[name] = value.clone();
        }
        let (status, problem) = site.post("/api/v1/bisections", &body).await;
        assert_eq!(status, 422, "{change}: {problem:#}");
        let said = fields(&problem);
        let found = said.iter().any(|(f, m)| f == field && m.contains(words));
        assert!(found, "{change}: wanted `{field}` … {words}, got {said:?}");
        assert_eq!(said.len(), 1, "{change}: only that field is wrong: {said:?}");
    }
    assert_eq!(
        site.get("/api/v1/bisections").await["bisections"],
        json!([]),
        "a refusal starts nothing"
    );
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let site = Site::start().await;
    let body = json!({"tree": "x", "good": "v1", "workload": "y", "confidence": 7, "speed": 1});
    let (status, problem) = site.post("/api/v1/bisections", &body).await;
    assert_eq!(status, 422);
    let named: Vec<String> = fields(&problem).into_iter().map(|(field, _)| field).collect();
    for field in ["tree", "bad", "workload", "confidence", "machine", "speed"] {
        assert!(
            named.iter().any(|n| n == field),
            "{field} is missing in {named:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_request_is_a_problem_too() {
    let site = Site::start().await;
    let post = || site.http.post(format!("{}/api/v1/bisections", site.url));
    let json_type = ("content-type", "application/json");
    let rows = [
        (
            post().header(json_type.0, json_type.1).body("{\"tree\": "),
            400,
            "not-json",
        ),
        (
            post()
                .header(json_type.0, json_type.1)
                .body("{\"confidence\": NaN}"),
            400,
            "not-json",
        ),
        (
            post().header(json_type.0, json_type.1).body("[]"),
            422,
            "invalid-request",
        ),
        (
            post().header("content-type", "text/plain").body("{}"),
            415,
            "unsupported-media-type",
        ),
        (post().body("{}"), 415, "unsupported-media-type"),
        (
            post()
                .header(json_type.0, json_type.1)
                .body(" ".repeat((1 << 20) + 1)),
            413,
            "too-large",
        ),
        (
            site.http.get(format!("{}/api/v1/nothing", site.url)),
            404,
            "not-found",
        ),
        (
            site.http.get(format!("{}/api/v1/bisections/77", site.url)),
            404,
            "not-found",
        ),
        (
            site.http.get(format!("{}/api/v1/bisections/-1", site.url)),
            404,
            "not-found",
        ),
        (
            site.http.get(format!("{}/api/v1/bisections/x/events", site.url)),
            404,
            "not-found",
        ),
        (
            site.http.get(format!("{}/api/v1/attempts/7/console", site.url)),
            404,
            "not-found",
        ),
        (
            site.http.get(format!("{}/api/v1/bisections?state=odd", site.url)),
            400,
            "invalid-query",
        ),
        (
            site.http.get(format!("{}/api/v1/bisections?limit=0", site.url)),
            400,
            "invalid-query",
        ),
        (
            site.http.get(format!("{}/api/v1/bisections?sort=x", site.url)),
            400,
            "invalid-query",
        ),
        (
            site.http.delete(format!("{}/api/v1/bisections/1", site.url)),
            405,
            "method-not-allowed",
        ),
        (
            site.http.post(format!("{}/api/v1/machines", site.url)),
            405,
            "method-not-allowed",
        ),
        (
            site.http.get(&site.url).header("host", "evil.example"),
            421,
            "wrong-host",
        ),
        (
            post()
                .header("origin", "https://evil.example")
                .json(&site.request()),
            403,
            "cross-site",
        ),
        (
            post()
                .header("sec-fetch-site", "cross-site")
                .json(&site.request()),
            403,
            "cross-site",
        ),
    ];
    for (number, (request, status, kind)) in rows.into_iter().enumerate() {
        let answer = request.send().await.expect("the daemon answers");
        let got = answer.status().as_u16();
        let content = answer.headers()["content-type"]
            .to_str()
            .expect("ASCII")
            .to_string();
        if status == 405 {
            assert!(
                answer.headers().contains_key("allow"),
                "row {number}: 405 says what is allowed"
            );
        }
        let problem: Value = answer.json().await.expect("a problem is JSON");
        assert_eq!(got, status, "row {number}: {problem:#}");
        assert_eq!(content, "application/problem+json", "row {number}");
        assert_eq!(problem["type"], format!("/problems/{kind}"), "row {number}");
        assert_eq!(problem["status"], status, "row {number}");
        for field in ["title", "detail"] {
            assert!(
                problem[field].as_str().is_some_and(|t| !t.is_empty()),
                "row {number}: {problem:#}"
            );
        }
    }
    assert_eq!(
        site.get("/api/v1/bisections").await["bisections"],
        json!([]),
        "none of these started anything"
    );
}

#[tokio::test]
async fn every_answer_carries_its_policy_and_its_id() {
    let site = Site::start().await;
    for path in ["/", "/submit", "/api/v1/trees", "/nowhere", "/healthz"] {
        let answer = site
            .http
            .get(format!("{}{path}", site.url))
            .send()
            .await
            .expect("it answers");
        let header = |name: &str| {
            answer
                .headers()
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
        };
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert!(!header("x-request-id").is_empty(), "{path}");
    }
}

#[tokio::test]
async fn an_equal_open_request_is_joined_and_its_recipients_told_too() {
    let site = Site::start().await;
    let mut body = site.request();
    body["recipients"] = json!([{"mail": "ada@example.org"}]);
    let answer = site.submit(&body).await;
    assert_eq!(answer.status().as_u16(), 201);
    let location = answer.headers()["location"].to_str().expect("ASCII").to_string();
    let first: Value = answer.json().await.expect("JSON");
    assert_eq!(location, format!("/api/v1/bisections/{}", first["number"]));
    assert_eq!(
        first["good"]["commit"], site.tree.commits[0],
        "resolved at submission"
    );
    assert_eq!(first["state"], "open");
    assert_eq!(site.get(&location).await, first, "the answer is what GET says");

    // The same range by other names, as resolved: equal.
    body["good"] = json!(site.tree.commits[0]);
    body["recipients"] = json!([{"mail": "bo@example.org"}]);
    let answer = site.submit(&body).await;
    assert_eq!(answer.status().as_u16(), 200);
    let joined: Value = answer.json().await.expect("JSON");
    assert_eq!(joined["id"], first["id"]);
    let id = first["id"].as_str().expect("an id");
    assert_eq!(site.recipients(id).await, ["ada@example.org", "bo@example.org"]);
    assert_eq!(
        site.pins(),
        [format!("refs/perfbisect/{id}")],
        "one pin: that of the search that runs"
    );

    // Another seed is another request.
    body["seed"] = json!(8);
    assert_eq!(site.submit(&body).await.status().as_u16(), 201);
}

#[tokio::test]
async fn of_twenty_equal_requests_at_once_one_is_created() {
    let site = Site::start().await;
    let body = site.request();
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let request = site
            .http
            .post(format!("{}/api/v1/bisections", site.url))
            .json(&body);
        sent.spawn(async move {
            request
                .send()
                .await
                .expect("the daemon answers")
                .status()
                .as_u16()
        });
    }
    let mut statuses = sent.join_all().await;
    statuses.sort();
    assert_eq!(statuses.iter().filter(|s| **s == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 19, "{statuses:?}");
    assert_eq!(site.pins().len(), 1, "the pins of those that joined are gone");
}

#[tokio::test]
async fn cancelling_has_one_meaning_and_frees_the_request() {
    let site = Site::start().await;
    let first: Value = site.submit(&site.request()).await.json().await.expect("JSON");
    let cancel = format!(
        "/api/v1/bisections/{}/cancel",
        first["id"].as_str().expect("an id")
    );
    let (status, cancelled) = site.post(&cancel, &Value::Null).await;
    assert_eq!((status, &cancelled["state"]), (200, &json!("cancelled")));
    assert!(cancelled["ended_at"].is_string());
    let (status, problem) = site.post(&cancel, &Value::Null).await;
    assert_eq!(status, 409, "{problem:#}");
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("already")));
    let again = site.submit(&site.request()).await;
    assert_eq!(
        again.status().as_u16(),
        201,
        "an ended request does not hold up an equal one"
    );
}

#[tokio::test]
async fn the_list_is_walked_without_gaps_and_filtered() {
    let site = Site::start().await;
    for seed in 0..7 {
        let mut body = site.request();
        body["seed"] = json!(seed);
        assert_eq!(site.submit(&body).await.status().as_u16(), 201);
    }
    let (status, _) = site.post("/api/v1/bisections/3/cancel", &Value::Null).await;
    assert_eq!(status, 200);
    let mut numbers = Vec::new();
    let mut path = "/api/v1/bisections?limit=3".to_string();
    loop {
        let page = site.get(&path).await;
        let rows = page["bisections"].as_array().expect("a list").clone();
        assert!(rows.len() <= 3);
        numbers.extend(rows.iter().map(|r| r["number"].as_i64().expect("a number")));
        match page["next_before"].as_i64() {
            Some(before) => path = format!("/api/v1/bisections?limit=3&before={before}"),
            None => break,
        }
    }
    assert_eq!(numbers, [7, 6, 5, 4, 3, 2, 1]);
    let numbers = |page: Value| -> Vec<i64> {
        page["bisections"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|r| r["number"].as_i64())
            .collect()
    };
    assert_eq!(numbers(site.get("/api/v1/bisections?state=cancelled").await), [3]);
    assert_eq!(
        numbers(site.get("/api/v1/bisections?state=open&limit=2").await),
        [7, 6]
    );
    assert_eq!(
        numbers(site.get("/api/v1/bisections?tree=other").await),
        Vec::<i64>::new()
    );
}

#[tokio::test]
async fn events_are_replayed_after_the_last_one_seen_and_end_with_the_daemon() {
    let mut site = Site::start().await;
    let first: Value = site.submit(&site.request()).await.json().await.expect("JSON");
    let events = format!("/api/v1/bisections/{}/events", first["number"]);

    let mut stream = site.stream(&events, Some(0)).await;
    let submitted = stream.next().await.expect("what happened before is replayed");
    assert_eq!(submitted.data["kind"], "submitted");
    // A second watcher without an id starts now and hears nothing of the past.
    let mut late = site.stream(&events, None).await;
    site.post("/api/v1/bisections/1/cancel", &Value::Null).await;
    let cancelled = stream.next().await.expect("it comes without being asked for");
    assert_eq!(cancelled.data["kind"], "cancelled");
    assert!(cancelled.id > submitted.id);
    assert_eq!(late.next().await.expect("the live one").data["kind"], "cancelled");

    let mut resumed = site.stream(&events, Some(submitted.id)).await;
    assert_eq!(
        resumed.next().await.expect("the one that was missed").id,
        cancelled.id
    );
    let mut all = site.stream("/api/v1/events", Some(0)).await;
    assert_eq!(
        all.next().await.expect("of every bisection").data["bisection"],
        first["number"]
    );

    site.stop().await;
    for open in [&mut stream, &mut late, &mut resumed] {
        assert!(open.next().await.is_none(), "a clean stop ends the streams");
    }
}

#[tokio::test]
async fn the_form_does_what_the_api_does_without_a_script() {
    let site = Site::start().await;
    let (status, page, _) = site
        .form("tree=steps&good=main&bad=main&workload=steps&machine=m1&min_effect_pct=x")
        .await;
    assert_eq!(status, 422);
    assert!(page.contains("`x` is no number"), "{page}");
    assert!(page.contains("value=\"main\""), "what was typed stays: {page}");
    let body = "tree=steps&good=main~11&bad=main&workload=steps&metric=ops&machine=m1&min_effect_pct=3&confidence_pct=99";
    let (status, _, location) = site.form(body).await;
    assert_eq!((status, location.as_str()), (303, "/bisections/1"));
    let page = site.page("/bisections/1").await;
    for words in [
        "ops from main~11 to main",
        "Suspects",
        "Kernels tried",
        "Cancel this bisection",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(site.page("/").await.contains("/bisections/1"));
    let fragment = site.page("/bisections/1?fragment=live").await;
    assert!(!fragment.contains("<html"), "a fragment is no page");
    assert!(
        fragment.contains("id=\"head\"") && fragment.contains("id=\"decisions\""),
        "{fragment}"
    );
}

#[tokio::test]
async fn health_and_metrics_are_for_machines() {
    let site = Site::start().await;
    site.submit(&site.request()).await;
    assert_eq!(site.page("/healthz").await, "ok\n");
    let metrics = site.page("/metrics").await;
    for line in [
        "perfbisect_bisections{state=\"open\"} 1",
        "# TYPE perfbisect_jobs gauge",
        "perfbisect_http_requests_total{",
    ] {
        assert!(metrics.contains(line), "{line}:\n{metrics}");
    }
    site.close_database().await;
    let answer = site
        .http
        .get(format!("{}/healthz", site.url))
        .send()
        .await
        .expect("it answers");
    assert_eq!(
        answer.status().as_u16(),
        503,
        "without its database it is not healthy, and says so"
    );
}
