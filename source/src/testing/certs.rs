//! Certificates of test servers, made with `openssl`.

use std::{
    fmt::Write as _,
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use super::run;

/// A certificate authority with one server certificate.
#[derive(Debug, Clone)]
pub struct Authority {
    /// The authority's certificate, PEM.
    pub ca: PathBuf,
    /// The server's certificate, PEM.
    pub cert: PathBuf,
    /// The server's key, PEM.
    pub key: PathBuf,
}

impl Authority {
    /// Makes both in a folder; the server is `localhost`, `127.0.0.1` and `::1`.
    pub fn create(dir: &Path) -> io::Result<Self> {
        Self::create_for(dir, &[])
    }

    /// Makes both in a folder; the server has these addresses besides.
    pub fn create_for(dir: &Path, addresses: &[IpAddr]) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let at = |name: &str| dir.join(name);
        let openssl =
            |args: &[&str]| run(Command::new("openssl").current_dir(dir).args(args)).map(|_| ());
        let curve = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        let request = |name: &str, key: &str, out: &str, more: &[&str]| {
            let mut args = vec!["req", "-subj", name, "-keyout", key, "-out", out];
            args.extend(curve);
            args.extend(more);
            openssl(&args)
        };
        let ca_extensions = [
            "-x509",
            "-days",
            "30",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ];
        request("/CN=test authority", "ca.key", "ca.crt", &ca_extensions)?;
        request("/CN=localhost", "server.key", "server.csr", &[])?;
        let mut names = "DNS:localhost,IP:127.0.0.1,IP:::1".to_owned();
        for address in addresses {
            // Writing to a String cannot fail.
            let _ = write!(names, ",IP:{address}");
        }
        fs::write(
            at("extensions"),
            format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n"),
        )?;
        openssl(&[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            "extensions",
            "-out",
            "server.crt",
        ])?;
        Ok(Self {
            ca: at("ca.crt"),
            cert: at("server.crt"),
            key: at("server.key"),
        })
    }
}
