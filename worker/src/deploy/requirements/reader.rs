//! Follows the lines of `requirements.txt` and of what it includes, and judges each.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use ramen_group::{Finding, Reason};

use super::super::sha256_hex;
use super::line::{self, LogicalLine, Source, Word};
use super::{LocalSource, Place, Plan, has_extension, normalise, wheel_name};

/// How deep `-r` may nest.
const MAX_DEPTH: usize = 16;
/// The size of one requirements file.
const MAX_FILE: u64 = 1 << 20;
/// The name of the built-in helper package.
const BUILT_IN: &str = "ramen-runtime";

pub(super) struct Reader<'a> {
    root: &'a Path,
    allow_sources: bool,
    plan: Plan,
    open: Vec<PathBuf>,
    hashed: Option<Place>,
    unhashed_url: Vec<(String, Place)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Path, allow_sources: bool) -> Self {
        Self {
            root,
            allow_sources,
            plan: Plan::default(),
            open: Vec::new(),
            hashed: None,
            unhashed_url: Vec::new(),
        }
    }

    /// Reads one file; `from` is the line that includes it.
    pub(super) fn file(&mut self, relative: &Path, constraint: bool, from: Option<&Place>) {
        let shown = format!("mcp/{}", relative.display());
        let fail = |message: String| match from {
            Some(place) => fault(place, message),
            None => Finding::group(Reason::RequirementsInvalid, message).at_path(shown.clone()),
        };
        if self.open.iter().any(|open| open == relative) {
            let finding = fail(format!("{shown} includes itself"));
            self.plan.errors.push(finding);
            return;
        }
        if self.open.len() >= MAX_DEPTH {
            let finding = fail(format!("files are included more than {MAX_DEPTH} deep"));
            self.plan.errors.push(finding);
            return;
        }
        let text = match read_inside(self.root, relative) {
            Ok(text) => text,
            Err(why) => {
                let finding = fail(format!("{shown} {why}"));
                self.plan.errors.push(finding);
                return;
            }
        };
        self.open.push(relative.to_path_buf());
        for LogicalLine { number, text } in line::logical_lines(&text) {
            let place = Place {
                path: shown.clone(),
                line: number,
            };
            if let Err(message) = self.line(&text, relative, constraint, &place) {
                self.plan.errors.push(fault(&place, message));
            }
        }
        self.open.pop();
    }

    fn line(
        &mut self,
        text: &str,
        file: &Path,
        constraint: bool,
        place: &Place,
    ) -> Result<(), String> {
        if text.contains("${") {
            return Err("environment variables are not expanded here: write the value".into());
        }
        match line::parse(text)? {
            Word::Include {
                path,
                constraint: is_constraint,
            } => {
                let base = file.parent().unwrap_or(Path::new(""));
                let target = inside(&base.join(&path)).ok_or_else(|| {
                    format!("`{path}` is not a file under mcp/: only those can be included")
                })?;
                self.file(&target, constraint || is_constraint, Some(place));
                Ok(())
            }
            Word::Pre => {
                self.plan.pre = true;
                Ok(())
            }
            Word::Harmless => Ok(()),
            Word::NoBinary(_) if !self.allow_sources => Err(needs_sources("--no-binary")),
            Word::NoBinary(what) => {
                self.plan.no_binary.push(what);
                Ok(())
            }
            Word::Editable(target) => {
                self.plan.warnings.push(
                    Finding::group(
                        Reason::RequirementsInvalid,
                        format!("`-e {target}` is installed as `{target}`: a served revision never changes in place"),
                    )
                    .at_path(place.path.clone())
                    .at(place.line, 1),
                );
                match line::parse(&target)? {
                    Word::Requirement {
                        source,
                        extras,
                        marker,
                        hashes,
                    } => self.requirement(&source, &extras, &marker, hashes, constraint, place),
                    _ => Err(format!("`-e {target}` names no folder")),
                }
            }
            Word::Requirement {
                source,
                extras,
                marker,
                hashes,
            } => self.requirement(&source, &extras, &marker, hashes, constraint, place),
        }
    }

    fn requirement(
        &mut self,
        source: &Source,
        extras: &str,
        marker: &str,
        hashes: BTreeSet<String>,
        constraint: bool,
        place: &Place,
    ) -> Result<(), String> {
        if constraint {
            let Source::Named { name, versions } = source else {
                return Err("a constraint is a name with versions, nothing else".into());
            };
            self.plan
                .constraints
                .push(format!("{name}{versions}{marker}"));
            return Ok(());
        }
        if !hashes.is_empty() && self.hashed.is_none() {
            self.hashed = Some(place.clone());
        }
        match source {
            Source::Named { name, .. } if normalise(name) == BUILT_IN => {
                self.plan.warnings.push(
                    Finding::group(
                        Reason::ModuleReserved,
                        format!("`{name}` is not installed: every host has its own, which wins"),
                    )
                    .at_path(place.path.clone())
                    .at(place.line, 1),
                );
                Ok(())
            }
            Source::Named { name, versions } => {
                if !hashes.is_empty() && !versions.starts_with("==") {
                    return Err(format!(
                        "`{name}` has a hash but no version pinned with `==`"
                    ));
                }
                self.pin(name, hashes);
                self.plan
                    .push(format!("{name}{extras}{versions}{marker}"), place.clone());
                Ok(())
            }
            Source::Vcs { text, fixed } => {
                if !self.allow_sources {
                    return Err(needs_sources(text));
                }
                self.unhashed_url.push((text.clone(), place.clone()));
                self.plan.moving |= !fixed;
                self.plan.push(format!("{text}{marker}"), place.clone());
                Ok(())
            }
            Source::Url { name, url, wheel } => {
                if !wheel && !self.allow_sources {
                    return Err(needs_sources(url));
                }
                let name = match (name, wheel_name(url.rsplit('/').next().unwrap_or(url))) {
                    (Some(name), _) => name.clone(),
                    (None, Some((name, _))) => name,
                    (None, None) => return Err(format!("write `name @ {url}`")),
                };
                self.pin(&name, hashes);
                self.plan
                    .push(format!("{name}{extras} @ {url}{marker}"), place.clone());
                Ok(())
            }
            Source::Path(path) => self.path(path, extras, marker, hashes, place),
        }
    }

    fn path(
        &mut self,
        written: &str,
        extras: &str,
        marker: &str,
        hashes: BTreeSet<String>,
        place: &Place,
    ) -> Result<(), String> {
        let relative = inside(Path::new(written))
            .ok_or_else(|| format!("`{written}` does not lie under mcp/"))?;
        let path = self.root.join(&relative);
        if !path.exists() {
            return Err(format!("`{written}` does not exist (paths start at mcp/)"));
        }
        let file = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_file() && has_extension(file, "whl") {
            let (name, version) =
                wheel_name(file).ok_or_else(|| format!("`{file}` is not the name of a wheel"))?;
            let bytes = std::fs::read(&path).map_err(|why| format!("`{written}`: {why}"))?;
            let own = format!("sha256:{}", sha256_hex(&bytes));
            let hashes = if hashes.is_empty() {
                BTreeSet::from([own])
            } else {
                hashes
            };
            self.pin(&name, hashes);
            self.plan
                .wheel_dirs
                .extend(path.parent().map(Path::to_path_buf));
            self.plan
                .push(format!("{name}{extras}=={version}{marker}"), place.clone());
            return Ok(());
        }
        if !self.allow_sources {
            return Err(needs_sources(written));
        }
        self.plan.local.push(LocalSource {
            path,
            extras: extras.to_owned(),
            marker: marker.to_owned(),
            place: place.clone(),
        });
        Ok(())
    }

    fn pin(&mut self, name: &str, hashes: BTreeSet<String>) {
        if !hashes.is_empty() {
            self.plan
                .hashes
                .entry(normalise(name))
                .or_default()
                .extend(hashes);
        }
    }

    /// What was found.
    pub(super) fn finish(mut self) -> Plan {
        if let Some(hashed) = &self.hashed {
            for (text, place) in &self.unhashed_url {
                self.plan.errors.push(fault(
                    place,
                    format!(
                        "`{text}` cannot have a hash, and line {} of {} has one: hashes are all or none",
                        hashed.line, hashed.path
                    ),
                ));
            }
        }
        self.plan
    }
}

