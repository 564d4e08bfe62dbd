//! The JSON that MCP clients want, ready to paste. The key itself is never printed.

use std::path::Path;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::names;
use crate::output::quoted;
use crate::state::{Running, StateDir};

/// A client whose configuration format is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Desktop and Claude Code: `mcpServers`
    Claude,
    /// Cursor: `mcpServers`
    Cursor,
    /// Visual Studio Code: `.vscode/mcp.json`, asks for the key once
    Vscode,
    /// A shell: the address over HTTP and the key of the running `ramen up`, for `eval "$(…)"`
    Env,
}

/// Renders the configuration of one server: of the address over HTTP, or of a bridge to a worker.
pub(super) fn render(
    client: Client,
    url: Option<&str>,
    connect: &ConnectArgs,
) -> Result<String, Failure> {
    let value = match (client, url) {
        (Client::Env, None) => return shell(connect),
        (Client::Env, Some(_)) => {
            return Err(Failure::usage(
                "--print-config env is for the running `ramen up`: leave the URL out",
            ));
        }
        (_, Some(url)) => entry_over_http(client, url)?,
        (_, None) => entry_of_a_bridge(client, connect)?,
    };
    serde_json::to_string_pretty(&value).map_err(|error| Failure::error(error.to_string()))
}

/// Lines for a shell. The key is read when they are run, so that it is in no scrollback.
fn shell(connect: &ConnectArgs) -> Result<String, Failure> {
    let running = connect.running()?;
    let url = running.url.ok_or_else(|| {
        Failure::transport(
            "the running `ramen up` has no address over HTTP for this group".to_owned(),
        )
    })?;
    Ok(exports(&url, &running.info.key_file.to_string_lossy()))
}

fn exports(url: &str, key_file: &str) -> String {
    let (url, key_file) = (quoted(url), quoted(key_file));
    let key = names::MCP_KEY;
    format!("export RAMEN_URL={url}\nexport {key}=\"$(cat {key_file})\"")
}

/// A client that speaks HTTP itself.
fn entry_over_http(client: Client, url: &str) -> Result<Value, Failure> {
    let parsed = url::Url::parse(url)
        .map_err(|error| Failure::usage(format!("the URL cannot be read: {error}")))?;
    // `/namespace/group/mcp`; another server is called after its host.
    let group = parsed
        .path_segments()
        .and_then(|path| match path.collect::<Vec<_>>().as_slice() {
            [.., group, "mcp"] => Some((*group).to_owned()),
            _ => None,
        });
    let name = group.or_else(|| parsed.host_str().map(str::to_owned));
    let bearer = format!("Bearer {}", key_of_the_person(client));
    let server = match client {
        Client::Cursor => json!({ "url": url, "headers": { "Authorization": bearer } }),
        _ => json!({ "type": "http", "url": url, "headers": { "Authorization": bearer } }),
    };
    Ok(whole(
        client,
        &name.unwrap_or_else(|| "ramen".to_owned()),
        &server,
        true,
    ))
}

fn entry_of_a_bridge(client: Client, connect: &ConnectArgs) -> Result<Value, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::error(format!("cannot tell where this program is: {error}")))?;
    let program = program.to_string_lossy().into_owned();
    if connect.server.is_some() || connect.config.is_some() {
        let (name, args) = others(connect);
        return Ok(entry(client, &name, &program, &args, true));
    }
    let Place {
        name,
        flags,
        key_file,
    } = place(connect)?;
    let mut args = vec!["bridge".to_owned()];
    let zone = connect.zone.clone().map(|zone| ("--zone", zone));
    for (flag, value) in flags.into_iter().chain(zone) {
        args.extend([flag.to_owned(), value]);
    }
    if let Some(ca) = &connect.ca {
        args.extend(["--ca".to_owned(), ca.to_string_lossy().into_owned()]);
    } else if connect.tls {
        args.push("--tls".to_owned());
    }
    if let Some(file) = &key_file {
        args.extend(["--key-file".to_owned(), file.clone()]);
    }
    Ok(entry(client, &name, &program, &args, key_file.is_some()))
}

/// The name and the arguments of a bridge to servers of a configuration, which needs no key.
fn others(connect: &ConnectArgs) -> (String, Vec<String>) {
    let mut args = vec!["bridge".to_owned()];
    let mut name = "servers".to_owned();
    if let Some(server) = &connect.server {
        args.extend(["--server".to_owned(), server.clone()]);
        name.clone_from(server);
    }
    if let Some(file) = &connect.config {
        // The client starts it in a folder of its own.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        args.extend(["--config".to_owned(), file.to_string_lossy().into_owned()]);
    }
    (name, args)
}

