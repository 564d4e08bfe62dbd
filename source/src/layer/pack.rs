//! Making archives.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::{CODE_DIR, Layer, LayerError, Limits, REFUSED_FILE, shown, unsafe_part};
use crate::{Tree, digest::Hashing, tree};

/// What to do with symbolic links in a folder that is packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Links {
    /// Any link is an error.
    #[default]
    Refuse,
    /// A link to a file inside the folder becomes a copy of that file; any other is an error.
    /// Wheels hold no links, but a build step may leave one (`libfoo.so -> libfoo.so.1`).
    CopyFiles,
}

/// How to pack a folder.
#[derive(Debug, Clone, Copy)]
pub struct PackOptions {
    /// Links.
    pub links: Links,
    /// Limits on what goes in.
    pub limits: Limits,
    /// zstd level, 1 (fast) to 19.
    pub level: i32,
}

impl PackOptions {
    /// For installed requirements.
    pub const DEPS: Self = Self {
        links: Links::CopyFiles,
        limits: Limits::DEPS,
        level: 1,
    };
}

/// How far a long operation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files done.
    pub files: u64,
    /// Files in all, once known.
    pub total_files: Option<u64>,
    /// Bytes done.
    pub bytes: u64,
}

enum Content<'a> {
    Bytes(&'a [u8]),
    File(PathBuf),
}

struct Item<'a> {
    content: Content<'a>,
    executable: bool,
}

/// Packs the `mcp/` tree of a walk into a code layer, in a temporary file in `scratch`.
/// What the walk refused goes along as `source.json`.
pub fn pack_tree(tree: &Tree, scratch: &Path) -> Result<Layer, LayerError> {
    let refused = tree::refused_json(tree);
    let mut items: BTreeMap<String, Item<'_>> = tree
        .files
        .iter()
        .map(|file| {
            let content = Content::Bytes(&file.data);
            (
                format!("{CODE_DIR}/{}", file.path),
                Item {
                    content,
                    executable: false,
                },
            )
        })
        .collect();
    if let Some(json) = &refused {
        let content = Content::Bytes(json.as_bytes());
        items.insert(
            REFUSED_FILE.to_owned(),
            Item {
                content,
                executable: false,
            },
        );
    }
    write(&items, true, Limits::CODE, 3, scratch, &mut |_| {})
}

