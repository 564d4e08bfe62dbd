//! Where packages come from: what the environment and pip's configuration say, as `uv` reads it.
//!
//! `uv` ignores every `PIP_*` variable and every `pip.conf`. Someone who set a private index there
//! would get packages from the public one without a word, so all of it is translated. A `UV_*`
//! variable wins over what it replaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Variables that the installer inherits as they are, beside `UV_*`.
const INHERITED: [&str; 17] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "NETRC",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SSL_CLIENT_CERT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SOURCE_DATE_EPOCH",
    "GIT_SSL_CAINFO",
];
/// `UV_*` variables that would change where or for whom the installer works.
const REFUSED: [&str; 14] = [
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_BREAK_SYSTEM_PACKAGES",
    "UV_LINK_MODE",
    "UV_COMPILE_BYTECODE",
    "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE",
    "UV_NO_BUILD",
    "UV_REQUIRE_HASHES",
    "UV_NO_VERIFY_HASHES",
    "UV_OFFLINE",
    "UV_PRERELEASE",
    "UV_WORKING_DIRECTORY",
    "UV_PROJECT",
];

/// How the installer finds packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexConfig {
    /// The installer's whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Options for which there is no variable.
    pub(crate) flags: Vec<String>,
    /// User names, passwords and tokens in addresses.
    pub(crate) secrets: BTreeSet<String>,
    /// What a resolution depends on, without credentials.
    pub(crate) fingerprint: String,
    /// Remarks for the log.
    pub(crate) notes: Vec<String>,
}

impl IndexConfig {
    /// Reads the configuration of this process and of pip.
    pub(crate) fn load(vars: &BTreeMap<String, String>) -> Self {
        let mut pip = BTreeMap::new();
        for file in config_files(vars) {
            if let Ok(text) = std::fs::read_to_string(&file) {
                read_config(&text, &mut pip);
            }
        }
        Self::new(vars, pip)
    }

    /// `pip` holds options of configuration files by their long names.
    fn new(vars: &BTreeMap<String, String>, mut pip: BTreeMap<String, String>) -> Self {
        for (name, value) in vars {
            if let Some(option) = name.strip_prefix("PIP_")
                && !value.is_empty()
            {
                pip.insert(option.to_ascii_lowercase().replace('_', "-"), value.clone());
            }
        }
        let mut config = Self::default();
        for (name, value) in vars {
            let lower_proxy = name.ends_with("_proxy");
            let uv = name.starts_with("UV_") && !REFUSED.contains(&name.as_str());
            if INHERITED.contains(&name.as_str()) || lower_proxy || uv {
                config.env.insert(name.clone(), value.clone());
            }
        }
        if !config.env.contains_key("UV_CONFIG_FILE") {
            config.env.insert("UV_NO_CONFIG".into(), "1".into());
        }
        config.translate(&pip);
        config.finish();
        config
    }

