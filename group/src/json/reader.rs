//! The pull reader.

use std::borrow::Cow;

use super::{MAX_DEPTH, MAX_DIGITS};

/// Bad JSON: what and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Byte offset.
    pub at: usize,
    /// In words, without the text.
    pub message: &'static str,
}

/// What kind of value comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A string token.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// What stands between the quotes.
    pub raw: &'a str,
    /// Whether there is a backslash in it.
    pub escaped: bool,
}

impl<'a> Text<'a> {
    /// The string that the token means.
    pub fn decode(self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut out = String::with_capacity(self.raw.len());
        let mut rest = self.raw;
        while let Some(at) = rest.find('\\') {
            out.push_str(&rest[..at]);
            let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
            rest = rest.get(at + 2..).unwrap_or("");
            match escape {
                b'n' => out.push('\n'),
                b't' => out.push('\t'),
                b'r' => out.push('\r'),
                b'b' => out.push('\u{8}'),
                b'f' => out.push('\u{c}'),
                b'u' => {
                    let unit = hex4(rest.as_bytes()).unwrap_or(0xFFFD);
                    rest = rest.get(4..).unwrap_or("");
                    if (0xD800..0xDC00).contains(&unit) {
                        let low = rest.as_bytes().get(2..).and_then(hex4).unwrap_or(0xDC00);
                        rest = rest.get(6..).unwrap_or("");
                        let point =
                            0x1_0000 + ((unit - 0xD800) << 10) + (low.wrapping_sub(0xDC00) & 0x3FF);
                        out.push(char::from_u32(point).unwrap_or('\u{FFFD}'));
                    } else {
                        out.push(char::from_u32(unit).unwrap_or('\u{FFFD}'));
                    }
                }
                other => out.push(char::from(other)),
            }
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// How many characters the string has.
    pub fn chars(self) -> usize {
        if self.escaped {
            self.decode().chars().count()
        } else {
            self.raw.chars().count()
        }
    }
}

fn hex4(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.get(..4)?;
    digits.iter().try_fold(0u32, |value, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(value << 4 | digit)
    })
}

/// Writes a string as a JSON token, quotes included.
pub fn quote_into(out: &mut String, text: &str) {
    use std::fmt::Write as _;
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[start..at]);
        if short.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(short);
        }
        start = at + 1;
    }
    out.push_str(&text[start..]);
    out.push('"');
}

/// A number token.
#[derive(Debug, Clone, Copy)]
pub struct Number<'a> {
    /// As written.
    pub raw: &'a str,
    /// Whether it has neither fraction nor exponent.
    pub plain_integer: bool,
}

