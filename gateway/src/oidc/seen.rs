//! Tokens that were verified before, by their digest: the second time costs no signature.
//!
//! One counts until it ends or its key is taken back, and is forgotten earlier where room is needed. What was refused is
//! not remembered: it may become good (a new key, a clock), and nobody can fill the room with it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use ramen_redact::KeyDigest;

use super::token::Bearer;

/// Tokens that are remembered.
const MAX: usize = 10_000;
/// Bytes of them together. What is kept of a token is several times as large.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Verified tokens.
#[derive(Default)]
pub(super) struct Seen(RwLock<Tokens>);

#[derive(Default)]
struct Tokens {
    known: HashMap<KeyDigest, Known>,
    bytes: usize,
}

struct Known {
    bearer: Arc<Bearer>,
    /// Those of its token.
    bytes: usize,
}

impl Seen {
    /// Who bears the token of this digest, while it is valid.
    pub(super) fn get(&self, digest: &KeyDigest) -> Option<Arc<Bearer>> {
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let bearer = tokens.known.get(digest).map(|known| &known.bearer);
        bearer.filter(|bearer| bearer.is_valid()).cloned()
    }

    /// Remembers who bears the token of this digest, which has so many bytes.
    pub(super) fn put(&self, digest: KeyDigest, bytes: usize, bearer: &Arc<Bearer>) {
        let mut tokens = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if tokens.known.len() >= MAX || tokens.bytes + bytes > MAX_BYTES {
            tokens.make_room();
        }
        let known = Known {
            bearer: Arc::clone(bearer),
            bytes,
        };
        tokens.bytes += bytes;
        if let Some(before) = tokens.known.insert(digest, known) {
            tokens.bytes -= before.bytes;
        }
    }
}

impl Tokens {
    fn make_room(&mut self) {
        self.keep(|known| known.bearer.is_valid());
        if self.known.len() > MAX / 2 || self.bytes > MAX_BYTES / 2 {
            // All of them are in use somewhere: half of them pay for a signature again.
            let mut stays = false;
            self.keep(|_| {
                stays = !stays;
                stays
            });
        }
    }

    fn keep(&mut self, mut stays: impl FnMut(&Known) -> bool) {
        let mut bytes = 0;
        self.known.retain(|_, known| {
            let stays = stays(known);
            bytes += if stays { known.bytes } else { 0 };
            stays
        });
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::keys;
    use super::*;

    const SOON: Duration = Duration::from_hours(1);

    fn digest(n: usize) -> KeyDigest {
        KeyDigest::of(n.to_string())
    }

    #[test]
    fn a_token_is_known_until_it_ends_and_no_longer() {
        let (key, seen) = (keys::any(), Seen::default());
        let (now, second) = (SystemTime::now(), Duration::from_secs(1));
        seen.put(digest(1), 1, &Bearer::until(now + SOON, &key));
        seen.put(digest(2), 1, &Bearer::until(now - second, &key));
        assert!(seen.get(&digest(1)).is_some());
        assert!(seen.get(&digest(2)).is_none(), "it is over");
        assert!(seen.get(&digest(3)).is_none(), "it was never seen");
    }

    #[test]
    fn a_token_is_not_known_any_more_when_its_key_is_gone() {
        let (key, other, seen) = (keys::any(), keys::any(), Seen::default());
        let end = SystemTime::now() + SOON;
        seen.put(digest(1), 1, &Bearer::until(end, &key));
        seen.put(digest(2), 1, &Bearer::until(end, &other));
        drop(key);
        assert!(seen.get(&digest(1)).is_none());
        assert!(seen.get(&digest(2)).is_some());
    }

    #[test]
    fn no_more_tokens_are_known_than_there_is_room_for() {
        let (key, seen) = (keys::any(), Seen::default());
        let bearer = Bearer::until(SystemTime::now() + SOON, &key);
        for n in 0..=MAX {
            seen.put(digest(n), 100, &bearer);
        }
        let tokens = seen.0.read().unwrap();
        assert_eq!(tokens.known.len(), MAX / 2 + 1);
        assert_eq!(tokens.bytes, tokens.known.len() * 100);
        assert!(
            tokens.known.contains_key(&digest(MAX)),
            "the last one is there"
        );
    }

    #[test]
    fn no_more_bytes_are_known_than_there_is_room_for() {
        let (key, seen) = (keys::any(), Seen::default());
        let bearer = Bearer::until(SystemTime::now() + SOON, &key);
        let large = MAX_BYTES / 8;
        for n in 0..100 {
            seen.put(digest(n), large, &bearer);
            // The same one again takes no more room.
            seen.put(digest(n), large, &bearer);
            let tokens = seen.0.read().unwrap();
            assert!(tokens.bytes <= MAX_BYTES, "after {n}: {}", tokens.bytes);
            assert_eq!(tokens.bytes, tokens.known.len() * large);
        }
    }

    #[test]
    fn what_is_over_makes_room_first() {
        let (key, seen) = (keys::any(), Seen::default());
        let now = SystemTime::now();
        let (good, over) = (
            Bearer::until(now + SOON, &key),
            Bearer::until(now - SOON, &key),
        );
        for n in 0..MAX {
            let bearer = if n < MAX / 2 { &good } else { &over };
            seen.put(digest(n), 1, bearer);
        }
        seen.put(digest(MAX), 1, &good);
        assert!((0..MAX / 2).all(|n| seen.get(&digest(n)).is_some()));
        assert_eq!(seen.0.read().unwrap().known.len(), MAX / 2 + 1);
    }
}
