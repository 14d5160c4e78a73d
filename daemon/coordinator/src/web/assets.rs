//! Style sheet, script and icon, carried in the binary under names that hold their hash: cached for ever.

use super::error::Problem;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Assets;

struct Asset {
    plain_name: String,
    file: EmbeddedFile,
}

/// By the name that is served: `style.3f2a….css`.
static BY_NAME: LazyLock<BTreeMap<String, Asset>> = LazyLock::new(|| {
    let named = Assets::iter().filter_map(|plain| {
        let file = Assets::get(&plain)?;
        let hash: String = file
            .metadata
            .sha256_hash()
            .iter()
            .take(8)
            .map(|b| format!("{b:02x}"))
            .collect();
        let name = match plain.rsplit_once('.') {
            Some((stem, ending)) => format!("{stem}.{hash}.{ending}"),
            None => format!("{plain}.{hash}"),
        };
        Some((
            name,
            Asset {
                plain_name: plain.to_string(),
                file,
            },
        ))
    });
    named.collect()
});

/// Where a page finds an asset.
pub fn href(plain_name: &str) -> String {
    let found = BY_NAME.iter().find(|(_, asset)| asset.plain_name == plain_name);
    match found {
        Some((name, _)) => format!("/assets/{name}"),
        None => format!("/assets/{plain_name}"),
    }
}

pub async fn serve(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = BY_NAME.get(&name) else {
        return Problem::not_found("no such asset; reload the page").into_response();
    };
    let etag = format!("\"{name}\"");
    let known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|v| v.as_bytes() == etag.as_bytes());
    let common = [
        (header::ETAG, etag),
        (
            header::CACHE_CONTROL,
            "public, max-age=31536000, immutable".to_string(),
        ),
    ];
    if known {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let mut kind = asset.file.metadata.mimetype().to_string();
    if kind.starts_with("text/") {
        kind.push_str("; charset=utf-8");
    }
    (common, [(header::CONTENT_TYPE, kind)], asset.file.data.clone()).into_response()
}
