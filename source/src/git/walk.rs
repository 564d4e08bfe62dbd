//! Walking `mcp/` as a tree of objects. Nothing is ever checked out: no filter, attribute, hook,
//! link or submodule takes effect, and files come out as they are stored.

use std::path::Path;

use git2::{ObjectType, Odb, Oid, Repository};
use ramen_group::{Finding, Reason};

use super::{GitError, fetch};
use crate::{
    Tree,
    layer::{CODE_DIR, shown},
    tree::{Node, NodeKind, TreeError, TreeLimits, select, too_many},
};

const MODE_MASK: i32 = 0o170_000;
const MODE_FOLDER: i32 = 0o040_000;
const MODE_FILE: i32 = 0o100_000;
const MODE_LINK: i32 = 0o120_000;
const MODE_SUBMODULE: i32 = 0o160_000;

pub(super) fn walk(
    repository: &Path,
    commit: &str,
    path: &str,
    limits: &TreeLimits,
) -> Result<Tree, GitError> {
    let repository = fetch::open(repository)?;
    walk_in(&repository, commit, path, limits).map_err(GitError::Tree)
}

fn walk_in(
    repository: &Repository,
    commit: &str,
    path: &str,
    limits: &TreeLimits,
) -> Result<Tree, TreeError> {
    let object = |path: &str, e: &git2::Error| TreeError::Object {
        path: path.to_owned(),
        message: e.message().to_owned(),
    };
    let found = Oid::from_str(commit).and_then(|id| repository.find_commit(id));
    let mut tree = found
        .and_then(|c| c.tree())
        .map_err(|e| object("the commit", &e))?;
    let mut at = String::new();
    let parts = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".");
    for part in parts.chain([CODE_DIR]) {
        if !at.is_empty() {
            at.push('/');
        }
        at.push_str(&shown(part.as_bytes()));
        let missing = || TreeError::Missing { path: at.clone() };
        let entry = tree.get_name(part).ok_or_else(missing)?;
        let (id, mode) = (entry.id(), entry.filemode_raw() & MODE_MASK);
        let refuse = |reason, message: &str| {
            let finding = Finding::group(reason, format!("{at}: {message}")).at_path(at.clone());
            TreeError::Refused(Box::new(finding))
        };
        match mode {
            MODE_FOLDER => {}
            MODE_LINK => {
                return Err(refuse(
                    Reason::SymlinkRefused,
                    "a symlink where the folder of the packages is expected",
                ));
            }
            MODE_SUBMODULE => {
                return Err(refuse(
                    Reason::SubmoduleRefused,
                    "a git submodule where the folder of the packages is expected",
                ));
            }
            _ => return Err(missing()),
        }
        drop(entry);
        tree = repository.find_tree(id).map_err(|e| object(&at, &e))?;
    }
    let odb = repository.odb().map_err(|e| object(&at, &e))?;
    let mut nodes = Vec::new();
    let id = tree.id();
    list(repository, &odb, &tree, &mut Vec::new(), limits, &mut nodes)?;
    select(id.to_string(), nodes, limits, |node| {
        let path = || shown(&node.parts.join(&b'/'));
        match odb.read(node.handle) {
            Ok(found) if found.kind() == ObjectType::Blob => Ok(found.data().to_vec()),
            Ok(_) => Err(TreeError::Object {
                path: path(),
                message: "not a blob".to_owned(),
            }),
            Err(e) => Err(object(&path(), &e)),
        }
    })
}

fn list(
    repository: &Repository,
    odb: &Odb<'_>,
    tree: &git2::Tree<'_>,
    parts: &mut Vec<Vec<u8>>,
    limits: &TreeLimits,
    nodes: &mut Vec<Node<Oid>>,
) -> Result<(), TreeError> {
    let object = |parts: &[Vec<u8>], e: &git2::Error| TreeError::Object {
        path: shown(&parts.join(&b'/')),
        message: e.message().to_owned(),
    };
    for entry in tree {
        parts.push(entry.name_bytes().to_vec());
        if nodes.len() >= limits.entries {
            return Err(too_many(parts, limits));
        }
        let id = entry.id();
        let kind = match entry.filemode_raw() & MODE_MASK {
            MODE_FOLDER if parts.len() > limits.depth => NodeKind::TooDeep,
            MODE_FOLDER => NodeKind::Folder,
            MODE_LINK => NodeKind::Link,
            MODE_SUBMODULE => NodeKind::Submodule,
            MODE_FILE => {
                // The size comes from the object's header: a bomb is not inflated to be measured.
                let (size, _) = odb.read_header(id).map_err(|e| object(parts, &e))?;
                NodeKind::File { size: size as u64 }
            }
            _ => NodeKind::Other,
        };
        nodes.push(Node {
            parts: parts.clone(),
            kind,
            handle: id,
        });
        if kind == NodeKind::Folder {
            let below = repository.find_tree(id).map_err(|e| object(parts, &e))?;
            list(repository, odb, &below, parts, limits, nodes)?;
        }
        parts.pop();
    }
    Ok(())
}
