//! Requests of the modern era that take several rounds: the server wants something, and is asked again with it.

use indexmap::IndexMap;
use ramen_mcp::model::Json;
use serde::Deserialize;
use serde_json::Value;

use super::Elicit;
use crate::error::ClientError;
use crate::handshake::read;
use crate::peer::ELICIT;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(default)]
    input_requests: IndexMap<String, Input>,
    #[serde(default)]
    request_state: Option<String>,
}

#[derive(Deserialize)]
struct Input {
    method: String,
    #[serde(default)]
    params: Option<Json>,
}

/// The parameters to ask with again; `None` when the result is the last one. A state goes back as it came, and only where
/// one came.
pub(super) async fn next(
    name: &str,
    params: &str,
    result: &Json,
    person: Option<&Elicit>,
) -> Result<Option<String>, ClientError> {
    let head: Head = read(name, result)?;
    match head.result_type.as_deref() {
        None | Some("complete") => return Ok(None),
        Some("input_required") => {}
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            return Err(ClientError::answer(
                name,
                format!("a result of type {other:?}"),
            ));
        }
    }
    if head.input_requests.is_empty() && head.request_state.is_none() {
        return Err(ClientError::answer(
            name,
            "it asks for input and names none",
        ));
    }
    let mut answers: IndexMap<String, Json> = IndexMap::new();
    for (key, input) in head.input_requests {
        let person = person.filter(|_| input.method == ELICIT);
        let person = person.ok_or_else(|| ClientError::InputRequired {
            method: name.to_owned(),
        })?;
        let question = input
            .params
            .unwrap_or_else(|| Json::from(&serde_json::json!({})));
        answers.insert(key, person.ask(question).await);
    }
    let bad = |error: serde_json::Error| ClientError::answer(name, error.to_string());
    let mut members: IndexMap<String, Json> = serde_json::from_str(params).map_err(bad)?;
    members.shift_remove("inputResponses");
    members.shift_remove("requestState");
    if !answers.is_empty() {
        members.insert(
            "inputResponses".to_owned(),
            Json::of(&answers).map_err(bad)?,
        );
    }
    if let Some(state) = head.request_state {
        members.insert("requestState".to_owned(), Json::from(&Value::from(state)));
    }
    serde_json::to_string(&members).map(Some).map_err(bad)
}
