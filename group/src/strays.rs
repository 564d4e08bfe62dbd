//! Files that lie in a group although nobody means to ship them: what tools leave behind, and Git LFS pointers. The
//! scan of a folder, the walk of a working folder and the walk of a git tree judge by the same words.

/// Bytes of a file that are enough to tell a pointer: the specification keeps pointers below this size.
pub const LFS_POINTER_MAX: usize = 1024;

/// What an entry of the errors list says about a pointer.
pub const LFS_MESSAGE: &str = "a Git LFS pointer instead of the file's contents";

/// Whether a file or folder of this name is left by editors, interpreters and version control. A commit does not hold
/// it, it is neither a package nor a fault, and a change of it is no change of the group.
pub fn is_litter(name: &[u8]) -> bool {
    let ends = |end: &[u8]| {
        name.len() > end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end)
    };
    matches!(
        name,
        b"__pycache__"
            | b".git"
            | b".venv"
            | b".DS_Store"
            | b"Thumbs.db"
            | b".pytest_cache"
            | b".mypy_cache"
            | b".ruff_cache"
            | b".idea"
            | b".vscode"
    ) || [&b".pyc"[..], b".swp", b".swo", b"~"].into_iter().any(ends)
}

/// Whether a whole file is a Git LFS pointer: small, the version line first
/// (<https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>; the program had another name before).
pub fn is_lfs_pointer(data: &[u8]) -> bool {
    data.len() < LFS_POINTER_MAX
        && (data.starts_with(b"version https://git-lfs.github.com/spec/")
            || data.starts_with(b"version https://hawser.github.com/spec/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn litter_is_told_by_name_and_by_extension_in_any_case() {
        for name in [
            "__pycache__",
            ".git",
            "a.pyc",
            "a.PYC",
            ".a.py.swp",
            "a.py~",
            "Thumbs.db",
            ".venv",
        ] {
            assert!(is_litter(name.as_bytes()), "{name}");
        }
        for name in ["a.py", "pycache", "git", ".pyc", "~", "data.swap", ".env"] {
            assert!(!is_litter(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_pointer_is_small_and_starts_with_its_version() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
        assert!(is_lfs_pointer(pointer));
        assert!(is_lfs_pointer(
            b"version https://hawser.github.com/spec/v1\n"
        ));
        assert!(!is_lfs_pointer(
            b"# version https://git-lfs.github.com/spec/v1\n"
        ));
        let mut long = pointer.to_vec();
        long.resize(LFS_POINTER_MAX, b' ');
        assert!(!is_lfs_pointer(&long));
    }
}
