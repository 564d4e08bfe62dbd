//! Names with `*` for any characters, none included.

use std::fmt;

/// A text with stars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// What stands between the stars; one piece: no star.
    pieces: Vec<String>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self {
            pieces: text.split('*').map(str::to_owned).collect(),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pieces.join("*"))
    }
}

impl Pattern {
    /// Whether all of the name is what the pattern says. Linear: each piece is taken where it comes first.
    pub fn matches(&self, name: &str) -> bool {
        let Some(((first, last), between)) = self.ends() else {
            return self.pieces.iter().any(|piece| piece == name);
        };
        let Some(mut rest) = name
            .strip_prefix(first)
            .and_then(|rest| rest.strip_suffix(last))
        else {
            return false;
        };
        for piece in between {
            match rest.split_once(piece.as_str()) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        true
    }

    /// The first and the last piece, and those between; `None` without a star.
    fn ends(&self) -> Option<((&str, &str), &[String])> {
        match self.pieces.as_slice() {
            [first, between @ .., last] => Some(((first, last), between)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_characters_and_everything_else_is_itself() {
        for (pattern, name, same) in [
            ("add", "add", true),
            ("add", "Add", false),
            ("add", "add_all", false),
            ("*", "anything", true),
            ("*", "", true),
            ("add_*", "add_", true),
            ("add_*", "add", false),
            ("*_read", "file_read", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("demo://*/x", "demo://a/b/x", true),
            ("a.c", "abc", false),
            ("**", "x", true),
        ] {
            let pattern_of = Pattern::from(pattern.to_owned());
            assert_eq!(pattern_of.matches(name), same, "{pattern} {name}");
            assert_eq!(pattern_of.to_string(), pattern);
        }
    }
}
