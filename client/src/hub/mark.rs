//! The mark of what cannot be used now: for programs in `_meta`, for models in the description.

use ramen_mcp::model::Json;
use serde_json::json;

use super::answer::Members;

/// The key in `_meta`. Its value is `{"server": NAME, "state": "down"}`.
pub const MARK: &str = "dev.ramen/upstream";

/// Marks something whose server is down: an entry of a list, or a list.
pub fn mark(item: &mut Members, server: &str) {
    let meta: Option<Members> = item.get("_meta").and_then(|meta| meta.to().ok());
    let mut meta = meta.unwrap_or_default();
    let mark = json!({ "server": server, "state": "down" });
    meta.insert(MARK.to_owned(), Json::from(&mark));
    if let Ok(meta) = Json::of(&meta) {
        item.insert("_meta".to_owned(), meta);
    }
}

/// The same of an entry of a list, also in its description.
pub fn mark_down(item: &mut Members, server: &str) {
    mark(item, server);
    let said: Option<String> = item
        .get("description")
        .and_then(|description| description.to().ok());
    let note = format!("(Not available now: the server `{server}` is down.)");
    let description = match said.as_deref() {
        None | Some("") => note,
        Some(said) => format!("{note} {said}"),
    };
    item.insert("description".to_owned(), Json::from(&json!(description)));
}