/// Packs a folder (installed requirements) into a temporary file in `scratch`.
///
/// Regular files and folders only; empty folders are left out. `progress` is called after each
/// file.
pub fn pack_dir(
    dir: &Path,
    scratch: &Path,
    options: PackOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Layer, LayerError> {
    let mut items = BTreeMap::new();
    let root = dir.canonicalize().map_err(|source| LayerError::Read {
        path: dir.to_owned(),
        source,
    })?;
    collect(&root, &root, &mut String::new(), options, &mut items)?;
    write(
        &items,
        false,
        options.limits,
        options.level,
        scratch,
        progress,
    )
}

fn collect(
    root: &Path,
    dir: &Path,
    prefix: &mut String,
    options: PackOptions,
    items: &mut BTreeMap<String, Item<'_>>,
) -> Result<(), LayerError> {
    let read = |source| LayerError::Read {
        path: dir.to_owned(),
        source,
    };
    for entry in fs::read_dir(dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let path = shown(entry.path().as_os_str().as_encoded_bytes());
            return Err(LayerError::UnsafePath {
                path,
                what: "not UTF-8",
            });
        };
        let length = prefix.len();
        prefix.push_str(name);
        check_path(prefix, options.limits)?;
        if items.len() as u64 >= options.limits.entries {
            let (path, limit) = (shown(prefix.as_bytes()), options.limits.entries);
            return Err(LayerError::TooLarge {
                path,
                limit,
                unit: "files",
            });
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(read)?;
        if kind.is_dir() {
            prefix.push('/');
            collect(root, &path, prefix, options, items)?;
        } else {
            let file = if kind.is_symlink() {
                follow(root, &path, prefix, options.links)?
            } else if kind.is_file() {
                path
            } else {
                let path = shown(prefix.as_bytes());
                return Err(LayerError::NotAFile {
                    path,
                    what: "a device, pipe or socket",
                });
            };
            let meta = fs::metadata(&file).map_err(read)?;
            let executable = meta.permissions().mode() & 0o111 != 0;
            items.insert(
                prefix.clone(),
                Item {
                    content: Content::File(file),
                    executable,
                },
            );
        }
        prefix.truncate(length);
    }
    Ok(())
}

/// The file that a link leads to, when that is allowed.
fn follow(root: &Path, link: &Path, shown_as: &str, links: Links) -> Result<PathBuf, LayerError> {
    let refuse = |what| LayerError::NotAFile {
        path: shown(shown_as.as_bytes()),
        what,
    };
    if links == Links::Refuse {
        return Err(refuse("a symbolic link"));
    }
    let target = link
        .canonicalize()
        .map_err(|_| refuse("a broken symbolic link"))?;
    if !target.starts_with(root) {
        return Err(refuse("a symbolic link that leaves the folder"));
    }
    if !target.is_file() {
        return Err(refuse("a symbolic link to a folder"));
    }
    Ok(target)
}

fn check_path(path: &str, limits: Limits) -> Result<(), LayerError> {
    if let Some(what) = unsafe_part(path) {
        return Err(LayerError::UnsafePath {
            path: shown(path.as_bytes()),
            what,
        });
    }
    if path.len() as u64 > limits.path_bytes {
        let path = shown(path.as_bytes());
        return Err(LayerError::TooLarge {
            path,
            limit: limits.path_bytes,
            unit: "bytes in a path",
        });
    }
    Ok(())
}

fn write(
    items: &BTreeMap<String, Item<'_>>,
    code: bool,
    limits: Limits,
    level: i32,
    scratch: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Layer, LayerError> {
    let failed = |source| LayerError::write(scratch, source);
    fs::create_dir_all(scratch).map_err(failed)?;
    let temp = NamedTempFile::with_prefix_in(".layer-", scratch).map_err(failed)?;
    let (file, path) = temp.into_parts();
    let hashing = Hashing::new(io::BufWriter::with_capacity(1 << 18, file));
    let encoder = zstd::Encoder::new(hashing, level).map_err(failed)?;
    let mut tar = tar::Builder::new(encoder);

    let total_files = Some(items.len() as u64);
    let mut done = Progress {
        total_files,
        ..Progress::default()
    };
    let mut last_dir = String::new();
    if code {
        // Even a tree without a single file left has its folder.
        folder(&mut tar, CODE_DIR).map_err(failed)?;
        CODE_DIR.clone_into(&mut last_dir);
    }
    for (name, item) in items {
        check_path(name, limits)?;
        folders(&mut tar, name, &mut last_dir).map_err(failed)?;
        let written = entry(&mut tar, name, item, limits)?;
        done.files += 1;
        done.bytes += written;
        if done.bytes > limits.total_bytes {
            let (path, limit) = (shown(name.as_bytes()), limits.total_bytes);
            return Err(LayerError::TooLarge {
                path,
                limit,
                unit: "bytes",
            });
        }
        progress(done);
    }
    let encoder = tar.into_inner().map_err(failed)?;
    let (mut writer, digest, size) = encoder.finish().map_err(failed)?.finish();
    writer.flush().map_err(failed)?;
    Ok(Layer {
        path,
        digest,
        size,
        files: done.files,
        bytes: done.bytes,
    })
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Writes the folders of `name` that the entry before did not have.
fn folders<W: Write>(
    tar: &mut tar::Builder<W>,
    name: &str,
    last_dir: &mut String,
) -> io::Result<()> {
    let Some((dir, _)) = name.rsplit_once('/') else {
        return Ok(());
    };
    for (end, _) in dir.match_indices('/').chain([(dir.len(), "")]) {
        let parent = &dir[..end];
        let known = last_dir
            .strip_prefix(parent)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if !known {
            folder(tar, parent)?;
        }
    }
    dir.clone_into(last_dir);
    Ok(())
}

fn folder<W: Write>(tar: &mut tar::Builder<W>, name: &str) -> io::Result<()> {
    let mut header = header(tar::EntryType::Directory, 0, 0o755);
    tar.append_data(&mut header, name, io::empty())
}

fn entry<W: Write>(
    tar: &mut tar::Builder<W>,
    name: &str,
    item: &Item<'_>,
    limits: Limits,
) -> Result<u64, LayerError> {
    let mode = if item.executable { 0o755 } else { 0o644 };
    let too_large = || LayerError::TooLarge {
        path: shown(name.as_bytes()),
        limit: limits.file_bytes,
        unit: "bytes in one file",
    };
    let failed = |source| LayerError::write(name, source);
    match &item.content {
        Content::Bytes(bytes) => {
            let size = bytes.len() as u64;
            if size > limits.file_bytes {
                return Err(too_large());
            }
            let mut header = header(tar::EntryType::Regular, size, mode);
            tar.append_data(&mut header, name, *bytes).map_err(failed)?;
            Ok(size)
        }
        Content::File(path) => {
            let read = |source| LayerError::Read {
                path: path.clone(),
                source,
            };
            let file = File::open(path).map_err(read)?;
            let size = file.metadata().map_err(read)?.len();
            if size > limits.file_bytes {
                return Err(too_large());
            }
            let mut header = header(tar::EntryType::Regular, size, mode);
            let mut reader = Exactly {
                inner: file,
                left: size,
            };
            tar.append_data(&mut header, name, &mut reader)
                .map_err(|source| {
                    // An early end is the source's fault, everything else the archive's.
                    if source.kind() == io::ErrorKind::UnexpectedEof {
                        read(source)
                    } else {
                        failed(source)
                    }
                })?;
            Ok(size)
        }
    }
}

/// Gives exactly `left` bytes: a file that shrinks meanwhile is an error, one that grows is cut.
struct Exactly<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let room = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let n = self.inner.read(&mut buf[..room])?;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was read",
            ));
        }
        self.left -= n as u64;
        Ok(n)
    }
}
