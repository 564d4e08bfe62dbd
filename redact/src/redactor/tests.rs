use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use super::*;

fn masked(secrets: &[&str], text: &str) -> String {
    Redactor::new(secrets).redact(text).into_owned()
}

/// Python's `repr` of a string, near enough: `ascii` escapes all that is not ASCII.
fn python_repr(text: &str, ascii: bool) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                write!(out, "\\x{:02x}", c as u32).unwrap();
            }
            c if c.is_ascii() || !ascii => out.push(c),
            c if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32).unwrap(),
            c if (c as u32) < 0x1_0000 => write!(out, "\\u{:04x}", c as u32).unwrap(),
            c => write!(out, "\\U{:08x}", c as u32).unwrap(),
        }
    }
    out.push(quote);
    out
}

/// Python's `json.dumps` with its default of ASCII only.
fn json_ascii(text: &str) -> String {
    let plain = serde_json::to_string(text).unwrap();
    let mut out = String::new();
    for char in plain.chars() {
        if char.is_ascii() {
            out.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        }
    }
    out
}

fn python_bytes(text: &str) -> String {
    let mut out = String::from("b'");
    for byte in text.bytes() {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\'' => out.push_str("\\'"),
            b'\n' => out.push_str("\\n"),
            0x20..=0x7e => out.push(byte as char),
            _ => write!(out, "\\x{byte:02x}").unwrap(),
        }
    }
    out.push('\'');
    out
}

#[test]
fn run07_a_secret_in_a_url_leaves_one_marker() {
    assert_eq!(
        masked(
            &["s3cr3t-v4lue"],
            "HTTPError: 401 for https://x/?k=s3cr3t-v4lue"
        ),
        "HTTPError: 401 for https://x/?k=***"
    );
    assert_eq!(masked(&["abc"], "abcabcabc"), "***");
}

#[test]
fn run08_every_documented_form_is_masked() {
    let secret = "a b\n\"c/ü😀'd";
    for (name, form) in [
        ("raw", secret.to_owned()),
        ("repr", python_repr(secret, false)),
        ("ascii", python_repr(secret, true)),
        ("bytes", python_bytes(secret)),
        ("json", serde_json::to_string(secret).unwrap()),
        ("json ascii", json_ascii(secret)),
        (
            "json in json",
            serde_json::to_string(&json_ascii(secret)).unwrap(),
        ),
        (
            "repr of json",
            python_repr(&serde_json::to_string(secret).unwrap(), false),
        ),
        (
            "url",
            utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        ),
        (
            "url lower case",
            utf8_percent_encode(secret, NON_ALPHANUMERIC)
                .to_string()
                .to_lowercase(),
        ),
        ("url, some only", "a%20b\n%22c/ü%F0%9F%98%80'd".to_owned()),
        ("form", "a+b%0A%22c%2F%C3%BC%F0%9F%98%80%27d".to_owned()),
        ("html", "a b\n&quot;c/&#252;😀&#x27;d".to_owned()),
        ("base64", STANDARD.encode(secret)),
        ("base64 no padding", STANDARD_NO_PAD.encode(secret)),
        ("base64 url", URL_SAFE.encode(secret)),
        ("base64 url no padding", URL_SAFE_NO_PAD.encode(secret)),
        (
            "base64, url encoded",
            STANDARD
                .encode(secret)
                .replace('+', "%2B")
                .replace('=', "%3D"),
        ),
    ] {
        let text = format!("before {form} after");
        let shown = masked(&[secret], &text);
        assert!(
            shown.starts_with("before ") && shown.ends_with(" after"),
            "{name}: {shown}"
        );
        assert!(shown.contains(MARKER), "{name}: {shown}");
        assert!(
            shown.len() <= "before '***' after".len() + 6,
            "{name}: {shown}"
        );
    }
}

#[test]
fn run08_a_secret_inside_longer_base64_is_masked_at_every_alignment() {
    let secret = "hunter2-hunter2";
    for before in ["", "u", "us", "use", "user:"] {
        for after in ["", "!", "!!", " and more"] {
            let whole = format!("{before}{secret}{after}");
            for text in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                let shown = masked(&[secret], &format!("Basic {text}"));
                assert!(shown.contains(MARKER), "{whole}: {shown}");
            }
        }
    }
}

#[test]
fn run09_the_longest_secret_wins_and_overlaps_leave_nothing() {
    assert_eq!(masked(&["abc", "abcdef"], "x abcdef y"), "x *** y");
    assert_eq!(masked(&["abcdef", "abc"], "x abcdef abc y"), "x *** *** y");
    assert_eq!(masked(&["abcd", "cdef"], "abcdef"), "***");
}

