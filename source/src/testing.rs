//! Servers for tests and demos: bare repositories over smart HTTP (`git http-backend`) and SSH
//! (`sshd`), and repositories made object by object, so that they can hold what `git add` refuses.
//!
//! They need the programs `git`, `openssl` and `sshd` and bind to loopback unless told otherwise. Nothing here is
//! for production.

#[cfg(feature = "testing-s3")]
mod bucket;
mod certs;
#[cfg(feature = "testing-s3")]
mod gcs;
mod http_server;
mod port;
mod repo;
#[cfg(feature = "testing-s3")]
mod s3;
mod sshd;

pub use certs::Authority;
#[cfg(feature = "testing-s3")]
pub use gcs::Gcs;
pub use http_server::{Fault, Login, Seen, SmartHttp, SmartHttpOptions};
pub use port::FreePort;
pub use repo::{Entry, Repo};
#[cfg(feature = "testing-s3")]
pub use s3::S3;
pub use sshd::Sshd;

use std::{io, process::Command};

/// Runs a program and gives its output; anything but success is an error with its words.
pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let program = command.get_program().to_string_lossy();
        return Err(io::Error::other(format!("{program} failed: {words}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
