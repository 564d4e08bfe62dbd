//! Text as it reads once its escapes are undone, with the way back to where each byte came from.

use aho_corasick::AhoCorasick;
use std::ops::Range;

/// Decoded bytes and, for each, where in the source it begins. One more entry gives the end.
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    origin: Vec<u32>,
}

/// How to read the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Backslash escapes; `\xNN` is a character (JSON, Python `str`).
    Characters,
    /// Backslash escapes; `\xNN` is a byte (Python `bytes`).
    Bytes,
    /// `%NN`.
    Percent,
    /// `%NN`, and `+` for a space.
    Form,
    /// `&amp;`, `&#38;`, `&#x26;`.
    Html,
}

impl View {
    /// Every reading of `source` that differs from it, made one at a time.
    pub(super) fn all(source: &[u8]) -> impl Iterator<Item = Self> {
        let has = |byte: u8| source.contains(&byte);
        let mut readings = Vec::new();
        if has(b'\\') {
            readings.push(Reading::Characters);
            if source.windows(2).any(|pair| pair == b"\\x") {
                readings.push(Reading::Bytes);
            }
        }
        if has(b'%') {
            readings.push(Reading::Percent);
        }
        if has(b'+') {
            readings.push(Reading::Form);
        }
        if has(b'&') {
            readings.push(Reading::Html);
        }
        readings
            .into_iter()
            .filter_map(|reading| Self::read(source, reading))
    }

    fn read(source: &[u8], reading: Reading) -> Option<Self> {
        let mut view = Self {
            bytes: Vec::with_capacity(source.len()),
            origin: Vec::with_capacity(source.len() + 1),
        };
        let (mut at, mut changed) = (0, false);
        while at < source.len() {
            let rest = &source[at..];
            if let Some((unit, length)) = reading.unit(rest) {
                changed = true;
                view.put(unit, place(at));
                at += length;
            } else {
                view.put(Unit::Byte(rest[0]), place(at));
                at += 1;
            }
        }
        view.origin.push(place(source.len()));
        changed.then_some(view)
    }

    fn put(&mut self, unit: Unit, from: u32) {
        let before = self.bytes.len();
        match unit {
            Unit::Byte(byte) => self.bytes.push(byte),
            Unit::Char(char) => {
                self.bytes
                    .extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Unit::Nothing => {}
        }
        self.origin
            .resize(self.origin.len() + self.bytes.len() - before, from);
    }

    /// The same view, counted from the source of `outer`.
    pub(super) fn within(mut self, outer: &Self) -> Self {
        for place in &mut self.origin {
            *place = outer.origin[*place as usize];
        }
        self
    }

    /// Adds what stands in this view, by its place in the source.
    pub(super) fn search(&self, forms: &AhoCorasick, found: &mut Vec<Range<usize>>) {
        if !forms.is_match(&self.bytes) {
            return;
        }
        for hit in forms.find_overlapping_iter(&self.bytes) {
            let start = self.origin[hit.start()];
            // The bytes of one character share their place; the end is where the next thing begins.
            let last = self.origin[hit.end() - 1];
            let end = self.origin[hit.end()..]
                .iter()
                .copied()
                .find(|place| *place > last);
            super::note(found, start as usize..end.unwrap_or(last) as usize);
        }
    }
}

/// A place in a text of less than 4 GiB; later ones would collapse into the last.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// What an escape stands for.
#[derive(Clone, Copy)]
enum Unit {
    Byte(u8),
    Char(char),
    /// A line continued with a backslash.
    Nothing,
}

impl Reading {
    /// The escape at the start of `rest`, and its length.
    fn unit(self, rest: &[u8]) -> Option<(Unit, usize)> {
        match (self, rest[0]) {
            (Self::Characters | Self::Bytes, b'\\') => self.backslash(rest),
            (Self::Percent | Self::Form, b'%') => {
                let byte = u8::try_from(number(rest.get(1..3)?, 16)?).ok()?;
                Some((Unit::Byte(byte), 3))
            }
            (Self::Form, b'+') => Some((Unit::Byte(b' '), 1)),
            (Self::Html, b'&') => entity(rest),
            _ => None,
        }
    }

    fn backslash(self, rest: &[u8]) -> Option<(Unit, usize)> {
        let byte = |byte| Some((Unit::Byte(byte), 2));
        match rest.get(1)? {
            b'n' => byte(b'\n'),
            b'r' => byte(b'\r'),
            b't' => byte(b'\t'),
            b'b' => byte(0x08),
            b'f' => byte(0x0c),
            b'a' => byte(0x07),
            b'v' => byte(0x0b),
            same @ (b'"' | b'\'' | b'\\' | b'/') => byte(*same),
            b'\n' => Some((Unit::Nothing, 2)),
            b'x' => {
                let code = number(rest.get(2..4)?, 16)?;
                let unit = match self {
                    Self::Bytes => Unit::Byte(u8::try_from(code).ok()?),
                    _ => Unit::Char(char::from_u32(code)?),
                };
                Some((unit, 4))
            }
            b'u' => utf16(rest),
            b'U' => Some((
                Unit::Char(char::from_u32(number(rest.get(2..10)?, 16)?)?),
                10,
            )),
            _ => None,
        }
    }
}

/// `\uXXXX`, or two of them that make one character.
fn utf16(rest: &[u8]) -> Option<(Unit, usize)> {
    let high = number(rest.get(2..6)?, 16)?;
    if let Some(char) = char::from_u32(high) {
        return Some((Unit::Char(char), 6));
    }
    let low = rest.get(6..12).filter(|low| low.starts_with(b"\\u"))?;
    let units = [
        u16::try_from(high).ok()?,
        u16::try_from(number(&low[2..], 16)?).ok()?,
    ];
    let char = char::decode_utf16(units).next()?.ok()?;
    Some((Unit::Char(char), 12))
}

fn entity(rest: &[u8]) -> Option<(Unit, usize)> {
    let end = rest.iter().take(12).position(|byte| *byte == b';')?;
    let char = match &rest[1..end] {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(number(digits, 16)?)?,
        [b'#', digits @ ..] => char::from_u32(number(digits, 10)?)?,
        _ => return None,
    };
    Some((Unit::Char(char), end + 1))
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}
