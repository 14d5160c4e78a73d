//! Built kernels and other large files, content-addressed: the name of a file is its SHA-256.
//!
//! A file that is here is whole and is what its name says: it was verified before it got its name. This room
//! knows nothing of bisections, machines or manifests.

use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes read at a time while a file is stored.
const CHUNK_BYTES: usize = 1 << 20;

/// Parts of one upload that may be in flight: bounds the memory of a `put` to so many parts of 5 MiB.
const PARTS_IN_FLIGHT: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("`{0}` is no SHA-256: 64 lower-case hexadecimal digits are needed")]
    Name(String),
    #[error(
        "the content that came for {wanted} is {found} ({bytes} bytes): it was damaged on its way, send it again"
    )]
    Mismatch {
        wanted: String,
        found: String,
        bytes: u64,
    },
    #[error("no file {0} is stored: it was never fetched or has been removed")]
    Missing(String),
    #[error("image store: {0}")]
    Store(#[from] object_store::Error),
    #[error("image store: {0}")]
    Io(#[from] std::io::Error),
}

#[derive(Clone)]
pub struct Images {
    root: PathBuf,
    store: Arc<dyn ObjectStore>,
}

impl Images {
    /// The store under `state_dir/images`, made if it is not there.
    pub async fn open(state_dir: &Path) -> Result<Images, ImageError> {
        let root = state_dir.join("images");
        tokio::fs::create_dir_all(&root).await?;
        let store = LocalFileSystem::new_with_prefix(&root)?;
        Ok(Images {
            root,
            store: Arc::new(store),
        })
    }

    /// Stores what `content` yields under `sha256`, or nothing if it yields anything else.
    pub async fn put(&self, sha256: &str, mut content: impl AsyncRead + Unpin) -> Result<u64, ImageError> {
        let place = place(sha256)?;
        let mut upload = WriteMultipart::new(self.store.put_multipart(&place).await?);
        let (mut hash, mut bytes) = (Sha256::new(), 0u64);
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let n = match content.read(&mut buffer).await {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) => {
                    upload.abort().await?;
                    return Err(e.into());
                }
            };
            hash.update(&buffer[..n]);
            bytes += n as u64;
            upload.wait_for_capacity(PARTS_IN_FLIGHT).await?;
            upload.write(&buffer[..n]);
        }
        let found = hex(&hash.finalize());
        if found != sha256 {
            upload.abort().await?;
            return Err(ImageError::Mismatch {
                wanted: sha256.into(),
                found,
                bytes,
            });
        }
        upload.finish().await?;
        self.make_durable(sha256).await?;
        Ok(bytes)
    }

    /// Stores the file at `from` under `sha256`, as [`Images::put`] does.
    pub async fn put_file(&self, sha256: &str, from: &Path) -> Result<u64, ImageError> {
        if self.has(sha256).await? {
            return Ok(tokio::fs::metadata(self.path(sha256)?).await?.len());
        }
        self.put(sha256, tokio::fs::File::open(from).await?).await
    }

    /// Stores `content` under its own SHA-256, which is returned.
    pub async fn put_bytes(&self, content: Vec<u8>) -> Result<String, ImageError> {
        let sha256 = hex(&Sha256::digest(&content));
        self.store
            .put(&place(&sha256)?, PutPayload::from(content))
            .await?;
        self.make_durable(&sha256).await?;
        Ok(sha256)
    }

    /// The caller will commit a row that says the file is here; a power cut must not make that a lie.
    async fn make_durable(&self, sha256: &str) -> Result<(), ImageError> {
        let path = self.path(sha256)?;
        tokio::fs::File::open(&path).await?.sync_all().await?;
        if let Some(folder) = path.parent() {
            tokio::fs::File::open(folder).await?.sync_all().await?;
        }
        Ok(())
    }

    pub async fn has(&self, sha256: &str) -> Result<bool, ImageError> {
        match self.store.head(&place(sha256)?).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The whole content, for small files.
    pub async fn get(&self, sha256: &str) -> Result<bytes::Bytes, ImageError> {
        match self.store.get(&place(sha256)?).await {
            Ok(found) => Ok(found.bytes().await?),
            Err(object_store::Error::NotFound { .. }) => Err(ImageError::Missing(sha256.into())),
            Err(e) => Err(e.into()),
        }
    }

    /// Where the file lies on this machine; it need not be there ([`Images::has`]).
    pub fn path(&self, sha256: &str) -> Result<PathBuf, ImageError> {
        Ok(self.root.join(AsRef::<str>::as_ref(&place(sha256)?)))
    }

    pub async fn remove(&self, sha256: &str) -> Result<(), ImageError> {
        match self.store.delete(&place(sha256)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// `ab/abcdef…`: a folder per first byte, so that none gets too long to list.
fn place(sha256: &str) -> Result<StorePath, ImageError> {
    let hexadecimal = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if sha256.len() != 64 || !sha256.bytes().all(hexadecimal) {
        return Err(ImageError::Name(sha256.into()));
    }
    Ok(StorePath::from(format!("{}/{sha256}", &sha256[..2])))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
