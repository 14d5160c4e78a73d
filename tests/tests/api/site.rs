//! A daemon's HTTP side for one test: the router on a port, a database, a repository, no passes.

use coordinator::config::Config;
use coordinator::images::Images;
use coordinator::secret::Secret;
use coordinator::store::Store;
use coordinator::store::tokens::{NewToken, Role};
use coordinator::tree::Trees;
use coordinator::web::{self, WebState};
use lab::daemon::http;
use lab::postgres::Postgres;
use lab::user_tree::UserTree;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes longer, also on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Site {
    pub url: String,
    pub http: reqwest::Client,
    pub tree: UserTree,
    pub store: Store,
    shutdown: CancellationToken,
    serving: Option<JoinHandle<anyhow::Result<()>>>,
    folder: tempfile::TempDir,
}

impl Site {
    pub async fn start() -> Site {
        Site::with("").await
    }

    /// With further sections of the main file.
    pub async fn with(more: &str) -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tree = UserTree::new(folder.path(), 12, 5, 0.0);
        orphan(&tree);
        write_config(&folder, &tree, more);
        let config =
            Config::load(&folder.path().join("perfbisect.toml")).expect("the configuration is right");
        let store = Store::connect(&Postgres::shared().database())
            .await
            .expect("Postgres answers");
        let trees = Trees::open(&config.file.state_dir, &config.file.trees)
            .await
            .expect("a mirror is made");
        trees.fetch("steps").await.expect("the repository is there");
        let images = Images::open(&config.file.state_dir)
            .await
            .expect("the state folder is writable");
        let shutdown = CancellationToken::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let state = WebState {
            store: store.clone(),
            trees,
            images,
            config: Arc::new(config),
            shutdown: shutdown.clone(),
        };
        let serving = tokio::spawn(web::serve(listener, state));
        Site {
            url,
            http: http(),
            tree,
            store,
            shutdown,
            serving: Some(serving),
            folder,
        }
    }

    /// A request with nothing wrong with it.
    pub fn request(&self) -> Value {
        json!({
            "tree": "steps", "good": "main~11", "bad": "main", "workload": "steps", "metric": "ops",
            "min_effect_pct": 3, "machine": "m1", "seed": 7,
        })
    }

    pub async fn submit(&self, body: &Value) -> reqwest::Response {
        let request = self
            .http
            .post(format!("{}/api/v1/bisections", self.url))
            .json(body);
        request.send().await.expect("the daemon answers")
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}{path}", self.url)).json(body);
        let answer = request.send().await.expect("the daemon answers");
        (
            answer.status().as_u16(),
            answer.json().await.expect("an answer is JSON"),
        )
    }

    pub async fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.page(path).await).expect("an answer is JSON")
    }

    pub async fn page(&self, path: &str) -> String {
        let answer = self
            .http
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .expect("the daemon answers");
        assert!(answer.status().is_success(), "GET {path}: {}", answer.status());
        answer.text().await.expect("the whole answer comes")
    }

    /// A token of this role, named after it.
    pub async fn token(&self, role: Role) -> String {
        let secret = Secret::draw().expect("random bits");
        let new = NewToken {
            name: role.name().into(),
            role,
            secret: secret.digest(),
            created_by: "the test".into(),
            lifetime_days: None,
        };
        self.store.create_token(&new).await.expect("Postgres answers");
        secret.text().to_string()
    }

    /// A request with a token: status and answer.
    pub async fn call(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.expect("the daemon answers");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("the whole answer comes");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn get_as(&self, token: &str, path: &str) -> Value {
        let (status, value) = self.call(token, "GET", path, None).await;
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    pub async fn with_cookie(&self, path: &str, cookie: &str) -> reqwest::Response {
        let request = self
            .http
            .get(format!("{}{path}", self.url))
            .header("cookie", cookie);
        request.send().await.expect("the daemon answers")
    }

    /// Every row of every table that this door writes by itself, as text.
    pub async fn database_text(&self) -> String {
        let query = "select concat((select json_agg(t) from tokens t), (select json_agg(a) from actions a),
                                   (select json_agg(s) from sessions s))";
        sqlx::query_scalar(query)
            .fetch_one(&self.store.pool)
            .await
            .expect("Postgres answers")
    }

    /// Status, page and Location of the submit form.
    pub async fn form(&self, body: &'static str) -> (u16, String, String) {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build();
        let request = client
            .expect("a client builds")
            .post(format!("{}/submit", self.url));
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let answer = request.send().await.expect("the daemon answers");
        let location = answer
            .headers()
            .get("location")
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_string();
        (
            answer.status().as_u16(),
            answer.text().await.expect("the whole answer comes"),
            location,
        )
    }

    pub async fn recipients(&self, id: &str) -> Vec<String> {
        let id: uuid::Uuid = id.parse().expect("an id");
        let query = "select address from recipients where bisection_id = $1 order by address";
        sqlx::query_scalar(query)
            .bind(id)
            .fetch_all(&self.store.pool)
            .await
            .expect("Postgres answers")
    }

    /// Folders of pins in the mirror, one a search.
    pub fn pins(&self) -> Vec<String> {
        let mirrors = self.folder.path().join("state/mirrors");
        let mut pins = Vec::new();
        for mirror in std::fs::read_dir(mirrors).expect("the mirrors are there") {
            let mirror = mirror.expect("readable").path();
            if !mirror.join("HEAD").is_file() {
                continue;
            }
            let listed = git(
                &mirror,
                &["for-each-ref", "--format=%(refname)", "refs/perfbisect/"],
            );
            pins.extend(
                listed
                    .lines()
                    .filter_map(|name| name.rsplit_once('/'))
                    .map(|(folder, _)| folder.to_string()),
            );
        }
        pins.sort();
        pins.dedup();
        pins
    }

    pub async fn close_database(&self) {
        self.store.pool.close().await;
    }

    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        let serving = self.serving.take().expect("it serves");
        let ended = tokio::time::timeout(LIMIT, serving)
            .await
            .expect("a clean stop has an end");
        ended
            .expect("serving does not panic")
            .expect("a clean stop is no error");
    }

    pub async fn stream(&self, path: &str, last: Option<i64>) -> Stream {
        let mut request = self.http.get(format!("{}{path}", self.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = request.send().await.expect("the daemon answers");
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert!(
            answer.headers().get("content-encoding").is_none(),
            "a stream is not compressed"
        );
        Stream {
            answer,
            buffer: String::new(),
        }
    }
}

pub struct Stream {
    answer: reqwest::Response,
    buffer: String,
}

pub struct Event {
    pub id: i64,
    pub data: Value,
}

impl Stream {
    /// The next event with data; `None` when the daemon ended the stream.
    pub async fn next(&mut self) -> Option<Event> {
        tokio::time::timeout(LIMIT, self.wait())
            .await
            .expect("an event comes in time")
    }

    async fn wait(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..end + 2).collect();
                let field = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(str::trim)
                };
                if let (Some(id), Some(data)) = (field("id:"), field("data:")) {
                    let id = id.parse().expect("an id is a number");
                    return Some(Event {
                        id,
                        data: serde_json::from_str(data).expect("data are JSON"),
                    });
                }
            }
            // A connection that breaks instead of ending would be an unclean stop.
            let chunk = self
                .answer
                .chunk()
                .await
                .expect("a stream ends, it does not break")?;
            self.buffer
                .push_str(std::str::from_utf8(&chunk).expect("events are ASCII here"));
        }
    }
}

