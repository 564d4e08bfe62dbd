//! Serves the bare repositories below a folder over smart HTTP, until it is ended:
//! `serve-git DIR [ADDRESS]`. Prints the address it listens on. For demos on loopback.

use std::{error::Error, io::Write, path::PathBuf};

use ramen_source::testing::{SmartHttp, SmartHttpOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let Some(root) = args.next().map(PathBuf::from) else {
        return Err("usage: serve-git DIR [ADDRESS]".into());
    };
    let listen = match args.next() {
        Some(address) => Some(address.to_string_lossy().parse()?),
        None => None,
    };
    let server = SmartHttp::start(
        &root,
        SmartHttpOptions {
            listen,
            ..Default::default()
        },
    )?;
    writeln!(std::io::stdout(), "{}", server.base())?;
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
