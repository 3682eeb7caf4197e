//! Requests that push: no policy and no answer lets one through here, as a push is judged by its refs.

use crate::body::{AnyBody, Broken};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;

/// Largest list of files that an LFS client sends at once.
const LIST: usize = 1 << 20;

/// What to do instead.
pub(crate) const HOW: &str = "nothing is pushed from inside: commit, and the person applies or pushes what they approved";

/// Whether a request writes to a git repository, by its address alone.
pub(crate) fn pushes(path: &str, query: Option<&str>) -> bool {
    let service = |pair: &str| pair.strip_prefix("service=").is_some_and(|s| s.eq_ignore_ascii_case("git-receive-pack"));
    path.ends_with("/git-receive-pack") || query.is_some_and(|q| q.split('&').any(service))
}

/// Looks into a request for files of LFS, which says in its body whether it uploads. Gives the request back with its body.
pub(crate) async fn uploads(request: Request<AnyBody>) -> Result<(Request<AnyBody>, bool), Broken> {
    if !request.uri().path().ends_with("/info/lfs/objects/batch") {
        return Ok((request, false));
    }
    let (head, mut body) = request.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            bytes.extend_from_slice(data);
        }
        if bytes.len() > LIST {
            return Err(format!("a list of files for LFS has more than {LIST} bytes").into());
        }
    }
    // What is no list of downloads uploads.
    let operation = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
    let downloads = operation.is_some_and(|list| list.get("operation").and_then(|o| o.as_str()) == Some("download"));
    let body = Full::new(bytes.freeze()).map_err(|never| match never {}).boxed();
    Ok((Request::from_parts(head, body), !downloads))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn p7_a_push_is_known_by_its_address() {
        for (path, query) in [
            ("/a/b.git/git-receive-pack", None),
            ("/a/b.git/info/refs", Some("service=git-receive-pack")),
            ("/x", Some("a=b&service=git-Receive-pack")),
        ] {
            assert!(pushes(path, query), "{path} {query:?}");
        }
        assert!(!pushes("/a/b.git/info/refs", Some("service=git-upload-pack")) && !pushes("/a/b.git/git-upload-pack", None));
    }

    #[tokio::test]
    async fn p7_an_upload_of_large_files_is_known_by_its_list() {
        let ask = |body: &'static str| async move {
            let request = Request::post("/a/b.git/info/lfs/objects/batch").body(crate::body::words(body.to_owned())).unwrap();
            let (request, uploads) = uploads(request).await.unwrap();
            let back = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(back, body.as_bytes(), "the body goes on as it was");
            uploads
        };
        assert!(!ask(r#"{"operation":"download","objects":[]}"#).await);
        for upload in [r#"{"operation":"upload"}"#, r#"{"operation":"Download"}"#, "{}", "[", ""] {
            assert!(ask(upload).await, "{upload}");
        }
    }
}
