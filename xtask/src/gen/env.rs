//! docs/reference/env.md, from the documented constants of `worker/src/names.rs`.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};

use crate::workspace::root;

const SOURCE: &str = "worker/src/names.rs";
const HEAD: &str = "# Environment\n\n<!-- Written by `cargo xtask gen` from worker/src/names.rs. Do not edit. -->\n\n\
Each variable has a flag of the same name (`RAMEN_MAX_INFLIGHT` is `--max-inflight`); the flag wins.\n\n\
| variable | meaning |\n|---|---|\n";

pub(crate) fn page() -> anyhow::Result<String> {
    let text = std::fs::read_to_string(root().join(SOURCE))
        .with_context(|| format!("cannot read {SOURCE}"))?;
    let rows = constants(&text)?;
    if rows.is_empty() {
        bail!("{SOURCE} has no constant that names a RAMEN_ variable");
    }
    let mut page = HEAD.to_owned();
    for (name, doc) in rows {
        let _ = writeln!(page, "| `{name}` | {} |", doc.replace('|', "\\|"));
    }
    Ok(page)
}

/// `(value, doc comment)` of every `pub const X: &str = "RAMEN_…";` in the order of the file.
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
        if let Some(value) = pending
            .split('"')
            .nth(1)
            .filter(|value| value.starts_with("RAMEN_"))
        {
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
