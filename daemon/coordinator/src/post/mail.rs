//! One letter over SMTP, as plain text.

use super::{Letter, NotSent};
use crate::config::{Mail, Tls};
use anyhow::Context;
use lettre::message::header::{ContentType, MIME_VERSION_1_0};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls as ClientTls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use secrecy::{ExposeSecret, SecretString};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// Per command; a relay that greylists answers at once, one that is overloaded may take its time.
const SMTP_LIMIT: Duration = Duration::from_secs(30);

pub struct Mailer {
    from: Mailbox,
    /// Right part of every Message-ID.
    host: String,
    transport: AsyncSmtpTransport<Tokio1Executor>,
}

impl Mailer {
    pub fn new(mail: &Mail, host: &str) -> anyhow::Result<Mailer> {
        let from = mail
            .from
            .parse()
            .with_context(|| format!("mail.from = \"{}\" is no address", mail.from))?;
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&mail.smtp_host)
            .port(mail.smtp_port)
            .timeout(Some(SMTP_LIMIT))
            .tls(match mail.tls {
                Tls::None => ClientTls::None,
                Tls::Starttls => ClientTls::Required(tls_parameters(mail)?),
                Tls::Implicit => ClientTls::Wrapper(tls_parameters(mail)?),
            });
        match (&mail.user, &mail.password_file) {
            (Some(user), Some(path)) => {
                anyhow::ensure!(
                    mail.tls != Tls::None || is_this_machine(&mail.smtp_host),
                    "mail.tls = \"none\" would send the password in the clear to {}: write \"starttls\" or \"implicit\"",
                    mail.smtp_host
                );
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("mail.password_file: {} cannot be read", path.display()))?;
                let password = SecretString::from(text.trim_end_matches(['\r', '\n']).to_string());
                builder =
                    builder.credentials(Credentials::new(user.clone(), password.expose_secret().into()));
            }
            (None, None) => {}
            _ => anyhow::bail!("mail.user and mail.password_file go together: write both or neither"),
        }
        Ok(Mailer {
            from,
            host: host.to_string(),
            transport: builder.build(),
        })
    }

    pub async fn send(&self, letter: &Letter) -> Result<(), NotSent> {
        let message = self.message(letter, SystemTime::now())?;
        match self.transport.send(message).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let text = with_causes(&error);
                // 5xx is the server's last word; no connection, a time-out and 4xx are not.
                Err(if error.is_permanent() {
                    NotSent::Never(text)
                } else {
                    NotSent::Later(text)
                })
            }
        }
    }

    /// The message as sent; only `Date` differs between tries.
    pub fn message(&self, letter: &Letter, date: SystemTime) -> Result<Message, NotSent> {
        let to: Mailbox = letter
            .address
            .parse()
            .map_err(|e| NotSent::Never(format!("`{}` is no mail address: {e}", letter.address)))?;
        // lettre encodes what is not ASCII and breaks lines longer than SMTP allows (quoted-printable). Not
        // flowed: tables and the log have to stay as they are.
        // The end of DATA brings the last line end itself.
        let body = letter.body.trim_end_matches('\n').to_string();
        Message::builder()
            .from(self.from.clone())
            .to(to)
            .date(date)
            .message_id(Some(message_id(letter.id, &self.host)))
            .subject(letter.subject.clone())
            // Answered by no vacation programme and no other robot (RFC 3834).
            .raw_header(raw("Auto-Submitted", "auto-generated"))
            .raw_header(raw("X-Perfbisect-Notice", &letter.id.to_string()))
            .header(MIME_VERSION_1_0)
            .header(ContentType::TEXT_PLAIN)
            .body(body)
            .map_err(|e| NotSent::Never(format!("the message cannot be made: {e}")))
    }
}

fn tls_parameters(mail: &Mail) -> anyhow::Result<TlsParameters> {
    let mut builder = TlsParameters::builder(mail.smtp_host.clone());
    if let Some(path) = &mail.ca_file {
        let wrong = || format!("mail.ca_file: {}", path.display());
        let pem = std::fs::read(path).with_context(wrong)?;
        builder = builder.add_root_certificate(Certificate::from_pem(&pem).with_context(wrong)?);
    }
    Ok(builder.build()?)
}

