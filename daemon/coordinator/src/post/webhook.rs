//! One letter to an HTTP receiver, signed as Standard Webhooks has it.
//!
//! The address comes from a request, so it is not trusted: http and https only, no redirects, a limit on time, and
//! no receiver inside (loopback, private networks) unless the configuration allows it. The name is resolved
//! once: what was checked is what is connected to.

use super::mail::with_causes;
use super::{Letter, NotSent};
use crate::config;
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// From the connection to the answer's head.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Shorter secrets are guessed; Standard Webhooks asks for 24 to 64 bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

pub struct Webhook {
    secret: SecretSlice<u8>,
    allow_private: bool,
}

impl Webhook {
    pub fn new(config: &config::Webhook) -> anyhow::Result<Webhook> {
        let path = config.secret_file.display();
        let text = std::fs::read_to_string(&config.secret_file)
            .with_context(|| format!("webhook.secret_file: {path} cannot be read"))?;
        let secret = secret(&text).with_context(|| format!("webhook.secret_file: {path}"))?;
        // The process' one provider; a second call is told that there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Webhook {
            secret,
            allow_private: config.allow_private_addresses,
        })
    }

    pub async fn send(&self, letter: &Letter) -> Result<(), NotSent> {
        let never = |text: String| NotSent::Never(format!("{}: {text}", letter.address));
        let later = |text: String| NotSent::Later(format!("{}: {text}", letter.address));
        let url = reqwest::Url::parse(&letter.address).map_err(|e| never(format!("no URL: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(never("only http and https are sent to".into()));
        }
        let host = url.host_str().ok_or_else(|| never("no host".into()))?.to_string();
        let addresses = resolve(&url)
            .await
            .map_err(|e| later(format!("{host} cannot be resolved: {e}")))?;
        if !self.allow_private
            && let Some(inside) = addresses.iter().find(|a| is_inside(a.ip()))
        {
            let ip = inside.ip();
            return Err(never(format!(
                "{host} is {ip}, on this machine or in a private network: set \
                webhook.allow_private_addresses if that is meant"
            )));
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_LIMIT)
            .resolve_to_addrs(host.trim_matches(['[', ']']), &addresses)
            .build()
            .map_err(|e| later(with_causes(&e)))?;
        let seconds = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        let answer = client
            .post(url)
            .header("content-type", "application/json")
            .header("user-agent", concat!("perfbisect/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", letter.id.to_string())
            .header("webhook-timestamp", seconds.to_string())
            .header(
                "webhook-signature",
                self.signature(letter.id, seconds, &letter.body),
            )
            .body(letter.body.clone())
            .send()
            .await
            .map_err(|e| later(with_causes(&e.without_url())))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(never(format!(
                "answered {status}: redirects are not followed, give the final address"
            ))),
            // Standard Webhooks: gone means the receiver does not want any more.
            reqwest::StatusCode::GONE => Err(never("answered 410 Gone".into())),
            status => Err(later(format!("answered {status}"))),
        }
    }

    /// `v1,` and base64 of HMAC-SHA256 over `id.timestamp.body`.
    pub fn signature(&self, id: Uuid, timestamp_s: u64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.expose_secret())
            .expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp_s}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

fn secret(text: &str) -> anyhow::Result<SecretSlice<u8>> {
    let encoded = text
        .trim()
        .strip_prefix("whsec_")
        .context("a secret begins with `whsec_`")?;
    let bytes = STANDARD.decode(encoded).context("after `whsec_` comes base64")?;
    let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
    anyhow::ensure!(
        SECRET_BYTES.contains(&bytes.len()),
        "a secret has {least} to {most} bytes, this one {}: make one with \
         `echo whsec_$(openssl rand -base64 32)`",
        bytes.len()
    );
    Ok(bytes.into())
}

async fn resolve(url: &reqwest::Url) -> std::io::Result<Vec<SocketAddr>> {
    let port = url.port_or_known_default().unwrap_or(443);
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => tokio::time::timeout(ANSWER_LIMIT, tokio::net::lookup_host((host, port)))
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??
            .collect(),
    };
    if found.is_empty() {
        Err(std::io::Error::other("no address"))
    } else {
        Ok(found)
    }
}

