//! Everybody who is to be told is told once: real Postgres, a real SMTP server, a real HTTP receiver.

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coordinator::case::Definition;
use coordinator::config;
use coordinator::passes::deliver::deliver_once;
use coordinator::post::Post;
use coordinator::store::notices::{TRIES_LIMIT, Words, owe};
use coordinator::store::{Channel, Recipient, Store, Submission, Submitted};
use hmac::{Hmac, KeyInit, Mac};
use lab::postgres::Postgres;
use lab::receiver::Receiver;
use lab::smtp::{Manner, Smtp};
use serde_json::json;
use sha2::Sha256;
use std::io::Write;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

const KEY: [u8; 32] = [7; 32];

async fn store() -> Store {
    let url = Postgres::shared().database();
    Store::connect(&url).await.expect("the cluster answers")
}

/// A concluded bisection's notices, owed in one transaction as the pass does it. Returns the bisection.
async fn owed(store: &Store, recipients: &[(Channel, String)]) -> Uuid {
    let id = Uuid::now_v7();
    let recipients = recipients.iter().map(|(channel, address)| Recipient {
        channel: *channel,
        address: address.clone(),
    });
    let submission = Submission {
        id,
        tree: "linux".into(),
        good_rev: "v1".into(),
        bad_rev: "v2".into(),
        good_commit: "1".repeat(40),
        bad_commit: "2".repeat(40),
        first_parent: false,
        case: Definition::of("case", &json!({"of": id})),
        recipe: Definition::of("recipe", &json!({})),
        policy: Definition::of("policy", &json!({})),
        machines: vec!["m1".into()],
        priority: 0,
        recipients: recipients.collect(),
        request: json!({}),
    };
    assert!(matches!(
        store.submit(&submission).await.unwrap(),
        Submitted::Created(..)
    ));
    let words = Words {
        subject: "[perfbisect] 4b9d0e6fa1c2 (\"pipe: Jörg's change\") costs 4.9 % of ops_per_s".into(),
        mail: "First bad commit:\n.hidden line\n-- \nperfbisect\n".into(),
        webhook: "{\"type\":\"bisection.concluded\"}".into(),
    };
    let mut tx = store.pool.begin().await.unwrap();
    let written = owe(&mut tx, id, &words).await.unwrap();
    assert_eq!(written, submission.recipients.len() as u64);
    assert_eq!(owe(&mut tx, id, &words).await.unwrap(), 0, "owed once");
    tx.commit().await.unwrap();
    id
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/hook?from=perfbisect")
}

fn post(smtp_port: u16, allow_private_addresses: bool) -> Post {
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    writeln!(secret, "whsec_{}", STANDARD.encode(KEY)).unwrap();
    let mail = config::Mail {
        from: "perfbisect <perfbisect@lab.example.org>".into(),
        smtp_host: "127.0.0.1".into(),
        smtp_port,
        ..mail_defaults()
    };
    let webhook = config::Webhook {
        secret_file: secret.path().into(),
        allow_private_addresses,
    };
    Post::new(Some(&mail), Some(&webhook), "https://perf.example.org").unwrap()
}

fn mail_defaults() -> config::Mail {
    config::Mail {
        from: String::new(),
        smtp_host: String::new(),
        smtp_port: 0,
        tls: config::Tls::None,
        ca_file: None,
        user: None,
        password_file: None,
    }
}

/// A port that nobody listens on.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Time is the database's: what would come due later is due now.
async fn time_passes(store: &Store) {
    sqlx::query("update notices set next_try_at = now() - interval '1 s', leased_until = leased_until - interval '1 day'")
        .execute(&store.pool)
        .await
        .unwrap();
}

#[derive(sqlx::FromRow, Debug)]
struct Row {
    id: Uuid,
    state: String,
    tries: i32,
    last_error: Option<String>,
}

async fn rows(store: &Store, bisection: Uuid) -> Vec<Row> {
    sqlx::query_as(
        "select id, state, tries, last_error from notices where bisection_id = $1 order by channel, address",
    )
    .bind(bisection)
    .fetch_all(&store.pool)
    .await
    .unwrap()
}

