//! The gate before every service: key, then address, then a place.
//!
//! Key and address are both judged on every call and answered in that order, so that a caller from
//! outside cannot find out whether a key is right. Nothing of the body was read when it judges.

mod address;
mod inflight;
mod keys;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ramen_group::CidrSet;
use ramen_redact::{KeyDigest, KeySet};
use tonic::Status;

pub use address::{AddressRule, caller_address};
pub use inflight::{InFlight, Permit};
pub use keys::{DoorFiles, KeyFiles, watch as watch_keys};

use crate::names;

/// Longest `authorization` value that is looked at.
const MAX_CREDENTIAL: usize = 4096;

/// Why a call was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No credential, several, or one of another form.
    NoKey,
    /// A key that is not valid.
    WrongKey,
    /// An address outside the ranges, or one that cannot be told.
    Address,
    /// Too many calls at once.
    Full,
}

impl Refusal {
    /// All of them, for the metrics.
    pub const ALL: [Self; 4] = [Self::NoKey, Self::WrongKey, Self::Address, Self::Full];

    /// Its label in the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoKey => "no_key",
            Self::WrongKey => "wrong_key",
            Self::Address => "address",
            Self::Full => "full",
        }
    }

    /// What the caller is told.
    pub fn status(self) -> Status {
        match self {
            Self::NoKey => Status::unauthenticated("no key: send `authorization: Bearer rmk_…`"),
            Self::WrongKey => Status::unauthenticated("the key is not valid"),
            Self::Address => Status::permission_denied("this address may not call"),
            Self::Full => Status::resource_exhausted("too many calls in flight; try again later"),
        }
    }
}

/// Keys and ranges of one service.
pub struct Door {
    keys: RwLock<Arc<Keys>>,
    ranges: CidrSet,
}

#[derive(Default)]
struct Keys {
    /// Open the door to whoever calls from the ranges.
    near: KeySet,
    /// Open it from anywhere: who has one has judged the caller's address.
    anywhere: KeySet,
}

impl Door {
    /// A door that no key opens yet.
    pub fn new(ranges: CidrSet) -> Self {
        Self {
            keys: RwLock::default(),
            ranges,
        }
    }

    /// Takes other keys, for the next call on; those of `anywhere` open whatever the address is.
    pub fn set_keys(&self, near: KeySet, anywhere: KeySet) {
        let keys = Arc::new(Keys { near, anywhere });
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn judge(&self, credential: Option<&[u8]>, address: Option<IpAddr>) -> Result<(), Refusal> {
        let keys = self.keys();
        let shown = KeyDigest::of(credential.unwrap_or_default());
        // Both are asked every time, so that the time says nothing about which one it is.
        let (known, trusted) = (keys.near.holds(&shown), keys.anywhere.holds(&shown));
        let known = known | trusted;
        let near = trusted | address.is_some_and(|address| self.ranges.contains(address));
        match (credential, known, near) {
            (None, ..) => Err(Refusal::NoKey),
            (Some(_), false, _) => Err(Refusal::WrongKey),
            (Some(_), true, false) => Err(Refusal::Address),
            (Some(_), true, true) => Ok(()),
        }
    }
}

/// The gate of one worker.
pub struct Gate {
    /// Before `ramen.v1.Mcp` (and reflection).
    pub mcp: Door,
    /// Before `ramen.v1.Admin`.
    pub admin: Door,
    /// How the caller's address is found.
    pub address: AddressRule,
    /// Calls at once.
    pub in_flight: InFlight,
}

impl Gate {
    /// Judges a call of `ramen.v1.Mcp`.
    pub fn mcp(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Refusal> {
        let credential = only(headers, AUTHORIZATION.as_str()).and_then(ramen_redact::bearer_token);
        self.mcp
            .judge(credential, caller_address(&self.address, headers, peer))
    }

    /// Judges a call of `ramen.v1.Admin`.
    pub fn admin(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Refusal> {
        let credential = only(headers, names::ADMIN_KEY_HEADER).filter(|key| !key.is_empty());
        self.admin
            .judge(credential, caller_address(&self.address, headers, peer))
    }
}

/// The value of a header that is there exactly once, in plain characters and of sane length.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.as_bytes();
    let plain = value.len() <= MAX_CREDENTIAL && value.is_ascii();
    (plain && values.next().is_none()).then_some(value)
}

#[cfg(test)]
mod tests;
