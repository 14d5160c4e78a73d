//! Every role with every operation: the API's from its own description, the pages' from the router.
//!
//! Which role an operation needs stands here a second time, by hand: who adds one must say it, and who changes one by
//! accident is told.

use crate::site::Site;
use coordinator::store::tokens::Role;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// By the description's `operationId`.
const API: [(&str, Role); 20] = [
    ("list_bisections", Role::Viewer),
    ("submit_bisection", Role::Submitter),
    ("show_bisection", Role::Viewer),
    ("cancel_bisection", Role::Submitter),
    ("retry_bisection", Role::Submitter),
    ("list_samples", Role::Viewer),
    ("show_environment", Role::Viewer),
    ("list_jobs", Role::Viewer),
    ("list_attempts", Role::Viewer),
    ("list_decisions", Role::Viewer),
    ("show_console", Role::Viewer),
    ("list_machines", Role::Viewer),
    ("admit_machine", Role::Operator),
    ("list_workloads", Role::Viewer),
    ("list_trees", Role::Viewer),
    ("list_tokens", Role::Admin),
    ("create_token", Role::Admin),
    ("revoke_token", Role::Admin),
    ("list_actions", Role::Admin),
    ("show_me", Role::Viewer),
];
/// Streams of events.
const STREAMS: [(&str, Role); 2] = [("follow_bisection", Role::Viewer), ("follow_all", Role::Viewer)];

/// Method, route and role; `None`: for everybody.
const PAGES: [(&str, &str, Option<Role>); 16] = [
    ("GET", "/", Some(Role::Viewer)),
    ("GET", "/bisections/{name}", Some(Role::Viewer)),
    ("POST", "/bisections/{name}/cancel", Some(Role::Submitter)),
    ("POST", "/bisections/{name}/retry", Some(Role::Submitter)),
    ("GET", "/submit", Some(Role::Viewer)),
    ("POST", "/submit", Some(Role::Submitter)),
    ("GET", "/api", Some(Role::Viewer)),
    ("GET", "/access", Some(Role::Admin)),
    ("POST", "/access", Some(Role::Admin)),
    ("POST", "/access/{id}/revoke", Some(Role::Admin)),
    ("GET", "/login", None),
    ("POST", "/login", None),
    ("POST", "/logout", Some(Role::Viewer)),
    ("GET", "/assets/{name}", None),
    ("GET", "/healthz", None),
    ("GET", "/metrics", Some(Role::Viewer)),
];

struct Door {
    site: Site,
    tokens: Vec<(Role, String)>,
    revoked: String,
}

impl Door {
    async fn open() -> Door {
        let site = Site::with("[auth]\n").await;
        let mut tokens = Vec::new();
        for role in Role::ALL {
            tokens.push((role, site.token(role).await));
        }
        let admin = &tokens[3].1;
        let (_, made) = site
            .call(
                admin,
                "POST",
                "/api/v1/tokens",
                Some(&json!({"name": "gone", "role": "admin"})),
            )
            .await;
        let revoke = format!("/api/v1/tokens/{}/revoke", made["id"].as_str().expect("an id"));
        assert_eq!(site.call(admin, "POST", &revoke, None).await.0, 200);
        let revoked = made["token"].as_str().expect("shown once").to_string();
        Door {
            site,
            tokens,
            revoked,
        }
    }