fn raw(name: &'static str, value: &str) -> lettre::message::header::HeaderValue {
    let name = lettre::message::header::HeaderName::new_from_ascii_str(name);
    lettre::message::header::HeaderValue::new(name, value.to_string())
}

/// The same for every try of a notice.
pub fn message_id(notice: Uuid, host: &str) -> String {
    format!("<{notice}@{host}>")
}

/// The host of a base URL, for Message-IDs: `perfbisect.localdomain` where it is an address or has no dot.
pub fn host_of(base_url: &str) -> String {
    let authority = base_url
        .split("://")
        .last()
        .unwrap_or("")
        .split('/')
        .next()
        .unwrap_or("");
    let host = authority
        .rsplit('@')
        .next()
        .unwrap_or("")
        .split(':')
        .next()
        .unwrap_or("");
    let is_name = host.contains('.')
        && host.parse::<std::net::IpAddr>().is_err()
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    if is_name {
        host.to_ascii_lowercase()
    } else {
        "perfbisect.localdomain".into()
    }
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An error's own words and its causes', since the outermost ones often only say "network error".
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailer() -> Mailer {
        let mail = Mail {
            from: "perfbisect <perfbisect@lab.example.org>".into(),
            smtp_host: "localhost".into(),
            smtp_port: 25,
            tls: Tls::None,
            ca_file: None,
            user: None,
            password_file: None,
        };
        Mailer::new(&mail, "lab.example.org").unwrap()
    }

    fn letter(subject: &str, body: &str) -> Letter {
        Letter {
            id: Uuid::from_u128(7),
            address: "a@example.org".into(),
            subject: subject.into(),
            body: body.into(),
        }
    }

    #[tokio::test]
    async fn the_message_is_the_same_at_every_try_but_for_its_date() {
        let letter = letter("costs 4.9 % of ops", "hello\n-- \nperfbisect\n");
        let at = |s| {
            let message = mailer()
                .message(&letter, SystemTime::UNIX_EPOCH + Duration::from_secs(s))
                .unwrap();
            String::from_utf8(message.formatted()).unwrap()
        };
        let text = at(1_800_000_000);
        insta::assert_snapshot!(text.replace('\r', ""));
        let later = at(1_800_000_500);
        let changed = text.lines().zip(later.lines()).filter(|(a, b)| a != b).count();
        assert_eq!(changed, 1);
    }

    #[tokio::test]
    async fn no_line_is_too_long_for_smtp_and_nothing_is_lost() {
        let body = format!("name: Jörg 漢字\n{}\n.\n", "x".repeat(5000));
        let message = mailer()
            .message(&letter("Jörg", &body), SystemTime::UNIX_EPOCH)
            .unwrap()
            .formatted();
        let text = String::from_utf8(message).unwrap();
        assert!(text.split("\r\n").all(|l| l.len() <= 998), "RFC 5322, 2.1.1");
        assert!(text.is_ascii());
        assert!(!text.contains("format=flowed"));
    }

    #[tokio::test]
    async fn an_address_or_subject_from_outside_adds_no_header() {
        let mut bad = letter("x\r\nBcc: evil@example.org", "b");
        let text = String::from_utf8(
            mailer()
                .message(&bad, SystemTime::UNIX_EPOCH)
                .unwrap()
                .formatted(),
        )
        .unwrap();
        assert!(!text.contains("\r\nBcc:"), "{text}");
        bad.address = "a@example.org\r\nBcc: evil@example.org".into();
        assert!(matches!(
            mailer().message(&bad, SystemTime::UNIX_EPOCH),
            Err(NotSent::Never(_))
        ));
    }

    #[test]
    fn hosts_of_message_ids_are_names() {
        assert_eq!(host_of("https://Lab.example.org:8443/x"), "lab.example.org");
        assert_eq!(host_of("http://127.0.0.1:8642"), "perfbisect.localdomain");
        assert_eq!(host_of("http://[::1]:8642"), "perfbisect.localdomain");
        assert_eq!(host_of("nonsense"), "perfbisect.localdomain");
    }
}
