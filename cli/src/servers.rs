//! The configured MCP servers: where their files are, and how one is named on the command line.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use ramen_client::cache::Cache;
use ramen_client::config::{Fault, Loaded, PROJECT_FILE, Sources, Transport, load, process_env};
use ramen_client::guard::Guard;
use ramen_client::oauth::SignIn;
use ramen_client::{Options, ServerConfig};
use ramen_redact::Secret;
use url::Url;

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::names;
use crate::output;

/// The servers of one `mcpServers` file, or of the global one and the project's. What cannot be used is said on stderr.
pub(crate) fn configured(
    file: Option<&PathBuf>,
) -> Result<BTreeMap<String, ServerConfig>, Failure> {
    let workspace = std::env::current_dir().ok();
    let (global, project) = match file {
        Some(file) if !file.exists() => {
            return Err(Failure::usage(format!(
                "there is no file {}",
                file.display()
            )));
        }
        Some(file) => (Some(file.clone()), None),
        None => (
            folder(names::XDG_CONFIG_HOME, ".config").map(|dir| dir.join("mcp.json")),
            workspace.as_ref().map(|dir| dir.join(PROJECT_FILE)),
        ),
    };
    let Loaded { servers, faults } = load(&Sources {
        global,
        project,
        workspace,
        env: &process_env,
    });
    // A file that was named and cannot be read at all is not an empty list.
    let whole = |fault: &&Fault| fault.server.is_none();
    if let Some(fault) = faults.iter().find(whole).filter(|_| file.is_some()) {
        return Err(Failure::usage(fault.to_string()));
    }
    for fault in faults {
        output::note(&format!("warning: {fault}"));
    }
    Ok(servers)
}

/// The server that `--server` names, when it does, and what it is called: one of the files, or an address.
pub(crate) fn named(connect: &ConnectArgs) -> Result<Option<(String, ServerConfig)>, Failure> {
    let headers = &connect.header;
    let Some(name) = &connect.server else {
        return if headers.is_empty() {
            Ok(None)
        } else {
            Err(Failure::usage("--header needs the address of a server"))
        };
    };
    if name.contains("://") {
        let config = at(name, headers)?;
        // Without what may be secret in it: names are in messages and in the cache.
        let shown = match &config.transport {
            Transport::Http { url, .. } => url.to_string(),
            Transport::Stdio { .. } => name.clone(),
        };
        return Ok(Some((shown, config)));
    }
    if !headers.is_empty() {
        return Err(Failure::usage(format!(
            "--header needs the address of a server: the headers of {name:?} are those of its entry"
        )));
    }
    let mut servers = configured(connect.config.as_ref())?;
    match servers.remove(name) {
        Some(config) if config.enabled => Ok(Some((name.clone(), config))),
        Some(_) => Err(Failure::usage(format!(
            "the server {name:?} is switched off"
        ))),
        None => Err(unknown(name, servers.keys().map(String::as_str))),
    }
}

/// What is said of a name that no server has.
pub(crate) fn unknown<'n>(name: &str, there: impl Iterator<Item = &'n str>) -> Failure {
    let there: Vec<_> = there.collect();
    Failure::usage(if there.is_empty() {
        format!(
            "there is no server {name:?}, and no other; `ramen help bridge` says where they are configured"
        )
    } else {
        format!(
            "there is no server {name:?}; there are: {}",
            there.join(", ")
        )
    })
}

/// A Streamable HTTP server at an address, which gets these headers (`Name: value`) with each request.
pub(crate) fn at(url: &str, headers: &[String]) -> Result<ServerConfig, Failure> {
    // Neither the address nor the error is shown: there may be a token in it.
    let url: ramen_redact::SafeUrl = url
        .parse()
        .map_err(|error| Failure::usage(format!("the address cannot be read: {error}")))?;
    if !matches!(url.expose().scheme(), "http" | "https") {
        return Err(Failure::usage(
            "the address must begin with http:// or https://",
        ));
    }
    let mut config = ServerConfig::http(url);
    for header in headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| Failure::usage("--header must be 'Name: value'"))?;
        config = config.with(name.trim(), Secret::from(value.trim()));
    }
    Ok(config)
}

/// How connections are made by commands: their lists are remembered for `ramen inspect`, a server that wants a sign-in
/// gets one through the browser, and none is left behind by a command that is killed.
pub(crate) fn options(timeout: Duration) -> Options {
    let tokens =
        folder(names::XDG_STATE_HOME, ".local/state").map(|dir| dir.join("mcp-tokens.json"));
    let mut options = Options {
        cache: cache(),
        sign_in: tokens.map(|file| {
            SignIn::new(file, |address| {
                browse(address, true);
                Ok(())
            })
        }),
        guard: guard(),
        ..Options::default()
    };
    options.limits.request = timeout;
    options
}

/// The same for a server that is called with a key: a sign-in is no way out when that is refused.
pub(crate) fn options_with_a_key(timeout: Duration) -> Options {
    Options {
        sign_in: None,
        ..options(timeout)
    }
}

/// This program again, under another command.
fn guard() -> Option<Guard> {
    let program = std::env::current_exe().ok()?;
    Some(Guard::new(move || {
        let mut command = Command::new(&program);
        // Whatever the file is called.
        command.arg0("ramen").arg("guard");
        command
    }))
}

/// Shows the address where a person signs in, and opens it where there is a browser.
pub(crate) fn browse(address: &Url, open: bool) {
    output::note(&format!("sign in here: {address}"));
    if open {
        let program = if cfg!(target_os = "macos") {
            "open"
        } else {
            "xdg-open"
        };
        let started = Command::new(program)
            .arg(address.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // Without a browser the address on stderr is enough.
        if let Ok(mut child) = started {
            std::thread::spawn(move || child.wait());
        }
    }
}

/// What servers advertised last.
pub(crate) fn cache() -> Option<Cache> {
    folder(names::XDG_CACHE_HOME, ".cache").map(|dir| Cache::new(dir.join("mcp-cache.json")))
}

/// Our folder below a base folder of the person.
fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set(variable)
        .map(PathBuf::from)
        .or_else(|| set(names::HOME).map(|home| PathBuf::from(home).join(below_home)))?;
    Some(base.join("ramen"))
}