#[test]
fn lines_of_a_key_file_are_masked_one_by_one() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n";
    assert_eq!(masked(&[key], "line: hkiG9w0BAQEFAASC"), "line: ***");
    assert_eq!(masked(&["token-value\n"], "got token-value."), "got ***.");
}

#[test]
fn text_without_secrets_is_borrowed_and_unchanged() {
    let redactor = Redactor::new(["s3cr3t"]);
    for text in [
        "",
        "plain",
        r"C:\new\table \u12 \ud800 %zz %",
        "a&b&amp;c;",
        "50%+1",
    ] {
        assert!(
            matches!(redactor.redact(text), Cow::Borrowed(same) if same == text),
            "{text}"
        );
        assert!(matches!(Redactor::none().redact(text), Cow::Borrowed(_)));
        assert!(matches!(
            redactor.redact_bytes(text.as_bytes()),
            Cow::Borrowed(_)
        ));
    }
}

#[test]
fn empty_and_blank_secrets_mask_nothing() {
    assert!(Redactor::new(["", "  ", "\n"]).is_empty());
    assert!(Redactor::new::<[&str; 0]>([]).is_empty());
}

#[test]
fn a_long_text_is_redacted_whatever_it_holds() {
    let redactor = Redactor::new(["a", "aa", "abc\\\"d", "s3cr3t"]);
    for unit in ["a", "\\", "\\\\u0061", "%61+&#97;\\x61", "x"] {
        let text = unit.repeat(1024 * 1024 / unit.len());
        let shown = redactor.redact(&text);
        assert!(!shown.contains('a') && shown.len() <= text.len(), "{unit}");
    }
}

#[test]
fn a_redactor_does_not_show_what_it_masks() {
    assert!(!format!("{:?}", Redactor::new(["hunter2"])).contains("hunter2"));
}

#[test]
fn bytes_that_are_not_utf8_are_masked_too() {
    let shown = Redactor::new(["hunter2"])
        .redact_bytes(b"\xff hunter2 \xfe")
        .into_owned();
    assert_eq!(shown, b"\xff *** \xfe");
}

proptest! {
    #[test]
    fn no_planted_secret_survives_in_any_form(
        secret in "[ -)+-~\n\tà-üא-ת一-三😀-😎]{3,24}",
        other in "[a-z]{3,12}",
        before in "\\PC{0,12}",
        after in "\\PC{0,12}",
        form in 0..11_usize,
    ) {
        prop_assume!(secret.trim() == secret);
        let planted = match form {
            0 => secret.clone(),
            1 => python_repr(&secret, false),
            2 => python_repr(&secret, true),
            3 => serde_json::to_string(&secret).unwrap(),
            4 => json_ascii(&secret),
            5 => utf8_percent_encode(&secret, NON_ALPHANUMERIC).to_string(),
            6 => utf8_percent_encode(&secret, NON_ALPHANUMERIC).to_string().replace("%20", "+"),
            7 => STANDARD.encode(&secret),
            8 => URL_SAFE_NO_PAD.encode(&secret),
            9 => python_bytes(&secret),
            _ => serde_json::to_string(&json_ascii(&secret)).unwrap(),
        };
        // Without its quotes: what stands around the value may belong to anyone.
        let core = planted.trim_start_matches("b'").trim_matches(['\'', '"']);
        let text = format!("{before} {planted} {after}");
        let redactor = Redactor::new([&secret, &other]);
        let shown = redactor.redact(&text);
        prop_assert!(shown.contains(MARKER), "{shown}");
        prop_assert!(!shown.contains(&*secret), "{shown}");
        prop_assert!(core.len() < 3 || !shown.contains(core) || MARKER.contains(core), "{shown}");
        let bytes = redactor.redact_bytes(text.as_bytes());
        prop_assert!(!String::from_utf8_lossy(&bytes).contains(&*secret));
    }

    #[test]
    fn any_text_is_redacted_without_a_panic(
        secrets in proptest::collection::vec("\\PC{0,6}", 0..4),
        text in "(\\PC|[\\\\%&+;#xuU0-9a-f]){0,60}",
    ) {
        let redactor = Redactor::new(&secrets);
        let shown = redactor.redact(&text);
        for secret in secrets.iter().filter(|secret| !secret.trim().is_empty()) {
            prop_assert!(secret.contains('*') || !shown.contains(&**secret), "{secret:?} in {shown:?}");
        }
        redactor.redact_bytes(text.as_bytes());
    }
}