    async fn status(&self, method: &str, path: &str, token: Option<&str>) -> u16 {
        let url = format!("{}{path}", self.site.url);
        let mut request = self.site.http.request(method.parse().expect("a method"), url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if method == "POST" {
            request = request.json(&json!({}));
        }
        request
            .send()
            .await
            .expect("the daemon answers")
            .status()
            .as_u16()
    }

    /// What is addressed is not there, so that what is allowed ends in 404 or 422 and changes nothing.
    async fn check(&self, method: &str, route: &str, least: Option<Role>) {
        let mut path = route.replace("{name}", "999").replace("{id}", "999");
        if route.ends_with("/events") {
            path.push_str("?follow=false");
        }
        // The login is refused for want of its form's own token, which is not for a lack of role.
        let open = |status: u16| ![401, 403].contains(&status) || (method, route) == ("POST", "/login");
        for (role, token) in &self.tokens {
            let status = self.status(method, &path, Some(token)).await;
            match least.is_none_or(|least| *role >= least) {
                true => assert!(open(status), "{method} {route} as {}: {status}", role.name()),
                false => assert_eq!(status, 403, "{method} {route} as {}", role.name()),
            }
        }
        for nobody in [None, Some(self.revoked.as_str()), Some("pbt_guessed")] {
            let status = self.status(method, &path, nobody).await;
            match least {
                Some(_) => assert_eq!(status, 401, "{method} {route} with {nobody:?}"),
                None => assert!(open(status), "{method} {route}: {status}"),
            }
        }
    }
}

#[tokio::test]
async fn every_operation_of_the_api_is_for_its_role_and_those_above() {
    let door = Door::open().await;
    let described = door.site.get("/api/v1/openapi.json").await;
    let table: BTreeMap<&str, Role> = API.into_iter().chain(STREAMS).collect();
    let mut seen = Vec::new();
    for (path, operations) in described["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let id = operation["operationId"].as_str().expect("an id");
            let least = table
                .get(id)
                .unwrap_or_else(|| panic!("{id} is new: say in this test which role it needs"));
            assert_eq!(
                operation["x-role"],
                least.name(),
                "{id}: what the description says"
            );
            door.check(&method.to_uppercase(), path, Some(*least)).await;
            seen.push(id.to_string());
        }
    }
    seen.sort();
    let mut known: Vec<&str> = table.into_keys().collect();
    known.sort();
    assert_eq!(seen, known, "what this test names is there");
}

/// `.route("…", get(…).post(…))` of the router.
fn routes() -> Vec<(&'static str, &'static str)> {
    let router = include_str!("../../../daemon/coordinator/src/web.rs");
    let mut found = Vec::new();
    for line in router.lines().filter(|l| l.contains(".route(\"")) {
        let path = line.split('"').nth(1).expect("a path");
        for (method, word) in [("GET", "get("), ("POST", "post(")] {
            if line.contains(word) {
                found.push((method, path));
            }
        }
    }
    found
}

#[tokio::test]
async fn every_page_is_for_its_role_and_those_above() {
    let door = Door::open().await;
    let routes = routes();
    let undescribed: Vec<_> = routes
        .iter()
        .filter(|(_, path)| path.starts_with("/api/"))
        .collect();
    assert!(
        undescribed.is_empty(),
        "add routes of the API by routes!, in web/openapi: {undescribed:?}"
    );
    for (method, path) in &routes {
        let row = PAGES.iter().find(|(m, p, _)| m == method && p == path);
        let (.., least) =
            row.unwrap_or_else(|| panic!("{method} {path} is new: say in this test which role it needs"));
        door.check(method, path, *least).await;
    }
    assert_eq!(routes.len(), PAGES.len(), "what this test names is there");
}

#[tokio::test]
async fn the_description_is_whole_and_open_to_all() {
    let site = Site::with("[auth]\n").await;
    let described: Value = site.get("/api/v1/openapi.json").await;
    assert!(
        described["openapi"]
            .as_str()
            .is_some_and(|v| v.starts_with("3.1"))
    );
    assert_eq!(described["info"]["title"], "perfbisect");
    let text = described.to_string();
    // Every reference leads somewhere.
    for reference in text
        .split("\"$ref\":\"#/")
        .skip(1)
        .filter_map(|r| r.split('"').next())
    {
        assert!(
            described.pointer(&format!("/{reference}")).is_some(),
            "{reference}"
        );
    }
    let submission = &described["components"]["schemas"]["Submission"]["anyOf"][0];
    assert_eq!(
        submission["properties"]["tree"]["enum"],
        json!(["steps"]),
        "of this daemon"
    );
    for (path, operations) in described["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            assert!(
                operation["summary"].is_string(),
                "{method} {path} says what it does"
            );
            assert!(
                operation["responses"]["default"].is_object(),
                "{method} {path} names its problems"
            );
        }
    }
}
