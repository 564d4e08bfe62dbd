//! An error as text for people: what was attempted, and everything behind it, on one line.

use std::error::Error;

/// An error with its causes. A cause that the text ends with already is not said twice. Secrets in it are
/// the caller's to take out.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Self>>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_is_told_once() {
        let cause = Told("connection refused", None);
        let middle = Told("the store: connection refused", Some(Box::new(cause)));
        let error = Told("cannot open", Some(Box::new(middle)));
        assert_eq!(chain(&error), "cannot open: the store: connection refused");
        assert_eq!(chain(&Told("alone", None)), "alone");
    }
}
