//! Messages as a client writes them.

use bytes::Bytes;
use indexmap::IndexMap;
use ramen_mcp::model::Implementation;
use ramen_mcp::names::{meta_key, method};
use ramen_mcp::{ProgressToken, RequestId, Version};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::ClientError;

/// A JSON object whose values stay as they are written: order, digits and all.
type Object = IndexMap<String, Box<RawValue>>;

/// Who we are.
pub(crate) fn ourselves() -> Implementation {
    Implementation {
        name: "ramen".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Implementation::default()
    }
}

/// What a server may ask of us: something of a person, when there is one to answer, and nothing else.
pub(crate) fn capabilities(person: bool) -> Value {
    if person {
        json!({ "elicitation": {} })
    } else {
        json!({})
    }
}

/// The parameters of `initialize`.
pub(crate) fn initialize(version: Version, capabilities: &Value) -> Value {
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities,
        "clientInfo": ourselves(),
    })
}

/// A request.
pub(crate) fn request(id: &RequestId, method: &str, params: Option<&str>) -> Bytes {
    let name = Value::from(method);
    let id = id.raw();
    Bytes::from(match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{name},"params":{params}}}"#)
        }
        None => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{name}}}"#),
    })
}

/// A notification without parameters.
pub(crate) fn initialized() -> Bytes {
    let name = method::INITIALIZED;
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"{name}"}}"#))
}

/// The answer to something that a server asks. `result` is JSON text.
pub(crate) fn result(id: &RequestId, result: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        id.raw()
    ))
}

/// Parameters with what `_meta` has to say: who asks, in which revision (modern only), and the progress token. What the
/// caller put into `_meta` stays, but for these keys.
pub(crate) fn params(
    params: Option<&str>,
    modern: Option<(Version, &Value)>,
    progress: Option<&ProgressToken>,
) -> Result<Option<String>, ClientError> {
    if modern.is_none() && progress.is_none() {
        return Ok(params.map(ToOwned::to_owned));
    }
    let bad = |_| ClientError::answer("params", "the parameters are not a JSON object");
    let raw = |value: &Value| RawValue::from_string(value.to_string());
    let mut members: Object = serde_json::from_str(params.unwrap_or("{}")).map_err(bad)?;
    let meta = members.shift_remove("_meta");
    let mut meta: Object = match meta.as_deref().map(RawValue::get) {
        Some(text) => serde_json::from_str(text).map_err(bad)?,
        None => Object::default(),
    };
    if let Some((version, capabilities)) = modern {
        for (key, value) in [
            (meta_key::PROTOCOL_VERSION, json!(version.as_str())),
            (meta_key::CLIENT_CAPABILITIES, capabilities.clone()),
            (meta_key::CLIENT_INFO, json!(ourselves())),
        ] {
            meta.insert(key.to_owned(), raw(&value).map_err(bad)?);
        }
    }
    if let Some(token) = progress {
        let token = RawValue::from_string(token.raw().to_owned()).map_err(bad)?;
        meta.insert(meta_key::PROGRESS_TOKEN.to_owned(), token);
    }
    let meta = RawValue::from_string(serde_json::to_string(&meta).map_err(bad)?).map_err(bad)?;
    members.insert("_meta".to_owned(), meta);
    serde_json::to_string(&members).map(Some).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_goes_beside_what_the_caller_wrote_and_numbers_keep_their_digits() {
        let token = RequestId::number(7);
        let written = params(
            Some(r#"{"name":"x","arguments":{"n":1.50,"big":12345678901234567890123},"_meta":{"mine":1}}"#),
            Some((Version::V2026_07_28, &capabilities(false))),
            Some(&token),
        )
        .unwrap()
        .unwrap();
        assert!(
            written.starts_with(
                r#"{"name":"x","arguments":{"n":1.50,"big":12345678901234567890123},"_meta":{"mine":1,"#
            ),
            "{written}"
        );
        let value: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(value["_meta"][meta_key::PROTOCOL_VERSION], "2026-07-28");
        assert_eq!(value["_meta"][meta_key::CLIENT_CAPABILITIES], json!({}));
        assert_eq!(value["_meta"]["progressToken"], 7);
    }

    #[test]
    fn a_legacy_request_without_progress_is_left_as_it_is() {
        assert_eq!(params(None, None, None).unwrap(), None);
        let text = r#"{ "a" : 1 }"#;
        assert_eq!(
            params(Some(text), None, None).unwrap().as_deref(),
            Some(text)
        );
        assert!(params(Some("[]"), Some((Version::V2026_07_28, &json!({}))), None).is_err());
    }
}
