//! Telling people: what a conclusion looks like as a mail and as a webhook, and how each is sent.
//!
//! `report` is text only; `mail` and `webhook` carry one finished letter to one address and say how it went. When
//! to send, how often to try and what was sent before is the outbox's business (`store::notices`,
//! `passes::deliver`): this room must *not* know the database, nor what a plan decides.

pub mod mail;
pub mod report;
pub mod webhook;

use uuid::Uuid;

/// One finished message. Its id is the same at every try, so that a receiver can tell a second copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Letter {
    pub id: Uuid,
    pub address: String,
    pub subject: String,
    pub body: String,
}

/// Why a letter was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotSent {
    /// Nobody there, too busy, or an answer that means 'later'.
    #[error("{0}")]
    Later(String),
    /// It will not be taken however often it is tried: until somebody changes the address or the configuration.
    #[error("{0}")]
    Never(String),
}

/// The ways out that are configured.
pub struct Post {
    mail: Option<mail::Mailer>,
    webhook: Option<webhook::Webhook>,
}

impl Post {
    pub fn open(config: &crate::config::Config) -> anyhow::Result<Post> {
        Post::new(
            config.file.mail.as_ref(),
            config.file.webhook.as_ref(),
            &config.base_url(),
        )
    }

    /// Reads the secrets that the configuration names. The base URL's host is the right part of Message-IDs.
    pub fn new(
        mail: Option<&crate::config::Mail>,
        webhook: Option<&crate::config::Webhook>,
        base_url: &str,
    ) -> anyhow::Result<Post> {
        let host = mail::host_of(base_url);
        let mail = mail.map(|m| mail::Mailer::new(m, &host)).transpose()?;
        let webhook = webhook.map(webhook::Webhook::new).transpose()?;
        Ok(Post { mail, webhook })
    }

    pub async fn mail(&self, letter: &Letter) -> Result<(), NotSent> {
        match &self.mail {
            Some(mailer) => mailer.send(letter).await,
            None => Err(NotSent::Later(
                "no mail server is configured: write [mail] in the configuration".into(),
            )),
        }
    }

    pub async fn webhook(&self, letter: &Letter) -> Result<(), NotSent> {
        match &self.webhook {
            Some(webhook) => webhook.send(letter).await,
            None => Err(NotSent::Later(
                "no signing secret is configured: write [webhook]".into(),
            )),
        }
    }
}
