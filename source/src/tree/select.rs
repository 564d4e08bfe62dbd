//! Judging the nodes of a walk. Pure but for reading the files that pass.

use std::collections::{BTreeMap, BTreeSet};

use ramen_group::{Finding, PackageKind, Reason, strays};

use super::{Tree, TreeError, TreeFile, TreeLimits, names};
use crate::layer::{CODE_DIR, shown};

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File {
        size: u64,
    },
    Folder,
    Link,
    #[cfg_attr(
        not(feature = "git"),
        expect(dead_code, reason = "folders have no submodules")
    )]
    Submodule,
    /// A device, pipe or socket, or a git mode that does not exist.
    Other,
    /// A folder that was not entered, since it lies too deep.
    TooDeep,
}

/// Something under `mcp/`.
#[derive(Debug, Clone)]
pub(crate) struct Node<H> {
    /// Parts of the path under `mcp/`.
    pub(crate) parts: Vec<Vec<u8>>,
    pub(crate) kind: NodeKind,
    /// How to read it.
    pub(crate) handle: H,
}

impl<H> Node<H> {
    /// Whether it stands for a file: a link named like one (`tools/README.md`) does.
    fn is_file(&self) -> bool {
        match self.kind {
            NodeKind::File { .. } => true,
            NodeKind::Link => self.parts.last().is_some_and(|name| name.contains(&b'.')),
            _ => false,
        }
    }
}

/// More nodes than allowed: for the walk, which must stop listing.
pub(crate) fn too_many(parts: &[Vec<u8>], limits: &TreeLimits) -> TreeError {
    TreeError::TooLarge {
        path: shown_path(parts),
        limit: limits.entries as u64,
        unit: "files and folders",
    }
}

fn shown_path(parts: &[Vec<u8>]) -> String {
    let mut path = CODE_DIR.as_bytes().to_vec();
    for part in parts {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    shown(&path)
}

/// Who answers for a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// `tools/calc`.
    Package(String),
    /// A file or folder that means something for the whole group.
    Group,
    /// Nobody.
    Nobody,
}

fn owner(parts: &[Vec<u8>], is_file: bool) -> Owner {
    let Some(first) = parts.first() else {
        return Owner::Group;
    };
    let kind = PackageKind::ALL
        .iter()
        .find(|kind| kind.folder().as_bytes() == &first[..]);
    match (kind, parts) {
        (Some(_), [_]) => Owner::Group,
        // A stray file beside the packages is no package.
        (Some(_), [_, _]) if is_file => Owner::Nobody,
        (Some(kind), [_, name, ..]) => Owner::Package(format!("{}/{}", kind.folder(), shown(name))),
        _ => match &first[..] {
            b"requirements.txt" | b"env.yaml" | b"tests.yaml" | b"guardrails.yaml"
            | b"guardrails" => Owner::Group,
            _ => Owner::Nobody,
        },
    }
}

/// Faults found so far.
#[derive(Default)]
struct Verdict {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// Packages and other paths to leave out.
    packages: BTreeSet<String>,
    paths: BTreeSet<Vec<Vec<u8>>>,
}

impl Verdict {
    fn refuse(
        &mut self,
        parts: &[Vec<u8>],
        is_file: bool,
        reason: Reason,
        message: &str,
    ) -> Result<(), TreeError> {
        let path = shown_path(parts);
        let message = format!("{path}: {message}");
        match owner(parts, is_file) {
            Owner::Package(package) => {
                self.errors
                    .push(Finding::package(&package, reason, message).at_path(path));
                self.packages.insert(package);
            }
            Owner::Nobody => {
                self.warnings
                    .push(Finding::group(reason, message).at_path(path));
                self.paths.insert(parts.to_vec());
            }
            Owner::Group => {
                let finding = Finding::group(reason, message).at_path(path);
                return Err(TreeError::Refused(Box::new(finding)));
            }
        }
        Ok(())
    }

    fn leaves_out(&self, parts: &[Vec<u8>], is_file: bool) -> bool {
        if let Owner::Package(package) = owner(parts, is_file) {
            return self.packages.contains(&package);
        }
        (1..=parts.len()).any(|n| self.paths.contains(&parts[..n]))
    }
}