fn fault(place: &Place, message: String) -> Finding {
    Finding::group(Reason::RequirementsInvalid, message)
        .at_path(place.path.clone())
        .at(place.line, 1)
}

fn needs_sources(what: &str) -> String {
    format!(
        "`{what}` is built from source, which runs its code at install time and leaves no hash to \
         check: publish a wheel, or allow sources for this group (`--allow-sdist`)"
    )
}

/// `path` without `.` and `..`; `None` when it leaves the folder it starts in.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

fn read_inside(root: &Path, relative: &Path) -> Result<String, String> {
    let path = root.join(relative);
    let real = path
        .canonicalize()
        .map_err(|_| "does not exist".to_owned())?;
    if !root.canonicalize().is_ok_and(|root| real.starts_with(root)) {
        return Err("is a link that leaves mcp/".into());
    }
    let size = std::fs::metadata(&real).map_err(|why| format!("cannot be read: {why}"))?;
    if !size.is_file() {
        return Err("is not a file".into());
    }
    if size.len() > MAX_FILE {
        return Err(format!("is larger than {MAX_FILE} bytes"));
    }
    let bytes = std::fs::read(&real).map_err(|why| format!("cannot be read: {why}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok(text
        .strip_prefix('\u{feff}')
        .map_or_else(|| text.clone(), str::to_owned))
}
