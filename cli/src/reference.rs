//! The reference of the command line as markdown.

use std::fmt::Write as _;

use clap::Command;

use crate::app;

/// The reference: the help of every subcommand as a reader without the program would see it.
pub fn render() -> String {
    let mut command = app::command().term_width(100);
    command.build();
    let mut text = String::from(
        "# The `ramen` command\n\nMade from the program's own help; do not edit by hand.\n\n",
    );
    let _ = write!(
        text,
        "```\n{}```\n",
        tidy(&command.render_long_help().to_string())
    );
    describe(&mut text, &command, "ramen", "##");
    text
}

/// The help of everything below a command.
fn describe(text: &mut String, command: &Command, path: &str, level: &str) {
    let shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    for sub in command.get_subcommands().filter(shown) {
        let path = format!("{path} {}", sub.get_name());
        let help = sub.clone().term_width(100).render_long_help().to_string();
        let _ = write!(text, "\n{level} `{path}`\n\n```\n{}```\n", tidy(&help));
        describe(text, sub, &path, &format!("{level}#"));
    }
}

/// Without blanks at line ends, ending in one line break.
fn tidy(help: &str) -> String {
    let mut text: String = help
        .trim_end()
        .lines()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_names_every_subcommand_and_no_path_of_this_machine() {
        let text = super::render();
        for name in [
            "up",
            "poke",
            "validate",
            "new",
            "call",
            "ls",
            "read",
            "prompt",
            "status",
            "bridge",
            "completion",
        ] {
            assert!(text.contains(&format!("\n## `ramen {name}`\n")), "{name}");
        }
        for name in ["new", "list", "revoke"] {
            assert!(
                text.contains(&format!("\n### `ramen keys {name}`\n")),
                "{name}"
            );
        }
        assert!(!text.contains("/root") && !text.contains("/home/"));
    }
}