    fn translate(&mut self, pip: &BTreeMap<String, String>) {
        let chosen = ["UV_DEFAULT_INDEX", "UV_INDEX_URL"]
            .iter()
            .any(|name| self.env.contains_key(*name));
        if let Some(url) = pip.get("index-url")
            && !chosen
        {
            self.env
                .insert("UV_DEFAULT_INDEX".into(), url.trim().to_owned());
        }
        if let Some(urls) = pip.get("extra-index-url") {
            self.or_set("UV_EXTRA_INDEX_URL", words(urls).join(" "));
        }
        if let Some(places) = pip.get("find-links") {
            let places = words(places)
                .into_iter()
                .filter_map(|place| self.place(place));
            let places: Vec<_> = places.collect();
            if !places.is_empty() {
                self.or_set("UV_FIND_LINKS", places.join(","));
            }
        }
        if let Some(hosts) = pip.get("trusted-host") {
            self.or_set("UV_INSECURE_HOST", words(hosts).join(" "));
        }
        for (option, variable) in [
            ("cert", "SSL_CERT_FILE"),
            ("client-cert", "SSL_CLIENT_CERT"),
            ("default-timeout", "UV_HTTP_TIMEOUT"),
            ("timeout", "UV_HTTP_TIMEOUT"),
            ("retries", "UV_HTTP_RETRIES"),
            ("proxy", "ALL_PROXY"),
            ("keyring-provider", "UV_KEYRING_PROVIDER"),
        ] {
            if let Some(value) = pip.get(option) {
                self.or_set(variable, value.trim().to_owned());
            }
        }
        if pip.get("no-index").is_some_and(|value| is_true(value)) {
            self.flags.push("--no-index".into());
        }
        if let Some(files) = pip.get("constraint") {
            let absolute = |file| std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file));
            let files: Vec<String> = words(files)
                .into_iter()
                .map(|file| absolute(file).display().to_string())
                .collect();
            self.or_set("UV_CONSTRAINT", files.join(" "));
        }
    }

    fn or_set(&mut self, name: &str, value: String) {
        if !value.is_empty() {
            self.env.entry(name.to_owned()).or_insert(value);
        }
    }

    /// A folder or address of `find-links`; pip passes over folders that do not exist, uv does not.
    fn place(&mut self, place: &str) -> Option<String> {
        if place.contains("://") {
            return Some(place.to_owned());
        }
        match std::path::absolute(place) {
            Ok(path) if path.exists() => Some(path.display().to_string()),
            _ => {
                self.notes.push(format!(
                    "find-links: {place} does not exist and is passed over"
                ));
                None
            }
        }
    }

    fn finish(&mut self) {
        const INDEX: [&str; 9] = [
            "UV_DEFAULT_INDEX",
            "UV_INDEX_URL",
            "UV_INDEX",
            "UV_EXTRA_INDEX_URL",
            "UV_FIND_LINKS",
            "UV_INDEX_STRATEGY",
            "UV_EXCLUDE_NEWER",
            "UV_RESOLUTION",
            "UV_CONSTRAINT",
        ];
        let mut fingerprint = self.flags.join(" ");
        for (name, value) in &self.env {
            let proxy = name.to_ascii_lowercase().ends_with("_proxy");
            let url = url::Url::parse(value).ok().filter(|_| proxy);
            let password = url.as_ref().and_then(url::Url::password).map(str::to_owned);
            self.secrets.extend(password);
            // `UV_INDEX_<NAME>_PASSWORD` and the like.
            if !value.is_empty() && (name.ends_with("_PASSWORD") || name.ends_with("_TOKEN")) {
                self.secrets.insert(value.clone());
            }
        }
        for name in INDEX {
            let Some(value) = self.env.get(name) else {
                continue;
            };
            let mut shown = value.clone();
            for word in value.split([' ', ',']) {
                let address = word.split_once('=').map_or(word, |(_, address)| address);
                let address = if address.contains("://") {
                    address
                } else {
                    word
                };
                let Ok(mut url) = url::Url::parse(address) else {
                    continue;
                };
                for secret in [Some(url.username()), url.password()].into_iter().flatten() {
                    if !secret.is_empty() {
                        self.secrets.insert(secret.to_owned());
                        let plain =
                            percent_encoding::percent_decode_str(secret).decode_utf8_lossy();
                        self.secrets.insert(plain.into_owned());
                    }
                }
                if url.set_username("").is_ok() && url.set_password(None).is_ok() {
                    shown = shown.replace(address, url.as_str());
                }
            }
            let _ = write!(fingerprint, "\n{name}={shown}");
        }
        // Files count by what they say.
        for name in ["UV_CONFIG_FILE", "UV_CONSTRAINT", "UV_OVERRIDE"] {
            for file in self
                .env
                .get(name)
                .map_or_else(Vec::new, |files| words(files))
            {
                let text = std::fs::read(file).unwrap_or_default();
                let _ = write!(fingerprint, "\n{name}={}", super::sha256_hex(&text));
            }
        }
        self.fingerprint = fingerprint;
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn is_true(value: &str) -> bool {
    matches!(
        value.trim().to_ascii_lowercase().as_str(),
        "1" | "true" | "yes" | "on" | "y" | "t"
    )
}

/// pip's configuration files, the strongest last. `PIP_CONFIG_FILE=/dev/null` switches all off.
fn config_files(vars: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let named = vars.get("PIP_CONFIG_FILE").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("/dev/null")) {
        return Vec::new();
    }
    let mut files = vec![
        PathBuf::from("/etc/xdg/pip/pip.conf"),
        PathBuf::from("/etc/pip.conf"),
    ];
    if let Some(home) = vars.get("HOME").map(PathBuf::from) {
        files.push(home.join(".pip/pip.conf"));
        let base = vars
            .get("XDG_CONFIG_HOME")
            .map_or_else(|| home.join(".config"), PathBuf::from);
        files.push(base.join("pip/pip.conf"));
    }
    files.extend(named);
    files
}

/// Reads `[global]` and `[install]` of a `pip.conf`; values may go on in indented lines.
fn read_config(text: &str, options: &mut BTreeMap<String, String>) {
    let mut here = false;
    let mut last: Option<String> = None;
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = content
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            here = matches!(section.trim(), "global" | "install");
            last = None;
        } else if line.starts_with([' ', '\t']) && last.is_some() {
            if let Some(value) = last.as_ref().and_then(|name| options.get_mut(name)) {
                value.push('\n');
                value.push_str(content);
            }
        } else if here && let Some((name, value)) = content.split_once(['=', ':']) {
            let name = name.trim().to_ascii_lowercase().replace('_', "-");
            options.insert(name.clone(), value.trim().to_owned());
            last = Some(name);
        } else {
            last = None;
        }
    }
}

#[cfg(test)]
mod tests;
