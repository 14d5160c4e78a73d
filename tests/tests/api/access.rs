//! Who may do what on a daemon that asks for tokens, as a program and a browser meet it.

use crate::site::Site;
use coordinator::store::tokens::Role;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

const AUTH: &str = "[auth]\n";
const FORM: &str = "application/x-www-form-urlencoded";

fn browser() -> Client {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .expect("a client builds")
}

/// A browser that was shown the token of a role: its cookie.
async fn log_in(site: &Site, token: &str) -> Response {
    let http = browser();
    let shown = http.get(format!("{}/login", site.url)).send().await;
    let shown = shown.expect("the daemon answers");
    let once = cookie(&shown);
    let csrf = csrf(&shown.text().await.expect("a page"));
    let form = http
        .post(format!("{}/login", site.url))
        .header(COOKIE, once)
        .header("content-type", FORM)
        .body(format!("csrf={csrf}&to=/submit&token={token}"));
    form.send().await.expect("the daemon answers")
}

fn cookie(answer: &Response) -> String {
    let set = answer.headers()[SET_COOKIE].to_str().expect("ASCII");
    assert!(set.contains("HttpOnly; SameSite=Lax"), "{set}");
    set.split(';').next().expect("a cookie").to_string()
}

/// What the page's forms carry: all of them the same.
fn csrf(page: &str) -> String {
    let mut values = page
        .split("name=\"csrf\" value=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let first = values.next().expect("a form with its own token").to_string();
    assert!(!first.is_empty() && values.all(|other| other == first), "{page}");
    first
}

#[tokio::test]
async fn without_a_token_nothing_is_read_or_done_and_the_refusal_says_how() {
    let site = Site::with(AUTH).await;
    let answer = site.submit(&site.request()).await;
    assert_eq!(answer.status(), 401);
    assert!(
        answer.headers()["www-authenticate"]
            .to_str()
            .is_ok_and(|v| v.starts_with("Bearer"))
    );
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let problem: Value = answer.json().await.expect("JSON");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|d| d.contains("role submitter")),
        "{problem}"
    );
    for (token, status) in [("nonsense", 401), (site.token(Role::Viewer).await.as_str(), 200)] {
        let read = site
            .http
            .get(format!("{}/api/v1/bisections", site.url))
            .bearer_auth(token);
        assert_eq!(read.send().await.expect("it answers").status(), status, "{token}");
    }
    let page = browser()
        .get(format!("{}/bisections/3?x=1", site.url))
        .header("accept", "text/html");
    let page = page.send().await.expect("the daemon answers");
    assert_eq!(page.status(), StatusCode::SEE_OTHER);
    assert_eq!(page.headers()[LOCATION], "/login?to=/bisections/3%3Fx%3D1");
    assert_eq!(site.page("/healthz").await, "ok\n", "health is for everybody");
}

#[tokio::test]
async fn reading_can_be_public_and_changing_never_is() {
    let site = Site::with("[auth]\npublic_read = true\n").await;
    assert_eq!(site.get("/api/v1/bisections").await["bisections"], json!([]));
    assert_eq!(
        site.get("/api/v1/me").await,
        json!({"actor": "anonymous", "role": "viewer"})
    );
    assert_eq!(site.submit(&site.request()).await.status(), 401);
    let tokens = site.http.get(format!("{}/api/v1/tokens", site.url)).send().await;
    assert_eq!(
        tokens.expect("it answers").status(),
        401,
        "who has tokens is not public"
    );
}

