//! The command line: every subcommand, with examples and exit codes in its help.

use std::process::ExitCode;

use clap::{Command, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit::{self, Failure};
use crate::{bridge, call, inspect, keys, ls, new, poke, prompt, read, up, validate};

/// The arguments of `ramen`.
#[derive(Parser)]
#[command(
    name = "ramen",
    version,
    about = "Python functions from a git repo, for every MCP client",
    long_about = "Python functions from a git repo, for every MCP client.\n\n\
        `ramen up` serves a group on this machine, `ramen bridge` connects an MCP client to it.",
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Serve groups on this machine, and reload them on every push or save
    Up(up::UpArgs),
    /// Tell the running `ramen up` to look at its sources now (for a post-receive hook)
    Poke(poke::PokeArgs),
    /// Check a group: the errors list that a deploy would give, with the fix of each entry
    Validate(validate::ValidateArgs),
    /// Make a group, or a tool, a resource or a prompt in one
    New(new::NewArgs),
    /// Call a tool
    Call(call::CallArgs),
    /// List tools, resources and prompts
    Ls(ls::LsArgs),
    /// Read a resource
    Read(read::ReadArgs),
    /// Fill in a prompt
    Prompt(prompt::PromptArgs),
    /// Show what the configured MCP servers advertised last, without starting them
    Inspect(inspect::InspectArgs),
    /// Make, list and revoke keys of a group
    Keys(keys::KeysArgs),
    /// Show the groups of a Kubernetes cluster: ready or what is wrong, and what to do
    #[cfg(feature = "cluster")]
    Status(crate::status::StatusArgs),
    /// A worker, or any MCP servers, as one stdio MCP server (also when called as ramen-mcp-bridge)
    Bridge(Box<bridge::BridgeArgs>),
    /// Print a completion script
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the reference of this command line as markdown
    #[command(hide = true)]
    Reference,
    /// End the servers of a command that was killed; started by it
    #[command(hide = true)]
    Guard,
}

