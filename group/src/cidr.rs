//! Strict address ranges: one parser for the worker's gate, for `ramen up` and for the validation
//! of an McpGroup, so that what one accepts the other accepts.
//!
//! Rules: an address alone is a range of one; host bits must be zero; no blanks inside, no sign, no
//! leading zeros, no zone; an IPv4-mapped IPv6 range is refused (it would mean all of IPv4 to one
//! reader and nothing to another), an IPv4-mapped *peer* is treated as its IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Why a range was refused. The message names the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Not an address, or not a number after the slash.
    #[error("`{0}` is not an address or a range like 10.0.0.0/8")]
    Malformed(String),
    /// The number after the slash is too large.
    #[error("`{text}` has a prefix longer than {max} bits")]
    PrefixTooLong {
        /// The text.
        text: String,
        /// 32 or 128.
        max: u8,
    },
    /// Bits behind the prefix are set.
    #[error("`{text}` has host bits set; write `{meant}` if that is what you mean")]
    HostBits {
        /// The text.
        text: String,
        /// The same range with the bits cleared.
        meant: Cidr,
    },
    /// `::ffff:…`.
    #[error("`{0}` is an IPv4-mapped range; write it as IPv4")]
    Mapped(String),
}

/// One range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// All of IPv4.
    pub const ANY_V4: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        prefix: 0,
    };
    /// All of IPv6.
    pub const ANY_V6: Self = Self {
        address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        prefix: 0,
    };

    /// The first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits are fixed.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether `peer` lies in the range. An IPv4-mapped peer counts as IPv4.
    pub fn contains(self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(peer)) => {
                let mask = mask_v4(self.prefix);
                u32::from(peer) & mask == u32::from(net)
            }
            (IpAddr::V6(net), IpAddr::V6(peer)) => {
                let mask = mask_v6(self.prefix);
                u128::from(peer) & mask == u128::from(net)
            }
            _ => false,
        }
    }
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn mask_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let malformed = || CidrError::Malformed(shorten(text));
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        // The standard parser takes no blanks, no leading zeros and no zone.
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => max,
            Some(digits) => {
                let plain = (1..=3).contains(&digits.len())
                    && digits.bytes().all(|b| b.is_ascii_digit())
                    && (digits.len() == 1 || !digits.starts_with('0'));
                if !plain {
                    return Err(malformed());
                }
                let bits: u16 = digits.parse().map_err(|_| malformed())?;
                u8::try_from(bits)
                    .ok()
                    .filter(|bits| *bits <= max)
                    .ok_or_else(|| CidrError::PrefixTooLong {
                        text: shorten(text),
                        max,
                    })?
            }
        };
        let cleared = match address {
            IpAddr::V4(v4) => IpAddr::V4((u32::from(v4) & mask_v4(prefix)).into()),
            IpAddr::V6(v6) => {
                if v6.to_ipv4_mapped().is_some() {
                    return Err(CidrError::Mapped(shorten(text)));
                }
                IpAddr::V6((u128::from(v6) & mask_v6(prefix)).into())
            }
        };
        let meant = Self {
            address: cleared,
            prefix,
        };
        if cleared != address {
            return Err(CidrError::HostBits {
                text: shorten(text),
                meant,
            });
        }
        // `::/0` is all of IPv6, fine; a shorter prefix that swallows ::ffff:0:0/96 is not mapped.
        Ok(meant)
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A list of ranges, as `RAMEN_ALLOWED_CIDRS` holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CidrSet(Vec<Cidr>);

impl CidrSet {
    /// Parses a comma-separated list; blanks around entries and empty entries are skipped. All
    /// faults are returned, not only the first.
    pub fn parse_list(text: &str) -> Result<Self, Vec<CidrError>> {
        let mut ranges = Vec::new();
        let mut faults = Vec::new();
        for entry in text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
        {
            match entry.parse() {
                Ok(range) => ranges.push(range),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() {
            Ok(Self(ranges))
        } else {
            Err(faults)
        }
    }

    /// Whether a range of the set holds `peer`. An empty set holds nobody.
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(peer))
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<Cidr> for CidrSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(ranges: I) -> Self {
        Self(ranges.into_iter().collect())
    }
}

impl fmt::Display for CidrSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, range) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            write!(f, "{range}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
