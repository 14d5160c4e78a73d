//! A mail server for tests: speaks SMTP (RFC 5321) on a real socket and keeps what it accepts.
//!
//! It is strict where a sloppy client would be caught: commands out of order are refused, lines have to end in
//! CRLF and be short enough, dots are unstuffed. How it answers can be set while it runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// RFC 5321, 4.5.3.1.6, without the CRLF.
const LINE_LIMIT: usize = 998;

/// A message as it came: after unstuffing, with CRLF line ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mail {
    pub from: String,
    pub to: Vec<String>,
    pub data: String,
}

impl Mail {
    /// The value of a header, unfolded.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self
            .data
            .split("\r\n\r\n")
            .next()?
            .replace("\r\n ", " ")
            .replace("\r\n\t", " ");
        let of_name = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_string())
        };
        head.split("\r\n").find_map(of_name)
    }
}

/// What it does with the next mail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Manner {
    #[default]
    Accepts,
    /// 450: greylisting.
    Later,
    /// 550: no such user.
    Refuses,
    /// Takes the message and never says so: the sender may die meanwhile.
    AcceptsInSilence,
}

pub struct Smtp {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    inbox: Arc<watch::Sender<Vec<Mail>>>,
    server: JoinHandle<()>,
}

impl Smtp {
    /// Port 0: any that is free.
    pub async fn listen(port: u16) -> Smtp {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("the port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let manner = Arc::new(Mutex::new(Manner::Accepts));
        let inbox = Arc::new(watch::channel(Vec::new()).0);
        let (its_manner, its_inbox) = (manner.clone(), inbox.clone());
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (manner, inbox) = (its_manner.clone(), its_inbox.clone());
                tokio::spawn(async move {
                    let (read, write) = stream.into_split();
                    // A client that hangs up in the middle is its own affair.
                    let _ = talk(read, write, &manner, &inbox).await;
                });
            }
        });
        Smtp {
            address,
            manner,
            inbox,
            server,
        }
    }

    pub fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn inbox(&self) -> Vec<Mail> {
        self.inbox.borrow().clone()
    }

    /// Until so many mails are there.
    pub async fn received(&self, count: usize) -> Vec<Mail> {
        let mut watching = self.inbox.subscribe();
        let enough = watching.wait_for(|mails| mails.len() >= count);
        let limit = std::time::Duration::from_secs(60);
        let mails = tokio::time::timeout(limit, enough)
            .await
            .expect("the mails come")
            .expect("the server lives");
        mails.clone()
    }
}

impl Drop for Smtp {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// One conversation, over whatever carries bytes.
pub async fn talk(
    read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    manner: &Mutex<Manner>,
    inbox: &watch::Sender<Vec<Mail>>,
) -> std::io::Result<()> {
    let mut read = BufReader::new(read);
    write.write_all(b"220 lab.test ESMTP\r\n").await?;
    let (mut greeted, mut from, mut to) = (false, None::<String>, Vec::<String>::new());
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let Some(command) = line.strip_suffix("\r\n") else {
            write.write_all(b"500 lines end in CRLF\r\n").await?;
            continue;
        };
        let verb = command
            .split([' ', ':'])
            .next()
            .unwrap_or("")
            .to_ascii_uppercase();
        let path = || Some(command.split_once('<')?.1.split_once('>')?.0.to_string());
        let now = *manner.lock().unwrap();
        let answer = match verb.as_str() {
            "EHLO" => {
                greeted = true;
                "250-lab.test\r\n250 8BITMIME\r\n"
            }
            "HELO" => {
                greeted = true;
                "250 lab.test\r\n"
            }
            "MAIL" if !greeted || from.is_some() => "503 bad sequence\r\n",
            "MAIL" => {
                from = path();
                if from.is_some() {
                    "250 ok\r\n"
                } else {
                    "501 FROM:<path>\r\n"
                }
            }
            "RCPT" if from.is_none() => "503 bad sequence\r\n",
            "RCPT" if now == Manner::Later => "450 greylisted, come back\r\n",
            "RCPT" if now == Manner::Refuses => "550 no such user here\r\n",
            "RCPT" => match path() {
                Some(path) => {
                    to.push(path);
                    "250 ok\r\n"
                }
                None => "501 TO:<path>\r\n",
            },
            "DATA" if to.is_empty() => "503 bad sequence\r\n",
            "DATA" => {
                write.write_all(b"354 go on\r\n").await?;
                match data(&mut read).await? {
                    Ok(data) => {
                        let mail = Mail {
                            from: from.take().unwrap_or_default(),
                            to: std::mem::take(&mut to),
                            data,
                        };
                        inbox.send_modify(|mails| mails.push(mail));
                        if now == Manner::AcceptsInSilence {
                            std::future::pending::<()>().await;
                        }
                        "250 taken\r\n"
                    }
                    Err(wrong) => wrong,
                }
            }
            "RSET" => {
                (from, to) = (None, Vec::new());
                "250 ok\r\n"
            }
            "NOOP" => "250 ok\r\n",
            "QUIT" => {
                write.write_all(b"221 bye\r\n").await?;
                return write.shutdown().await;
            }
            _ => "502 not here\r\n",
        };
        write.write_all(answer.as_bytes()).await?;
    }
}

async fn data(read: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<Result<String, &'static str>> {
    let mut data = String::new();
    let mut wrong = None;
    loop {
        let mut line = String::new();
        if read.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        match line.strip_suffix("\r\n") {
            Some(".") => return Ok(wrong.map_or(Ok(data), Err)),
            Some(text) if text.len() > LINE_LIMIT => wrong = Some("500 line too long\r\n"),
            Some(text) => {
                data += text.strip_prefix('.').unwrap_or(text);
                data += "\r\n";
            }
            None => wrong = Some("500 lines end in CRLF\r\n"),
        }
    }
}
