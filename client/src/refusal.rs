//! The `error` of an answer as an error of ours.

use ramen_mcp::McpError;
use ramen_mcp::model::Json;
use serde::Deserialize;

use crate::error::ClientError;

/// Characters of a server's message that are kept.
const MESSAGE: usize = 4000;

#[derive(Deserialize)]
struct Loose {
    #[serde(default)]
    code: f64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Option<Json>,
}

/// The error that a server gives, with our own secrets taken out by `mask` in case it quotes them.
pub(crate) fn refusal(mask: impl Fn(&str) -> String, error: &str) -> ClientError {
    let Ok(loose) = serde_json::from_str::<Loose>(error) else {
        return ClientError::answer("a request", "its error is no error object");
    };
    // Masked before it is cut: half a secret is not found any more.
    let begun: String = loose.message.chars().take(2 * MESSAGE).collect();
    let message: String = mask(&begun).chars().take(MESSAGE).collect();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, and a code out of range is none of the protocol's"
    )]
    let mut refusal = McpError::new(loose.code as i32, message);
    refusal.data = loose
        .data
        .and_then(|data| Json::parse(mask(data.get())).ok());
    ClientError::Rpc(refusal)
}
