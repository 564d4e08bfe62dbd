//! `Host` and `Origin`: the guard against web pages that reach into a private network (DNS rebinding).
//!
//! On a loopback address only loopback hosts and origins are served unless others are named. On other
//! addresses any `Host` is served unless a list says which, and an `Origin` has to be the host itself
//! or be named.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use crate::answer::Refusal;

/// Which hosts and origins are served.
#[derive(Debug, Clone, Default)]
pub struct Sites {
    /// Whether the gateway listens on a loopback address alone.
    pub loopback: bool,
    /// Hosts, with or without a port.
    pub hosts: Vec<String>,
    /// Origins such as `https://app.example.com`, whose pages may call groups.
    pub origins: Vec<String>,
}

impl Sites {
    /// Judges both.
    pub fn judge(&self, request: &Parts) -> Result<(), Refusal> {
        let host = host(request)?;
        let named = self.hosts.iter().any(|known| same_host(known, host));
        let open = self.hosts.is_empty() && !self.loopback;
        if !(named || open || self.loopback && is_loopback(name_of(host))) {
            return Err(Refusal::Host);
        }
        let mut origins = request.headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let origin = origin.to_str().map_err(|_| Refusal::Origin)?;
        if origins.next().is_some() || !self.is_welcome(origin, host) {
            return Err(Refusal::Origin);
        }
        Ok(())
    }

    /// The origin of a request, when it is one of the list.
    pub(crate) fn listed<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = origins.next().filter(|_| origins.next().is_none())?;
        self.is_listed(origin.to_str().ok()?).then_some(origin)
    }

    fn is_listed(&self, origin: &str) -> bool {
        let mut known = self.origins.iter();
        known.any(|known| known.eq_ignore_ascii_case(origin))
    }

    fn is_welcome(&self, origin: &str, host: &str) -> bool {
        if self.is_listed(origin) {
            return true;
        }
        let Some((_, authority)) = origin.split_once("://") else {
            return false;
        };
        if self.loopback {
            is_loopback(name_of(authority))
        } else {
            authority.eq_ignore_ascii_case(host)
        }
    }
}

/// The one host of a request; a request that names two, or none, is refused.
fn host(request: &Parts) -> Result<&str, Refusal> {
    let mut lines = request.headers.get_all(HOST).iter();
    let line = lines.next().map(|line| line.to_str());
    if lines.next().is_some() {
        return Err(Refusal::Ambiguous);
    }
    let line = line.transpose().map_err(|_| Refusal::Ambiguous)?;
    match (
        request.uri.authority().map(http::uri::Authority::as_str),
        line,
    ) {
        (Some(target), Some(line)) if !target.eq_ignore_ascii_case(line) => Err(Refusal::Ambiguous),
        (Some(host), _) | (None, Some(host)) if !host.is_empty() && !host.contains('@') => Ok(host),
        _ => Err(Refusal::Ambiguous),
    }
}

/// The host without its port.
fn name_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.split_inclusive(']').next().unwrap_or(authority);
    }
    authority.split(':').next().unwrap_or(authority)
}

fn same_host(known: &str, host: &str) -> bool {
    known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name_of(host))
}

fn is_loopback(name: &str) -> bool {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || bare
            .unwrap_or(name)
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn local() -> Sites {
        Sites {
            loopback: true,
            ..Sites::default()
        }
    }

    #[test]
    fn a_loopback_gateway_serves_loopback_hosts_and_origins_alone() {
        for host in [
            "localhost:8080",
            "LOCALHOST",
            "127.0.0.1:1",
            "[::1]:8080",
            "127.1.2.3",
        ] {
            let origin = format!("http://{host}");
            let request = parts("/", &[("host", host), ("origin", &origin)]);
            assert_eq!(local().judge(&request), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
        ] {
            assert_eq!(
                local().judge(&parts("/", &[("host", host)])),
                Err(Refusal::Host),
                "{host}"
            );
        }
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost.evil.example",
            "file://",
        ] {
            let request = parts("/", &[("host", "localhost"), ("origin", origin)]);
            assert_eq!(local().judge(&request), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn names_of_the_lists_are_served_too() {
        let sites = Sites {
            hosts: vec!["mcp.example.com".into()],
            origins: vec!["https://app.example.com".into()],
            ..local()
        };
        let request = parts(
            "/",
            &[
                ("host", "mcp.example.com:443"),
                ("origin", "https://app.example.com"),
            ],
        );
        assert_eq!(sites.judge(&request), Ok(()));
        let listed = Sites {
            loopback: false,
            ..sites
        };
        assert_eq!(
            listed.judge(&parts("/", &[("host", "other.example.com")])),
            Err(Refusal::Host)
        );
    }

    #[test]
    fn a_public_gateway_serves_any_host_and_its_own_origin() {
        let sites = Sites::default();
        let own = [
            ("host", "mcp.example.com"),
            ("origin", "https://mcp.example.com"),
        ];
        assert_eq!(sites.judge(&parts("/", &own)), Ok(()));
        let foreign = [
            ("host", "mcp.example.com"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(sites.judge(&parts("/", &foreign)), Err(Refusal::Origin));
    }

    #[test]
    fn no_host_and_two_hosts_are_refused() {
        for request in [
            parts("/", &[]),
            parts("/", &[("host", "")]),
            parts("/", &[("host", "localhost"), ("host", "localhost")]),
            parts("http://localhost/", &[("host", "evil.example")]),
        ] {
            assert_eq!(local().judge(&request), Err(Refusal::Ambiguous));
        }
        assert_eq!(local().judge(&parts("http://localhost:8080/", &[])), Ok(()));
    }
}
