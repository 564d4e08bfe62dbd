//! Walking a working folder, by the same rules as a git tree.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ramen_group::strays::is_litter;
use sha2::{Digest as _, Sha256};

use super::{Node, NodeKind, Tree, TreeError, TreeLimits, select, select::too_many};
use crate::layer::CODE_DIR;

/// The `mcp` folder of `dir`: `dir/mcp`, or `dir` itself when it has the layout of one.
fn mcp_folder(dir: &Path) -> Result<PathBuf, TreeError> {
    let below = dir.join(CODE_DIR);
    let missing = || TreeError::Missing {
        path: below.display().to_string(),
    };
    match fs::symlink_metadata(&below) {
        Ok(meta) if meta.is_dir() => return Ok(below),
        Ok(_) => return Err(missing()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(TreeError::Read {
                path: below,
                source: source.into(),
            });
        }
    }
    let named = dir
        .canonicalize()
        .is_ok_and(|d| d.file_name().is_some_and(|n| n == CODE_DIR));
    let laid_out = ["tools", "resources", "prompts"]
        .iter()
        .any(|kind| dir.join(kind).is_dir());
    if named || laid_out {
        Ok(dir.to_owned())
    } else {
        Err(missing())
    }
}

/// Walks the working folder that contains `mcp/` (or is the `mcp` folder). What interpreters and
/// editors leave behind is passed over. The id is `dir-` and a hash of paths and contents.
pub fn walk_folder(dir: &Path, limits: &TreeLimits) -> Result<Tree, TreeError> {
    let root = mcp_folder(dir)?;
    let mut nodes = Vec::new();
    let mut parts = Vec::new();
    list(&root, &mut parts, limits, &mut nodes)?;
    let mut tree = select(String::new(), nodes, limits, |node| {
        fs::read(&node.handle).map_err(|source| TreeError::Read {
            path: node.handle.clone(),
            source: source.into(),
        })
    })?;
    tree.id = folder_id(&tree);
    Ok(tree)
}

fn folder_id(tree: &Tree) -> String {
    let mut hash = Sha256::new();
    for file in &tree.files {
        for bytes in [file.path.as_bytes(), &file.data] {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
    }
    // What was refused is part of the layer, too.
    for finding in tree.errors.iter().chain(&tree.warnings) {
        hash.update(finding.to_string().as_bytes());
    }
    format!("dir-{}", hex::encode(hash.finalize()))
}

fn list(
    dir: &Path,
    parts: &mut Vec<Vec<u8>>,
    limits: &TreeLimits,
    nodes: &mut Vec<Node<PathBuf>>,
) -> Result<(), TreeError> {
    let read = |source: std::io::Error| TreeError::Read {
        path: dir.to_owned(),
        source: source.into(),
    };
    for entry in fs::read_dir(dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        let name = entry.file_name();
        if is_litter(name.as_bytes()) {
            continue;
        }
        parts.push(name.as_bytes().to_vec());
        if nodes.len() >= limits.entries {
            return Err(too_many(parts, limits));
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(read)?;
        let kind = if kind.is_symlink() {
            NodeKind::Link
        } else if kind.is_dir() {
            if parts.len() > limits.depth {
                NodeKind::TooDeep
            } else {
                NodeKind::Folder
            }
        } else if kind.is_file() {
            match entry.metadata() {
                Ok(meta) => NodeKind::File { size: meta.len() },
                Err(source) => {
                    let source = source.into();
                    return Err(TreeError::Read { path, source });
                }
            }
        } else {
            NodeKind::Other
        };
        nodes.push(Node {
            parts: parts.clone(),
            kind,
            handle: path.clone(),
        });
        if kind == NodeKind::Folder {
            list(&path, parts, limits, nodes)?;
        }
        parts.pop();
    }
    Ok(())
}
