//! `ramen prompt`: one prompt with its arguments put in.

use std::process::ExitCode;

use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::call::block;
use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output::{self, OutputArg};
use crate::peer::Peer;

/// `ramen prompt`.
#[derive(Args)]
pub(crate) struct PromptArgs {
    /// The prompt
    prompt: String,
    /// Arguments; those of a prompt are texts
    #[arg(value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(crate) fn run(args: &PromptArgs) -> Result<ExitCode, Failure> {
    let runtime = crate::runtime()?;
    let arguments = arguments(&args.arguments)?;
    let peer = Peer::open(&args.connect)?;
    let result = peer.finish(&runtime, get(&peer, &args.prompt, arguments))?;
    if args.output.is_table() {
        output::line(text(&result)?.trim_end_matches('\n'));
    } else {
        args.output.print_raw(&result)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(
    peer: &Peer,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<Box<RawValue>, Failure> {
    let params = json!({ "name": name, "arguments": arguments });
    let result = peer.request("prompts/get", &params.to_string()).await;
    match result {
        Err(failure) if failure.code() == Failure::usage("").code() => {
            peer.find("prompts", "name", name).await?;
            Err(failure)
        }
        result => result,
    }
}

/// `name=value` items as one object of texts.
fn arguments(items: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut arguments = Map::new();
    for item in items {
        let (name, value) = item
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| Failure::usage(format!("{item:?} is no name=value")))?;
        if arguments.insert(name.to_owned(), value.into()).is_some() {
            return Err(Failure::usage(format!("{name} is given twice")));
        }
    }
    Ok(arguments)
}

/// The messages as text: the roles only where there is more than one message.
fn text(result: &RawValue) -> Result<String, Failure> {
    let result: Value = serde_json::from_str(result.get())
        .map_err(|error| Failure::error(format!("the prompt cannot be read: {error}")))?;
    let messages = result["messages"].as_array().cloned().unwrap_or_default();
    let one = messages.len() == 1;
    let shown = messages.iter().map(|message| {
        let text = block(&message["content"]);
        if one {
            text
        } else {
            format!("{}:\n{text}", message["role"].as_str().unwrap_or("?"))
        }
    });
    Ok(shown.collect::<Vec<_>>().join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_texts_each_once() {
        let items = |items: &[&str]| {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            arguments(&items).map_err(|failure| failure.to_string())
        };
        let built = items(&["code=a=b", "n=5", "empty="]).unwrap();
        assert_eq!(
            Value::from(built),
            json!({"code": "a=b", "n": "5", "empty": ""})
        );
        assert!(items(&["code"]).unwrap_err().contains("is no name=value"));
        assert!(items(&["=x"]).unwrap_err().contains("is no name=value"));
        assert!(items(&["a=1", "a=2"]).unwrap_err().contains("given twice"));
    }

    #[test]
    fn one_message_is_its_text_and_several_have_their_roles() {
        let raw = |value: &Value| RawValue::from_string(value.to_string()).unwrap();
        let message = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        let one = raw(&json!({"messages": [message("user", "Review this.")]}));
        assert_eq!(text(&one).unwrap(), "Review this.");
        let two = raw(&json!({"messages": [message("user", "a"), message("assistant", "b")]}));
        assert_eq!(text(&two).unwrap(), "user:\na\n\nassistant:\nb");
    }
}
