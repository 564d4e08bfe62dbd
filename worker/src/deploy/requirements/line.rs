//! One line of a requirements file: joined, stripped of comments, and told apart.

use std::collections::BTreeSet;

/// A line after continuation lines were joined and comments dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogicalLine {
    /// Where it starts, from 1.
    pub(super) number: u32,
    /// Never empty.
    pub(super) text: String,
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// `-r`, `-c`.
    Include { path: String, constraint: bool },
    /// `--pre`.
    Pre,
    /// An option that changes nothing here.
    Harmless,
    /// `--no-binary`.
    NoBinary(String),
    /// `-e`, with the rest of its line.
    Editable(String),
    /// A package.
    Requirement {
        source: Source,
        extras: String,
        marker: String,
        hashes: BTreeSet<String>,
    },
}

/// Where a package comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The index: `versions` is `==1.0`, or nothing.
    Named { name: String, versions: String },
    /// Version control; `fixed` when a whole commit id is named.
    Vcs { text: String, fixed: bool },
    /// A file elsewhere.
    Url {
        name: Option<String>,
        url: String,
        wheel: bool,
    },
    /// A file or folder of the repo.
    Path(String),
}

/// Options that mean what Ramen does anyway, or nothing for one resolution.
const HARMLESS: [&str; 3] = ["--require-hashes", "--prefer-binary", "--only-binary"];
/// Options that choose where packages come from.
const INDEX: [&str; 7] = [
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--no-index",
    "--trusted-host",
];
const VCS: [&str; 4] = ["git+", "hg+", "svn+", "bzr+"];
const ARCHIVES: [&str; 6] = [".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz"];

/// Splits a file as pip does: `\` at the end joins lines, ` #` starts a comment.
pub(super) fn logical_lines(text: &str) -> Vec<LogicalLine> {
    let mut lines = Vec::new();
    let mut current: Option<LogicalLine> = None;
    for (index, raw) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let comment = raw.trim_start().starts_with('#');
        let (piece, goes_on) = match raw.strip_suffix('\\') {
            Some(piece) if !comment => (piece, true),
            _ => (raw, false),
        };
        let line = current.get_or_insert_with(|| LogicalLine {
            number,
            text: String::new(),
        });
        if !comment {
            line.text.push_str(piece);
        }
        if !goes_on {
            lines.extend(current.take());
        }
    }
    lines.extend(current);
    lines
        .into_iter()
        .map(|line| LogicalLine {
            text: without_comment(&line.text).trim().to_owned(),
            ..line
        })
        .filter(|line| !line.text.is_empty())
        .collect()
}

fn without_comment(text: &str) -> &str {
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        if c == '#' && previous.is_whitespace() {
            return &text[..at];
        }
        previous = c;
    }
    text
}

/// Tells a line apart.
pub(super) fn parse(text: &str) -> Result<Word, String> {
    if text.starts_with('-') {
        option(text)
    } else {
        requirement(text)
    }
}

fn option(text: &str) -> Result<Word, String> {
    let (name, value) = split_option(text);
    let value = unquote(value);
    if INDEX.contains(&name) {
        return Err(format!(
            "`{name}` is not allowed: who runs the deploy chooses the index (PIP_INDEX_URL, \
             PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS), not the repo"
        ));
    }
    if HARMLESS.contains(&name) {
        return Ok(Word::Harmless);
    }
    let needs_value = |word: fn(String) -> Word| {
        if value.is_empty() {
            Err(format!("`{name}` needs a value"))
        } else {
            Ok(word(value.to_owned()))
        }
    };
    match name {
        "-r" | "--requirement" => needs_value(|path| Word::Include {
            path,
            constraint: false,
        }),
        "-c" | "--constraint" => needs_value(|path| Word::Include {
            path,
            constraint: true,
        }),
        "-e" | "--editable" => needs_value(Word::Editable),
        "--no-binary" => needs_value(Word::NoBinary),
        "--pre" => Ok(Word::Pre),
        _ => Err(format!(
            "`{name}` is not allowed; allowed are -r, -c, -e, --hash, --pre, --require-hashes, \
             --prefer-binary, --only-binary and, where sources are, --no-binary"
        )),
    }
}

/// `-r x`, `-rx`, `--requirement x`, `--requirement=x`.
fn split_option(text: &str) -> (&str, &str) {
    if text.starts_with("--") {
        let end = text
            .find(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or(text.len());
        (&text[..end], text[end..].trim_start_matches('=').trim())
    } else {
        let end = text.char_indices().nth(2).map_or(text.len(), |(at, _)| at);
        (&text[..end], text[end..].trim_start_matches('=').trim())
    }
}

fn unquote(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
        {
            return inner;
        }
    }
    text
}

fn requirement(text: &str) -> Result<Word, String> {
    let (text, hashes) = take_hashes(text)?;
    let is_url = text.contains("://");
    let (body, marker) = split_marker(&text, is_url);
    let (body, marker) = (body.trim(), marker.trim());
    // Directly behind the `;` it was no word of its own above, but it becomes one in our text.
    refuse_option(marker)?;
    let marker = if marker.is_empty() {
        String::new()
    } else {
        format!(" ; {marker}")
    };

    if is_path(body) {
        let (path, extras) = split_extras(body);
        return Ok(Word::Requirement {
            source: Source::Path(path.to_owned()),
            extras: extras.to_owned(),
            marker,
            hashes,
        });
    }
    let (head, url) = match body.split_once('@') {
        Some((head, url)) if !head.contains("://") && is_url => (Some(head.trim()), url.trim()),
        _ if is_url => (None, body),
        _ => {
            let (source, extras) = named(body)?;
            return Ok(Word::Requirement {
                source,
                extras,
                marker,
                hashes,
            });
        }
    };
    let (name, extras) = match head {
        None => (None, String::new()),
        Some(head) => {
            let (source, extras) = named(head)?;
            let Source::Named { name, versions } = source else {
                return Err(bad(body));
            };
            if !versions.is_empty() {
                return Err(bad(body));
            }
            (Some(name), extras)
        }
    };
    let source = from_url(name.as_deref(), &extras, url)?;
    Ok(Word::Requirement {
        source,
        extras,
        marker,
        hashes,
    })
}