async fn wait_s(store: &Store) -> f64 {
    sqlx::query_scalar("select extract(epoch from next_try_at - now())::float8 from notices")
        .fetch_one(&store.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn each_recipient_gets_exactly_one_message_though_all_were_down_at_first() {
    let store = store().await;
    let (smtp_port, http_port) = (closed_port(), closed_port());
    let bisection = owed(
        &store,
        &[
            (Channel::Mail, "Jörg <joerg@example.org>".into()),
            (Channel::Webhook, url(http_port)),
        ],
    )
    .await;
    let post = post(smtp_port, true);
    for tries in 1..=3 {
        assert_eq!(deliver_once(&store, &post).await.unwrap(), 0);
        for row in rows(&store, bisection).await {
            assert_eq!((row.state.as_str(), row.tries), ("waiting", tries));
            assert!(
                row.last_error.as_ref().is_some_and(|e| e.contains("refused")),
                "{row:?}"
            );
        }
        assert_eq!(
            deliver_once(&store, &post).await.unwrap(),
            0,
            "not before its time"
        );
        assert_eq!(rows(&store, bisection).await[0].tries, tries);
        time_passes(&store).await;
    }
    let smtp = Smtp::listen(smtp_port).await;
    let receiver = Receiver::listen(http_port).await;
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 2);
    time_passes(&store).await;
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 0);

    let rows = rows(&store, bisection).await;
    assert!(
        rows.iter()
            .all(|r| r.state == "sent" && r.last_error.is_none() && r.tries == 4),
        "{rows:?}"
    );
    let mails = smtp.inbox();
    assert_eq!(mails.len(), 1);
    let mail = &mails[0];
    assert_eq!(
        (mail.from.as_str(), &mail.to[..]),
        (
            "perfbisect@lab.example.org",
            &["joerg@example.org".to_string()][..]
        )
    );
    assert_eq!(
        mail.header("Message-ID").unwrap(),
        format!("<{}@perf.example.org>", rows[0].id)
    );
    assert_eq!(
        mail.header("From").unwrap(),
        "perfbisect <perfbisect@lab.example.org>"
    );
    assert!(mail.header("Date").is_some() && mail.header("To").unwrap().contains("<joerg@example.org>"));
    assert_eq!(mail.header("Auto-Submitted").unwrap(), "auto-generated");
    assert_eq!(mail.header("MIME-Version").unwrap(), "1.0");
    assert!(
        mail.data
            .ends_with("First bad commit:\r\n.hidden line\r\n-- \r\nperfbisect\r\n"),
        "{}",
        mail.data
    );

    let calls = receiver.calls();
    assert_eq!(calls.len(), 1);
    let head = |name: &str| calls[0].headers[name].to_str().unwrap().to_string();
    assert_eq!(head("webhook-id"), rows[1].id.to_string());
    assert_eq!(head("content-type"), "application/json");
    assert_eq!(calls[0].body, "{\"type\":\"bisection.concluded\"}");
    // As a receiver checks it, from the secret and what came over the wire alone.
    let mut mac = Hmac::<Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(
        format!(
            "{}.{}.{}",
            head("webhook-id"),
            head("webhook-timestamp"),
            calls[0].body
        )
        .as_bytes(),
    );
    let signature = STANDARD
        .decode(head("webhook-signature").strip_prefix("v1,").unwrap())
        .unwrap();
    mac.verify_slice(&signature).expect("the signature holds");
}

#[tokio::test]
async fn a_daemon_that_dies_after_acceptance_sends_a_second_copy_of_the_same_id() {
    let store = store().await;
    let smtp = Smtp::listen(0).await;
    let bisection = owed(&store, &[(Channel::Mail, "a@example.org".into())]).await;
    smtp.set(Manner::AcceptsInSilence);
    let (its_store, its_post) = (store.clone(), post(smtp.address.port(), true));
    let daemon = tokio::spawn(async move { deliver_once(&its_store, &its_post).await });
    smtp.received(1).await;
    daemon.abort();
    assert!(daemon.await.unwrap_err().is_cancelled(), "it died while sending");

    smtp.set(Manner::Accepts);
    let post = post(smtp.address.port(), true);
    assert_eq!(
        deliver_once(&store, &post).await.unwrap(),
        0,
        "leased to the dead one"
    );
    time_passes(&store).await;
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 1);
    let mails = smtp.inbox();
    assert_eq!(mails.len(), 2);
    let id = |at: usize| mails[at].header("Message-ID").unwrap();
    assert_eq!(id(0), id(1));
    assert_eq!(rows(&store, bisection).await[0].state, "sent");
}