/// Reads JSON from the left to the right.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `text`.
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            pos: 0,
            depth: 0,
        }
    }

    /// Where it stands.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// The text between two places that this reader returned.
    pub fn slice(&self, from: usize, to: usize) -> &'a str {
        &self.text[from..to]
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn fault<T>(&self, message: &'static str) -> Result<T, Fault> {
        Err(Fault {
            at: self.pos,
            message,
        })
    }

    /// Skips blanks.
    #[inline]
    pub fn blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.pos += 1;
        }
    }

    /// Skips blanks and tells what comes next.
    #[inline]
    pub fn peek(&mut self) -> Result<Kind, Fault> {
        self.blanks();
        match self.byte() {
            Some(b'"') => Ok(Kind::String),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            other => self.unexpected(other),
        }
    }

    fn unexpected<T>(&self, byte: Option<u8>) -> Result<T, Fault> {
        self.fault(match byte {
            None => "the text ends too early",
            Some(b'/' | b'#') => "comments are not JSON",
            Some(b'\'') => "strings take double quotes",
            Some(b'}' | b']') => "a value is missing here, or the comma before is one too many",
            Some(b'N' | b'I') => "`NaN` and `Infinity` are not JSON",
            Some(b'T' | b'F') => "write `true` and `false` in small letters",
            Some(_) => "a value was expected",
        })
    }

    /// Ends: nothing but blanks may follow.
    pub fn finish(&mut self) -> Result<(), Fault> {
        self.blanks();
        match self.byte() {
            None => Ok(()),
            Some(b'/' | b'#') => self.fault("comments are not JSON"),
            Some(_) => self.fault("the text goes on after the value"),
        }
    }

    /// `null`, `true` or `false`.
    pub fn word(&mut self) -> Result<Option<bool>, Fault> {
        for (word, value) in [("null", None), ("true", Some(true)), ("false", Some(false))] {
            if self.bytes[self.pos..].starts_with(word.as_bytes()) {
                self.pos += word.len();
                return Ok(value);
            }
        }
        self.fault("a value was expected")
    }

    /// A string; stands on its opening quote.
    #[inline]
    pub fn string(&mut self) -> Result<Text<'a>, Fault> {
        if self.byte() != Some(b'"') {
            return match self.byte() {
                Some(b'\'') => self.fault("strings take double quotes"),
                Some(b'/' | b'#') => self.fault("comments are not JSON"),
                Some(b'}' | b']') => self.fault("the comma before is one too many"),
                None => self.fault("the text ends too early"),
                Some(_) => self.fault("a string in double quotes was expected"),
            };
        }
        self.pos += 1;
        let start = self.pos;
        let mut escaped = false;
        loop {
            match self.byte() {
                Some(b'"') => {
                    let raw = &self.text[start..self.pos];
                    self.pos += 1;
                    return Ok(Text { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(0..0x20) => return self.fault("a control character in a string"),
                Some(_) => self.pos += 1,
                None => return self.fault("a string is not closed"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let lone = "a lone surrogate in a string";
        match self.bytes.get(self.pos + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.pos += 2,
            Some(b'u') => {
                let Some(unit) = self.bytes.get(self.pos + 2..).and_then(hex4) else {
                    return self.fault("`\\u` takes four hexadecimal digits");
                };
                if (0xDC00..0xE000).contains(&unit) {
                    return self.fault(lone);
                }
                if (0xD800..0xDC00).contains(&unit) {
                    let low = self
                        .bytes
                        .get(self.pos + 6..)
                        .and_then(|rest| rest.strip_prefix(b"\\u"))
                        .and_then(hex4);
                    if !low.is_some_and(|low| (0xDC00..0xE000).contains(&low)) {
                        return self.fault(lone);
                    }
                    self.pos += 6;
                }
                self.pos += 6;
            }
            _ => return self.fault("an unknown escape in a string"),
        }
        Ok(())
    }

    fn digits(&mut self) -> usize {
        let start = self.pos;
        while let Some(b'0'..=b'9') = self.byte() {
            self.pos += 1;
        }
        self.pos - start
    }

    /// A number; stands on its first byte.
    #[inline]
    pub fn number(&mut self) -> Result<Number<'a>, Fault> {
        let start = self.pos;
        if self.byte() == Some(b'-') {
            self.pos += 1;
        }
        let leading_zero = self.byte() == Some(b'0');
        let integer_digits = self.digits();
        if integer_digits == 0 {
            return self.fault("a digit was expected");
        }
        if leading_zero && integer_digits > 1 {
            return Err(Fault {
                at: start,
                message: "a number starts with a zero",
            });
        }
        let mut plain_integer = true;
        if self.byte() == Some(b'.') {
            plain_integer = false;
            self.pos += 1;
            if self.digits() == 0 {
                return self.fault("a digit was expected");
            }
        }
        let mut exponent = false;
        if let Some(b'e' | b'E') = self.byte() {
            plain_integer = false;
            exponent = true;
            self.pos += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.pos += 1;
            }
            if self.digits() == 0 {
                return self.fault("a digit was expected");
            }
        }
        let raw = &self.text[start..self.pos];
        if integer_digits > MAX_DIGITS {
            return Err(Fault {
                at: start,
                message: "a number has too many digits",
            });
        }
        // Only an exponent or many digits can lead out of a double's range.
        if (exponent || (!plain_integer && integer_digits > 300))
            && raw.parse::<f64>().is_ok_and(f64::is_infinite)
        {
            return Err(Fault {
                at: start,
                message: "a number is out of range",
            });
        }
        Ok(Number { raw, plain_integer })
    }

    fn enter(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fault("arrays and objects nest too deep");
        }
        self.pos += 1;
        Ok(())
    }

    /// Opens the array or object it stands on; true when it has members.
    #[inline]
    pub fn open(&mut self) -> Result<bool, Fault> {
        let close = if self.byte() == Some(b'{') {
            b'}'
        } else {
            b']'
        };
        self.enter()?;
        self.blanks();
        if self.byte() == Some(close) {
            self.pos += 1;
            self.depth -= 1;
            return Ok(false);
        }
        Ok(true)
    }

    /// After a member: true when another one follows, false when the array or object was closed.
    #[inline]
    pub fn next(&mut self, close: u8) -> Result<bool, Fault> {
        self.blanks();
        match self.byte() {
            Some(b',') => {
                self.pos += 1;
                self.blanks();
                if self.byte() == Some(close) {
                    return self.fault("the comma before is one too many");
                }
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.pos += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(b'/' | b'#') => self.fault("comments are not JSON"),
            None => self.fault("the text ends too early"),
            Some(_) if close == b'}' => self.fault("`,` or `}` was expected"),
            Some(_) => self.fault("`,` or `]` was expected"),
        }
    }

    /// A member's name and the colon behind it.
    #[inline]
    pub fn key(&mut self) -> Result<Text<'a>, Fault> {
        self.blanks();
        let key = self.string()?;
        self.blanks();
        if self.byte() != Some(b':') {
            return self.fault("`:` was expected");
        }
        self.pos += 1;
        Ok(key)
    }

    /// Reads past one value, judging its syntax.
    pub fn skip(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            Kind::Null | Kind::Bool => self.word().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::String => self.string().map(drop),
            Kind::Array => {
                let mut more = self.open()?;
                while more {
                    self.skip()?;
                    more = self.next(b']')?;
                }
                Ok(())
            }
            Kind::Object => {
                let mut more = self.open()?;
                while more {
                    self.key()?;
                    self.skip()?;
                    more = self.next(b'}')?;
                }
                Ok(())
            }
        }
    }
}
