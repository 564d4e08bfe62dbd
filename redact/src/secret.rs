//! A value that no log, error or file shows.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::MARKER;

/// A secret. It has no `Display`; `Debug` and `Serialize` write the marker; comparing takes the same
/// time whatever the bytes are. Whoever needs the value says so with [`Secret::expose`].
#[derive(Clone, Default)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value. Mind where it goes.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// The value itself. Mind where it goes.
    pub fn into_exposed(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]>> PartialEq for Secret<T> {
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq as _;
        self.0.as_ref().ct_eq(other.0.as_ref()).into()
    }
}

impl<T: AsRef<[u8]>> Eq for Secret<T> {}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARKER)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(MARKER)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        T::deserialize(reader).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_printed_as_the_marker() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
    }

    #[test]
    fn a_secret_is_read_from_text_and_compared_by_value() {
        let read: Secret = serde_json::from_str("\"hunter2\"").unwrap();
        assert_eq!(read, Secret::from("hunter2"));
        assert_ne!(read, Secret::from("hunter3"));
        assert_ne!(read, Secret::from("hunter22"));
        assert_eq!(read.expose(), "hunter2");
    }
}
