//! `cargo xtask changelog`: fragments `changelog.d/<topic>.<added|changed|fixed>.md` are joined into CHANGELOG.md at a
//! release, so that two changes never meet in one line of one file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::workspace::root;

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Args {
    /// Check the names and texts of the fragments
    #[arg(long)]
    check: bool,
    /// Join the fragments into CHANGELOG.md under this version and delete them
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
}

const KINDS: &[(&str, &str)] = &[
    ("added", "Added"),
    ("changed", "Changed"),
    ("fixed", "Fixed"),
];
const MARK: &str = "<!-- releases below -->\n";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let fragments = read()?;
    let Some(version) = &args.release else {
        return Ok(());
    };
    if fragments.is_empty() {
        bail!("changelog.d holds no fragment: nothing to release");
    }
    let path = root().join("CHANGELOG.md");
    let old = std::fs::read_to_string(&path).context("cannot read CHANGELOG.md")?;
    let Some((head, tail)) = old.split_once(MARK) else {
        bail!("CHANGELOG.md has no line {MARK:?}")
    };
    let section = section(version, &fragments);
    std::fs::write(&path, format!("{head}{MARK}\n{section}{tail}"))
        .context("cannot write CHANGELOG.md")?;
    for (_, path) in fragments.values().flatten() {
        std::fs::remove_file(path).with_context(|| format!("cannot delete {}", path.display()))?;
    }
    println!("CHANGELOG.md has version {version} now");
    Ok(())
}

type Fragments = BTreeMap<&'static str, Vec<(String, PathBuf)>>;

fn read() -> anyhow::Result<Fragments> {
    let folder = root().join("changelog.d");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .context("cannot list changelog.d")?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .context("cannot list changelog.d")?;
    paths.sort();
    let mut fragments = Fragments::new();
    let mut faults = Vec::new();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name == "README.md" {
            continue;
        }
        let Some(kind) = kind_of(&name) else {
            faults.push(format!(
                "changelog.d/{name}: the name is <topic>.<added|changed|fixed>.md"
            ));
            continue;
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if text.trim().is_empty() || text.starts_with('#') || text.starts_with('-') {
            faults.push(format!(
                "changelog.d/{name}: one or more plain sentences, no heading, no bullet"
            ));
            continue;
        }
        fragments
            .entry(kind)
            .or_default()
            .push((text.trim().to_owned(), path));
    }
    if !faults.is_empty() {
        bail!("changelog fragments:\n  {}", faults.join("\n  "));
    }
    Ok(fragments)
}

fn kind_of(name: &str) -> Option<&'static str> {
    let mut parts = name.split('.');
    let (topic, kind, ext) = (parts.next()?, parts.next()?, parts.next()?);
    if topic.is_empty() || ext != "md" || parts.next().is_some() {
        return None;
    }
    KINDS
        .iter()
        .find(|(known, _)| *known == kind)
        .map(|(known, _)| *known)
}

fn section(version: &str, fragments: &Fragments) -> String {
    let mut text = format!("## {version}\n");
    for (kind, title) in KINDS {
        let Some(list) = fragments.get(kind) else {
            continue;
        };
        let _ = write!(text, "\n### {title}\n\n");
        for (fragment, _) in list {
            let _ = writeln!(text, "- {}", fragment.replace('\n', "\n  "));
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_named_topic_kind_md() {
        assert_eq!(kind_of("worker.added.md"), Some("added"));
        assert_eq!(kind_of("worker.removed.md"), None);
        assert_eq!(kind_of("worker.added.txt"), None);
        assert_eq!(kind_of("a.b.added.md"), None);
        assert_eq!(kind_of(".added.md"), None);
    }

    #[test]
    fn kinds_come_in_their_fixed_order_and_lines_are_indented() {
        let mut fragments = Fragments::new();
        fragments.insert("fixed", vec![("F".into(), PathBuf::new())]);
        fragments.insert("added", vec![("A\nmore".into(), PathBuf::new())]);
        assert_eq!(
            section("1.0", &fragments),
            "## 1.0\n\n### Added\n\n- A\n  more\n\n### Fixed\n\n- F\n\n"
        );
    }
}
