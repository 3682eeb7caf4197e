//! Headers that are between two neighbours alone, and go no further.

use hyper::HeaderMap;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};

/// Whether what is carried is coded on this way alone: nobody could look through it, and who decodes it can't be said.
pub(crate) fn coded(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings.flat_map(|v| v.as_bytes().split(|b| *b == b',')).any(|c| !c.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// Whether a request asks for a switch to WebSocket, and for no other: in any other protocol (HTTP itself, as `h2c`) would follow
/// requests that nobody judged.
pub(crate) fn asks_for_web_socket(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    protocols.next().is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket")) && protocols.next().is_none()
}

/// Takes them away, with those that `Connection` names. Of a switch to another protocol only its own two stay; gRPC needs the word
/// that trailers are welcome.
pub(crate) fn strip(headers: &mut HeaderMap, switch: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let trailers = headers.get_all(TE).iter().any(|v| v.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in named.into_iter().filter(|n| n != UPGRADE) {
        headers.remove(name);
    }
    for name in ["connection", "expect", "http2-settings", "keep-alive", "proxy-connection", "te", "transfer-encoding"] {
        headers.remove(name);
    }
    if switch {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(UPGRADE);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn stripped(given: &[(&'static str, &'static str)], switch: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip(&mut headers, switch);
        let mut out: Vec<String> = headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        out.sort();
        out
    }

    #[test]
    fn what_is_between_neighbours_goes_no_further() {
        let given = [
            ("connection", "close, x-secret-hop"),
            ("x-secret-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ];
        assert_eq!(stripped(&given, false), ["accept: */*"]);
        assert_eq!(stripped(&[("te", "trailers"), ("connection", "TE")], false), ["te: trailers"], "gRPC goes on");
        assert_eq!(
            stripped(&[("connection", "Upgrade"), ("upgrade", "websocket")], true),
            ["connection: upgrade", "upgrade: websocket"]
        );
    }

    #[test]
    fn p4_only_a_web_socket_is_switched_to() {
        let asks = |given: &[&'static str]| {
            let given = given.iter().map(|v| (UPGRADE, HeaderValue::from_static(v)));
            asks_for_web_socket(&given.fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            }))
        };
        assert!(asks(&["websocket"]) && asks(&["WebSocket"]));
        for other in
            [&["h2c"][..], &["H2C"], &["websocket, h2c"], &["websocket", "h2c"], &["h2c-14"], &["TLS/1.0"], &["echo"], &[]]
        {
            assert!(!asks(other), "{other:?}");
        }
    }

    #[test]
    fn what_is_coded_for_one_way_is_known() {
        let is = |value| coded(&HeaderMap::from_iter([(TRANSFER_ENCODING, HeaderValue::from_static(value))]));
        assert!(!is("chunked") && !is("Chunked ") && is("gzip, chunked") && is("identity"));
    }
}
