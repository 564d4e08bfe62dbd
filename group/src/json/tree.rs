//! A small tree with places, for files that people write.

use std::borrow::Cow;

use super::{Fault, Kind, Reader, quote_into};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// The value.
    pub value: Value<'a>,
    /// Byte offset of its first byte.
    pub start: usize,
}

/// A value; numbers stay tokens.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as written.
    Number(&'a str),
    /// A string, decoded.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Node<'a>>),
    /// An object, in the order of the text.
    Object(Vec<Member<'a>>),
}

/// A member of an object.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    /// Its name, decoded.
    pub name: Cow<'a, str>,
    /// Where the name stands.
    pub at: usize,
    /// Its value.
    pub node: Node<'a>,
}

/// Reads a whole text. Besides bad syntax, a member given twice is refused.
pub fn parse(text: &str) -> Result<Node<'_>, Fault> {
    let mut reader = Reader::new(text);
    let node = node(&mut reader)?;
    reader.finish()?;
    Ok(node)
}

fn node<'a>(reader: &mut Reader<'a>) -> Result<Node<'a>, Fault> {
    let kind = reader.peek()?;
    let start = reader.pos();
    let value = match kind {
        Kind::Null | Kind::Bool => reader.word()?.map_or(Value::Null, Value::Bool),
        Kind::Number => Value::Number(reader.number()?.raw),
        Kind::String => Value::String(reader.string()?.decode()),
        Kind::Array => {
            let mut items = Vec::new();
            let mut more = reader.open()?;
            while more {
                items.push(node(reader)?);
                more = reader.next(b']')?;
            }
            Value::Array(items)
        }
        Kind::Object => {
            let mut members: Vec<Member<'a>> = Vec::new();
            let mut names = std::collections::HashSet::new();
            let mut more = reader.open()?;
            while more {
                reader.blanks();
                let at = reader.pos();
                let name = reader.key()?.decode();
                if !names.insert(name.clone()) {
                    return Err(Fault {
                        at,
                        message: "a member is given twice",
                    });
                }
                members.push(Member {
                    name,
                    at,
                    node: node(reader)?,
                });
                more = reader.next(b'}')?;
            }
            Value::Object(members)
        }
    };
    Ok(Node { value, start })
}

impl<'a> Node<'a> {
    /// The member of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.members()?
            .iter()
            .find(|member| member.name == name)
            .map(|member| &member.node)
    }

    /// The members, of an object.
    pub fn members(&self) -> Option<&[Member<'a>]> {
        match &self.value {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The items, of an array.
    pub fn items(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text, of a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth, of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match &self.value {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The token, of a number.
    pub fn as_number(&self) -> Option<&'a str> {
        match &self.value {
            Value::Number(token) => Some(token),
            _ => None,
        }
    }

    /// What it is, in words with an article.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }

    /// The same value without blanks; numbers as written, members in order.
    pub fn minified(&self) -> String {
        let mut out = String::new();
        self.minify_into(&mut out);
        out
    }

    /// Appends [`Node::minified`].
    pub fn minify_into(&self, out: &mut String) {
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(token) => out.push_str(token),
            Value::String(text) => quote_into(out, text),
            Value::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    item.minify_into(out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (n, member) in members.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    quote_into(out, &member.name);
                    out.push(':');
                    member.node.minify_into(out);
                }
                out.push('}');
            }
        }
    }

    /// A text that two values share exactly when JSON Schema calls them equal: numbers by value,
    /// members in any order.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.canonical_into(&mut out);
        out
    }

    fn canonical_into(&self, out: &mut String) {
        match &self.value {
            Value::Number(token) => {
                let decimal = super::number::Decimal::parse(token);
                if decimal.negative {
                    out.push('-');
                }
                out.push_str(&decimal.digits);
                out.push('e');
                out.push_str(&decimal.exponent.to_string());
            }
            Value::Array(items) => {
                out.push('[');
                for item in items {
                    item.canonical_into(out);
                    out.push(',');
                }
                out.push(']');
            }
            Value::Object(members) => {
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_by(|a, b| a.name.cmp(&b.name));
                out.push('{');
                for member in sorted {
                    quote_into(out, &member.name);
                    out.push(':');
                    member.node.canonical_into(out);
                    out.push(',');
                }
                out.push('}');
            }
            _ => self.minify_into(out),
        }
    }
}
