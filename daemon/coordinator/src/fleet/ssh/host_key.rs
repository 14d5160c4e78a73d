//! The pinned host key: the one file of known hosts that counts is our own configuration.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// As in a public key file; compared by its raw bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey {
    kind: String,
    pub raw: Vec<u8>,
}

impl HostKey {
    pub fn parse(text: &str) -> Result<HostKey, String> {
        let mut words = text.split_whitespace();
        let (Some(kind), Some(encoded)) = (words.next(), words.next()) else {
            return Err("it must look like `ssh-ed25519 AAAA…`".into());
        };
        if kind.starts_with('@') {
            return Err(format!(
                "it begins with the marker `{kind}`: a plain key is needed"
            ));
        }
        let raw = STANDARD
            .decode(encoded)
            .map_err(|e| format!("its second word is no base64: {e}"))?;
        if inner_kind(&raw) != Some(kind.as_bytes()) {
            return Err(format!("its second word is no key of type `{kind}`"));
        }
        Ok(HostKey {
            kind: kind.into(),
            raw,
        })
    }

    /// What to ask the server for, so that it shows this key and not another of its keys.
    pub fn algorithms(&self) -> &str {
        match self.kind.as_str() {
            "ssh-rsa" => "rsa-sha2-512,rsa-sha2-256",
            kind => kind,
        }
    }

    pub fn fingerprint(&self) -> String {
        format!("{} {}", self.kind, fingerprint(&self.raw))
    }
}

/// As `ssh-keygen -l` writes it.
pub fn fingerprint(raw: &[u8]) -> String {
    let digest = base64::engine::general_purpose::STANDARD_NO_PAD.encode(Sha256::digest(raw));
    format!("SHA256:{digest}")
}

/// The type that a key's own bytes begin with.
pub fn inner_kind(raw: &[u8]) -> Option<&[u8]> {
    let (length, rest) = raw.split_first_chunk::<4>()?;
    rest.get(..u32::from_be_bytes(*length) as usize)
}