/// What a bridge is started with.
struct Place {
    /// The server's name.
    name: String,
    /// The flags that say where it is.
    flags: Vec<(&'static str, String)>,
    /// The file that holds the key, when there is one.
    key_file: Option<String>,
}

fn place(connect: &ConnectArgs) -> Result<Place, Failure> {
    let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let text = |file: &Path| file.to_string_lossy().into_owned();
    let named = connect.key_file.as_deref().map(absolute);
    let key_file = named.as_deref().map(text);
    let group = connect.group.clone().map(|group| ("--group", group));
    if let Some(target) = &connect.target {
        let name = connect.group.clone().unwrap_or_else(|| "ramen".to_owned());
        let target = ("--target", target.clone());
        return Ok(Place {
            name,
            flags: [target].into_iter().chain(group).collect(),
            key_file,
        });
    }
    let Running { info, address, .. } = connect.running()?;
    let flags = if info.through_gateway {
        // Past the gateway it is another group: the bridge finds it by its name.
        let state = StateDir::locate(connect.state_dir.as_deref())?;
        let state = ("--state-dir", text(state.root()));
        vec![state, ("--group", info.full_name())]
    } else {
        let target = ("--target", address);
        [target].into_iter().chain(group).collect()
    };
    Ok(Place {
        flags,
        key_file: key_file.or_else(|| Some(text(&info.key_file))),
        name: info.name,
    })
}

fn entry(client: Client, name: &str, program: &str, args: &[String], has_key_file: bool) -> Value {
    let mut server = json!({ "command": program, "args": args });
    if client == Client::Vscode {
        server["type"] = json!("stdio");
    }
    if !has_key_file {
        server["env"] = json!({ names::BRIDGE_KEY: key_of_the_person(client) });
    }
    whole(client, name, &server, !has_key_file)
}

/// How a client writes a key that it has from the person, not from the file.
fn key_of_the_person(client: Client) -> &'static str {
    match client {
        Client::Vscode => "${input:ramen-key}",
        Client::Cursor => "${env:RAMEN_MCP_KEY}",
        Client::Claude | Client::Env => "${RAMEN_MCP_KEY}",
    }
}

/// The file around one server.
fn whole(client: Client, name: &str, server: &Value, asks: bool) -> Value {
    if client != Client::Vscode {
        return json!({ "mcpServers": { name: server } });
    }
    let mut whole = json!({ "servers": { name: server } });
    if asks {
        whole["inputs"] = json!([{
            "type": "promptString", "id": "ramen-key", "description": "MCP key of the group", "password": true
        }]);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_its_own_shape() {
        let args = ["bridge".to_owned()];
        let claude = entry(Client::Claude, "demo", "/bin/ramen", &args, true);
        assert_eq!(
            claude,
            json!({"mcpServers": {"demo": {"command": "/bin/ramen", "args": ["bridge"]}}})
        );
        let code = entry(Client::Vscode, "demo", "/bin/ramen", &args, false);
        assert_eq!(code["servers"]["demo"]["type"], "stdio");
        assert_eq!(
            code["servers"]["demo"]["env"][names::BRIDGE_KEY],
            "${input:ramen-key}"
        );
        assert_eq!(code["inputs"][0]["password"], true);
        let cursor = entry(Client::Cursor, "demo", "/bin/ramen", &args, false);
        assert_eq!(
            cursor["mcpServers"]["demo"]["env"][names::BRIDGE_KEY],
            "${env:RAMEN_MCP_KEY}"
        );
    }

    #[test]
    fn a_shell_reads_the_key_wherever_its_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("it's a \"$HOME\" \\ place");
        std::fs::write(&file, "rmk_1\n").unwrap();
        let lines = exports("http://h/a/b/mcp", &file.to_string_lossy());
        let script = format!("{lines}\nprintf '%s %s' \"$RAMEN_URL\" \"$RAMEN_MCP_KEY\"");
        let shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&shell.stdout),
            "http://h/a/b/mcp rmk_1",
            "{lines}"
        );
    }

    #[test]
    fn a_client_that_speaks_http_gets_the_address() {
        let url = "https://mcp.example.com/team/library/mcp";
        let bearer = |key: &str| json!({"Authorization": format!("Bearer {key}")});
        assert_eq!(
            entry_over_http(Client::Claude, url).unwrap(),
            json!({"mcpServers": {"library": {"type": "http", "url": url, "headers": bearer("${RAMEN_MCP_KEY}")}}})
        );
        assert_eq!(
            entry_over_http(Client::Cursor, url).unwrap(),
            json!({"mcpServers": {"library": {"url": url, "headers": bearer("${env:RAMEN_MCP_KEY}")}}})
        );
        let code = entry_over_http(Client::Vscode, url).unwrap();
        assert_eq!(
            code["servers"]["library"]["headers"],
            bearer("${input:ramen-key}")
        );
        assert_eq!(code["inputs"][0]["id"], "ramen-key");
        assert!(entry_over_http(Client::Claude, "no url").is_err());
    }
}
