//! The tokens of a connection: the newest goes out, and all of late are masked in what the server says.

use std::collections::VecDeque;

use ramen_redact::{Redactor, Secret};

use crate::config::MIN_MASKED;

/// Tokens that are masked. A connection may outlive many, each of them masked at a cost; one this far back is over.
const KEPT: usize = 16;

/// Of the sign-ins of one connection.
#[derive(Default)]
pub(super) struct Tokens {
    /// The newest last.
    of_late: VecDeque<Secret>,
    mask: Redactor,
}

impl Tokens {
    /// A newer one. Those before may be in answers that are on their way, and be good for some time yet.
    pub(super) fn add(&mut self, token: Secret) {
        self.of_late.retain(|known| *known != token);
        if self.of_late.len() >= KEPT {
            self.of_late.pop_front();
        }
        self.of_late.push_back(token);
        let values = self.of_late.iter().map(Secret::expose);
        self.mask = Redactor::new(values.filter(|value| value.chars().count() >= MIN_MASKED));
    }

    /// The one to send.
    pub(super) fn newest(&self) -> Option<&Secret> {
        self.of_late.back()
    }

    /// Takes them out of text.
    pub(super) fn mask(&self) -> Redactor {
        self.mask.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_before_the_newest_are_masked_too() {
        let mut tokens = Tokens::default();
        let token = |n: usize| format!("token-number-{n}-");
        let said = |n: usize| format!("invalid: {}", token(n));
        assert!(tokens.newest().is_none());
        assert_eq!(tokens.mask().redact(&said(0)), said(0));
        for n in 0..=KEPT {
            tokens.add(token(n).into());
            tokens.add("short".to_owned().into());
            tokens.add(token(n).into());
        }
        assert_eq!(tokens.newest().map(Secret::expose), Some(&token(KEPT)));
        let mask = tokens.mask();
        for n in 2..=KEPT {
            assert!(!mask.redact(&said(n)).contains(&token(n)), "{n}");
        }
        assert_eq!(mask.redact(&said(0)), said(0), "long gone");
        assert_eq!(mask.redact("short"), "short");
    }
}
