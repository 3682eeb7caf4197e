//! What a request says about itself beside its first line: some servers follow that instead of what was judged.

use hyper::http::request::Parts;

/// Headers in which another method stands.
const METHODS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Headers in which another path or address stands, or a second one beside it (as WebDAV moves and copies).
const PATHS: [&str; 6] =
    ["destination", "x-forwarded-path", "x-forwarded-uri", "x-original-uri", "x-original-url", "x-rewrite-url"];

/// Headers in which another host stands: what a proxy in front of a server would say, and no program inside is one.
const HOSTS: [&str; 6] =
    ["forwarded", "x-forwarded-host", "x-forwarded-server", "x-host", "x-http-host-override", "x-original-host"];

/// A header's name as servers read it that take `_` and `-` for the same.
pub(crate) fn plain(name: &str) -> String {
    name.replace('_', "-")
}

/// Where a request names another method or path than its own, if it does.
pub(crate) fn says(request: &Parts) -> Result<(), String> {
    let same = |method: &[u8]| method.eq_ignore_ascii_case(request.method.as_str().as_bytes());
    for (name, value) in &request.headers {
        let plain = plain(name.as_str());
        if PATHS.contains(&plain.as_str()) || (METHODS.contains(&plain.as_str()) && !same(value.as_bytes())) {
            return Err(format!("`{name}` names another method or path than the one that is judged"));
        }
    }
    if crate::doors::parameters(request.uri.query()).any(|(name, value)| name == "_method" && !same(value.as_bytes())) {
        return Err("the parameter `_method` names another method than the one that is judged".into());
    }
    Ok(())
}

/// Takes what names another host out of a request: it is for the one that was judged.
pub(crate) fn one_host(request: &mut Parts) {
    let names: Vec<_> = request.headers.keys().filter(|n| HOSTS.contains(&plain(n.as_str()).as_str())).cloned().collect();
    for name in names {
        request.headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use hyper::Request;

    #[test]
    fn p4_a_request_names_no_other_host() {
        let request =
            Request::get("/a").header("X-Forwarded-Host", "b.test").header("x_host", "b.test").header("Forwarded", "host=b");
        let mut head = request.header("X-Forwarded-For", "::1").body(()).unwrap().into_parts().0;
        one_host(&mut head);
        assert_eq!(head.headers.keys().map(|k| k.as_str()).collect::<Vec<_>>(), ["x-forwarded-for"]);
    }

    #[test]
    fn p4_a_request_that_names_another_method_or_path_is_none() {
        let says = |uri: &str, header: Option<(&str, &str)>| {
            let request = header.into_iter().fold(Request::post(uri), |r, (name, value)| r.header(name, value));
            says(&request.body(()).unwrap().into_parts().0)
        };
        assert!(says("/a?method=DELETE", None).is_ok() && says("/a", Some(("X-HTTP-Method-Override", "post"))).is_ok());
        for header in [
            ("X-HTTP-Method-Override", "DELETE"),
            ("x_http_method_override", "PUT"),
            ("X-Method-Override", ""),
            ("X-Original-URL", "/b"),
        ] {
            assert!(says("/a", Some(header)).is_err(), "{header:?}");
        }
        assert!(says("/a?x=1&_metho%64=DELETE", None).is_err());
    }
}
