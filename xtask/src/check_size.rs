//! `cargo xtask check-size`: a file that is too long to read in one go is split. 400 lines are told, 800 refused, and
//! `lib.rs` and `main.rs` stay tables of contents.

use anyhow::{Context as _, bail};

use crate::workspace;

const REVIEW: usize = 400;
const STOP: usize = 800;
const ENTRY: usize = 60;

pub(crate) fn run() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    for path in workspace::files()? {
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        if !matches!(extension, "rs" | "py" | "sh" | "proto") || path.starts_with("tests/fixtures")
        {
            continue;
        }
        let text = std::fs::read_to_string(workspace::root().join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let lines = text.lines().count();
        let entry = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        if lines > STOP {
            faults.push(format!("{}: {lines} lines, at most {STOP}", path.display()));
        } else if entry && lines > ENTRY {
            faults.push(format!(
                "{}: {lines} lines, an entry file has at most {ENTRY}",
                path.display()
            ));
        } else if lines > REVIEW {
            println!(
                "check-size: {}: {lines} lines, worth a split above {REVIEW}",
                path.display()
            );
        }
    }
    if !faults.is_empty() {
        bail!("files are too long:\n  {}", faults.join("\n  "));
    }
    Ok(())
}
