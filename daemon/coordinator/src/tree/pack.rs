//! A pack of one tree object, streamed out of `git pack-objects`.

use super::TreeError;
use super::git;
use super::mirror::Mirror;
use git2::Oid;
use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::process::{Child, ChildStdout};

/// The bytes of the pack. Ends with an error, not with a short pack, if git does not end well; dropped early, it
/// ends git.
pub struct Pack {
    stdout: ChildStdout,
    end: Pin<Box<dyn Future<Output = std::io::Result<()>> + Send + Sync>>,
    ended: bool,
}

pub async fn pack(mirror: &Mirror, oid: &str, have: &[String]) -> Result<Pack, TreeError> {
    let (wanted, offered, tree) = (oid.to_string(), have.to_vec(), mirror.tree.clone());
    // A base that this mirror does not know would make git refuse the whole pack.
    let known = move |repo: &git2::Repository| {
        let odb = repo.odb()?;
        let exists = |id: &String| Oid::from_str(id).is_ok_and(|oid| odb.exists(oid));
        match exists(&wanted) {
            true => Ok(offered
                .into_iter()
                .filter(|id| *id != wanted && exists(id))
                .collect::<Vec<String>>()),
            false => Err(TreeError::MissingObject {
                tree,
                oid: wanted.clone(),
            }),
        }
    };
    let bases = mirror.read(known).await?;
    let mut command = git::git(&mirror.folder);
    command
        .args(["pack-objects", "--revs", "--thin", "--stdout", "-q"])
        .stdin(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("was piped");
    let mut lines = format!("{oid}\n");
    bases
        .iter()
        .for_each(|base| lines.push_str(&format!("^{base}\n")));
    stdin.write_all(lines.as_bytes()).await?;
    drop(stdin);
    let stdout = child.stdout.take().expect("was piped");
    Ok(Pack {
        stdout,
        end: Box::pin(end_of(child)),
        ended: false,
    })
}

async fn end_of(child: Child) -> std::io::Result<()> {
    let ended = child.wait_with_output().await?;
    match ended.status.success() {
        true => Ok(()),
        false => {
            let message = String::from_utf8_lossy(&ended.stderr).into_owned();
            Err(std::io::Error::other(format!(
                "git pack-objects: {}: {}",
                ended.status,
                message.trim()
            )))
        }
    }
}

impl AsyncRead for Pack {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stdout).poll_read(cx, buf))?;
        if buf.filled().len() > before || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(self.end.as_mut().poll(cx))?;
        self.ended = true;
        Poll::Ready(Ok(()))
    }
}
