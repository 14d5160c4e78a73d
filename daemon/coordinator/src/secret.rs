//! Secrets that the daemon gives out: 256 random bits, of which it keeps the digest only.
//!
//! So much randomness needs no slow hash: nobody tries 2^256 tokens.

use crate::store::tokens::Digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// So that a token which lies about is known for what it is, also by scanners of published code.
const MARK: &str = "pbt_";

/// Shown once, to whom it is for.
pub struct Secret(String);

impl Secret {
    pub fn draw() -> anyhow::Result<Secret> {
        let mut bits = [0u8; 32];
        getrandom::fill(&mut bits).map_err(|e| anyhow::anyhow!("the system gives no random bits: {e}"))?;
        Ok(Secret(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bits))))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn digest(&self) -> Digest {
        digest(&self.0)
    }
}

pub fn digest(secret: &str) -> Digest {
    Sha256::digest(secret.as_bytes()).into()
}

/// Of one secret for another use: who knows it cannot tell the secret.
pub fn derived(secret: &str, what_for: &str) -> String {
    let digest = Sha256::digest(format!("{what_for}\0{secret}").as_bytes());
    URL_SAFE_NO_PAD.encode(digest)
}

/// Takes as long for any two texts of a length: digests are compared, and which ones nobody can choose.
pub fn same(one: &str, other: &str) -> bool {
    digest(one) == digest(other)
}