#[tokio::test]
async fn a_token_is_shown_once_holds_until_revoked_and_is_kept_as_a_digest() {
    let site = Site::with(AUTH).await;
    let admin = site.token(Role::Admin).await;
    let (status, made) = site
        .call(
            &admin,
            "POST",
            "/api/v1/tokens",
            Some(&json!({"name": "nightly", "role": "submitter"})),
        )
        .await;
    assert_eq!(status, 201, "{made}");
    let secret = made["token"].as_str().expect("shown").to_string();
    let (_, listed) = site.call(&admin, "GET", "/api/v1/tokens", None).await;
    assert!(!listed.to_string().contains(&secret), "never again");
    assert_eq!(listed["tokens"][0]["name"], "nightly");
    assert!(
        !site.database_text().await.contains(&secret),
        "the store holds no secret"
    );

    let (status, bisection) = site
        .call(&secret, "POST", "/api/v1/bisections", Some(&site.request()))
        .await;
    assert_eq!(status, 201, "{bisection}");
    let revoke = format!("/api/v1/tokens/{}/revoke", made["id"].as_str().expect("an id"));
    assert_eq!(
        site.call(&secret, "POST", &revoke, None).await.0,
        403,
        "not by itself"
    );
    let (status, revoked) = site.call(&admin, "POST", &revoke, None).await;
    assert_eq!((status, revoked["revoked_at"].is_string()), (200, true));
    assert_eq!(site.call(&secret, "GET", "/api/v1/me", None).await.0, 401);

    // Newest first: what was done and what was refused, by whom.
    let (_, log) = site.call(&admin, "GET", "/api/v1/actions", None).await;
    let rows = log["actions"].as_array().expect("a list");
    let said: Vec<_> = rows
        .iter()
        .map(|a| {
            (
                a["actor"].as_str().expect("text"),
                a["path"].as_str().expect("text"),
                a["status"].as_i64(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("admin", revoke.as_str(), Some(200)),
            ("nightly", revoke.as_str(), Some(403)),
            ("nightly", "/api/v1/bisections", Some(201)),
            ("admin", "/api/v1/tokens", Some(201)),
        ]
    );
    assert!(
        rows.iter()
            .all(|a| a["request_id"].as_str().is_some_and(|id| !id.is_empty()))
    );
}

#[tokio::test]
async fn a_token_request_that_is_wrong_says_where() {
    let site = Site::with(AUTH).await;
    let admin = site.token(Role::Admin).await;
    for (body, field) in [
        (json!({"role": "viewer"}), "name"),
        (json!({"name": "x", "role": "root"}), "role"),
        (json!({"name": "x".repeat(81), "role": "viewer"}), "name"),
        (
            json!({"name": "x", "role": "viewer", "lifetime_days": 0}),
            "lifetime_days",
        ),
        (json!({"name": "x", "role": "viewer", "secret": "mine"}), "secret"),
    ] {
        let (status, problem) = site.call(&admin, "POST", "/api/v1/tokens", Some(&body)).await;
        assert_eq!(
            (status, &problem["errors"][0]["field"]),
            (422, &json!(field)),
            "{body}: {problem}"
        );
    }
}

#[tokio::test]
async fn a_browser_logs_in_with_a_token_and_is_out_with_it() {
    let site = Site::with(AUTH).await;
    let token = site.token(Role::Submitter).await;
    let answer = log_in(&site, &token).await;
    assert_eq!(
        (answer.status(), &answer.headers()[LOCATION]),
        (StatusCode::SEE_OTHER, &"/submit".parse().expect("a value"))
    );
    let session = cookie(&answer);
    let page = site.with_cookie("/", &session).await;
    assert_eq!(page.status(), 200);
    let page = page.text().await.expect("a page");
    assert!(
        page.contains("submitter (submitter)") && page.contains("Log out"),
        "{page}"
    );

    let out = browser()
        .post(format!("{}/logout", site.url))
        .header(COOKIE, &session)
        .header("content-type", FORM)
        .body(format!("csrf={}", csrf(&page)));
    assert_eq!(
        out.send().await.expect("it answers").headers()[LOCATION],
        "/login"
    );
    assert_eq!(
        site.with_cookie("/api/v1/me", &session).await.status(),
        401,
        "the session has ended"
    );

    let session = cookie(&log_in(&site, &token).await);
    assert_eq!(site.with_cookie("/api/v1/me", &session).await.status(), 200);
    let admin = site.token(Role::Admin).await;
    let (_, tokens) = site.call(&admin, "GET", "/api/v1/tokens", None).await;
    let all = tokens["tokens"].as_array().expect("a list");
    let id = all
        .iter()
        .find(|t| t["role"] == "submitter")
        .expect("it is listed")["id"]
        .clone();
    let revoke = format!("/api/v1/tokens/{}/revoke", id.as_str().expect("text"));
    assert_eq!(site.call(&admin, "POST", &revoke, None).await.0, 200);
    assert_eq!(
        site.with_cookie("/api/v1/me", &session).await.status(),
        401,
        "its sessions end with a token"
    );
}

/// The routes that take POST and are no part of the API, from the router itself.
fn posts_of_pages() -> Vec<String> {
    let router = include_str!("../../../daemon/coordinator/src/web.rs");
    let routes = router
        .lines()
        .filter(|l| l.contains(".route(\"") && l.contains("post("));
    let paths = routes
        .filter_map(|l| l.split('"').nth(1))
        .filter(|p| !p.starts_with("/api/"));
    paths
        .map(|p| p.replace("{name}", "1").replace("{id}", "1"))
        .collect()
}

#[tokio::test]
async fn every_post_of_a_page_needs_its_own_token() {
    let site = Site::with(AUTH).await;
    let admin = site.token(Role::Admin).await;
    let session = cookie(&log_in(&site, &admin).await);
    assert_eq!(
        site.call(&admin, "POST", "/api/v1/bisections", Some(&site.request()))
            .await
            .0,
        201
    );
    let other = cookie(&log_in(&site, &admin).await);
    let others = csrf(&site.with_cookie("/", &other).await.text().await.expect("a page"));
    let own = csrf(
        &site
            .with_cookie("/bisections/1", &session)
            .await
            .text()
            .await
            .expect("a page"),
    );
    assert_ne!(own, others, "each session has its own");
    let posts = posts_of_pages();
    for known in ["/submit", "/bisections/1/cancel", "/logout", "/login"] {
        assert!(posts.iter().any(|p| p == known), "{known} in {posts:?}");
    }
    let post = async |path: &str, body: String| {
        let post = browser()
            .post(format!("{}{path}", site.url))
            .header(COOKIE, &session);
        let answer = post
            .header("content-type", FORM)
            .body(body)
            .send()
            .await
            .expect("it answers");
        (answer.status().as_u16(), answer.text().await.expect("a page"))
    };
    for path in &posts {
        for body in ["a=b".to_string(), "csrf=".into(), format!("csrf={others}")] {
            let (status, page) = post(path, body.clone()).await;
            assert_eq!(status, 403, "{path} {body}: {page}");
            assert!(
                page.contains("Not sent by a page of this daemon"),
                "{path} {body}: {page}"
            );
        }
    }
    assert_eq!(
        site.get_as(&admin, "/api/v1/bisections/1").await["state"],
        "open",
        "nothing happened"
    );
    // And the API, when a browser's cookie is all that it comes with.
    let cancel = format!("{}/api/v1/bisections/1/cancel", site.url);
    let forged = browser().post(&cancel).header(COOKIE, &session).send().await;
    assert_eq!(forged.expect("it answers").status(), 403);
    assert_eq!(
        post("/bisections/1/cancel", format!("csrf={own}")).await.0,
        303,
        "with it, it is done"
    );
    assert_eq!(
        site.get_as(&admin, "/api/v1/bisections/1").await["state"],
        "cancelled"
    );
}

/// A page that forgets the field would be one that does not work; so every form in a template has it.
#[test]
fn every_form_carries_the_field() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../daemon/coordinator/templates");
    let mut forms = 0;
    for entry in std::fs::read_dir(folder).expect("the templates are there") {
        let path = entry.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("text");
        for form in text.split("method=\"post\"").skip(1) {
            forms += 1;
            let inside = form.split("</form>").next().expect("a form ends");
            assert!(inside.contains("name=\"csrf\""), "{}: {inside}", path.display());
        }
    }
    assert!(forms >= 4, "the test reads the wrong folder");
}

#[tokio::test]
async fn who_tries_tokens_at_the_login_has_to_wait() {
    let site = Site::with(AUTH).await;
    for n in 0..10 {
        assert_eq!(log_in(&site, "pbt_guess").await.status(), 401, "try {n}");
    }
    let token = site.token(Role::Viewer).await;
    let answer = log_in(&site, &token).await;
    assert_eq!(answer.status(), 429, "even with the right one");
    let wait: u64 = answer.headers()["retry-after"]
        .to_str()
        .expect("ASCII")
        .parse()
        .expect("seconds");
    assert!((1..=61).contains(&wait), "{wait}");
    let read = site.call(&token, "GET", "/api/v1/me", None).await;
    assert_eq!(read.0, 200, "programs with a token are not held up");
}

#[tokio::test]
async fn the_page_of_an_admin_makes_and_revokes_tokens() {
    let site = Site::with(AUTH).await;
    let session = cookie(&log_in(&site, &site.token(Role::Admin).await).await);
    let page = async || {
        site.with_cookie("/access", &session)
            .await
            .text()
            .await
            .expect("a page")
    };
    let own = csrf(&page().await);
    let post = async |path: &str, body: String| {
        let post = browser()
            .post(format!("{}{path}", site.url))
            .header(COOKIE, &session);
        let answer = post.header("content-type", FORM).body(body).send().await;
        let answer = answer.expect("it answers");
        (answer.status().as_u16(), answer.text().await.expect("a page"))
    };
    let (status, made) = post(
        "/access",
        format!("csrf={own}&name=night+run&role=viewer&lifetime_days=7"),
    )
    .await;
    assert_eq!(status, 201, "{made}");
    let shown = made.split("pbt_").nth(1).expect("it is shown");
    let secret = format!("pbt_{}", shown.split('<').next().expect("a tag follows"));
    assert_eq!(site.call(&secret, "GET", "/api/v1/me", None).await.0, 200);
    let listed = page().await;
    assert!(
        listed.contains("night run") && !listed.contains(&secret),
        "{listed}"
    );
    assert!(
        listed.contains("POST /access"),
        "what was done is listed: {listed}"
    );
    let (status, refused) = post(
        "/access",
        format!("csrf={own}&name=x&role=root&lifetime_days=soon"),
    )
    .await;
    assert_eq!(status, 422);
    assert!(
        refused.contains("role: must be one of") && refused.contains("lifetime_days:"),
        "{refused}"
    );

    let (before, _) = listed.split_once("night run").expect("it is listed");
    let id = before
        .rsplit("/access/")
        .next()
        .and_then(|rest| rest.split('/').next());
    let path = format!("/access/{}/revoke", id.expect("its form"));
    assert_eq!(post(&path, format!("csrf={own}")).await.0, 303);
    assert_eq!(site.call(&secret, "GET", "/api/v1/me", None).await.0, 401);
}
