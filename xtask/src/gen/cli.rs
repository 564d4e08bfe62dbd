//! docs/reference/cli.md: the help of every command, as the programs print it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::workspace::{build, output};

pub(crate) fn page() -> anyhow::Result<String> {
    // The selection of `make build`.
    let programs = build([])?;
    let mut page = clean(Command::new(programs.join("ramen")).arg("reference"))?;
    page.push_str("\n# The `ramen-worker` command\n");
    describe(
        &mut page,
        &programs.join("ramen-worker"),
        "ramen-worker",
        &[],
    )?;
    Ok(page)
}

/// Runs a program without the variables whose values a help text shows; a page must not depend on them.
fn clean(command: &mut Command) -> anyhow::Result<String> {
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("RAMEN_") {
            command.env_remove(variable);
        }
    }
    output(command.env("COLUMNS", "100"))
}

fn describe(page: &mut String, program: &Path, name: &str, path: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    let help = clean(command.args(path).arg("--help"))?;
    let title = std::iter::once(name)
        .chain(path.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ");
    let _ = write!(
        page,
        "\n{} {title}\n\n```text\n{}\n```\n",
        "#".repeat(path.len() + 2),
        trimmed(&help)
    );
    for sub in subcommands(&help) {
        let mut deeper = path.to_vec();
        deeper.push(sub);
        describe(page, program, name, &deeper)?;
    }
    Ok(())
}

fn trimmed(help: &str) -> String {
    help.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end()
        .to_owned()
}

/// The names in the `Commands:` block of a clap help text, `help` left out.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_read_from_the_help() {
        let help = "Usage: x\n\nCommands:\n  up    Start\n          more\n  call  Call\n  help  Print\n\nOptions:\n  -h  Help\n";
        assert_eq!(subcommands(help), ["up", "call"]);
    }
}
