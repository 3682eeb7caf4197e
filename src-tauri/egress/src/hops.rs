//! Headers that are between two neighbours alone, and go no further.

use hyper::HeaderMap;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, TE, UPGRADE};

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
    for name in ["connection", "expect", "keep-alive", "proxy-connection", "te"] {
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
}
