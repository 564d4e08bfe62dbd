//! The Python part of the host: its embedded modules, and what Rust needs of them.

use std::{ffi::CString, sync::OnceLock};

use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyModule, PyString, PyType},
};

use crate::native;

/// Modules that need nothing on disk.
const SOURCES: [(&str, &str); 6] = [
    ("_ramen", ""),
    ("_ramen.aio", include_str!("python/aio.py")),
    ("_ramen.results", include_str!("python/results.py")),
    (
        "ramen_runtime",
        include_str!("../../../python/ramen_runtime/__init__.py"),
    ),
    (
        "ramen_runtime.content",
        include_str!("../../../python/ramen_runtime/content.py"),
    ),
    (
        "ramen_runtime.secrets",
        include_str!("../../../python/ramen_runtime/secrets.py"),
    ),
];
const BOOT: &str = include_str!("python/boot.py");

/// Handles on the Python side, made once.
pub(crate) struct Python {
    boot: Py<PyModule>,
    interrupted: Py<PyType>,
    results: PyOnceLock<Py<PyAny>>,
    aio: PyOnceLock<Py<PyAny>>,
    /// Where the code layer is, to be left out of messages.
    pub(crate) folder: OnceLock<String>,
}

impl Python {
    /// Runs the embedded modules. On the main thread, before any user code.
    pub(crate) fn start(py: pyo3::Python<'_>) -> PyResult<Self> {
        native::install(py)?;
        let sources = PyDict::new(py);
        for (name, source) in SOURCES {
            sources.set_item(name, source)?;
        }
        let code = CString::new(BOOT)
            .map_err(|_| PyRuntimeError::new_err("an embedded module holds a NUL"))?;
        let boot = PyModule::from_code(py, &code, c"<ramen-host>", c"_ramen_boot")?;
        let (interrupted, _block) = boot
            .getattr("start")?
            .call1((sources,))?
            .extract::<(Bound<'_, PyType>, Bound<'_, PyAny>)>()?;
        Ok(Self {
            boot: boot.unbind(),
            interrupted: interrupted.unbind(),
            results: PyOnceLock::new(),
            aio: PyOnceLock::new(),
            folder: OnceLock::new(),
        })
    }

    /// The module of scopes and loading.
    pub(crate) fn boot<'py>(&self, py: pyo3::Python<'py>) -> &Bound<'py, PyModule> {
        self.boot.bind(py)
    }

    /// The exception class of an interrupted call.
    pub(crate) fn interrupted<'py>(&self, py: pyo3::Python<'py>) -> &Bound<'py, PyType> {
        self.interrupted.bind(py)
    }

    /// The rules for results; imported when first needed.
    pub(crate) fn results<'py>(&self, py: pyo3::Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let module = self.results.get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import("_ramen.results")?.into_any().unbind())
        })?;
        Ok(module.bind(py))
    }

    /// The event loop, started when first needed.
    pub(crate) fn aio<'py>(&self, py: pyo3::Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let module = self.aio.get_or_try_init(py, || {
            let module = py.import("_ramen.aio")?;
            module.call_method0("start")?;
            Ok::<_, PyErr>(module.into_any().unbind())
        })?;
        Ok(module.bind(py))
    }

    /// The event loop when it was needed before.
    pub(crate) fn running_aio<'py>(&self, py: pyo3::Python<'py>) -> Option<&Bound<'py, PyAny>> {
        Some(self.aio.get(py)?.bind(py))
    }

    /// `Type: message` on one line, whatever happens.
    pub(crate) fn describe(
        &self,
        py: pyo3::Python<'_>,
        error: &PyErr,
        root: Option<&str>,
    ) -> String {
        let folder = self.folder.get().map(String::as_str);
        self.results(py)
            .and_then(|results| {
                let described =
                    results.call_method1("describe", (error.value(py), root, folder))?;
                Ok(described.cast::<PyString>()?.to_str()?.to_owned())
            })
            .unwrap_or_else(|_| {
                let kind = error.get_type(py);
                kind.name()
                    .map_or_else(|_| "Exception".to_owned(), |name| name.to_string())
            })
    }

    /// Where in its package an exception was raised, `utils/helper.py, line 3`; empty when it was nowhere in there.
    pub(crate) fn raised_at(&self, py: pyo3::Python<'_>, error: &PyErr, root: &str) -> String {
        let Some(folder) = self.folder.get() else {
            return String::new();
        };
        let folder = std::path::Path::new(folder).join(root);
        self.boot(py)
            // Up to 3.11 the exception itself does not know its traceback yet.
            .call_method1("raised_at", (error.traceback(py), folder.to_string_lossy()))
            .and_then(|place| place.extract())
            .unwrap_or_default()
    }
}
