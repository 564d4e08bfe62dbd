//! The gate before every endpoint, in its order: header bounds, credential, address, Host and Origin,
//! method, size, rate. Only then the body is read.
//!
//! What a credential is worth differs by endpoint: a [`Verify`] says it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use ramen_group::{AddressRule, Allowed, CidrSet, FORWARDED_FOR, caller_address};
use ramen_redact::{KeyDigest, KeySet};

use crate::answer::Refusal;
use crate::callers::{BODY_TIME, Callers, Place};
use crate::names::MAX_MESSAGE;
use crate::oidc::Bearer;
use crate::origin::Sites;

/// What MCP endpoints answer.
pub const ONLY_POST: &[Method] = &[Method::POST];
/// What the JSON API answers.
pub const GET_OR_POST: &[Method] = &[Method::GET, Method::POST];

/// Headers of one request.
const MAX_HEADERS: usize = 96;
/// Their names and values together.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Longest `Authorization` value that is looked at.
const MAX_CREDENTIAL: usize = 8 * 1024;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Names the caller in logs, limits and to workers; gives nothing away.
    pub id: Arc<str>,
    /// The digest of the credential that proved it.
    pub digest: KeyDigest,
    /// Of whom a token speaks that proved it; `None`: it was a key.
    pub bearer: Option<Arc<Bearer>>,
    /// What the caller may use, as it was when the caller came.
    pub allowed: Allowed,
}

impl Caller {
    /// The bearer of a key.
    pub fn of_key(digest: KeyDigest) -> Self {
        Self {
            id: format!("key:{}", digest.fingerprint()).into(),
            digest,
            bearer: None,
            allowed: Allowed::EVERYTHING,
        }
    }

    /// Who was verified, and may not use what is here.
    pub(crate) fn not_allowed(&self) -> Denied {
        match self.bearer {
            Some(_) => Denied::Insufficient,
            None => Denied::Forbidden,
        }
    }

    /// The bearer of a token of this digest, which was verified.
    pub fn of_bearer(digest: KeyDigest, bearer: Arc<Bearer>) -> Self {
        Self {
            id: Arc::clone(&bearer.id),
            digest,
            bearer: Some(bearer),
            allowed: Allowed::EVERYTHING,
        }
    }
}

/// Why a credential opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It is not valid: 401.
    Invalid,
    /// It cannot be verified now: 503.
    Unavailable,
    /// It is a valid key, and its bearer may not use what is here: 403.
    Forbidden,
    /// The same of a token.
    Insufficient,
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Invalid => Self::Credential,
            Denied::Unavailable => Self::Unverified,
            Denied::Forbidden => Self::Forbidden,
            Denied::Insufficient => Self::Insufficient,
        }
    }
}

/// Says who bears a credential.
pub trait Verify: Send + Sync {
    /// Judges a bearer token.
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>>;

    /// Who can say later whether the caller may still call, when somebody can.
    fn rechecker(&self) -> Option<&dyn Recheck> {
        None
    }
}

/// Says whether a caller who was let in may still call.
pub trait Recheck: Send + Sync {
    /// Judges again.
    fn recheck<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<(), Denied>>;
}

impl Verify for KeySet {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        let found = self.find(token).copied().map(Caller::of_key);
        Box::pin(std::future::ready(found.ok_or(Denied::Invalid)))
    }
}

/// What is the same for all endpoints of a gateway.
#[derive(Debug)]
pub struct Door {
    /// How the caller's address is found.
    pub address: AddressRule,
    /// Which hosts and origins are served.
    pub sites: Sites,
    /// What callers use.
    pub callers: Callers,
}

/// A request that came through, its body not read yet.
#[derive(Debug)]
pub struct Entered {
    /// Who calls.
    pub caller: Caller,
    /// From where, as it was judged.
    pub address: IpAddr,
    /// A place among the caller's requests.
    pub place: Place,
}

impl Door {
    /// Judges everything before the body.
    pub async fn enter(
        &self,
        request: &Parts,
        peer: IpAddr,
        verify: &dyn Verify,
        ranges: &CidrSet,
        methods: &[Method],
    ) -> Result<Entered, Refusal> {
        bounds(&request.headers)?;
        let caller = match bearer(&request.headers) {
            Some(token) => verify.verify(token).await?,
            None => return Err(Refusal::Credential),
        };
        let address = self.near(request, peer, ranges)?;
        self.sites.judge(request)?;
        if !methods.contains(&request.method) {
            return Err(Refusal::Method);
        }
        size(&request.headers)?;
        let place = self.callers.enter(&caller.id)?;
        Ok(Entered {
            caller,
            address,
            place,
        })
    }

    /// Judges the address.
    fn near(&self, request: &Parts, peer: IpAddr, ranges: &CidrSet) -> Result<IpAddr, Refusal> {
        let forwarded = request.headers.get_all(FORWARDED_FOR);
        let address = caller_address(
            &self.address,
            forwarded.iter().map(http::HeaderValue::as_bytes),
            peer,
        );
        match address {
            Some(address) if ranges.contains(address) => Ok(address),
            _ => Err(Refusal::Address),
        }
    }
}

/// Bounds the headers before any of them is looked at, and refuses the forms of request smuggling
/// that a parser may let through.
pub fn bounds(headers: &HeaderMap) -> Result<(), Refusal> {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(Refusal::Headers);
    }
    let count = |name| headers.get_all(name).iter().count();
    let (lengths, codings) = (count(CONTENT_LENGTH), count(TRANSFER_ENCODING));
    if lengths + codings > 1 {
        return Err(Refusal::Ambiguous);
    }
    // The parser takes any list that ends in `chunked`; what stands before it would be left undone.
    let plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if headers
        .get(TRANSFER_ENCODING)
        .is_some_and(|coding| !plain(coding))
    {
        return Err(Refusal::Ambiguous);
    }
    Ok(())
}

/// The bearer token, when there is exactly one credential and it is one.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    let plain = value.len() <= MAX_CREDENTIAL && value.is_ascii() && values.next().is_none();
    ramen_redact::bearer_token(value).filter(|_| plain)
}

/// What the headers say about the body.
pub fn size(headers: &HeaderMap) -> Result<(), Refusal> {
    if let Some(length) = headers.get(CONTENT_LENGTH) {
        let digits = length.to_str().ok();
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length = digits.and_then(|text| text.parse::<u64>().ok());
        match length {
            None => return Err(Refusal::Ambiguous),
            Some(length) if length > MAX_MESSAGE as u64 => return Err(Refusal::Size),
            Some(_) => {}
        }
    }
    let compressed = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if compressed {
        return Err(Refusal::Encoding);
    }
    Ok(())
}

/// Reads a body of bounded size in bounded time.
pub async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    tokio::time::timeout(BODY_TIME, collect(body))
        .await
        .unwrap_or(Err(Refusal::Slow))
}

async fn collect<B>(mut body: B) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::Ambiguous)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if all.len() + first.len() + data.len() > MAX_MESSAGE {
            return Err(Refusal::Size);
        }
        if all.is_empty() && first.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&first);
            first.clear();
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

#[cfg(test)]
mod tests;
