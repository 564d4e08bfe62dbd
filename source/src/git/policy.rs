//! Which addresses may be used. A tenant writes the address, so on a cluster it must not reach
//! what only the operator can reach.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{GitError, GitUrl, url::Address};

/// Which IP addresses may be connected to, judged after the name was resolved and on the very
/// address that is then used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Networks that are allowed even when `deny` holds them.
    pub allow: Vec<IpNet>,
    /// Networks that are refused.
    pub deny: Vec<IpNet>,
}

impl AddressPolicy {
    /// Loopback, link-local (with the metadata services), unspecified and multicast are refused.
    pub fn not_local() -> Self {
        let v4 = |a, b, c, d, bits| net(IpAddr::from([a, b, c, d]), bits);
        let v6 = |parts: [u16; 8], bits| net(IpAddr::from(parts), bits);
        let deny = vec![
            v4(0, 0, 0, 0, 8),
            v4(127, 0, 0, 0, 8),
            v4(169, 254, 0, 0, 16),
            v4(224, 0, 0, 0, 4),
            v4(255, 255, 255, 255, 32),
            v6([0; 8], 128),
            v6([0, 0, 0, 0, 0, 0, 0, 1], 128),
            v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
            v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
            // The metadata service of EC2.
            v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
        ];
        Self {
            allow: Vec::new(),
            deny,
        }
    }

    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let holds = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        holds(&self.allow) || !holds(&self.deny)
    }
}

/// A network; one host, should the prefix be longer than the address.
fn net(address: IpAddr, bits: u8) -> IpNet {
    IpNet::new(address, bits).unwrap_or_else(|_| IpNet::from(address))
}

/// Which kinds of addresses may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPolicy {
    /// Plain `http`.
    pub http: bool,
    /// `file://` and paths.
    pub local: bool,
    /// `user:password@` in the address.
    pub userinfo: bool,
    /// Where names may lead.
    pub addresses: AddressPolicy,
}

impl UrlPolicy {
    /// A person's own machine: everything.
    pub fn machine() -> Self {
        Self {
            http: true,
            local: true,
            userinfo: true,
            addresses: AddressPolicy::default(),
        }
    }

    /// A cluster: `https` and `ssh`, no credentials in the address, not to this machine itself.
    pub fn cluster() -> Self {
        Self {
            http: false,
            local: false,
            userinfo: false,
            addresses: AddressPolicy::not_local(),
        }
    }
}

pub(super) fn check(url: &GitUrl, policy: &UrlPolicy) -> Result<(), GitError> {
    let refuse = |message: &str| {
        Err(GitError::Forbidden {
            url: url.to_string(),
            message: message.to_owned(),
        })
    };
    match url.address() {
        Address::Http(http) if http.scheme() == "http" && !policy.http => {
            refuse("plain http is not allowed here; use https")
        }
        Address::Local(_) if !policy.local => refuse("local repositories are not allowed here"),
        _ if url.userinfo().is_some() && !policy.userinfo => {
            refuse("an address with a password is not allowed here; use a Secret")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_reaches_neither_itself_nor_the_metadata_service() {
        let policy = AddressPolicy::not_local();
        for refused in [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "fe80::1",
        ] {
            assert!(!policy.admits(refused.parse().unwrap()), "{refused}");
        }
        for admitted in ["10.0.0.1", "140.82.121.3", "2606:50c0::1"] {
            assert!(policy.admits(admitted.parse().unwrap()), "{admitted}");
        }
        let with_exception = AddressPolicy {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            ..policy
        };
        assert!(with_exception.admits("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn kinds_of_addresses_are_refused_by_policy() {
        let cluster = UrlPolicy::cluster();
        for refused in [
            "http://h/x",
            "/srv/x.git",
            "file:///srv/x.git",
            "https://u:p@h/x",
        ] {
            let url = GitUrl::parse(refused).unwrap();
            let error = check(&url, &cluster).unwrap_err();
            assert!(matches!(error, GitError::Forbidden { .. }), "{refused}");
            assert!(check(&url, &UrlPolicy::machine()).is_ok());
        }
        for fine in ["https://h/x", "ssh://git@h/x", "git@h:x"] {
            assert!(
                check(&GitUrl::parse(fine).unwrap(), &cluster).is_ok(),
                "{fine}"
            );
        }
    }
}
