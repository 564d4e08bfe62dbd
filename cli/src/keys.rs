//! `ramen keys`: makes, lists and revokes the keys of a group, in the state of `ramen up` or in a cluster.
//!
//! Several are valid at once. A key is shown when it is made and never again; lists name it by its entry and by the
//! digits that logs name it by.

#[cfg(feature = "cluster")]
mod cluster;
mod local;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ramen_redact::KeyDigest;
use serde::Serialize;

use crate::exit::Failure;
use crate::names;
use crate::output::{self, OutputArg};
#[cfg(feature = "cluster")]
use crate::status::ClusterArgs;

/// `ramen keys`.
#[derive(Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a key, print it, and let it in from now on
    New {
        /// What the key is called, in lists and in access rules
        name: String,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        output: OutputArg,
    },
    /// List the keys by name; never the keys themselves
    List {
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Let a key in no more: its calls that run are cut off
    Revoke {
        /// What the key is called
        name: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Which group, and where.
#[derive(Args)]
pub(crate) struct PlaceArgs {
    /// Group (or namespace/group) [default: the only one that runs]
    #[arg(long, short, value_name = "NAME")]
    group: Option<String>,
    /// State directory of `ramen up` [default: `$XDG_STATE_HOME/ramen`]
    #[arg(long, env = names::STATE_DIR, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// A group of a Kubernetes cluster: that of the kubeconfig's context
    #[cfg(feature = "cluster")]
    #[arg(long, requires = "group")]
    cluster: bool,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    of: ClusterArgs,
}

/// A key as a list shows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    /// Its entry.
    name: String,
    /// How logs and limits name its bearer.
    caller: String,
}

/// A group whose keys were changed.
struct Changed {
    group: String,
    /// Whether everybody who reads the keys goes by it already.
    counts: bool,
}

/// A key that was made: the one time that it is shown.
#[derive(Serialize)]
struct Made<'k> {
    name: &'k str,
    group: &'k str,
    caller: String,
    key: &'k str,
}

/// Runs the command.
pub(crate) fn run(args: &KeysArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::New {
            name,
            place,
            output,
        } => {
            check_name(name)?;
            let key = key()?;
            let Changed { group, counts } = place.add(name, &key)?;
            let made = Made {
                name,
                group: &group,
                caller: caller(&key),
                key: &key,
            };
            output.print(&made, || key.clone())?;
            let when = if counts {
                "from now on"
            } else {
                "within a second"
            };
            output::note(&format!(
                "the key {name} opens {group} {when}; it is not shown again"
            ));
        }
        Command::List { place, output } => {
            let listed = place.list()?;
            output.print(&listed, || table(&listed))?;
        }
        Command::Revoke { name, place } => {
            let Changed { group, counts } = place.revoke(name)?;
            let when = if counts { "" } else { " in a second" };
            output::note(&format!("the key {name} opens {group} no more{when}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "cluster")]
impl PlaceArgs {
    /// The cluster, when one is named.
    fn cluster(&self) -> Result<Option<cluster::Keys<'_>>, Failure> {
        if !(self.cluster || self.of.is_named()) {
            return Ok(None);
        }
        // What the environment says of `ramen up` does not speak of a cluster; what is written does not go with one.
        let given = std::env::var_os(names::STATE_DIR);
        let state = self.state_dir.as_deref().map(std::path::Path::as_os_str);
        if state.is_some() && state != given.as_deref() {
            return Err(Failure::usage(
                "--state-dir names groups of `ramen up`, and --namespace, --cluster, --context and --kubeconfig one of a \
                 cluster: choose one; a namespace of `ramen up` is written as --group NAMESPACE/NAME",
            ));
        }
        let group = self.group.as_deref();
        let group = group.ok_or_else(|| Failure::usage("name the group with --group"))?;
        if group.contains('/') {
            return Err(Failure::usage(format!(
                "--group {group} names a group of `ramen up`, and --namespace, --cluster, --context and --kubeconfig one of \
                 a cluster: leave those out, or write --group NAME with -n NAMESPACE"
            )));
        }
        Ok(Some(cluster::Keys::new(group, &self.of)))
    }

    fn add(&self, name: &str, key: &str) -> Result<Changed, Failure> {
        match self.cluster()? {
            Some(keys) => keys.add(name, key),
            None => self.local()?.add(name, key),
        }
    }

    fn list(&self) -> Result<Vec<Listed>, Failure> {
        match self.cluster()? {
            Some(keys) => keys.list(),
            None => self.local()?.list(),
        }
    }

    fn revoke(&self, name: &str) -> Result<Changed, Failure> {
        match self.cluster()? {
            Some(keys) => keys.revoke(name),
            None => self.local()?.revoke(name),
        }
    }
}

#[cfg(not(feature = "cluster"))]
impl PlaceArgs {
    fn add(&self, name: &str, key: &str) -> Result<Changed, Failure> {
        self.local()?.add(name, key)
    }

    fn list(&self) -> Result<Vec<Listed>, Failure> {
        self.local()?.list()
    }

    fn revoke(&self, name: &str) -> Result<Changed, Failure> {
        self.local()?.revoke(name)
    }
}

impl PlaceArgs {
    fn local(&self) -> Result<local::Keys, Failure> {
        local::Keys::find(self.state_dir.as_deref(), self.group.as_deref())
    }
}

/// The keys of one entry.
fn listed(name: &str, text: &str) -> Vec<Listed> {
    let lines = text.lines().map(str::trim);
    let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    keys.map(|key| Listed {
        name: name.to_owned(),
        caller: caller(key),
    })
    .collect()
}

/// How logs and limits name the bearer of a key.
fn caller(key: &str) -> String {
    format!("key:{}", KeyDigest::of(key).fingerprint())
}

fn table(listed: &[Listed]) -> String {
    use std::fmt::Write as _;
    let width = listed.iter().map(|key| key.name.len()).max();
    let width = width.unwrap_or_default().max("NAME".len());
    let mut text = format!("{:width$}   CALLER", "NAME");
    for key in listed {
        let _ = write!(text, "\n{:width$}   {}", key.name, key.caller);
    }
    text
}

/// A new key: 256 bits that nobody can guess.
fn key() -> Result<String, Failure> {
    crate::up::new_key().map_err(|error| Failure::error(format!("no randomness: {error}")))
}

/// Names are entries of a Secret and files of a folder.
fn check_name(name: &str) -> Result<(), Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = !name.is_empty() && name.len() <= 63 && name.bytes().all(plain);
    if !fits || name.starts_with('.') {
        return Err(Failure::usage(format!(
            "{name:?} is no name of a key: letters, digits, `-`, `_` and `.`, at most 63, not first a `.`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_names_and_fingerprints_and_no_key() {
        let all = listed("ci", "# of the build\nrmk_secret\nrmk_old\n\n");
        assert_eq!(all.len(), 2);
        let shown = format!("{} {}", table(&all), serde_json::to_string(&all).unwrap());
        assert!(shown.contains("ci") && shown.contains("key:"), "{shown}");
        assert!(!shown.contains("rmk_"), "{shown}");
    }

    #[test]
    fn names_are_those_of_entries() {
        for good in ["ci", "a.b", "Build_1"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", ".", ".x", "a/b", "../a", "a b", "ä", &long] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
