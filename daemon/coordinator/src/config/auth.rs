//! `[auth]`: with it everybody needs a token; without it the daemon is open to who reaches loopback, and listens there only.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Reading needs no token.
    #[serde(default)]
    pub public_read: bool,
    /// How long a browser stays known after its token was shown.
    #[serde(default = "default_session_hours")]
    pub session_hours: u16,
}

/// A working day; who stays longer shows the token again.
fn default_session_hours() -> u16 {
    12
}