fn take_hashes(text: &str) -> Result<(String, BTreeSet<String>), String> {
    let mut hashes = BTreeSet::new();
    let mut rest = String::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--hash") {
            Some("") => words.next().unwrap_or_default(),
            Some(value) if value.starts_with('=') => &value[1..],
            _ => {
                refuse_option(word)?;
                if !rest.is_empty() {
                    rest.push(' ');
                }
                rest.push_str(word);
                continue;
            }
        };
        let length = match value.split_once(':') {
            Some(("sha256", digest)) if is_hex(digest) => digest.len() == 64,
            Some(("sha384", digest)) if is_hex(digest) => digest.len() == 96,
            Some(("sha512", digest)) if is_hex(digest) => digest.len() == 128,
            _ => false,
        };
        if !length {
            return Err(
                "a hash is `sha256:` (or sha384, sha512) with its hexadecimal digits".into(),
            );
        }
        hashes.insert(value.to_ascii_lowercase());
    }
    Ok((rest, hashes))
}

/// Nothing that the installer could take for an option of its own.
fn refuse_option(text: &str) -> Result<(), String> {
    if !text.starts_with('-') {
        return Ok(());
    }
    let end = text.find(|c: char| c == '=' || c.is_whitespace());
    let name = &text[..end.unwrap_or(text.len())];
    Err(format!(
        "`{name}` is not allowed after a requirement; only --hash is"
    ))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A marker starts at `;`, after a URL only at ` ;`.
fn split_marker(text: &str, is_url: bool) -> (&str, &str) {
    let at = if is_url {
        text.find(" ;")
    } else {
        text.find(';')
    };
    match at {
        Some(at) => (&text[..at], text[at..].trim_start().trim_start_matches(';')),
        None => (text, ""),
    }
}

fn is_path(body: &str) -> bool {
    let (path, _) = split_extras(body);
    let lower = path.to_ascii_lowercase();
    !VCS.iter().any(|vcs| lower.starts_with(vcs))
        && (path.starts_with("./")
            || path.starts_with("../")
            || path.starts_with('/')
            || path == "."
            || path == ".."
            || (!path.contains("://")
                && !path.contains('@')
                && (path.contains('/') || ARCHIVES.iter().any(|end| lower.ends_with(end)))))
}

fn split_extras(body: &str) -> (&str, &str) {
    match body.find('[') {
        Some(at) if body.ends_with(']') => (body[..at].trim_end(), &body[at..]),
        _ => (body, ""),
    }
}

/// `name[extra] >=1, <2`.
fn named(body: &str) -> Result<(Source, String), String> {
    let end = super::name_of(body).len();
    let name = &body[..end];
    let fits = |c: char| c.is_ascii_alphanumeric();
    if !name.starts_with(fits) || !name.ends_with(fits) {
        return Err(bad(body));
    }
    let mut rest = body[end..].trim_start();
    let mut extras = String::new();
    if rest.starts_with('[') {
        let close = rest.find(']').ok_or_else(|| bad(body))?;
        extras = rest[..=close].split_whitespace().collect();
        rest = rest[close + 1..].trim_start();
    }
    let versions = rest
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(rest);
    let versions: String = versions.split_whitespace().collect::<Vec<_>>().join(" ");
    if !versions.is_empty() && !versions.starts_with(['<', '>', '=', '!', '~']) {
        return Err(bad(body));
    }
    Ok((
        Source::Named {
            name: name.to_owned(),
            versions,
        },
        extras,
    ))
}

fn from_url(name: Option<&str>, extras: &str, url: &str) -> Result<Source, String> {
    if url.contains(char::is_whitespace) {
        return Err("the address holds a blank".into());
    }
    let lower = url.to_ascii_lowercase();
    let vcs = VCS.iter().any(|vcs| lower.starts_with(vcs));
    let parsed = url::Url::parse(url).map_err(|_| "the address cannot be read".to_owned())?;
    if parsed.password().is_some() || (!parsed.username().is_empty() && !vcs) {
        return Err(
            "an address must not hold credentials: give them to who runs the deploy".into(),
        );
    }
    if vcs {
        let text = match name {
            Some(name) => format!("{name}{extras} @ {url}"),
            None => url.to_owned(),
        };
        return Ok(Source::Vcs {
            text,
            fixed: has_commit(&parsed),
        });
    }
    if parsed.scheme() != "https" {
        return Err(format!(
            "`{}:` addresses are not allowed: only https",
            parsed.scheme()
        ));
    }
    let path = parsed.path().to_ascii_lowercase();
    Ok(Source::Url {
        name: name.map(str::to_owned),
        url: url.to_owned(),
        wheel: super::has_extension(&path, "whl"),
    })
}

fn has_commit(url: &url::Url) -> bool {
    url.path()
        .rsplit_once('@')
        .is_some_and(|(_, commit)| commit.len() == 40 && is_hex(commit))
}

fn bad(text: &str) -> String {
    format!("`{text}` is not a requirement (a name, then versions such as `>=1.0`)")
}
