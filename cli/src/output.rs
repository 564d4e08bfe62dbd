//! What commands print: data on stdout as table, JSON or YAML, remarks on stderr, colours only on a terminal.

use std::io::{IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exit::Failure;
use crate::names;

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    #[default]
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// `--output`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputArg {
    /// How data is printed
    #[arg(long, short = 'o', value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: Format,
}

impl OutputArg {
    /// Prints `data` in the chosen format; `table` makes the text for people.
    pub(crate) fn print<T: Serialize>(
        self,
        data: &T,
        table: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let text = match self.output {
            Format::Table => table(),
            Format::Json => {
                serde_json::to_string_pretty(data).map_err(|e| Failure::error(e.to_string()))?
            }
            Format::Yaml => {
                serde_saphyr::to_string(data).map_err(|e| Failure::error(e.to_string()))?
            }
        };
        line(text.trim_end());
        Ok(())
    }
}

impl OutputArg {
    /// Whether people are to read it.
    pub(crate) fn is_table(self) -> bool {
        self.output == Format::Table
    }

    /// Prints JSON for programs: as it was written, so that big numbers keep their digits, or as YAML.
    pub(crate) fn print_raw(self, json: &RawValue) -> Result<(), Failure> {
        if self.output != Format::Yaml {
            line(json.get());
            return Ok(());
        }
        let value: Value =
            serde_json::from_str(json.get()).map_err(|e| Failure::error(e.to_string()))?;
        self.print(&value, String::new)
    }
}

/// Writes one line to stdout.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that went away (`| head`) has seen enough.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Writes bytes to stdout.
pub(crate) fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Writes one line to stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether stdout may carry colours.
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os(names::NO_COLOR).is_none_or(|v| v.is_empty())
}

/// A colour of a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Dim = 2,
}

/// `text` in a colour, when `on`.
pub(crate) fn paint(on: bool, colour: Colour, text: &str) -> String {
    if on {
        format!("\x1b[{}m{text}\x1b[0m", colour as u8)
    } else {
        text.to_owned()
    }
}

/// Text of somebody else, without what a terminal would obey: an exception or a description may hold anything.
pub(crate) fn plain(text: &str) -> String {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace("\r\n", "\n").replace(obeyed, "\u{fffd}")
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> String {
    plain(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// One word of a shell, whatever is in it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The same for people: as it is where a shell leaves it so.
pub(crate) fn word(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(harmless) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// Columns as `kubectl` prints them: three blanks apart, the last one as long as it is.
pub(crate) fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)));
    let rows: Vec<Vec<String>> = rows.map(Iterator::collect).collect();
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(&rows) {
        let mut out = String::new();
        for (i, cell) in row.iter().enumerate() {
            out.push_str(cell);
            if i + 1 < row.len() {
                let pad = widths
                    .get(i)
                    .map_or(0, |w| w.saturating_sub(cell.chars().count()));
                out.extend(std::iter::repeat_n(' ', pad + 3));
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

/// Starts the log of the command itself on stderr: warnings, or what `RAMEN_LOG` says; JSON when nobody watches.
pub(crate) fn init_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env(names::LOG)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // Only a second call could fail, and then there is a log already.
    let _ = if std::io::stderr().is_terminal() {
        log.with_target(false).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_rows_have_no_blanks_at_their_end() {
        let rows = [
            vec!["a".to_owned(), "long one".to_owned()],
            vec!["bbbb".to_owned(), String::new()],
        ];
        assert_eq!(
            columns(&["NAME", "X"], &rows),
            "NAME   X\na      long one\nbbbb\n"
        );
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_take_it_apart() {
        assert_eq!(word("/tmp/a-b.c"), "/tmp/a-b.c");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word("~/$x"), "'~/$x'");
        assert_eq!(word(""), "''");
    }

    #[test]
    fn nothing_of_others_reaches_the_terminal_as_a_command() {
        let rows = [vec![
            "a\x1b[2J".to_owned(),
            "two\nlines\u{9b}1m\x07".to_owned(),
        ]];
        assert_eq!(
            columns(&["NAME", "X"], &rows),
            "NAME    X\na\u{fffd}[2J   two lines\u{fffd}1m\u{fffd}\n"
        );
        assert_eq!(plain("a\tb\nc\r\x1b[0m"), "a\tb\nc\u{fffd}\u{fffd}[0m");
    }
}
