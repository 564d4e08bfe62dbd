//! Which host program to use, and what it says of itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ramen_group::{Finding, Reason};
use serde::Deserialize;

use crate::hosts::host_program;

/// The Python that a revision is said to be for when nothing in it needs one and there is none.
const OLDEST: &str = "3.11";
/// How long `--describe` may take.
const DESCRIBE: Duration = Duration::from_secs(15);

/// What `ramen-host-3.x --describe` prints.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Described {
    /// `3.11`.
    pub(crate) python: String,
    /// `3.11.7`.
    pub(crate) version: String,
    /// The interpreter that packages are installed for.
    pub(crate) executable: PathBuf,
    /// `linux_x86_64`.
    pub(crate) platform: String,
}

/// A host program.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// `3.11`.
    pub(crate) python: String,
    /// The program.
    pub(crate) program: PathBuf,
}

/// The Python versions that the host directory has a program for, oldest first.
fn versions(dir: &Path) -> Vec<String> {
    let mut found: Vec<(u32, u32)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (major, minor) = name
                .to_str()?
                .strip_prefix("ramen-host-")?
                .split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    found
        .into_iter()
        .map(|(major, minor)| format!("{major}.{minor}"))
        .collect()
}

/// Finds the program for `python`, or for the newest Python there is.
pub(crate) fn find(dir: &Path, python: Option<&str>) -> Result<Host, Finding> {
    let versions = versions(dir);
    let unavailable = |message| Err(Finding::group(Reason::PythonUnavailable, message));
    let python = match python {
        Some(wanted) if versions.iter().any(|version| version == wanted) => wanted,
        Some(wanted) if versions.is_empty() => {
            return unavailable(format!(
                "no host for Python {wanted}: none in {}",
                dir.display()
            ));
        }
        Some(wanted) => {
            let has = versions.join(", ");
            return unavailable(format!("no host for Python {wanted}; there are {has}"));
        }
        None => match versions.last() {
            Some(newest) => newest,
            None => return unavailable(format!("no ramen-host-3.x in {}", dir.display())),
        },
    };
    Ok(Host {
        python: python.to_owned(),
        program: host_program(dir, python),
    })
}

/// What takes the place of a host where nothing is to run: a program that may not exist.
pub(crate) fn unneeded(dir: &Path, python: Option<&str>) -> Host {
    let python = python.unwrap_or(OLDEST);
    Host {
        python: python.to_owned(),
        program: host_program(dir, python),
    }
}

/// Asks a host which Python it embeds.
pub(crate) async fn describe(host: &Host) -> Result<Described, Finding> {
    let failed = |why: String| {
        let program = host.program.display();
        Finding::group(
            Reason::PythonUnavailable,
            format!("{program} --describe: {why}"),
        )
    };
    let mut command = tokio::process::Command::new(&host.program);
    command
        .arg("--describe")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(DESCRIBE, command.output()).await {
        Err(_) => return Err(failed(format!("no answer in {DESCRIBE:?}"))),
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(super::log::cut(words.trim(), 500)));
    }
    let described: Described =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    if described.python != host.python {
        return Err(failed(format!("it embeds Python {}", described.python)));
    }
    Ok(described)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_python_is_the_default_and_a_missing_one_names_the_others() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["3.9", "3.11", "3.12"] {
            std::fs::write(host_program(dir.path(), version), "").unwrap();
        }
        assert_eq!(find(dir.path(), None).unwrap().python, "3.12");
        assert_eq!(find(dir.path(), Some("3.11")).unwrap().python, "3.11");
        let finding = find(dir.path(), Some("3.13")).unwrap_err();
        assert_eq!(finding.reason, Reason::PythonUnavailable);
        assert_eq!(
            finding.message,
            "no host for Python 3.13; there are 3.9, 3.11, 3.12"
        );
    }
}
