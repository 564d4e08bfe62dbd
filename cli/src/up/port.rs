//! Whether the worker can listen where it is told to, and who is in the way.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// What stands in the way of listening at `address`, in words that say what to do.
pub(super) fn trouble(address: SocketAddr) -> Option<String> {
    // The listener is closed again at once: the worker opens its own, with the same options.
    let error = TcpListener::bind(address).err()?;
    let change = "name another address with --listen";
    Some(match error.kind() {
        ErrorKind::AddrInUse => {
            let who = holder(Path::new("/proc"), address.port()).map_or_else(
                || "by another program".to_owned(),
                |who| format!("by {who}"),
            );
            format!("{address} is in use {who}: end it, or {change}")
        }
        ErrorKind::AddrNotAvailable => {
            format!("{address} is no address of this machine: {change}")
        }
        ErrorKind::PermissionDenied => {
            format!("this user may not listen at {address}: {change} (a port from 1024 on)")
        }
        _ => format!("{address} cannot be listened at: {error}; {change}"),
    })
}

/// `ramen-worker (process 4711)`: who listens at a port, as far as this user may see it.
fn holder(proc: &Path, port: u16) -> Option<String> {
    let sockets: Vec<String> = ["net/tcp", "net/tcp6"]
        .into_iter()
        .filter_map(|table| fs::read_to_string(proc.join(table)).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    let wanted: Vec<String> = sockets
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let owns = |process: &Path| {
        let files = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| {
                wanted
                    .iter()
                    .any(|socket| link.as_os_str() == socket.as_str())
            })
    };
    let processes = fs::read_dir(proc).ok()?.flatten();
    let (pid, process) = processes
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse::<u32>().ok()?,
                entry.path(),
            ))
        })
        .find(|(_, process)| owns(process))?;
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    Some(format!("{} (process {pid})", name.trim()))
}

/// The inodes of the sockets that listen at a port, out of `/proc/net/tcp`: the second column is `address:port` in
/// hexadecimal, the fourth the state (`0A` listens), the tenth the inode.
fn listening(table: &str, port: u16) -> Vec<String> {
    let port = format!(":{port:04X}");
    table
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let here = columns.get(1)?.ends_with(&port) && *columns.get(3)? == "0A";
            here.then(|| columns.get(9).map(ToString::to_string))?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_told_with_its_holder_and_the_way_out() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let said = trouble(address).unwrap();
        let pid = std::process::id();
        assert!(
            said.starts_with(&format!("{address} is in use by ")),
            "{said}"
        );
        assert!(said.contains(&format!("(process {pid})")), "{said}");
        assert!(
            said.ends_with("name another address with --listen"),
            "{said}"
        );
        drop(other);
        assert_eq!(trouble(address), None);
    }

    #[test]
    fn an_address_of_another_machine_is_told_apart() {
        // Kept for documentation: no machine has it.
        let said = trouble("192.0.2.1:80".parse().unwrap()).unwrap();
        assert!(said.contains("is no address of this machine"), "{said}");
    }

    #[test]
    fn only_listeners_of_the_port_are_looked_for() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n   \
             1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n   \
             2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0\n";
        assert_eq!(listening(table, 8080), ["4711"]);
        assert_eq!(listening(table, 80), [""; 0]);
    }
}
