//! Names that cannot be used safely, and names that are the same on some file systems.

use icu_normalizer::ComposingNormalizerBorrowed;

/// What is wrong with one part of a path, if anything.
pub(super) fn fault(name: &[u8]) -> Option<&'static str> {
    let Ok(name) = std::str::from_utf8(name) else {
        return Some("it is not UTF-8");
    };
    if name.is_empty() || name == "." || name == ".." {
        return Some("`.` and `..` are no names");
    }
    if name.len() > 255 {
        return Some("it is longer than 255 bytes");
    }
    if name.contains(['/', '\\']) {
        return Some("it holds a slash or a backslash");
    }
    if name.chars().any(char::is_control) {
        return Some("it holds a control character");
    }
    if is_dot_git(name) {
        return Some("it is a form of `.git`");
    }
    (name == crate::layer::STAMP_FILE).then_some("the name is reserved")
}

/// `.git` in any spelling that some file system takes for it: case, trailing dots and spaces,
/// an NTFS stream or short name, and the code points that HFS+ ignores.
fn is_dot_git(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| !ignored_by_hfs(*c))
        .flat_map(char::to_lowercase)
        .collect();
    let stem = plain.split(':').next().unwrap_or_default();
    let stem = stem.trim_end_matches(['.', ' ']);
    stem == ".git" || stem == "git~1"
}

fn ignored_by_hfs(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Two names with the same fold cannot both exist on macOS or Windows: composed, then lower,
/// upper and lower case (which joins `ẞ`, `ß` and `ss`), then composed again.
pub(super) fn fold(name: &str) -> String {
    let nfc = ComposingNormalizerBorrowed::new_nfc();
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let folded: String = nfc
        .normalize(name)
        .chars()
        .flat_map(char::to_lowercase)
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    nfc.normalize(&folded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_system_reads_differently_are_refused() {
        let long = "x".repeat(256);
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "a\0b",
            "a\nb",
            "\u{7f}",
            "\u{85}",
            ".git",
            ".GIT",
            ".git.",
            ".git ",
            ".git::$INDEX_ALLOCATION",
            "git~1",
            "GIT~1",
            ".g\u{200c}it",
            &long,
        ] {
            assert!(fault(name.as_bytes()).is_some(), "{name:?}");
        }
        assert!(fault(b"caf\xe9").is_some());
        for name in [
            ".gitignore",
            ".gitattributes",
            "git",
            "a b",
            "é",
            "日本",
            ".env",
            "git~2",
        ] {
            assert_eq!(fault(name.as_bytes()), None, "{name:?}");
        }
    }

    #[test]
    fn names_that_are_one_on_other_systems_fold_alike() {
        for (a, b) in [
            ("Calc", "calc"),
            ("\u{e9}", "e\u{301}"),
            ("\u{c9}", "e\u{301}"),
            ("ẞ", "ss"),
        ] {
            assert_eq!(fold(a), fold(b), "{a} {b}");
        }
        assert_ne!(fold("calc"), fold("calc2"));
    }
}
