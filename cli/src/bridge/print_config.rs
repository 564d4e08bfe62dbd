//! The JSON that MCP clients want, ready to paste. The key itself is never printed.

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::names;
use crate::state::StateDir;

/// A client whose configuration format is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Desktop and Claude Code: `mcpServers`
    Claude,
    /// Cursor: `mcpServers`
    Cursor,
    /// Visual Studio Code: `.vscode/mcp.json`, asks for the key once
    Vscode,
}

/// Renders the configuration of one server.
pub(super) fn render(client: Client, connect: &ConnectArgs) -> Result<String, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::error(format!("cannot tell where this program is: {error}")))?;
    let (name, target, key_file) = place(connect)?;
    let program = program.to_string_lossy().into_owned();
    let mut args = vec!["bridge".to_owned(), "--target".to_owned(), target];
    let flags = [("--group", &connect.group), ("--zone", &connect.zone)];
    for (flag, value) in flags {
        args.extend(
            value
                .iter()
                .flat_map(|value| [flag.to_owned(), value.clone()]),
        );
    }
    if let Some(ca) = &connect.ca {
        args.extend(["--ca".to_owned(), ca.to_string_lossy().into_owned()]);
    } else if connect.tls {
        args.push("--tls".to_owned());
    }
    if let Some(file) = &key_file {
        args.extend(["--key-file".to_owned(), file.clone()]);
    }
    let value = entry(client, &name, &program, &args, key_file.is_some());
    serde_json::to_string_pretty(&value).map_err(|error| Failure::error(error.to_string()))
}

/// The server's name, the target, and the file that holds the key when there is one.
fn place(connect: &ConnectArgs) -> Result<(String, String, Option<String>), Failure> {
    let named = connect
        .key_file
        .as_ref()
        .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    let named = named.map(|file| file.to_string_lossy().into_owned());
    if let Some(target) = &connect.target {
        let name = connect.group.clone().unwrap_or_else(|| "ramen".to_owned());
        return Ok((name, target.clone(), named));
    }
    let running =
        StateDir::locate(connect.state_dir.as_deref())?.running(connect.group.as_deref())?;
    let key_file = named.unwrap_or_else(|| running.key_file.to_string_lossy().into_owned());
    Ok((running.name, running.address, Some(key_file)))
}

fn entry(client: Client, name: &str, program: &str, args: &[String], has_key_file: bool) -> Value {
    let mut server = json!({ "command": program, "args": args });
    if client == Client::Vscode {
        server["type"] = json!("stdio");
    }
    let mut whole = match client {
        Client::Vscode => json!({ "servers": { name: server } }),
        Client::Claude | Client::Cursor => json!({ "mcpServers": { name: server } }),
    };
    if has_key_file {
        return whole;
    }
    let (servers, key) = match client {
        Client::Vscode => ("servers", "${input:ramen-key}"),
        Client::Cursor => ("mcpServers", "${env:RAMEN_MCP_KEY}"),
        Client::Claude => ("mcpServers", "${RAMEN_MCP_KEY}"),
    };
    whole[servers][name]["env"] = json!({ names::BRIDGE_KEY: key });
    if client == Client::Vscode {
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
}
