//! Keys of callers: kept as digests, compared in constant time.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq};

/// SHA-256 of a key. The key itself is not kept.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of a key.
    pub fn of(key: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(key.as_ref()).into())
    }

    /// All of it in hex, to be handed on to somebody who judges keys and must not hold any.
    pub fn to_hex(&self) -> String {
        crate::hex_lower(&self.0)
    }

    /// Reads what [`KeyDigest::to_hex`] wrote; `None` when it is anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(digest))
    }

    fn words(&self) -> [u64; 4] {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(self.0.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        words
    }

    /// Eight hex digits that name the key in an audit log without giving it away.
    pub fn fingerprint(&self) -> String {
        crate::hex_lower(&self.0[..4])
    }
}

impl ConstantTimeEq for KeyDigest {
    /// Word by word: a set of a hundred keys is gone through for each call, and byte by byte that took eight times as long.
    fn ct_eq(&self, other: &Self) -> Choice {
        self.words().ct_eq(&other.words())
    }
}

impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for KeyDigest {}

impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyDigest({}…)", self.fingerprint())
    }
}

/// The keys that open a door. Several are valid at once; none opens nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    digests: Vec<KeyDigest>,
    /// Of each digest, under what name the key was found.
    names: Vec<Option<Arc<str>>>,
}

impl KeySet {
    /// No keys: denies all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Keys from the text of a key file, as [`keys_of`] finds them.
    pub fn from_lines(text: &str) -> Self {
        let mut keys = Self::empty();
        keys.add_lines(text);
        keys
    }

    /// Adds the keys of one more key file.
    pub fn add_lines(&mut self, text: &str) {
        self.add_named(None, text);
    }

    /// Adds the keys of one more key file, which are known by this name: that of the file, or of the entry of a Secret.
    pub fn add_named(&mut self, name: Option<&str>, text: &str) {
        let name = name.map(Arc::<str>::from);
        for key in keys_of(text) {
            self.put(KeyDigest::of(key), name.clone());
        }
    }

    /// Adds a key by digest; one that is there already is not added again.
    pub fn add(&mut self, digest: KeyDigest) {
        self.put(digest, None);
    }

    /// Adds a key by digest, which is known by this name.
    pub fn add_digest(&mut self, digest: KeyDigest, name: Option<&str>) {
        self.put(digest, name.map(Arc::from));
    }

    fn put(&mut self, digest: KeyDigest, name: Option<Arc<str>>) {
        if !self.digests.contains(&digest) {
            self.digests.push(digest);
            self.names.push(name);
        }
    }

    /// The digests of all keys.
    pub fn digests(&self) -> &[KeyDigest] {
        &self.digests
    }

    /// The name under which the key of this digest was found first.
    pub fn name_of(&self, digest: &KeyDigest) -> Option<&str> {
        let at = self.digests.iter().position(|known| known == digest)?;
        self.names[at].as_deref()
    }

    /// Whether a key is known by this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().flatten().any(|known| &**known == name)
    }

    /// How many keys are valid.
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether none is, so that nobody gets in.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Whether `presented` is one of the keys. Takes the same time whichever it is, and none.
    pub fn admits(&self, presented: impl AsRef<[u8]>) -> bool {
        self.find(presented).is_some()
    }

    /// Whether the key of this digest is one of the keys, as it was when it was presented.
    pub fn holds(&self, digest: &KeyDigest) -> bool {
        self.digests
            .iter()
            .fold(Choice::from(0), |found, known| found | known.ct_eq(digest))
            .into()
    }

    /// Which key `presented` is, judged over all keys in constant time.
    pub fn find(&self, presented: impl AsRef<[u8]>) -> Option<&KeyDigest> {
        let digest = KeyDigest::of(presented);
        let mut found = Choice::from(0);
        let mut index = 0_u64;
        for (at, known) in (0_u64..).zip(&self.digests) {
            let same = known.ct_eq(&digest);
            index.conditional_assign(&at, same);
            found |= same;
        }
        let index = usize::try_from(index).ok()?;
        bool::from(found).then(|| &self.digests[index])
    }
}

