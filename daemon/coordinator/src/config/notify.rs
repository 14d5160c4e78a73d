//! How results are told: mail and webhooks.

use serde::Deserialize;
use std::path::PathBuf;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    pub from: String,
    pub smtp_host: String,
    #[serde(default = "default_smtp_port")]
    pub smtp_port: u16,
    #[serde(default)]
    pub tls: Tls,
    /// Certificate (PEM) of a private authority that the server's own is checked against, besides the public ones.
    pub ca_file: Option<PathBuf>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
}

fn default_smtp_port() -> u16 {
    25
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Plain text: for a relay on this machine.
    #[default]
    None,
    Starttls,
    Implicit,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Holds the signing secret, `whsec_` and base64, as Standard Webhooks has it.
    pub secret_file: PathBuf,
    /// Receivers on loopback or private addresses are refused unless this is set.
    #[serde(default)]
    pub allow_private_addresses: bool,
}