impl Cli {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Sub::Up(args) => up::run(&args),
            Sub::Poke(args) => poke::run(&args),
            Sub::Validate(args) => validate::run(&args),
            Sub::New(args) => new::run(&args),
            Sub::Call(args) => call::run(&args),
            Sub::Ls(args) => ls::run(&args),
            Sub::Read(args) => read::run(&args),
            Sub::Prompt(args) => prompt::run(&args),
            Sub::Inspect(args) => inspect::run(&args),
            Sub::Keys(args) => keys::run(&args),
            #[cfg(feature = "cluster")]
            Sub::Status(args) => crate::status::run(&args),
            Sub::Bridge(args) => bridge::run(*args),
            Sub::Completion { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut command(), "ramen", &mut script);
                crate::output::raw(&script);
                Ok(ExitCode::SUCCESS)
            }
            Sub::Reference => {
                crate::output::raw(crate::reference::render().as_bytes());
                Ok(ExitCode::SUCCESS)
            }
            Sub::Guard => {
                ramen_client::guard::run(std::io::stdin().lock());
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Examples of each subcommand; the first line of each is what it is for.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "up",
        "  ramen up ./my-group                      a folder on this machine, reloaded on save\n  \
           ramen up -f mcpgroup.yaml                the groups of the file, from git, reloaded on push\n  \
           ramen up -f mcpgroup.yaml --output json  one JSON object a line for each change of state",
    ),
    (
        "poke",
        "  ramen poke                 look at every source now\n  \
           ramen poke demo            only at the group demo\n  \
           echo 'ramen poke demo' >> repo.git/hooks/post-receive",
    ),
    (
        "validate",
        "  ramen validate .                       as a deploy would: requirements, imports, golden calls\n  \
           ramen validate . --no-install          only what needs no Python\n  \
           ramen validate . --output json | jq .errors",
    ),
    (
        "new",
        "  ramen new group my-group          a folder with mcp/ and one tool\n  \
           ramen new tool search             in the group of this folder\n  \
           ramen new prompt review --dir ~/my-group",
    ),
    (
        "call",
        "  ramen call demo_calculator_tool var1=6 var2=7 func=multiply\n  \
           ramen call search query:='[\"a\", \"b\"]' limit=5 --output json\n  \
           ramen call search --json '{\"query\": \"a\"}' --target worker:50051 --key-file key\n  \
           ramen call get_current_time timezone=UTC --server time     of another MCP server",
    ),
    (
        "ls",
        "  ramen ls                          everything\n  \
           ramen ls tools --output yaml      with schemas\n  \
           ramen ls --group demo             of one of several groups of `ramen up`",
    ),
    (
        "read",
        "  ramen read demo://readme                   its text\n  \
           ramen read demo://logo > logo.png          its bytes\n  \
           ramen read demo://readme --output json     with URI and MIME type",
    ),
    (
        "prompt",
        "  ramen prompt review code='print(1)' tone=kind\n  \
           ramen prompt review code=\"$(cat main.py)\" --output json",
    ),
    (
        "inspect",
        "  ramen inspect                     every server of the `mcpServers` files, and when it was seen last\n  \
           ramen inspect git                 with its tools\n  \
           ramen inspect -o json | jq '.[].tools'",
    ),
    (
        "keys",
        "  ramen keys new ci                           one more key of the only group; printed once\n  \
           ramen keys list --group demo\n  \
           ramen keys revoke ci --group demo\n  \
           ramen keys new ci --group demo -n team-a    of a group of a cluster",
    ),
    (
        "keys new",
        "  ramen keys new ci > ci.key                  the key alone is on stdout\n  \
           ramen keys new ci --output json | jq -r .key\n  \
           ramen keys new ci --group demo -n team-a    of a group of a cluster",
    ),
    (
        "keys list",
        "  ramen keys list                             those of the only group\n  \
           ramen keys list --group demo --output json",
    ),
    (
        "keys revoke",
        "  ramen keys revoke ci                        of the only group\n  \
           ramen keys revoke ci --group demo -n team-a",
    ),
    #[cfg(feature = "cluster")]
    (
        "status",
        "  ramen status                      the groups of the context's namespace\n  \
           ramen status -A --watch           all of them, a line for each change\n  \
           ramen status demo -n team-a       errors with their fix, packages, pods, events\n  \
           ramen status demo -o json | jq .errors",
    ),
    (
        "bridge",
        "  ramen bridge --target worker:50051          serve stdio until it ends; the key in RAMEN_BRIDGE_KEY\n  \
           ramen bridge --print-config claude          what to paste for the running `ramen up`\n  \
           ramen bridge --target worker:50051 --health ramen.v1.Mcp\n  \
           ramen bridge --config mcp.json                       many MCP servers as one, tools as server_tool\n  \
           ramen bridge https://host.example/mcp                 a Streamable HTTP server for a stdio client",
    ),
    (
        "completion",
        "  ramen completion bash > /etc/bash_completion.d/ramen\n  \
           ramen completion zsh > \"${fpath[1]}/_ramen\"",
    ),
];

const TOP_EXAMPLES: &str = "Examples:\n  ramen new group my-group && ramen up ./my-group\n  \
    ramen ls\n  ramen call hello name=you\n  ramen bridge --print-config claude\n";

/// The whole command with examples and exit codes in the help of every part.
pub fn command() -> Command {
    let codes = exit::help();
    let mut command = Cli::command().after_help(format!("{TOP_EXAMPLES}\n{codes}"));
    for (name, examples) in EXAMPLES {
        let path: Vec<_> = name.split(' ').collect();
        command = ending(command, &path, &format!("Examples:\n{examples}\n\n{codes}"));
    }
    command
}

/// Ends the help of the subcommand at this path with a text.
fn ending(command: Command, path: &[&str], text: &str) -> Command {
    match path {
        [] => command.after_help(text.to_owned()),
        [first, rest @ ..] => command.mut_subcommand(first, |sub| ending(sub, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_examples_and_exit_codes_in_its_help() {
        fn check(command: &Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name());
                let help = sub.clone().render_long_help().to_string();
                assert!(help.contains("Exit codes:"), "{path}");
                let (_, examples) = help.split_once("Examples:").expect(&path);
                assert!(
                    examples.contains(&path),
                    "{path} is in none of its examples"
                );
                check(sub, &path);
            }
        }
        check(&command(), "ramen");
    }
}
