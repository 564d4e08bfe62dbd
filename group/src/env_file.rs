//! `mcp/env.yaml`: environment of the group's code.

use std::fmt;

use indexmap::IndexMap;

use crate::{Finding, Reason, SecretTable, yaml};

/// The file, parsed: keys with values in which secret references are not yet resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvFile {
    /// In the order of the file.
    pub entries: Vec<(String, String)>,
}

/// [`EnvFile`] with the references resolved. Prints names only.
#[derive(Default)]
pub struct ResolvedEnv {
    /// What to export.
    pub vars: Vec<(String, String)>,
    /// One entry ([`Reason::EnvSkipped`]) for each key left out.
    pub warnings: Vec<Finding>,
}

impl fmt::Debug for ResolvedEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.vars.iter().map(|(name, _)| name).collect();
        f.debug_struct("ResolvedEnv")
            .field("names", &names)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// Why no variable of this name is handed to the code, whoever sets it.
pub fn variable_refusal(name: &str) -> Option<&'static str> {
    let mut bytes = name.bytes();
    let named = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= 128;
    if !named {
        return Some("is not a name of an environment variable");
    }
    if name.starts_with("RAMEN_") {
        return Some("starts with RAMEN_, which is kept for Ramen itself");
    }
    changes_loading(name).then_some("would change how programs are loaded")
}

/// Whether a variable is one of the dynamic loader's.
pub fn changes_loading(name: &str) -> bool {
    name.starts_with("LD_")
}

/// Why a key cannot be exported.
fn refusal(key: &str, value: &str) -> Option<&'static str> {
    variable_refusal(key).or_else(|| {
        let nul = value.contains('\0');
        nul.then_some("has a NUL character in its value")
    })
}

impl EnvFile {
    /// Reads the file. Keys that cannot be exported are left out with an entry, the rest applies.
    pub fn parse(bytes: &[u8]) -> (Self, Vec<Finding>) {
        let map: Option<IndexMap<String, Option<String>>> =
            match yaml::read(bytes, Reason::EnvInvalid) {
                Ok(map) => map,
                Err(finding) => return (Self::default(), vec![finding]),
            };
        let mut file = Self::default();
        let mut findings = Vec::new();
        for (key, value) in map.unwrap_or_default() {
            let value = value.unwrap_or_default();
            match refusal(&key, &value) {
                None => file.entries.push((key, value)),
                Some(why) => {
                    let key: String = key.chars().take(64).collect();
                    findings.push(Finding::group(Reason::EnvInvalid, format!("`{key}` {why}")));
                }
            }
        }
        (file, findings)
    }

    /// What the code gets: the keys of this file, and over them what the platform sets. The file holds the author's
    /// defaults; whoever runs the group knows what holds where it runs.
    ///
    /// `{{$group.NAME}}` is resolved in the file alone; a key with a reference that has no secret behind it is skipped
    /// with a warning, the rest still applies.
    pub fn resolve(&self, secrets: &SecretTable, platform: &[(String, String)]) -> ResolvedEnv {
        let mut resolved = ResolvedEnv::default();
        for (key, value) in &self.entries {
            if platform.iter().any(|(name, _)| name == key) {
                continue;
            }
            match secrets.resolve(value) {
                Ok(value) => resolved.vars.push((key.clone(), value.into_owned())),
                Err(fault) => resolved.warnings.push(
                    Finding::group(Reason::EnvSkipped, format!("`{key}` is not set: {fault}"))
                        .at_path("mcp/env.yaml"),
                ),
            }
        }
        resolved.vars.extend_from_slice(platform);
        resolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_written() {
        let text = "\u{feff}# c\r\nMODE: demo\r\nPORT: 8080\nVERSION: 1.10\nON: true\nEMPTY:\nQ: \"a: b\"\n";
        let (file, findings) = EnvFile::parse(text.as_bytes());
        assert_eq!(findings, []);
        let got: Vec<_> = file.entries.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(
            got,
            [
                ("MODE", "demo"),
                ("PORT", "8080"),
                ("VERSION", "1.10"),
                ("ON", "true"),
                ("EMPTY", ""),
                ("Q", "a: b"),
            ]
        );
    }

    #[test]
    fn bad_keys_are_named_and_the_rest_applies() {
        let (file, findings) = EnvFile::parse(b"RAMEN_KEY: x\nLD_PRELOAD: y\n1x: z\nGOOD: v\n");
        assert_eq!(file.entries, [("GOOD".to_owned(), "v".to_owned())]);
        assert_eq!(findings.len(), 3);
        assert!(
            findings
                .iter()
                .all(|finding| finding.reason == Reason::EnvInvalid)
        );
    }

    #[test]
    fn files_that_are_not_flat_are_refused_with_a_place() {
        for text in ["- a\n- b\n", "A:\n  B: c\n", "A: 1\nA: 2\n", "A: [1\n"] {
            let (file, findings) = EnvFile::parse(text.as_bytes());
            assert_eq!(file, EnvFile::default(), "{text}");
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
            assert!(findings[0].line.is_some(), "{text}: {findings:?}");
        }
        assert_eq!(EnvFile::parse(b"# nothing\n"), (EnvFile::default(), vec![]));
    }

    #[test]
    fn a_reference_without_a_secret_skips_its_key_only() {
        let (file, _) = EnvFile::parse(b"A: \"{{$g.KEY}}\"\nB: \"{{$g.NOPE}}\"\nC: c\n");
        let secrets = SecretTable::from_env(
            "g",
            [("RAMEN_SECRET_G__KEY".to_owned(), "s3cr3t".to_owned())],
        );
        let resolved = file.resolve(&secrets, &[]);
        assert!(!format!("{resolved:?}").contains("s3cr3t"));
        assert_eq!(
            resolved.vars,
            [
                ("A".to_owned(), "s3cr3t".to_owned()),
                ("C".to_owned(), "c".to_owned())
            ]
        );
        assert_eq!(resolved.warnings.len(), 1);
        assert!(resolved.warnings[0].message.contains("{{$g.NOPE}}"));
    }

    #[test]
    fn what_the_platform_sets_wins_over_the_file_and_is_taken_as_it_is() {
        let (file, _) = EnvFile::parse(b"API: test\nMODE: m\nKEY: \"{{$g.NOPE}}\"\n");
        let platform = [("API", "prod"), ("KEY", "{{$g.NOPE}}"), ("EMPTY", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let resolved = file.resolve(&SecretTable::from_env("g", []), &platform);
        let vars: Vec<_> = resolved
            .vars
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(
            vars,
            [
                ("MODE", "m"),
                ("API", "prod"),
                ("KEY", "{{$g.NOPE}}"),
                ("EMPTY", "")
            ]
        );
        // Nothing is missing: the key of the file does not count.
        assert_eq!(resolved.warnings, []);
    }
}