/// Not on the public internet: loopback, private, link-local (cloud metadata), shared, documentation, multicast …
fn is_inside(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_inside_4(ip),
        IpAddr::V6(ip) => is_inside_6(ip),
    }
}

fn is_inside_4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_multicast()
        || ip.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (b & 0xc0) == 64) // shared by carriers
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 198 && (b & 0xfe) == 18) // benchmarks
}

fn is_inside_6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    // An IPv4 address in IPv6 clothes: mapped, compatible, NAT64, 6to4.
    let embedded = match segments {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((high, low)),
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = embedded {
        let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
        return is_inside_4(Ipv4Addr::new(a, b, c, d));
    }
    ip.is_multicast()
        || (segments[0] & 0xfe00) == 0xfc00 // unique local
        || (segments[0] & 0xffc0) == 0xfe80 // link-local
        || (segments[0] & 0xffc0) == 0xfec0 // site-local, long deprecated
        || (segments[0] == 0x2001 && segments[1] == 0xdb8) // documentation
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn webhook(allow_private: bool) -> Webhook {
        Webhook {
            secret: secret(SECRET).unwrap(),
            allow_private,
        }
    }

    /// openssl's HMAC over the same bytes; the key is the decoded secret, in hex.
    #[test]
    fn the_signature_is_what_openssl_computes() {
        let id = Uuid::from_u128(0xabc);
        let body = "{\"type\":\"bisection.concluded\",\"ü\":1}";
        let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
        let hex: String = key.iter().map(|b| format!("{b:02x}")).collect();
        let mut openssl = Command::new("openssl")
            .args([
                "dgst",
                "-sha256",
                "-mac",
                "HMAC",
                "-macopt",
                &format!("hexkey:{hex}"),
                "-binary",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("openssl is installed");
        openssl
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{id}.1800000000.{body}").as_bytes())
            .unwrap();
        let digest = openssl.wait_with_output().unwrap();
        assert!(digest.status.success());
        let expected = format!("v1,{}", STANDARD.encode(digest.stdout));
        assert_eq!(webhook(false).signature(id, 1_800_000_000, body), expected);
    }

    #[test]
    fn secrets_are_checked() {
        for (text, word) in [
            ("abc", "whsec_"),
            ("whsec_!!", "base64"),
            ("whsec_c2hvcnQ=", "24 to 64"),
        ] {
            let error = format!("{:#}", secret(text).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
        assert!(secret(&format!("{SECRET}\n")).is_ok());
    }

    #[tokio::test]
    async fn receivers_inside_are_refused() {
        let letter = |address: &str| Letter {
            id: Uuid::nil(),
            address: address.into(),
            subject: String::new(),
            body: "{}".into(),
        };
        for address in [
            "http://127.0.0.1:9/",
            "http://localhost:9/",
            "http://[::1]:9/",
            "http://[::ffff:10.0.0.1]/",
            "http://169.254.169.254/latest/",
            "http://0x7f.1/",
            "http://2130706433/",
            "https://192.168.1.1/",
            "ftp://example.org/",
            "nonsense",
        ] {
            let refused = webhook(false).send(&letter(address)).await;
            assert!(
                matches!(refused, Err(NotSent::Never(_))),
                "{address}: {refused:?}"
            );
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        let nobody = webhook(true).send(&letter("http://127.0.0.1:1/")).await;
        assert!(
            matches!(&nobody, Err(NotSent::Later(e)) if e.contains("refused")),
            "{nobody:?}"
        );
    }

    #[test]
    fn public_addresses_are_not_inside() {
        for ip in [
            "8.8.8.8",
            "1.1.1.1",
            "100.63.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_inside(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "100.64.0.1",
            "198.18.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "fe80::1",
            "fd00::1",
            "::",
            "64:ff9b::a00:1",
        ] {
            assert!(is_inside(ip.parse().unwrap()), "{ip}");
        }
    }
}
