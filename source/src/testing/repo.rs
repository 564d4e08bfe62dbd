//! Repositories made object by object.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use git2::{ObjectType, Oid, Repository, Signature, Time};

/// Something in a tree.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A file.
    File(Vec<u8>),
    /// A file with the executable bit.
    Executable(Vec<u8>),
    /// A symbolic link.
    Link(String),
    /// A submodule at some commit.
    Submodule,
}

impl Entry {
    /// A text file.
    pub fn text(text: &str) -> Self {
        Self::File(text.as_bytes().to_vec())
    }
}

/// A bare repository. Paths and names may be any bytes: no check of git's stands in the way.
pub struct Repo {
    repository: Repository,
    path: PathBuf,
}

enum Node<'a> {
    Leaf(&'a Entry),
    Folder(BTreeMap<Vec<u8>, Self>),
}

fn io<T>(result: Result<T, git2::Error>) -> io::Result<T> {
    result.map_err(|e| io::Error::other(e.message().to_owned()))
}

impl Repo {
    /// Makes a bare repository with HEAD at `main`.
    pub fn init(path: &Path) -> io::Result<Self> {
        crate::git::prepare_library();
        let mut options = git2::RepositoryInitOptions::new();
        options
            .bare(true)
            .external_template(false)
            .initial_head("main");
        let repository = io(Repository::init_opts(path, &options))?;
        Ok(Self {
            repository,
            path: path.to_owned(),
        })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The repository itself, for anything else.
    pub fn raw(&self) -> &Repository {
        &self.repository
    }

    /// Commits a whole tree to a branch (on top of what is there) and gives the commit id.
    pub fn commit<P: AsRef<[u8]>>(
        &self,
        branch: &str,
        entries: &[(P, Entry)],
    ) -> io::Result<String> {
        let mut root = BTreeMap::new();
        for (path, entry) in entries {
            insert(&mut root, path.as_ref(), entry)?;
        }
        let tree = self.write(&root)?;
        let full = format!("refs/heads/{branch}");
        let parent = self
            .repository
            .find_reference(&full)
            .and_then(|found| found.peel_to_commit())
            .map(|commit| format!("parent {}\n", commit.id()))
            .unwrap_or_default();
        let commit = format!(
            "tree {tree}\n{parent}author T <t@example.com> 1700000000 +0000\n\
             committer T <t@example.com> 1700000000 +0000\n\nchange\n"
        );
        let odb = io(self.repository.odb())?;
        let id = io(odb.write(ObjectType::Commit, commit.as_bytes()))?;
        io(self.repository.reference(&full, id, true, "commit"))?;
        Ok(id.to_string())
    }

    /// Commits text files under `mcp/` to `main`.
    pub fn push(&self, files: &[(&str, &str)]) -> io::Result<String> {
        let entries: Vec<_> = files
            .iter()
            .map(|(path, text)| (format!("mcp/{path}"), Entry::text(text)))
            .collect();
        self.commit("main", &entries)
    }

    /// Makes or moves a lightweight tag.
    pub fn tag(&self, name: &str, commit: &str) -> io::Result<()> {
        let id = io(Oid::from_str(commit))?;
        io(self
            .repository
            .reference(&format!("refs/tags/{name}"), id, true, "tag"))
        .map(|_| ())
    }

    /// Makes an annotated tag.
    pub fn annotated_tag(&self, name: &str, commit: &str) -> io::Result<()> {
        let object =
            io(Oid::from_str(commit).and_then(|id| self.repository.find_object(id, None)))?;
        let who = io(Signature::new(
            "T",
            "t@example.com",
            &Time::new(1_700_000_000, 0),
        ))?;
        io(self.repository.tag(name, &object, &who, "annotated", true)).map(|_| ())
    }

    /// Points HEAD to a branch.
    pub fn set_head(&self, branch: &str) -> io::Result<()> {
        io(self.repository.set_head(&format!("refs/heads/{branch}")))
    }

    /// Removes a branch.
    pub fn delete_branch(&self, branch: &str) -> io::Result<()> {
        let found = self
            .repository
            .find_reference(&format!("refs/heads/{branch}"));
        io(found.and_then(|mut reference| reference.delete()))
    }

    /// Sets a value of the repository's configuration.
    pub fn configure(&self, key: &str, value: &str) -> io::Result<()> {
        let mut config = io(git2::Config::open(&self.path.join("config")))?;
        io(config.set_str(key, value))
    }

    /// Writes one tree with these exact entries, in this order, and gives its id.
    fn write(&self, folder: &BTreeMap<Vec<u8>, Node<'_>>) -> io::Result<Oid> {
        let odb = io(self.repository.odb())?;
        let mut entries = Vec::new();
        for (name, node) in folder {
            let blob = |data: &[u8]| io(odb.write(ObjectType::Blob, data));
            let (mode, id) = match node {
                Node::Folder(below) => ("40000", self.write(below)?),
                Node::Leaf(Entry::File(data)) => ("100644", blob(data)?),
                Node::Leaf(Entry::Executable(data)) => ("100755", blob(data)?),
                Node::Leaf(Entry::Link(target)) => ("120000", blob(target.as_bytes())?),
                Node::Leaf(Entry::Submodule) => {
                    let elsewhere = "0123456789012345678901234567890123456789";
                    ("160000", io(Oid::from_str(elsewhere))?)
                }
            };
            // git sorts folders as if their names ended with a slash.
            let mut order = name.clone();
            if matches!(node, Node::Folder(_)) {
                order.push(b'/');
            }
            entries.push((order, name, mode, id));
        }
        entries.sort();
        let mut tree = Vec::new();
        for (_, name, mode, id) in entries {
            tree.extend_from_slice(mode.as_bytes());
            tree.push(b' ');
            tree.extend_from_slice(name);
            tree.push(0);
            tree.extend_from_slice(id.as_bytes());
        }
        io(odb.write(ObjectType::Tree, &tree))
    }
}

fn insert<'a>(
    folder: &mut BTreeMap<Vec<u8>, Node<'a>>,
    path: &[u8],
    entry: &'a Entry,
) -> io::Result<()> {
    let Some(slash) = path.iter().position(|b| *b == b'/') else {
        folder.insert(path.to_vec(), Node::Leaf(entry));
        return Ok(());
    };
    let below = folder
        .entry(path[..slash].to_vec())
        .or_insert_with(|| Node::Folder(BTreeMap::new()));
    match below {
        Node::Folder(below) => insert(below, &path[slash + 1..], entry),
        Node::Leaf(_) => Err(io::Error::other("a file where a folder is")),
    }
}
