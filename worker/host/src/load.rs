//! `LOAD`: imports the packages one after the other and tells what became of each.

use std::path::{Path, PathBuf};

use pyo3::{prelude::*, types::PyDict};
use ramen_frame::{FromHost, Importing, Load, Loaded, LoadedPackage, PackageKind};

use crate::{boot::Python as PythonSide, identity, pool::os_threads};

/// A package that takes calls, or says why not.
pub(crate) struct Package {
    /// Id in the frames.
    pub(crate) id: u32,
    /// Tool or resource.
    pub(crate) kind: PackageKind,
    /// Its private root module, `tools/calc`.
    pub(crate) root: String,
    /// `None` when it did not load.
    pub(crate) callable: Option<Py<PyAny>>,
    /// Calls go to the event loop.
    pub(crate) is_async: bool,
}

/// Imports everything; `send` takes encoded frames for the front. On the main thread.
pub(crate) fn load(
    py: Python<'_>,
    side: &PythonSide,
    load: &Load,
    send: &dyn Fn(&[u8]),
) -> PyResult<Vec<Package>> {
    let code = code_folder(&load.code_dir);
    let _ = side.folder.set(code.to_string_lossy().into_owned());
    let boot = side.boot(py);
    let env = PyDict::new(py);
    for (name, value) in &load.env {
        env.set_item(name, value)?;
    }
    let seconds = f64::from(load.switch_interval_ms.clamp(1, 1000)) / 1000.0;
    boot.call_method1("prepare", (env, load.deps_dir.as_deref(), seconds))?;
    let before = os_threads();
    let mut packages = Vec::with_capacity(load.packages.len());
    let mut outcomes = Vec::with_capacity(load.packages.len());
    for wanted in &load.packages {
        let mut frame = Vec::new();
        if FromHost::Importing(Importing { id: wanted.id })
            .encode(&mut frame)
            .is_ok()
        {
            send(&frame);
        }
        let kind = match wanted.kind {
            PackageKind::Tool => "tool",
            PackageKind::Resource => "resource",
        };
        let folder = code.join(&wanted.dir);
        let arguments = (
            kind,
            &wanted.name,
            folder.to_string_lossy().into_owned(),
            &wanted.callable,
            wanted.params.clone(),
            wanted.required.clone(),
        );
        let (callable, is_async, reason, message, ms) = boot
            .call_method1("load", arguments)?
            .extract::<(Py<PyAny>, bool, Option<String>, Option<String>, u64)>()?;
        let ok = reason.is_none();
        packages.push(Package {
            id: wanted.id,
            kind: wanted.kind,
            root: format!("{kind}s/{}", wanted.name),
            callable: ok.then_some(callable),
            is_async,
        });
        let message = message.map(|text| relative(&text, &code));
        outcomes.push(LoadedPackage {
            id: wanted.id,
            ok,
            reason,
            message,
            is_async,
            ms,
        });
    }
    if packages
        .iter()
        .any(|package| package.is_async && package.callable.is_some())
    {
        side.aio(py)?;
    }
    let host_threads = usize::from(side.running_aio(py).is_some());
    let loaded = Loaded {
        packages: outcomes,
        threads: os_threads().saturating_sub(before + host_threads),
        python: identity::VERSION.to_owned(),
        warnings: boot
            .call_method1("warnings", (load.deps_dir.as_deref(),))?
            .extract()?,
    };
    let mut frame = Vec::new();
    if FromHost::Loaded(loaded).encode(&mut frame).is_ok() {
        send(&frame);
    }
    Ok(packages)
}

/// Takes the folder that holds `tools/`, and its parent as well.
fn code_folder(dir: &str) -> PathBuf {
    let folder = Path::new(dir);
    let inner = folder.join("mcp");
    let has_kinds = |path: &Path| path.join("tools").is_dir() || path.join("resources").is_dir();
    if !has_kinds(folder) && has_kinds(&inner) {
        inner
    } else {
        folder.to_path_buf()
    }
}

fn relative(text: &str, code: &Path) -> String {
    let prefix = format!("{}/", code.to_string_lossy().trim_end_matches('/'));
    text.replace(&prefix, "")
}
