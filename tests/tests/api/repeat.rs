//! Requests that are sent again: under a key, and for news.

use crate::site::Site;
use coordinator::store::tokens::Role;
use lab::records::{GOOD, bisection, build, grant, want};
use reqwest::Response;
use serde_json::{Value, json};

async fn keyed(site: &Site, path: &str, key: &str, body: &Value) -> Response {
    let request = site
        .http
        .post(format!("{}{path}", site.url))
        .header("idempotency-key", key);
    request.json(body).send().await.expect("the daemon answers")
}

async fn read(answer: Response) -> (u16, Value) {
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

const SUBMIT: &str = "/api/v1/bisections";

#[tokio::test]
async fn the_same_key_and_body_have_the_same_answer_and_another_body_is_refused() {
    let site = Site::start().await;
    let first = keyed(&site, SUBMIT, "k-1", &site.request()).await;
    let location = first.headers()["location"].clone();
    let (status, first) = read(first).await;
    assert_eq!(status, 201);
    // Joined (200) and open it would be without the key.
    let (status, _) = site.post("/api/v1/bisections/1/cancel", &Value::Null).await;
    assert_eq!(status, 200);
    let again = keyed(&site, SUBMIT, "k-1", &site.request()).await;
    assert_eq!(again.headers()["location"], location);
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(
        read(again).await,
        (201, first.clone()),
        "the answer that was lost"
    );

    let mut other = site.request();
    other["seed"] = json!(9);
    let (status, problem) = read(keyed(&site, SUBMIT, "k-1", &other).await).await;
    assert_eq!(status, 422);
    assert_eq!(problem["errors"][0]["field"], "Idempotency-Key");
    let (status, problem) =
        read(keyed(&site, "/api/v1/bisections/1/cancel", "k-1", &site.request()).await).await;
    assert_eq!(status, 422, "nor another address: {problem}");
    assert_eq!(read(keyed(&site, SUBMIT, "k-2", &other).await).await.0, 201);
    assert_eq!(
        site.get(SUBMIT).await["bisections"].as_array().map(Vec::len),
        Some(2)
    );
    for wrong in ["", "a b", &"x".repeat(201)] {
        assert_eq!(
            read(keyed(&site, SUBMIT, wrong, &other).await).await.0,
            400,
            "`{wrong}`"
        );
    }
}

#[tokio::test]
async fn a_refusal_is_repeated_too_and_keys_are_their_owners() {
    let site = Site::with("[auth]\n").await;
    let tokens = [
        site.token(Role::Submitter).await,
        site.token(Role::Submitter).await,
    ];
    let send = async |token: &str, body: &Value| {
        let request = site.http.post(format!("{}{SUBMIT}", site.url)).bearer_auth(token);
        read(
            request
                .header("idempotency-key", "mine")
                .json(body)
                .send()
                .await
                .expect("it answers"),
        )
        .await
    };
    let mut wrong = site.request();
    wrong["tree"] = json!("nowhere");
    let refused = send(&tokens[0], &wrong).await;
    assert_eq!(refused.0, 422);
    assert_eq!(send(&tokens[0], &wrong).await, refused);
    assert_eq!(
        send(&tokens[1], &site.request()).await.0,
        201,
        "another one's key is another key"
    );
}

#[tokio::test]
async fn of_equal_requests_at_once_one_is_carried_out() {
    let site = Site::start().await;
    let mut sent = tokio::task::JoinSet::new();
    for n in 0..10 {
        let mut body = site.request();
        body["recipients"] = json!([{"mail": "ada@example.org"}]);
        let request = site
            .http
            .post(format!("{}{SUBMIT}", site.url))
            .header("idempotency-key", "at-once");
        let request = request.json(&body);
        sent.spawn(async move { (n, request.send().await.expect("it answers").status().as_u16()) });
    }
    let answers = sent.join_all().await;
    let count = |status: u16| answers.iter().filter(|(_, s)| *s == status).count();
    assert!(
        count(201) >= 1 && count(200) == 0,
        "none was joined, so one alone was carried out: {answers:?}"
    );
    assert_eq!(
        count(201) + count(409),
        10,
        "the others have its answer, or wait: {answers:?}"
    );
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let site = Site::start().await;
    assert_eq!(site.submit(&site.request()).await.status(), 201);
    for path in [
        "/api/v1/bisections",
        "/api/v1/bisections/1",
        "/api/v1/machines",
        "/api/v1/openapi.json",
    ] {
        let ask = async |tag: Option<&str>| {
            let request = site.http.get(format!("{}{path}", site.url));
            let request = tag.map_or(request.try_clone().expect("no body"), |t| {
                request.header("if-none-match", t)
            });
            request.send().await.expect("it answers")
        };
        let first = ask(None).await;
        let tag = first.headers()["etag"].to_str().expect("ASCII").to_string();
        let again = ask(Some(&format!("\"x\", {tag}"))).await;
        assert_eq!(
            (again.status().as_u16(), again.headers()["etag"].to_str().ok()),
            (304, Some(tag.as_str())),
            "{path}"
        );
        assert!(again.bytes().await.expect("an answer").is_empty());
        assert_eq!(ask(Some("\"x\"")).await.status(), 200, "{path}");
        let change = match path {
            "/api/v1/bisections" => {
                let mut another = site.request();
                another["seed"] = json!(8);
                site.submit(&another).await.status().as_u16()
            }
            "/api/v1/bisections/1" => site.post("/api/v1/bisections/1/cancel", &Value::Null).await.0,
            _ => continue,
        };
        assert!([200, 201].contains(&change), "{path}");
        assert_eq!(ask(Some(&tag)).await.status(), 200, "{path}: it has changed");
    }
}

#[tokio::test]
async fn what_belongs_to_a_bisection_is_walked_in_pages_and_filtered() {
    let site = Site::start().await;
    let id = bisection(&site.store, &["m1"]).await;
    let wants: Vec<_> = (0..5).map(|replicate| want(GOOD, "m1", replicate)).collect();
    build(&site.store, id, "m1", GOOD, &wants).await;
    let jobs = async |query: &str| site.get(&format!("/api/v1/bisections/1/jobs{query}")).await;
    let all = jobs("").await;
    assert_eq!(
        (all["jobs"].as_array().map(Vec::len), &all["next_after"]),
        (Some(5), &Value::Null)
    );
    let mut walked = Vec::new();
    let mut query = "?limit=2".to_string();
    loop {
        let page = jobs(&query).await;
        walked.extend(page["jobs"].as_array().expect("a list").clone());
        match page["next_after"].as_str() {
            Some(after) => query = format!("?limit=2&after={after}"),
            None => break,
        }
    }
    assert_eq!(
        Value::from(walked),
        all["jobs"],
        "in order, none twice, none left out"
    );
    let attempt = grant(&site.store, id, "m1", "c1").await.expect("a job is ready");
    let count = async |query: &str| jobs(query).await["jobs"].as_array().map(Vec::len);
    assert_eq!(count("?state=held&machine=m1").await, Some(1));
    assert_eq!(count("?state=wanted").await, Some(4));
    assert_eq!(count("?machine=m2").await, Some(0));
    let attempts = site.get("/api/v1/bisections/1/attempts?state=held").await;
    assert_eq!(attempts["attempts"][0]["id"], attempt.to_string());
    for wrong in ["?state=open", "?limit=0", "?limit=1001", "?colour=red"] {
        let answer = site
            .http
            .get(format!("{}/api/v1/bisections/1/jobs{wrong}", site.url));
        assert_eq!(answer.send().await.expect("it answers").status(), 400, "{wrong}");
    }
}