#[tokio::test]
async fn two_coordinators_send_one_copy() {
    let store = store().await;
    let smtp = Smtp::listen(0).await;
    let recipients: Vec<_> = (0..20)
        .map(|n| (Channel::Mail, format!("u{n}@example.org")))
        .collect();
    owed(&store, &recipients).await;
    let post = Arc::new(post(smtp.address.port(), true));
    let run = || {
        let (store, post) = (store.clone(), post.clone());
        tokio::spawn(async move { deliver_once(&store, &post).await.unwrap() })
    };
    let (one, other) = (run(), run());
    assert_eq!(one.await.unwrap() + other.await.unwrap(), 20);
    let mut told: Vec<String> = smtp.inbox().into_iter().flat_map(|m| m.to).collect();
    told.sort();
    told.dedup();
    assert_eq!((smtp.inbox().len(), told.len()), (20, 20));
}

#[tokio::test]
async fn answers_that_mean_later_and_answers_that_mean_never() {
    let store = store().await;
    let smtp = Smtp::listen(0).await;
    let post = post(smtp.address.port(), true);
    let bisection = owed(&store, &[(Channel::Mail, "a@example.org".into())]).await;
    smtp.set(Manner::Later);
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 0);
    assert!((14.0..20.0).contains(&wait_s(&store).await));
    time_passes(&store).await;
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 0);
    assert!((29.0..40.0).contains(&wait_s(&store).await), "twice as long");
    smtp.set(Manner::Refuses);
    time_passes(&store).await;
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 0);
    let row = rows(&store, bisection).await.remove(0);
    assert_eq!(row.state, "failed");
    assert!(row.last_error.unwrap().contains("no such user here"));

    time_passes(&store).await;
    smtp.set(Manner::Accepts);
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 0, "given up");
    assert!(store.resend_notice(row.id).await.unwrap());
    assert_eq!(deliver_once(&store, &post).await.unwrap(), 1);
    assert!(
        !store.resend_notice(row.id).await.unwrap(),
        "what was sent is not sent again"
    );
    assert_eq!(smtp.inbox().len(), 1);
}

#[tokio::test]
async fn webhooks_are_not_redirected_and_not_sent_inside() {
    let store = store().await;
    let receiver = Receiver::listen(0).await;
    let bisection = owed(&store, &[(Channel::Webhook, url(receiver.port))]).await;
    let cases = [
        (503, "waiting"),
        (429, "waiting"),
        (404, "waiting"),
        (307, "failed"),
        (410, "failed"),
    ];
    for (at, (status, state)) in cases.into_iter().enumerate() {
        receiver.set(StatusCode::from_u16(status).unwrap());
        assert_eq!(deliver_once(&store, &post(1, true)).await.unwrap(), 0);
        let row = rows(&store, bisection).await.remove(0);
        assert_eq!(row.state, state, "{row:?}");
        assert!(
            row.last_error.as_ref().unwrap().contains(&status.to_string()),
            "{row:?}"
        );
        assert_eq!(
            receiver.calls().len(),
            at + 1,
            "one call, no other one to where it points"
        );
        store.resend_notice(row.id).await.unwrap();
        time_passes(&store).await;
    }
    let ids: Vec<_> = receiver
        .calls()
        .iter()
        .map(|c| c.headers["webhook-id"].clone())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "one id at every try");

    assert_eq!(deliver_once(&store, &post(1, false)).await.unwrap(), 0);
    let row = rows(&store, bisection).await.remove(0);
    assert!(
        row.state == "failed"
            && row
                .last_error
                .as_ref()
                .unwrap()
                .contains("allow_private_addresses"),
        "{row:?}"
    );
    assert_eq!(receiver.calls().len(), cases.len());
}

