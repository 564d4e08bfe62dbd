//! The payload of a `RESULT` whose status is [`Error`](crate::Status::Error): one line for the caller, and one for the
//! log of the group's author.

/// What to append to the text of an error: where in the package it was raised, when that is known.
pub fn error_place(place: &str) -> impl Iterator<Item = u8> + '_ {
    let one_line = place.lines().next().unwrap_or_default();
    let line_break = (!one_line.is_empty()).then_some(b'\n');
    line_break.into_iter().chain(one_line.bytes())
}

/// The text for the caller, and the place for the log.
pub fn error_parts(payload: &[u8]) -> (&[u8], Option<&[u8]>) {
    match payload.iter().position(|byte| *byte == b'\n') {
        Some(at) => {
            let (text, rest) = payload.split_at(at);
            (text, rest.get(1..).filter(|place| !place.is_empty()))
        }
        None => (payload, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_apart_from_the_text() {
        for (place, wanted) in [
            ("a.py, line 3", Some("a.py, line 3")),
            ("a.py\nb.py", Some("a.py")),
            ("", None),
        ] {
            let mut payload = b"ValueError: no".to_vec();
            payload.extend(error_place(place));
            let (text, found) = error_parts(&payload);
            assert_eq!(text, b"ValueError: no");
            assert_eq!(found, wanted.map(str::as_bytes));
        }
    }
}
