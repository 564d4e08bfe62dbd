//! `ramen ls`: what a group offers.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output::{self, OutputArg};
use crate::peer::Peer;

/// Characters of a description in a table.
const DESCRIPTION: usize = 80;

/// `ramen ls`.
#[derive(Args)]
pub(crate) struct LsArgs {
    /// What to list [default: everything]
    #[arg(value_enum)]
    kind: Option<Kind>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Functions
    Tools,
    /// Texts and blobs
    Resources,
    /// Templates
    Prompts,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];

    fn plural(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &LsArgs) -> Result<ExitCode, Failure> {
    let runtime = crate::runtime()?;
    let peer = Peer::open(&args.connect)?;
    let mut all = Map::new();
    peer.finish(&runtime, async {
        for kind in Kind::ALL
            .into_iter()
            .filter(|kind| args.kind.is_none_or(|only| only == *kind))
        {
            all.insert(
                kind.plural().to_owned(),
                peer.list(kind.plural()).await?.into(),
            );
        }
        Ok::<(), Failure>(())
    })?;
    args.output.print(&all, || table(&all))?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &Map<String, Value>) -> String {
    let mut rows = Vec::new();
    for (kind, items) in all {
        for item in items.as_array().into_iter().flatten() {
            let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            let takes = match kind.as_str() {
                "tools" => keys(&item["inputSchema"]),
                "prompts" => names(&item["arguments"]),
                _ => field("uri"),
            };
            rows.push(vec![
                kind.trim_end_matches('s').to_owned(),
                field("name"),
                takes,
                short(&field("description")),
            ]);
        }
    }
    output::columns(&["KIND", "NAME", "TAKES", "DESCRIPTION"], &rows)
}

/// The parameters of a tool, the optional ones in brackets.
fn keys(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let names = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| {
            if required.contains(&name.as_str()) {
                name.clone()
            } else {
                format!("[{name}]")
            }
        });
    names.collect::<Vec<_>>().join(",")
}

fn names(arguments: &Value) -> String {
    let names = arguments
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|a| a["name"].as_str());
    names.collect::<Vec<_>>().join(",")
}

/// The first line, cut on a character.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= DESCRIPTION {
        return line.to_owned();
    }
    line.chars().take(DESCRIPTION - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_shows_what_each_item_takes() {
        let all = json!({
            "tools": [{"name": "add", "description": "Adds.\nMore.", "inputSchema": {
                "properties": {"a": {}, "b": {}}, "required": ["a"]}}],
            "resources": [{"name": "readme", "uri": "demo://readme"}],
            "prompts": [{"name": "review", "arguments": [{"name": "code"}]}],
        });
        let text = table(all.as_object().unwrap());
        assert_eq!(
            text,
            "KIND       NAME     TAKES           DESCRIPTION\n\
             tool       add      a,[b]           Adds.\n\
             resource   readme   demo://readme\n\
             prompt     review   code\n"
        );
    }

    #[test]
    fn long_descriptions_are_cut_on_a_character() {
        assert_eq!(short(&"é".repeat(100)).chars().count(), DESCRIPTION);
    }
}
