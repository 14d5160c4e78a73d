//! The HTTP door as a program meets it: the real router on a real port, a real Postgres, a real repository.
//!
//! What is asserted is what a client reads: status, field, words, headers, order of events.

mod access;
mod contract;
mod matrix;
mod refusals;
mod repeat;
mod site;

use serde_json::{Value, json};
use site::Site;

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
async fn what_has_ended_is_searched_again_or_changed() {
    let site = Site::start().await;
    let mut body = site.request();
    body["confidence"] = json!(0.999);
    body["parameters"] = json!({"mode": "b"});
    assert_eq!(site.submit(&body).await.status().as_u16(), 201);
    let retry = "/api/v1/bisections/1/retry";
    assert_eq!(site.post(retry, &Value::Null).await.0, 409, "it still searches");
    assert_eq!(
        site.post("/api/v1/bisections/1/cancel", &Value::Null).await.0,
        200
    );
    let (status, second) = site.post(retry, &Value::Null).await;
    assert_eq!(
        (status, &second["number"], &second["request"]),
        (201, &json!(2), &body)
    );
    let (status, joined) = site.post(retry, &Value::Null).await;
    assert_eq!(
        (status, &joined["number"]),
        (200, &json!(2)),
        "one of them is enough"
    );
    let ended = site.page("/bisections/1").await;
    assert!(
        ended.contains("Search again") && !ended.contains("Cancel this bisection"),
        "{ended}"
    );
    let form = site.page("/submit?from=1").await;
    for filled in [
        "name=\"good\" list=\"refs\" required autocomplete=\"off\" spellcheck=\"false\" value=\"main~11\"",
        "inputmode=\"decimal\" value=\"99.9\"",
        "<option value=\"b\" selected>",
    ] {
        assert!(form.contains(filled), "{filled}: {form}");
    }
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
