//! A real `sshd` on a high port, for the user that runs the test.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{FreePort, run};

/// A running `sshd` that takes one key. Ends when dropped.
#[derive(Debug)]
pub struct Sshd {
    process: Child,
    dir: PathBuf,
    address: SocketAddr,
    user: String,
    _port: FreePort,
}

impl Sshd {
    /// Where `sshd` is, if it is installed.
    pub fn program() -> Option<PathBuf> {
        ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
            .map(PathBuf::from)
            .into_iter()
            .find(|path| path.exists())
    }

    /// Why there can be no `sshd` here: it is not installed, or the user cannot log in. A test that
    /// needs one says this and ends.
    pub fn missing() -> Option<String> {
        if Self::program().is_none() {
            return Some("sshd is not installed (apt-get install openssh-server)".to_owned());
        }
        let user = run(Command::new("id").arg("-un")).ok()?;
        let account = run(Command::new("getent").args(["passwd", user.trim()])).ok()?;
        let shell = account.trim().rsplit(':').next()?.to_owned();
        let no_login = shell.ends_with("nologin") || shell.ends_with("/false");
        no_login.then(|| format!("the user {} has no login shell", user.trim()))
    }

    /// Starts one on loopback. Keys are made in `dir`: `client` (the login), `stranger` (not allowed),
    /// `host_ed25519`, `host_rsa`.
    pub fn start(dir: &Path) -> io::Result<Self> {
        Self::start_at(dir, Ipv4Addr::LOCALHOST.into())
    }

    /// Starts one at another address of this machine.
    pub fn start_at(dir: &Path, listen: IpAddr) -> io::Result<Self> {
        let Some(program) = Self::program() else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "sshd is not installed",
            ));
        };
        fs::create_dir_all(dir)?;
        // Needed when running as root; elsewhere it is not ours to make.
        let _ = fs::create_dir_all("/run/sshd");
        for (name, kind) in [
            ("client", "ed25519"),
            ("stranger", "ed25519"),
            ("host_ed25519", "ed25519"),
            ("host_rsa", "rsa"),
        ] {
            let args = ["-q", "-t", kind, "-N", "", "-C", "test", "-f", name];
            run(Command::new("ssh-keygen").current_dir(dir).args(args))?;
        }
        let user = run(Command::new("id").arg("-un"))?.trim().to_owned();
        let port = FreePort::at(listen)?;
        let address = port.address()?;
        let at = |name: &str| dir.join(name).display().to_string();
        let config = format!(
            "ListenAddress {address}\nHostKey {}\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel INFO\n",
            at("host_ed25519"),
            at("host_rsa"),
            at("client.pub"),
        );
        fs::write(dir.join("sshd_config"), config)?;
        let mut process = Command::new(program)
            .args(["-D", "-e", "-f", &at("sshd_config")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        if let Some(stderr) = process.stderr.take() {
            let mut lines = BufReader::new(stderr);
            while !said.contains("Server listening") {
                if lines.read_line(&mut said)? == 0 {
                    return Err(io::Error::other(format!("sshd ended: {said}")));
                }
            }
            // Goes on reading, so that sshd never waits for room in the pipe.
            std::thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        }
        Ok(Self {
            process,
            dir: dir.to_owned(),
            address,
            user,
            _port: port,
        })
    }

    /// `ssh://user@address:port/path`.
    pub fn url(&self, path: &Path) -> String {
        format!("ssh://{}@{}{}", self.user, self.address, path.display())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A key file that [`Self::start`] made (`client`, `host_rsa.pub`, …).
    pub fn key(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.dir.join(name))
    }

    /// A `known_hosts` line for one of its host keys.
    pub fn known_hosts(&self, key: &str) -> io::Result<String> {
        Ok(format!(
            "[{}]:{} {}",
            self.address.ip(),
            self.address.port(),
            self.key(&format!("{key}.pub"))?
        ))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
