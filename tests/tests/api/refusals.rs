//! What is refused, and in which words.

use crate::site::{Site, fields};
use serde_json::{Value, json};

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
