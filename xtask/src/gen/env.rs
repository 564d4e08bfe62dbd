//! docs/reference/env.md, from the documented constants of the programs' `names.rs`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};

use crate::workspace::root;

const SOURCES: &[(&str, &str)] = &[
    (
        "Worker: `ramen-worker serve` and `deploy`",
        "worker/src/names.rs",
    ),
    ("The `ramen` command", "cli/src/names.rs"),
    ("The operator: `ramen-operator`", "operator/src/names.rs"),
    ("The gateway: `ramen-gateway`", "gateway/src/names.rs"),
];
const HEAD: &str = "# Environment\n\n<!-- Written by `cargo xtask gen` from the names.rs of each program. Do not edit. -->\n\n\
Most have a flag too, named in the help of the command; the flag wins.\n";

pub(crate) fn page() -> anyhow::Result<String> {
    let mut page = HEAD.to_owned();
    for (title, source) in SOURCES {
        let text = std::fs::read_to_string(root().join(source))
            .with_context(|| format!("cannot read {source}"))?;
        let rows = constants(&text).with_context(|| (*source).to_owned())?;
        if rows.is_empty() {
            bail!("{source} has no constant that names a variable");
        }
        let _ = write!(page, "\n## {title}\n\n| variable | meaning |\n|---|---|\n");
        for (name, doc) in rows {
            let _ = writeln!(page, "| `{name}` | {} |", doc.replace('|', "\\|"));
        }
    }
    Ok(page)
}

fn is_variable(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_uppercase())
        && value.contains('_')
        && value
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// `(value, doc comment)` of every `pub const X: &str = "NAME";` that names a variable, in the order of the file.
fn constants(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut rows = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    let mut pending = String::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("///") {
            doc.push(comment.trim());
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        if line.starts_with("pub const ") || !pending.is_empty() {
            pending.push_str(line);
            pending.push(' ');
            if !line.ends_with(';') {
                continue;
            }
        }
        if let Some(value) = pending.split('"').nth(1).filter(|value| is_variable(value)) {
            if doc.is_empty() {
                bail!("{value} has no doc comment");
            }
            rows.push((value.to_owned(), doc.join(" ")));
        }
        pending.clear();
        doc.clear();
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_constants_become_rows_and_others_do_not() {
        let text = "/// Where to\n/// listen.\npub const LISTEN: &str = \"RAMEN_LISTEN\";\n/// no\npub const X: &str = \"x\";\n\
                    /// Long.\npub const LONG_NAME: &str =\n    \"RAMEN_LONG\";\n";
        assert_eq!(
            constants(text).unwrap(),
            [
                ("RAMEN_LISTEN".into(), "Where to listen.".into()),
                ("RAMEN_LONG".into(), "Long.".into())
            ]
        );
    }

    #[test]
    fn a_constant_without_a_comment_is_a_fault() {
        assert!(constants("pub const LISTEN: &str = \"RAMEN_LISTEN\";\n").is_err());
    }
}