/// Judges the nodes and reads the files that pass.
pub(crate) fn select<H>(
    id: String,
    mut nodes: Vec<Node<H>>,
    limits: &TreeLimits,
    mut read: impl FnMut(&Node<H>) -> Result<Vec<u8>, TreeError>,
) -> Result<Tree, TreeError> {
    if let Some(node) = nodes.get(limits.entries) {
        return Err(too_many(&node.parts, limits));
    }
    nodes.sort_by(|a, b| a.parts.cmp(&b.parts));
    let mut verdict = Verdict::default();
    for node in &nodes {
        let is_file = node.is_file();
        if let Some((reason, message)) = fault(node, limits) {
            verdict.refuse(&node.parts, is_file, reason, &message)?;
        }
    }
    twins(&nodes, &mut verdict)?;

    let mut files = Vec::new();
    let mut total = 0_u64;
    for node in &nodes {
        let NodeKind::File { size } = node.kind else {
            continue;
        };
        if verdict.leaves_out(&node.parts, true) {
            continue;
        }
        total = total.saturating_add(size);
        if total > limits.total_bytes {
            let (path, limit) = (shown_path(&node.parts), limits.total_bytes);
            return Err(TreeError::TooLarge {
                path,
                limit,
                unit: "bytes",
            });
        }
        let data = read(node)?;
        if strays::is_lfs_pointer(&data) {
            let message = strays::LFS_MESSAGE;
            verdict.refuse(&node.parts, true, Reason::LfsPointer, message)?;
            continue;
        }
        let path: Vec<_> = node
            .parts
            .iter()
            .map(|part| String::from_utf8_lossy(part))
            .collect();
        files.push((
            &node.parts,
            TreeFile {
                path: path.join("/"),
                data,
            },
        ));
    }
    // A pointer may have been found after other files of its package were read.
    files.retain(|(parts, _)| !verdict.leaves_out(parts, true));
    let mut files: Vec<TreeFile> = files.into_iter().map(|(_, file)| file).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Tree {
        id,
        files,
        errors: verdict.errors,
        warnings: verdict.warnings,
    })
}

fn fault<H>(node: &Node<H>, limits: &TreeLimits) -> Option<(Reason, String)> {
    // Each folder is a node of its own, so only the last part can be new.
    if let Some(what) = node.parts.last().and_then(|name| names::fault(name)) {
        return Some((
            Reason::PathRefused,
            format!("the name cannot be used: {what}"),
        ));
    }
    let (reason, message) = match node.kind {
        NodeKind::Folder => return None,
        NodeKind::File { size } if size <= limits.file_bytes => return None,
        NodeKind::File { size } => {
            let limit = limits.file_bytes;
            (
                Reason::FileTooLarge,
                format!("the file has {size} bytes, {limit} are allowed"),
            )
        }
        NodeKind::Link => (
            Reason::SymlinkRefused,
            "symlinks are not supported under mcp/".to_owned(),
        ),
        NodeKind::Submodule => (
            Reason::SubmoduleRefused,
            "a git submodule; submodules are not supported under mcp/".to_owned(),
        ),
        NodeKind::Other => (
            Reason::PathRefused,
            "neither a regular file nor a folder".to_owned(),
        ),
        NodeKind::TooDeep => (
            Reason::PathRefused,
            format!("more than {} folders inside each other", limits.depth),
        ),
    };
    Some((reason, message))
}

/// Remarks on every path that differs from another only in case or in its Unicode form. All of
/// them load: layers are unpacked where both can exist, and two tools `Calc` and `calc` are two
/// tools. The warning is for whoever clones the repository on macOS or Windows. Only the topmost
/// pair counts, not all that lies below it.
fn twins<H>(nodes: &[Node<H>], verdict: &mut Verdict) -> Result<(), TreeError> {
    // By the parents exactly and the last part folded: below twins nothing new is found.
    let mut folded = BTreeMap::<_, Vec<&Node<H>>>::new();
    for node in nodes {
        let Some((last, parents)) = node.parts.split_last() else {
            continue;
        };
        let fold = names::fold(&String::from_utf8_lossy(last));
        folded.entry((parents, fold)).or_default().push(node);
    }
    for group in folded.values().filter(|group| group.len() > 1) {
        for node in group {
            let is_file = node.is_file();
            let others: Vec<String> = group
                .iter()
                .filter(|other| other.parts != node.parts)
                .map(|other| shown_path(&other.parts))
                .collect();
            if others.is_empty() {
                // Only a tree that was made by hand can hold the very same name twice.
                let message = "the path occurs twice";
                verdict.refuse(&node.parts, is_file, Reason::PathRefused, message)?;
                continue;
            }
            let path = shown_path(&node.parts);
            let message = format!(
                "{path}: differs from {} only in upper and lower case or in the Unicode form of a letter",
                others.join(", ")
            );
            let finding = match owner(&node.parts, is_file) {
                Owner::Package(package) => Finding::package(package, Reason::CaseTwins, message),
                Owner::Group | Owner::Nobody => Finding::group(Reason::CaseTwins, message),
            };
            verdict.warnings.push(finding.at_path(path));
        }
    }
    Ok(())
}
