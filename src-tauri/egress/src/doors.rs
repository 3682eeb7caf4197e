//! Requests that push: no policy and no answer lets one through here, as a push is judged by its refs.

use crate::body::{AnyBody, Broken};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Largest body that is read whole: a list of files that an LFS client sends at once, documents of GraphQL.
pub(crate) const LIST: usize = 1 << 20;

/// What to do instead.
pub(crate) const HOW: &str = "nothing is pushed from inside: commit, and the person applies or pushes what they approved";

/// How long it may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a request writes to a git repository, by its first line alone. `path` is the plain form, as it goes on.
pub(crate) fn pushes(method: &str, path: &str, query: Option<&str>) -> bool {
    let path = plain(path);
    let packs = |(name, value): (String, String)| {
        name.trim().eq_ignore_ascii_case("service") && value.trim().eq_ignore_ascii_case("git-receive-pack")
    };
    // Of what LFS serves, all but the list and what is only read belongs to a push: files that go up, their check, locks.
    let large = path.contains("/info/lfs/") && !lists(&path) && !matches!(method, "GET" | "HEAD" | "OPTIONS");
    path.ends_with("/git-receive-pack") || large || by_files(method, &path) || parameters(query).any(packs)
}

/// Whether it writes into a repository that is served as files, as `git http-push` does by WebDAV.
fn by_files(method: &str, plain: &str) -> bool {
    let writes = matches!(method, "PUT" | "PATCH" | "DELETE" | "MKCOL" | "MOVE" | "COPY" | "LOCK" | "UNLOCK" | "PROPPATCH");
    // By bytes: a path is text of any kind.
    let object = |rest: &str| matches!(rest.as_bytes(), [a, b, b'/', ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    writes
        && (plain.split('/').any(|part| part.ends_with(".git"))
            || ["/refs/", "/objects/pack/", "/objects/info/"].iter().any(|place| plain.contains(place))
            || ["/packed-refs", "/info/refs"].iter().any(|file| plain.ends_with(file))
            || plain.split("/objects/").skip(1).any(object))
}

/// Servers pass over case and a final slash.
fn plain(path: &str) -> String {
    path.trim_end_matches('/').to_ascii_lowercase()
}

fn lists(plain: &str) -> bool {
    plain.ends_with("/info/lfs/objects/batch")
}

/// A query's parameters as servers read them.
pub(crate) fn parameters(query: Option<&str>) -> impl Iterator<Item = (String, String)> {
    let read = |text: &str| percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    query.unwrap_or_default().split(['&', ';']).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (read(name), read(value))
    })
}

/// Whether a request is for files of LFS, which says in its body whether it uploads.
pub(crate) fn is_list(request: &Request<AnyBody>) -> bool {
    lists(&plain(request.uri().path()))
}

/// Whether the body of such a request uploads: what is no list of downloads does.
pub(crate) fn uploads(body: &[u8]) -> bool {
    !serde_json::from_slice::<Operation>(body).is_ok_and(|list| list.0.as_deref() == Some("download"))
}

/// Reads a body of at most `most` bytes whole, and gives the request back with it. `room` has a place for each [`LIST`] bytes that are in
/// memory, which the body holds until it is gone.
pub(crate) async fn whole(
    request: Request<AnyBody>,
    room: &Arc<Semaphore>,
    most: usize,
) -> Result<(Request<AnyBody>, Bytes), Broken> {
    let (head, mut body) = request.into_parts();
    let places = u32::try_from(most.div_ceil(LIST))?;
    let read = async {
        let place = Arc::clone(room).acquire_many_owned(places).await?;
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame?.data_ref() {
                bytes.extend_from_slice(data);
            }
            if bytes.len() > most {
                return Err(format!("a body that has to be known before it goes on has more than {most} bytes").into());
            }
        }
        Ok::<_, Broken>((place, bytes.freeze()))
    };
    let (place, bytes) = tokio::time::timeout(PATIENCE, read)
        .await
        .map_err(|_| "a body that has to be known before it goes on did not come to an end")??;
    let holds = move |frame| {
        let _place = &place;
        frame
    };
    let body = Full::new(bytes.clone()).map_err(|never| match never {}).map_frame(holds).boxed();
    Ok((Request::from_parts(head, body), bytes))
}

/// The one operation of a list: none where two servers could read another, as some take a name in any case, and of two the first or the last.
struct Operation(Option<String>);

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Operation;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of files")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Operation, A::Error> {
                let (mut found, mut named) = (None, 0);
                while let Some(name) = map.next_key::<String>()? {
                    let value = map.next_value::<serde_json::Value>()?;
                    named += u32::from(name.to_lowercase() == "operation");
                    if name == "operation" {
                        found = value.as_str().map(str::to_owned);
                    }
                }
                Ok(Operation(found.filter(|_| named == 1)))
            }
        }
        from.deserialize_map(Fields)
    }
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
            ("/x", Some("a=b;s%65rvice=git%2dreceive-pack+")),
            ("/a/b.git/Git-Receive-Pack/", None),
            ("/a/b.git/info/lfs/objects/0123/5", None),
            ("/a/b.git/info/LFS/locks", None),
            ("/a/b.git/objects/ab/0123456789", None),
            ("/a/b/objects/ab/0123456789_lock", None),
            ("/a/b/refs/heads/main", None),
            ("/a/b/packed-refs", None),
            ("/a/b/objects/pack/pack-1.pack", None),
        ] {
            assert!(pushes("PUT", path, query), "{path} {query:?}");
        }
        for (path, query) in [
            ("/a/b.git/info/refs", Some("service=git-upload-pack")),
            ("/a/b.git/git-upload-pack", None),
            ("/a/b.git/info/lfs/objects/batch", None),
        ] {
            assert!(!pushes("POST", path, query), "{path} {query:?}");
        }
        assert!(!pushes("GET", "/a/b.git/info/lfs/locks", None));
        assert!(!pushes("GET", "/a/b/objects/ab/0123456789", None) && !pushes("PROPFIND", "/a/b/refs/heads/main", None));
        assert!(!pushes("PUT", "/bucket/objects/abc/def", None) && !pushes("PUT", "/v1/objects", None));
        assert!(!pushes("PUT", "/x/objects/a\u{e9}/b", None), "whatever its letters are");
    }

    #[tokio::test]
    async fn p7_an_upload_of_large_files_is_known_by_its_list() {
        let room = &Arc::new(Semaphore::new(1));
        let ask = |body: &'static str| async move {
            let request = Request::post("/a/b.git/info/LFS/objects/batch/").body(crate::body::words(body.to_owned())).unwrap();
            assert!(is_list(&request));
            let (request, bytes) = whole(request, room, LIST).await.unwrap();
            let uploads = uploads(&bytes);
            let back = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(back, body.as_bytes(), "the body goes on as it was");
            uploads
        };
        assert!(!ask(r#"{"operation":"download","objects":[]}"#).await);
        for upload in [
            r#"{"operation":"upload"}"#,
            r#"{"operation":"Download"}"#,
            r#"{"operation":"download","operation":"upload"}"#,
            r#"{"operation":"upload","operation":"download"}"#,
            r#"{"operation":"download","Operation":"upload"}"#,
            r#"{"Operation":"download"}"#,
            r#"{"operation":["download"]}"#,
            r#"["download"]"#,
            "{}",
            "[",
            "",
        ] {
            assert!(ask(upload).await, "{upload}");
        }
    }
}
