//! `mcp/requirements.txt`, as far as a scan needs it: whether it asks for anything, for which
//! packages, and which files it includes. Whether its lines may stand there is judged by the deploy
//! step, which hands them to the installer.

use std::path::{Component, Path, PathBuf};

use crate::json;

/// Files that may include each other.
const MAX_FILES: usize = 32;
/// Largest of them.
const MAX_BYTES: u64 = 1 << 20;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The text without a BOM.
    pub text: String,
    /// Whether any line asks for something (not only comments and blanks).
    pub wants_anything: bool,
    /// Files that `-r` and `-c` name, from `mcp/`, including nested ones.
    pub includes: Vec<String>,
    /// Normalised names of the required packages (`a-b`), where a line has one.
    pub names: Vec<String>,
}

/// Lines with their continuations joined and their comments taken off.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for raw in text.lines() {
        let comment = raw.trim_start().starts_with('#');
        let (part, goes_on) = match raw.strip_suffix('\\') {
            Some(part) if !comment => (part, true),
            _ => (raw, false),
        };
        let part = if comment { "" } else { part };
        match lines.last_mut().filter(|_| open) {
            Some(line) => line.push_str(part),
            None => lines.push(part.to_owned()),
        }
        open = goes_on;
    }
    for line in &mut lines {
        let cut = line
            .match_indices('#')
            .map(|(at, _)| at)
            .find(|at| *at == 0 || line.as_bytes()[at - 1].is_ascii_whitespace());
        if let Some(at) = cut {
            line.truncate(at);
        }
        line.trim().to_owned().clone_into(line);
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// The name at the start of a requirement, as PEP 503 normalises it.
fn name_of(line: &str) -> Option<String> {
    let length = line
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        .count();
    let (name, rest) = line.split_at(length);
    let rest = rest.trim_start();
    let is_name =
        rest.is_empty() || rest.starts_with(['=', '<', '>', '!', '~', '[', ';', '@', '(', '-']);
    if !is_name || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let mut normal = String::new();
    for c in name.chars() {
        let c = if matches!(c, '_' | '.' | '-') {
            '-'
        } else {
            c.to_ascii_lowercase()
        };
        if c != '-' || !normal.ends_with('-') {
            normal.push(c);
        }
    }
    Some(normal)
}

/// A path that stays within `mcp/`, cleaned.
fn inner(base: &Path, text: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in base.join(text).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!path.as_os_str().is_empty()).then_some(path)
}

impl Requirements {
    /// Reads the file and what it includes; `root` is the `mcp` folder.
    pub fn read(root: &Path, bytes: &[u8]) -> Self {
        let mut done = Self::default();
        done.file(root, Path::new("requirements.txt"), bytes);
        done
    }

    fn file(&mut self, root: &Path, file: &Path, bytes: &[u8]) {
        let Ok(text) = json::decode(bytes) else {
            return;
        };
        if file == Path::new("requirements.txt") {
            text.clone_into(&mut self.text);
        }
        for line in logical_lines(text) {
            if !line.starts_with('-') {
                self.wants_anything = true;
                self.names.extend(name_of(&line));
                continue;
            }
            let (option, value) = split_option(&line);
            match option {
                "-e" | "--editable" => self.wants_anything = true,
                "-r" | "--requirement" | "-c" | "--constraint" => self.include(root, file, value),
                _ => {}
            }
        }
    }

    fn include(&mut self, root: &Path, file: &Path, value: &str) {
        let base = file.parent().unwrap_or(Path::new(""));
        let Some(path) = inner(base, value).filter(|_| !value.contains("://")) else {
            return;
        };
        let name = path.display().to_string();
        let known = self.includes.contains(&name) || path == Path::new("requirements.txt");
        if known || self.includes.len() >= MAX_FILES {
            return;
        }
        let full = root.join(&path);
        let bytes = match std::fs::symlink_metadata(&full) {
            Ok(meta) if meta.is_file() && meta.len() <= MAX_BYTES => std::fs::read(&full).ok(),
            _ => None,
        };
        if let Some(bytes) = bytes {
            self.includes.push(name);
            self.file(root, &path, &bytes);
        }
    }
}

/// `--opt=value`, `--opt value`, `-rvalue`.
fn split_option(line: &str) -> (&str, &str) {
    let end = line
        .find(|c: char| c.is_whitespace() || c == '=')
        .unwrap_or(line.len());
    let (option, rest) = line.split_at(end);
    let value = rest
        .trim_start_matches(|c: char| c.is_whitespace() || c == '=')
        .trim();
    if !option.starts_with("--") && option.len() > 2 && option.is_char_boundary(2) {
        let (short, attached) = line.split_at(2);
        return (short, attached.trim());
    }
    (option, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Requirements {
        let dir = tempfile::tempdir().unwrap();
        Requirements::read(dir.path(), text.as_bytes())
    }

    #[test]
    fn req01_any_way_of_writing_lines_is_read() {
        let text = "\u{feff}# c\r\n\r\nnumpy>=2 # why\r\nRequests[socks] \\\r\n  >=2,<3\r\na_b.c==1 \\\n --hash=sha256:00\ngit+https://x/y@z#egg=y";
        let requirements = read(text);
        assert!(requirements.wants_anything);
        assert_eq!(requirements.names, ["numpy", "requests", "a-b-c"]);
        assert!(!read("# only\n\n--pre\n").wants_anything);
        assert!(read("-e ./libs/x").wants_anything);
    }

    #[test]
    fn req02_includes_are_taken_from_their_file_and_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("more")).unwrap();
        std::fs::write(dir.path().join("more/extra.txt"), "-r deep.txt\n--bad\n").unwrap();
        std::fs::write(
            dir.path().join("more/deep.txt"),
            "six\n-r ../requirements.txt\n",
        )
        .unwrap();
        let text = b"-rmore/extra.txt\n./libs/pkg\n-r ../up.txt\n-r https://x/y\n--requirement=/etc/passwd\n";
        let requirements = Requirements::read(dir.path(), text);
        assert_eq!(requirements.includes, ["more/extra.txt", "more/deep.txt"]);
        assert_eq!(requirements.names, ["six"]);
    }
}
