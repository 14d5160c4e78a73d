//! From nothing to a session that is logged in. Blocking, with a limit on each step.

use super::Route;
use super::host_key::{fingerprint, inner_kind};
use crate::fleet::FleetError;
use socket2::{SockRef, TcpKeepalive};
use ssh2::{ErrorCode, MethodType, Session};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Data that the peer's kernel does not acknowledge for so long ends the connection; nothing else notices a dead
/// line while we keep sending.
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// Probes on a line without traffic.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// sshd counts refused keys and hangs up after six.
const AGENT_KEYS: usize = 5;

/// AES-GCM is the quickest of those that every sshd of the last ten years has.
const CIPHERS: &str =
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-ctr";

const BANNER_RECV: i32 = -2;
const KEX_FAILURE: i32 = -5;
const SOCKET_SEND: i32 = -7;
const SOCKET_DISCONNECT: i32 = -13;
const FILE: i32 = -16;
const METHOD_NONE: i32 = -17;
const AUTHENTICATION_FAILED: i32 = -18;
const PUBLICKEY_UNVERIFIED: i32 = -19;
const AGENT_PROTOCOL: i32 = -42;
const SOCKET_RECV: i32 = -43;

pub enum Trouble {
    /// The host drops connections because it has too many that are not logged in: try again.
    Busy(String),
    Other(FleetError),
}

impl From<FleetError> for Trouble {
    fn from(error: FleetError) -> Self {
        Trouble::Other(error)
    }
}

pub struct LoggedIn {
    pub session: Session,
    /// The same socket as the session's.
    pub socket: TcpStream,
}

pub fn log_in(route: &Route) -> Result<LoggedIn, Trouble> {
    let socket = connect(route)?;
    let broken = |e: std::io::Error| route.unreachable(e.to_string());
    let own = socket.try_clone().map_err(broken)?;
    let mut session = Session::new().map_err(|e| route.unreachable(e.to_string()))?;
    session.set_timeout(route.limit.as_millis() as u32);
    prefer(&session, MethodType::HostKey, route.host_key.algorithms());
    prefer(&session, MethodType::CryptCs, CIPHERS);
    prefer(&session, MethodType::CryptSc, CIPHERS);
    session.set_tcp_stream(socket);
    let outcome = shake_hands(route, &mut session).and_then(|()| Ok(authenticate(route, &session)?));
    if let Err(e) = outcome {
        // Without this, dropping the session waits for a peer that may be gone.
        let _ = own.shutdown(std::net::Shutdown::Both);
        return Err(e);
    }
    Ok(LoggedIn { session, socket: own })
}

/// A preference this libssh2 does not know is none that could be negotiated; the handshake then says so.
fn prefer(session: &Session, what: MethodType, names: &str) {
    let _ = session.method_pref(what, names);
}

fn connect(route: &Route) -> Result<TcpStream, FleetError> {
    let addresses = (route.host.as_str(), route.port)
        .to_socket_addrs()
        .map_err(|e| route.unreachable(format!("its name is not known: {e}")))?;
    let mut last = route.unreachable("its name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, route.limit) {
            Ok(socket) => {
                set_options(&socket).map_err(|e| route.unreachable(e.to_string()))?;
                return Ok(socket);
            }
            Err(e) => last = route.unreachable(e.to_string()),
        }
    }
    Err(last)
}

fn set_options(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(socket);
    options.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE)
        .with_retries(KEEPALIVE_PROBES);
    options.set_tcp_keepalive(&probes)
}

fn shake_hands(route: &Route, session: &mut Session) -> Result<(), Trouble> {
    let mismatch = |shown: String| FleetError::HostKey {
        machine: route.machine.clone(),
        address: route.address(),
        pinned: route.host_key.fingerprint(),
        shown,
    };
    if let Err(e) = session.handshake() {
        return Err(match e.code() {
            ErrorCode::Session(BANNER_RECV | SOCKET_SEND | SOCKET_DISCONNECT | SOCKET_RECV) => {
                Trouble::Busy(format!("it hung up during the handshake ({e})"))
            }
            ErrorCode::Session(KEX_FAILURE | METHOD_NONE) => {
                mismatch(format!("none of this type, or nothing else in common ({e})")).into()
            }
            _ => route.unreachable(e.to_string()).into(),
        });
    }
    match session.host_key() {
        Some((shown, _)) if shown == route.host_key.raw => Ok(()),
        Some((shown, _)) => {
            let kind = String::from_utf8_lossy(inner_kind(shown).unwrap_or_default()).into_owned();
            Err(mismatch(format!("{kind} {}", fingerprint(shown))).into())
        }
        None => Err(mismatch("none".into()).into()),
    }
}

fn authenticate(route: &Route, session: &Session) -> Result<(), FleetError> {
    let refused = |what: String| FleetError::Auth {
        machine: route.machine.clone(),
        user: route.user.clone(),
        address: route.address(),
        what,
    };
    let told = |e: ssh2::Error, what: String| match e.code() {
        ErrorCode::Session(
            FILE | METHOD_NONE | AUTHENTICATION_FAILED | PUBLICKEY_UNVERIFIED | AGENT_PROTOCOL,
        ) => refused(what),
        _ => route.unreachable(e.to_string()),
    };
    match &route.key_file {
        Some(file) => {
            std::fs::File::open(file)
                .map_err(|e| refused(format!("the key file {} cannot be read: {e}", file.display())))?;
            session.userauth_pubkey_file(&route.user, None, file, None).map_err(|e| {
                let what = format!(
                    "the key {} was not taken ({e}). Put its public half in that user's authorized_keys; a key \
                     with a passphrase belongs in an ssh-agent (leave ssh.key_file out)",
                    file.display()
                );
                told(e, what)
            })
        }
        None => by_agent(route, session, &told, &refused),
    }
}

fn by_agent(
    route: &Route,
    session: &Session,
    told: &dyn Fn(ssh2::Error, String) -> FleetError,
    refused: &dyn Fn(String) -> FleetError,
) -> Result<(), FleetError> {
    let no_agent = |e: ssh2::Error| {
        refused(format!(
            "no ssh-agent answers at SSH_AUTH_SOCK ({e}); start one, or set ssh.key_file"
        ))
    };
    let mut agent = session.agent().map_err(no_agent)?;
    agent.connect().map_err(no_agent)?;
    agent.list_identities().map_err(no_agent)?;
    let keys = agent.identities().map_err(no_agent)?;
    let mut last = refused("the ssh-agent holds no key".into());
    for key in keys.iter().take(AGENT_KEYS) {
        match agent.userauth(&route.user, key) {
            Ok(()) => return Ok(()),
            Err(e) => {
                let what = format!("none of the ssh-agent's first {AGENT_KEYS} keys was taken ({e})");
                last = told(e, what);
            }
        }
    }
    Err(last)
}
