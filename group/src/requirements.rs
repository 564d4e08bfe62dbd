//! `mcp/requirements.txt`: checked line by line, never resolved here.
//!
//! Paths: `-r` and `-c` are taken from the file that has them, local packages (`./libs/pkg`) from
//! `mcp/`; both must stay within `mcp/`.

use std::path::{Component, Path, PathBuf};

use crate::{Finding, Reason, json};

/// Options that may stand in a requirements file. Everything else is the installer's business and is
/// set where the installer runs.
pub const ALLOWED_OPTIONS: &[&str] = &[
    "-r",
    "--requirement",
    "-c",
    "--constraint",
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--no-index",
    "--pre",
    "--prefer-binary",
    "--only-binary",
    "--require-hashes",
];

/// Files that may include each other.
const MAX_FILES: usize = 32;

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

/// A line with its continuations joined and its comment taken off.
struct Line {
    number: u32,
    text: String,
}

fn logical_lines(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open: Option<Line> = None;
    for (n, raw) in text.lines().enumerate() {
        let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
        let comment = raw.trim_start().starts_with('#');
        let (part, goes_on) = match raw.strip_suffix('\\') {
            Some(part) if !comment => (part, true),
            _ => (raw, false),
        };
        let mut line = open.take().unwrap_or(Line {
            number,
            text: String::new(),
        });
        if !comment {
            line.text.push_str(part);
        }
        if goes_on {
            open = Some(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(open);
    for line in &mut lines {
        let cut = line
            .text
            .match_indices('#')
            .map(|(at, _)| at)
            .find(|at| *at == 0 || line.text.as_bytes()[at - 1].is_ascii_whitespace());
        if let Some(at) = cut {
            line.text.truncate(at);
        }
        line.text = line.text.trim().to_owned();
    }
    lines.retain(|line| !line.text.is_empty());
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
    /// Reads `file` (a path from `root`, the `mcp` folder) and what it includes. Errors and warnings
    /// carry path and line.
    pub fn read(root: &Path, bytes: &[u8]) -> (Self, Vec<Finding>, Vec<Finding>) {
        let mut walk = Walk {
            root,
            done: Self::default(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        walk.file(Path::new("requirements.txt"), bytes);
        (walk.done, walk.errors, walk.warnings)
    }
}

struct Walk<'r> {
    root: &'r Path,
    done: Requirements,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Walk<'_> {
    fn file(&mut self, file: &Path, bytes: &[u8]) {
        let path = format!("mcp/{}", file.display());
        let Ok(text) = json::decode(bytes) else {
            let finding = Finding::group(Reason::RequirementsInvalid, "the file is not UTF-8");
            return self.errors.push(finding.at_path(path));
        };
        if file == Path::new("requirements.txt") {
            text.clone_into(&mut self.done.text);
        }
        for line in logical_lines(text) {
            if let Err(message) = self.line(file, &line.text) {
                self.errors.push(Finding {
                    line: Some(line.number),
                    ..Finding::group(Reason::RequirementsInvalid, message).at_path(&*path)
                });
            }
            if self
                .done
                .names
                .last()
                .is_some_and(|name| name == "ramen-runtime")
            {
                self.done.names.pop();
                let message = "`ramen_runtime` is built in; the installed one is never imported";
                self.warnings.push(Finding {
                    line: Some(line.number),
                    ..Finding::group(Reason::ModuleReserved, message).at_path(&*path)
                });
            }
        }
    }

    fn line(&mut self, file: &Path, line: &str) -> Result<(), String> {
        if !line.starts_with('-') {
            self.done.wants_anything = true;
            self.done.names.extend(name_of(line));
            return trailing_options(line);
        }
        let (option, value) = split_option(line);
        match option {
            "-r" | "--requirement" | "-c" | "--constraint" => self.include(file, option, value),
            "-e" | "--editable" => Err(
                "an editable install cannot be put in an artifact; write the path without `-e`"
                    .to_owned(),
            ),
            _ if ALLOWED_OPTIONS.contains(&option) => Ok(()),
            _ => Err(format!(
                "the option `{}` is not allowed here",
                option.chars().take(40).collect::<String>()
            )),
        }
    }

    fn include(&mut self, file: &Path, option: &str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err(format!("`{option}` needs a file"));
        }
        let shown: String = value.chars().take(100).collect();
        let base = file.parent().unwrap_or(Path::new(""));
        let path = inner(base, value)
            .filter(|_| !value.contains("://"))
            .ok_or_else(|| format!("`{shown}` does not lie within mcp/"))?;
        let name = path.display().to_string();
        if self.done.includes.contains(&name) || path == Path::new("requirements.txt") {
            return Ok(());
        }
        if self.done.includes.len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files are included"));
        }
        let full = self.root.join(&path);
        let bytes = match std::fs::symlink_metadata(&full) {
            Ok(meta) if meta.is_file() && meta.len() <= 1 << 20 => std::fs::read(&full).ok(),
            _ => None,
        };
        let bytes = bytes.ok_or_else(|| format!("`{shown}` is not a file that can be read"))?;
        self.done.includes.push(name);
        self.file(&path, &bytes);
        Ok(())
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

/// Options behind a requirement: only hashes.
fn trailing_options(line: &str) -> Result<(), String> {
    let bad = line
        .split_whitespace()
        .skip(1)
        .find(|word| word.starts_with("--") && !word.starts_with("--hash"));
    match bad {
        None => Ok(()),
        Some(word) => {
            let word: String = word.chars().take(40).collect();
            Err(format!(
                "the option `{word}` is not allowed behind a requirement"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Requirements, Vec<Finding>, Vec<Finding>) {
        let dir = tempfile::tempdir().unwrap();
        Requirements::read(dir.path(), text.as_bytes())
    }

    #[test]
    fn req01_any_way_of_writing_lines_is_read() {
        let text = "\u{feff}# c\r\n\r\nnumpy>=2 # why\r\nRequests[socks] \\\r\n  >=2,<3\r\na_b.c==1 \\\n --hash=sha256:00\ngit+https://x/y@z#egg=y";
        let (requirements, errors, _) = read(text);
        assert_eq!(errors, []);
        assert!(requirements.wants_anything);
        assert_eq!(requirements.names, ["numpy", "requests", "a-b-c"]);
        assert!(!read("# only\n\n").0.wants_anything);
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
        let text = b"-r more/extra.txt\n./libs/pkg\n-e ./libs/pkg\n-r ../up.txt\n-r https://x/y\n";
        let (requirements, errors, _) = Requirements::read(dir.path(), text);
        assert_eq!(requirements.includes, ["more/extra.txt", "more/deep.txt"]);
        assert_eq!(requirements.names, ["six"]);
        let places: Vec<_> = errors
            .iter()
            .map(|e| (e.path.as_deref().unwrap(), e.line.unwrap()))
            .collect();
        assert_eq!(
            places,
            [
                ("mcp/more/extra.txt", 2),
                ("mcp/requirements.txt", 3),
                ("mcp/requirements.txt", 4),
                ("mcp/requirements.txt", 5),
            ]
        );
    }

    #[test]
    fn req09_a_requirement_of_the_built_in_module_is_remarked_on() {
        let (_, errors, warnings) = read("ramen_runtime==1\nnumpy\n");
        assert_eq!(errors, []);
        assert_eq!(
            (warnings[0].reason, warnings[0].line),
            (Reason::ModuleReserved, Some(1))
        );
    }

    #[test]
    fn req10_options_are_the_listed_ones() {
        let good = "--extra-index-url https://x/simple\n--find-links=./wheels\n--pre\n-i https://y\n-f w\n--only-binary :all:\n";
        assert_eq!(read(good).1, []);
        let (_, errors, _) =
            read("six\n--trusted-host x\n\nnumpy --global-option=y\n--no-binary :all:\n");
        let lines: Vec<_> = errors.iter().map(|e| e.line.unwrap()).collect();
        assert_eq!(lines, [2, 4, 5]);
        assert!(
            errors
                .iter()
                .all(|e| e.reason == Reason::RequirementsInvalid)
        );
    }
}