/// Fields and messages of a problem.
pub fn fields(problem: &Value) -> Vec<(String, String)> {
    let text = |error: &Value, name: &str| error[name].as_str().unwrap_or_default().to_string();
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    errors
        .iter()
        .map(|e| (text(e, "field"), text(e, "message")))
        .collect()
}

/// A branch that shares no history with the others.
fn orphan(tree: &UserTree) {
    git(
        &tree.repository,
        &["checkout", "--quiet", "--orphan", "elsewhere"],
    );
    git(
        &tree.repository,
        &["commit", "--quiet", "--allow-empty", "-m", "elsewhere: Begin"],
    );
    git(&tree.repository, &["checkout", "--quiet", "--force", "main"]);
}

fn git(folder: &std::path::Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .args(["-c", "user.name=Lab", "-c", "user.email=lab@example.org"])
        .args(args);
    let output = git
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git is installed");
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn write_config(folder: &tempfile::TempDir, tree: &UserTree, more: &str) {
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        std::fs::write(path, text).expect("writable");
    };
    let (repository, recipe) = (&tree.repository, UserTree::recipe());
    let main = format!(
        "state_dir = \"state\"\n[mail]\nfrom = \"lab@example.org\"\nsmtp_host = \"localhost\"\n\
         [trees.steps]\nurl = {repository:?}\n{recipe}\n{more}"
    );
    write("perfbisect.toml", main);
    let machine = "name = \"m1\"\naddress = \"local\"\nwork_dir = \"agent\"\npools = [\"all\"]\n[boot]\nmethod = \"none\"\n";
    write("machines/m1.toml", machine.into());
    let workload = UserTree::workload().replace(
        "run_limit_s = 60\n",
        "run_limit_s = 60\nparameters = { mode = [\"a\", \"b\"] }\n",
    );
    write("workloads/steps.toml", workload);
}
