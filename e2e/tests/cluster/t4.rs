//! The whole of it, as a person has it: charts installed by helm, groups, pushes, calls, and policies that are enforced.

mod alone;
mod docs;
mod gateway;
mod hosts;
mod install;
mod network;
mod operators;
mod policy;
mod push;
mod rights;
mod roll;
mod secrets;
mod volume;

use ramen_e2e::tool;
use serde_json::json;

/// The tool `greet`: says which version it is, and to whom.
fn greeting(version: &str) -> [(String, String); 2] {
    let source = format!("def greet(name):\n    return f'{version} greets {{name}}'\n");
    tool("greet", &json!({ "name": { "type": "string" } }), &source)
}
