//! JSON with comments and trailing commas, as editors write it.

use std::borrow::Cow;

/// The text as plain JSON: comments and trailing commas become spaces, so that lines and columns stay.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = text.as_bytes().to_vec();
    let mut comma = None;
    let mut at = 0;
    while at < out.len() {
        match (out[at], out.get(at + 1)) {
            (b'"', _) => {
                comma = None;
                at = string_end(&out, at);
                continue;
            }
            (b'/', Some(b'/')) => {
                let end = find(&out, at, b"\n").unwrap_or(out.len());
                blank(&mut out[at..end]);
                at = end;
                continue;
            }
            (b'/', Some(b'*')) => {
                let end = find(&out, at + 2, b"*/").map_or(out.len(), |end| end + 2);
                blank(&mut out[at..end]);
                at = end;
                continue;
            }
            (b',', _) => comma = Some(at),
            (b'}' | b']', _) => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
            }
            (byte, _) if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    match String::from_utf8(out) {
        Ok(out) => Cow::Owned(out),
        // Only whole characters are replaced, so this does not happen; the parser would say what is wrong.
        Err(_) => Cow::Borrowed(text),
    }
}

/// The place after the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len())
        .position(|window| window == what)
        .map(|found| from + found)
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(text: &str) -> Value {
        serde_json::from_str(&plain(text)).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn comments_and_trailing_commas_are_read_as_an_editor_reads_them() {
        let text = "\u{feff}// first\n{\n  /* a , b */ \"a\": [1, 2,], // ünï\n  \"b\": {\"c\": 3,\n /* x */ },\n}\n// end";
        assert_eq!(read(text), json!({"a": [1, 2], "b": {"c": 3}}));
    }

    #[test]
    fn strings_that_look_like_comments_stay() {
        let text = r#"{"url": "https://h/x", "c": "/* no */", "d": "a\\\" // b,]", "e": ",}"}"#;
        assert_eq!(
            read(text),
            json!({"url": "https://h/x", "c": "/* no */", "d": "a\\\" // b,]", "e": ",}"})
        );
    }

    #[test]
    fn broken_text_is_left_to_the_parser_and_lines_stay() {
        for text in ["{\"a\": \"", "/*", "{\"a\": 1 /", "[,]", "\\", "\"\\"] {
            let plain = plain(text);
            assert_eq!(plain.len(), text.len());
        }
        let error = serde_json::from_str::<Value>(&plain("/* a\n b */ {\n x }")).unwrap_err();
        assert_eq!(error.line(), 3);
    }
}
