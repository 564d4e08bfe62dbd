//! `pattern`: JSON Schema's dialect of regular expressions.

/// Bytes that a compiled pattern may take.
const MAX_SIZE: usize = 1 << 20;

/// Compiles a pattern; an error when it needs look-around, refers back, or grows too large.
pub(super) fn compile(source: &str) -> Result<regex::Regex, regex::Error> {
    regex::RegexBuilder::new(&ascii_classes(source))
        .size_limit(MAX_SIZE)
        .build()
}

/// Shorthand classes mean ASCII in JSON Schema's dialect of regular expressions.
fn ascii_classes(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[A-Za-z0-9_]"),
            Some('W') => out.push_str("[^A-Za-z0-9_]"),
            Some('s') => out.push_str("[\\t\\n\\x0B\\x0C\\r \u{A0}\u{FEFF}\u{2028}\u{2029}]"),
            Some('S') => out.push_str("[^\\t\\n\\x0B\\x0C\\r \u{A0}\u{FEFF}\u{2028}\u{2029}]"),
            Some('b') => out.push_str("(?-u:\\b)"),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
    out
}
