//! From what a callable gave back, or raised, to a `RESULT` frame.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use ramen_frame::{FrameError, PackageKind, Status, begin, finish, kind};

use crate::{boot::Python as PythonSide, encode::encode, load::Package};

/// Offset of the status in a `RESULT` frame that starts at 0.
const STATUS_AT: usize = ramen_frame::HEADER_LEN + 8;

/// Writes the frame of a call's end into the empty `out`.
pub(crate) fn write(
    side: &PythonSide,
    package: Option<&Package>,
    call: u64,
    result: PyResult<Bound<'_, PyAny>>,
    py: pyo3::Python<'_>,
    out: &mut Vec<u8>,
) {
    let encoded = result.and_then(|value| {
        let mark = start(call, out);
        let resource = package.is_some_and(|package| package.kind == PackageKind::Resource);
        let status = payload(side, resource, &value, out)?;
        seal(out, mark, status).map_err(|error| too_large(&error))
    });
    if let Err(error) = encoded {
        failure(side, package, call, &error, py, out);
    }
}

/// Writes the frame of a failed call.
pub(crate) fn failure(
    side: &PythonSide,
    package: Option<&Package>,
    call: u64,
    error: &PyErr,
    py: pyo3::Python<'_>,
    out: &mut Vec<u8>,
) {
    out.clear();
    let text = side.describe(py, error, package.map(|package| package.root.as_str()));
    let mark = start(call, out);
    out.extend_from_slice(text.as_bytes());
    if let Some(package) = package {
        let place = side.raised_at(py, error, &package.root);
        out.extend(ramen_frame::error_place(&place));
    }
    if seal(out, mark, Status::Error).is_err() {
        // `describe` bounds its text: this is for completeness.
        let mark = start(call, out);
        let _ = seal(out, mark, Status::Error);
    }
}

fn start(call: u64, out: &mut Vec<u8>) -> usize {
    out.clear();
    let mark = begin(out, kind::RESULT);
    out.extend_from_slice(&call.to_le_bytes());
    out.push(Status::Error as u8);
    mark
}

fn seal(out: &mut Vec<u8>, mark: usize, status: Status) -> Result<(), FrameError> {
    if let Some(byte) = out.get_mut(STATUS_AT) {
        *byte = status as u8;
    }
    finish(out, mark)
}

fn too_large(error: &FrameError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(format!("the result is too large: {error}"))
}

fn payload(
    side: &PythonSide,
    resource: bool,
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
) -> PyResult<Status> {
    if let Ok(text) = value.cast::<PyString>() {
        out.extend_from_slice(text.to_str()?.as_bytes());
        return Ok(Status::Text);
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return if resource {
            out.extend_from_slice(bytes.as_bytes());
            Ok(Status::Blob)
        } else {
            Err(PyTypeError::new_err(
                "a tool cannot return bytes: return ramen_runtime.content.image, audio or \
                 resource, or text",
            ))
        };
    }
    if value.is_exact_instance_of::<PyList>() || value.is_exact_instance_of::<PyTuple>() {
        if holds_content(side, value)? {
            let blocks = side.results(value.py())?.call_method1("blocks", (value,))?;
            encode(side, &blocks, out)?;
            return Ok(Status::Content);
        }
    } else if !is_plain(value) {
        return special(side, resource, value, out);
    }
    encode(side, value, out)?;
    Ok(Status::Json)
}

fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyDict>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_none()
}

/// A list with a content block in it is content.
fn holds_content(side: &PythonSide, values: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut last = 0;
    for value in values.try_iter()? {
        let value = value?;
        let kind = value.get_type_ptr() as usize;
        // Lists are mostly of one type.
        if kind == last {
            continue;
        }
        last = kind;
        if is_plain(&value)
            || value.is_exact_instance_of::<PyString>()
            || value.is_exact_instance_of::<PyList>()
            || value.is_exact_instance_of::<PyTuple>()
        {
            continue;
        }
        if side
            .results(value.py())?
            .call_method1("is_content", (&value,))?
            .is_truthy()?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn special(
    side: &PythonSide,
    resource: bool,
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
) -> PyResult<Status> {
    if resource && let Ok(bytes) = value.cast::<PyByteArray>() {
        out.extend_from_slice(&bytes.to_vec());
        return Ok(Status::Blob);
    }
    let (form, value) = side
        .results(value.py())?
        .call_method1("top", (value, resource))?
        .extract::<(Option<String>, Bound<'_, PyAny>)>()?;
    match form.as_deref() {
        None => {
            // numpy.str_ and the like: a text after all.
            if let Ok(text) = value.cast::<PyString>() {
                out.extend_from_slice(text.to_str()?.as_bytes());
                return Ok(Status::Text);
            }
            encode(side, &value, out)?;
            Ok(Status::Json)
        }
        Some("content") => {
            encode(side, &value, out)?;
            Ok(Status::Content)
        }
        Some("blob") => {
            out.extend_from_slice(value.cast::<PyBytes>()?.as_bytes());
            Ok(Status::Blob)
        }
        Some(form) => {
            out.extend_from_slice(value.cast::<PyString>()?.to_str()?.as_bytes());
            Ok(if form == "error" {
                Status::Error
            } else {
                Status::Text
            })
        }
    }
}
