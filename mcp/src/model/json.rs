use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A piece of JSON kept as the text it came in, order, digits and all, but without white space between
/// tokens: what goes into a message has to fit on one line.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Keeps `text` when it is JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self::compact)
    }

    fn compact(raw: Box<RawValue>) -> Self {
        match compact(raw.get()) {
            Cow::Borrowed(_) => Self(raw),
            Cow::Owned(text) => Self(
                RawValue::from_string(text).expect("JSON stays JSON without white space between"),
            ),
        }
    }

    /// Writes a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Reads it as something.
    pub fn to<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }
}

/// JSON without white space between its tokens.
fn compact(json: &str) -> Cow<'_, str> {
    let (mut in_string, mut escaped) = (false, false);
    let mut significant = |byte: &u8| {
        let space = !in_string && matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        in_string ^= *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        !space
    };
    let kept: Vec<u8> = json.bytes().filter(&mut significant).collect();
    if kept.len() == json.len() {
        return Cow::Borrowed(json);
    }
    Cow::Owned(String::from_utf8(kept).expect("only ASCII was taken out"))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(reader).map(Self::compact)
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self::of(value).expect("a JSON value has string keys, so it can be written")
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_digits_and_order_and_loses_white_space_between_tokens() {
        let text = "{\n  \"b \\\" :\": [ 1.50, 12345678901234567890123 ],\r\n\t\"a\": \"ü \\\\\" }";
        let compact = r#"{"b \" :":[1.50,12345678901234567890123],"a":"ü \\"}"#;
        assert_eq!(Json::parse(text).unwrap().get(), compact);
        assert_eq!(serde_json::from_str::<Json>(text).unwrap().get(), compact);
        assert_eq!(Json::parse(compact).unwrap().get(), compact);
        assert!(Json::parse("{").is_err());
    }
}
