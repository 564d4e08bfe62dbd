//! Where the `ramen-worker` program is.

use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::names;

const NAME: &str = "ramen-worker";

/// `RAMEN_WORKER`, else the one beside this program (or beside the real file behind a link), else the one on PATH.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(names::WORKER)
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
    {
        return if named.is_file() {
            Ok(named)
        } else {
            Err(Failure::usage(format!(
                "{} names {}, which is no file",
                names::WORKER,
                named.display()
            )))
        };
    }
    let exe = std::env::current_exe().ok();
    let real = exe.as_deref().and_then(|exe| exe.canonicalize().ok());
    let beside = [exe, real].into_iter().flatten();
    let beside = beside.filter_map(|exe| exe.parent().map(|dir| dir.join(NAME)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .map(|dir| dir.join(NAME))
        .collect::<Vec<_>>();
    beside
        .chain(on_path)
        .find(|file| is_program(file))
        .ok_or_else(|| {
            Failure::error(format!(
                "{NAME} is neither beside this program nor on PATH: install it, or name it with {}",
                names::WORKER
            ))
        })
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