/// The keys in the text of a key file: one a line, trimmed; blank lines and lines that start with `#` are none.
pub fn keys_of(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The token of an `authorization: Bearer …` header; `None` when it has another form or is empty.
/// The scheme's case does not matter.
pub fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = header.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !matches!(rest.first(), Some(b' ' | b'\t')) {
        return None;
    }
    let token = rest.trim_ascii();
    let plain = !token.is_empty() && !token.iter().any(u8::is_ascii_whitespace);
    plain.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_an_empty_set_denies_all() {
        assert!(!KeySet::empty().admits(""));
        assert!(!KeySet::empty().admits("rmk_a"));
        assert!(!KeySet::from_lines("\n# no key yet\n  \n").admits(""));
    }

    #[test]
    fn several_keys_are_valid_at_once_and_nothing_near_them() {
        let keys = KeySet::from_lines("rmk_a\n  rmk_b \r\n# rmk_c\nrmk_a\n");
        assert_eq!(keys.len(), 2);
        assert!(keys.admits("rmk_a") && keys.admits("rmk_b"));
        for wrong in [
            "", "rmk_", "rmk_c", "rmk_a ", "RMK_A", "rmk_a\n", "rmk_ab", "# rmk_c",
        ] {
            assert!(!keys.admits(wrong), "{wrong:?}");
        }
        assert_eq!(keys.find("rmk_b"), Some(&KeyDigest::of("rmk_b")));
        assert!(keys.holds(&KeyDigest::of("rmk_a")) && !keys.holds(&KeyDigest::of("rmk_c")));
        assert!(!KeySet::empty().holds(&KeyDigest::of("")));
    }

    #[test]
    fn a_key_has_the_name_under_which_it_was_found_first() {
        let mut keys = KeySet::from_lines("rmk_a");
        keys.add_named(Some("ci"), "rmk_b\nrmk_c\n");
        keys.add_named(Some("late"), "rmk_b\n");
        let name = |key: &str| keys.name_of(&KeyDigest::of(key)).map(str::to_owned);
        assert_eq!(name("rmk_a"), None);
        assert_eq!(name("rmk_b").as_deref(), Some("ci"));
        assert_eq!(name("rmk_c").as_deref(), Some("ci"));
        assert_eq!(name("rmk_d"), None);
        assert!(keys.has_name("ci") && !keys.has_name("late") && !keys.has_name("rmk_a"));
    }

    #[test]
    fn a_digest_does_not_show_the_key() {
        let shown = format!("{:?}", KeySet::from_lines("rmk_supersecret"));
        assert!(!shown.contains("supersecret"), "{shown}");
        assert_eq!(KeyDigest::of("rmk_a").fingerprint().len(), 8);
    }

    #[test]
    fn a_bearer_header_gives_its_token_and_others_none() {
        for good in [
            "Bearer rmk_a",
            "bearer rmk_a",
            "BEARER  rmk_a ",
            "Bearer\trmk_a",
        ] {
            assert_eq!(bearer_token(good.as_bytes()), Some(&b"rmk_a"[..]), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearerrmk_a",
            "Basic rmk_a",
            "rmk_a",
            "Bearer a b",
        ] {
            assert_eq!(bearer_token(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_digest_is_handed_on_in_hex() {
        let digest = KeyDigest::of("rmk_a");
        let text = digest.to_hex();
        assert_eq!(KeyDigest::from_hex(&text), Some(digest));
        assert_eq!(KeyDigest::from_hex(&text.to_uppercase()), Some(digest));
        for other in [
            "",
            &text[1..],
            &format!("{text}0"),
            &text.replace(&text[..1], "g"),
            "é",
        ] {
            assert_eq!(KeyDigest::from_hex(other), None, "{other}");
        }
    }
}