#[tokio::test]
async fn after_the_last_try_it_is_given_up_and_not_forgotten() {
    let store = store().await;
    let bisection = owed(&store, &[(Channel::Mail, "a@example.org".into())]).await;
    sqlx::query("update notices set tries = $1")
        .bind(TRIES_LIMIT - 1)
        .execute(&store.pool)
        .await
        .unwrap();
    assert_eq!(deliver_once(&store, &post(closed_port(), true)).await.unwrap(), 0);
    let row = rows(&store, bisection).await.remove(0);
    assert!(
        row.state == "failed" && row.last_error.as_ref().unwrap().contains("refused"),
        "{row:?}"
    );
    let told: Vec<String> = sqlx::query_scalar("select text from events where kind = 'not told'")
        .fetch_all(&store.pool)
        .await
        .unwrap();
    assert!(told.len() == 1 && told[0].contains("given up"), "{told:?}");
}

#[tokio::test]
async fn a_rolled_back_conclusion_owes_nothing() {
    let store = store().await;
    let words = Words {
        subject: "s".into(),
        mail: "m".into(),
        webhook: "{}".into(),
    };
    let bisection = owed(&store, &[]).await;
    sqlx::query(
        "insert into recipients (bisection_id, channel, address) values ($1, 'mail', 'a@example.org')",
    )
    .bind(bisection)
    .execute(&store.pool)
    .await
    .unwrap();
    let mut tx = store.pool.begin().await.unwrap();
    assert_eq!(owe(&mut tx, bisection, &words).await.unwrap(), 1);
    tx.rollback().await.unwrap();
    assert!(rows(&store, bisection).await.is_empty());
}

/// Implicit TLS against openssl's own server, with a certificate of a private authority.
#[tokio::test]
async fn mail_over_tls_trusts_the_configured_authority_and_no_other() {
    use std::process::Stdio;
    use tokio::io::AsyncReadExt;
    let folder = tempfile::tempdir().unwrap();
    let certificate = |args: &str| {
        let args = args
            .split(' ')
            .chain(["-newkey", "rsa:2048", "-nodes", "-days", "2"]);
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509"])
            .args(args)
            .current_dir(&folder)
            .output();
        let made = made.expect("openssl is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    certificate("-subj /CN=authority -keyout ca-key.pem -out ca.pem");
    certificate(
        "-subj /CN=localhost -keyout key.pem -out cert.pem -CA ca.pem -CAkey ca-key.pem \
         -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE",
    );
    let store = store().await;
    let bisection = owed(&store, &[(Channel::Mail, "a@example.org".into())]).await;
    for (trusted, sent) in [(false, 0), (true, 1)] {
        let port = closed_port();
        let mut server = tokio::process::Command::new("openssl")
            .args([
                "s_server", "-quiet", "-naccept", "1", "-cert", "cert.pem", "-key", "key.pem",
            ])
            .args(["-accept", &format!("127.0.0.1:{port}")])
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let listening = || {
            std::fs::read_to_string("/proc/net/tcp")
                .unwrap()
                .contains(&format!("0100007F:{port:04X} 00000000:0000 0A"))
        };
        let limit = std::time::Duration::from_secs(30);
        lab::wait::until_async("openssl s_server", limit, async || listening().then_some(())).await;
        let inbox = Arc::new(tokio::sync::watch::channel(Vec::new()).0);
        let (read, write) = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
        let its_inbox = inbox.clone();
        let talk = tokio::spawn(async move {
            let _ = lab::smtp::talk(
                read.chain(tokio::io::empty()),
                write,
                &Mutex::new(Manner::Accepts),
                &its_inbox,
            )
            .await;
        });
        let mail = config::Mail {
            from: "p@example.org".into(),
            smtp_host: "localhost".into(),
            smtp_port: port,
            tls: config::Tls::Implicit,
            ca_file: trusted.then(|| folder.path().join("ca.pem")),
            ..mail_defaults()
        };
        let post = Post::new(Some(&mail), None, "").unwrap();
        assert_eq!(
            deliver_once(&store, &post).await.unwrap(),
            sent,
            "{:?}",
            rows(&store, bisection).await
        );
        assert_eq!(inbox.borrow().len(), sent);
        talk.abort();
        time_passes(&store).await;
    }
}
