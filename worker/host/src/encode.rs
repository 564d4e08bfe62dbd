//! Python values to JSON, by the rules of docs/reference/results.md.
//!
//! Plain `str`, `int`, `float`, `bool`, `None`, `list`, `tuple` and `dict` are written here; for
//! anything else the Python side is asked for something plainer.
#![expect(
    unsafe_code,
    reason = "walks dicts and formats floats through CPython's C interface"
)]

use std::ffi::CStr;

use pyo3::{
    exceptions::{PyRecursionError, PyTypeError, PyValueError},
    ffi,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use ramen_frame::MAX_FRAME;

use crate::boot::Python as PythonSide;

/// Deepest nesting of a result.
const MAX_DEPTH: usize = 500;
/// Room for the fixed fields of a frame.
const MAX_BYTES: usize = MAX_FRAME - 64;

/// Appends `value` as JSON.
pub(crate) fn encode(
    side: &PythonSide,
    value: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
) -> PyResult<()> {
    Encoder {
        side,
        out,
        above: Vec::new(),
    }
    .value(value)
}

struct Encoder<'a> {
    side: &'a PythonSide,
    out: &'a mut Vec<u8>,
    /// Addresses of the containers that are being written, outermost first.
    above: Vec<usize>,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // Before each value: a long list of one large string is small in Python and endless here.
        if self.out.len() > MAX_BYTES {
            return Err(PyValueError::new_err(format!(
                "the result is larger than {} MiB",
                MAX_FRAME / (1024 * 1024)
            )));
        }
        if let Ok(text) = value.cast_exact::<PyString>() {
            self.text(text)
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            self.int(number)
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            self.float(number.value())
        } else if let Ok(flag) = value.cast_exact::<PyBool>() {
            self.out
                .extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
            Ok(())
        } else if value.is_none() {
            self.out.extend_from_slice(b"null");
            Ok(())
        } else if let Ok(dict) = value.cast::<PyDict>() {
            self.inside(value, |encoder| encoder.dict(dict))
        } else if let Ok(list) = value.cast::<PyList>() {
            self.inside(value, |encoder| encoder.items(list.iter()))
        } else if let Ok(tuple) = value.cast::<PyTuple>() {
            self.inside(value, |encoder| encoder.items(tuple.iter()))
        } else if let Ok(text) = value.cast::<PyString>() {
            // Also `class Colour(str, Enum)`: its text, not its name.
            self.text(text)
        } else if let Ok(number) = value.cast::<PyInt>() {
            self.int(number)
        } else if let Ok(number) = value.cast::<PyFloat>() {
            self.float(number.value())
        } else {
            self.inside(value, |encoder| {
                let simpler = encoder
                    .side
                    .results(value.py())?
                    .call_method1("simpler", (value,))?;
                encoder.value(&simpler)
            })
        }
    }

    fn inside(
        &mut self,
        value: &Bound<'_, PyAny>,
        body: impl FnOnce(&mut Self) -> PyResult<()>,
    ) -> PyResult<()> {
        let address = value.as_ptr() as usize;
        if self.above.len() >= MAX_DEPTH {
            return Err(if self.is_circular() {
                PyValueError::new_err("Circular reference detected")
            } else {
                PyRecursionError::new_err(format!(
                    "maximum depth exceeded: a result may be nested {MAX_DEPTH} deep"
                ))
            });
        }
        self.above.push(address);
        body(self)?;
        self.above.pop();
        Ok(())
    }

    /// Whether a container is being written inside of itself.
    fn is_circular(&self) -> bool {
        let mut addresses = self.above.clone();
        addresses.sort_unstable();
        addresses.windows(2).any(|pair| pair.first() == pair.last())
    }

    fn items<'py>(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<()> {
        self.out.push(b'[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.value(&item)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = dict.py();
        self.out.push(b'{');
        let mut position = 0;
        let mut first = true;
        let mut other_keys = false;
        loop {
            let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: attached; `dict` is a dict; `position` is only changed by this function. The
            // references are borrowed and made our own before any other Python code can run, so
            // code that changes the dict meanwhile does no harm.
            let (key, value) = unsafe {
                let next = ffi::PyDict_Next(
                    dict.as_ptr(),
                    &raw mut position,
                    &raw mut key,
                    &raw mut value,
                );
                if next == 0 {
                    break;
                }
                (
                    Bound::from_borrowed_ptr(py, key),
                    Bound::from_borrowed_ptr(py, value),
                )
            };
            if !first {
                self.out.push(b',');
            }
            first = false;
            other_keys |= self.key(&key)?;
            self.out.push(b':');
            self.value(&value)?;
        }
        self.out.push(b'}');
        if other_keys {
            refuse_twins(dict)
        } else {
            Ok(())
        }
    }

    /// Writes a key; true when it was no `str`, so that it may meet its twin.
    fn key(&mut self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(text) = key.cast::<PyString>() {
            self.text(text)?;
            return Ok(false);
        }
        let Some(text) = key_text(key)? else {
            let kind = key.get_type();
            return Err(PyTypeError::new_err(format!(
                "keys must be str, int, float, bool or None, not {}",
                kind.name()?.to_string_lossy()
            )));
        };
        string(self.out, &text);
        Ok(true)
    }

    fn text(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        // A lone surrogate fails here, as UnicodeEncodeError.
        string(self.out, text.to_str()?);
        Ok(())
    }

    fn int(&mut self, number: &Bound<'_, PyInt>) -> PyResult<()> {
        int(self.out, number)
    }

    fn float(&mut self, number: f64) -> PyResult<()> {
        float(self.out, number)
    }
}

/// The text of a key that is no `str`, as Python's json writes it; `None` for a type it refuses.
fn key_text(key: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let mut out = Vec::new();
    if let Ok(flag) = key.cast_exact::<PyBool>() {
        out.extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
    } else if key.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(number) = key.cast::<PyInt>() {
        int(&mut out, number)?;
    } else if let Ok(number) = key.cast::<PyFloat>() {
        float(&mut out, number.value())?;
    } else {
        return Ok(None);
    }
    Ok(String::from_utf8(out).ok())
}

/// `{1: 2, "1": 3}` would be an object with one key twice.
fn refuse_twins(dict: &Bound<'_, PyDict>) -> PyResult<()> {
    let mut seen = std::collections::HashSet::new();
    for key in dict.keys() {
        let text = match key.cast::<PyString>() {
            Ok(text) => text.to_str()?.to_owned(),
            Err(_) => key_text(&key)?.unwrap_or_default(),
        };
        if let Some(twin) = seen.replace(text) {
            return Err(PyValueError::new_err(format!(
                "two keys are both \"{twin}\" in JSON"
            )));
        }
    }
    Ok(())
}

fn int(out: &mut Vec<u8>, number: &Bound<'_, PyInt>) -> PyResult<()> {
    let mut overflow = 0;
    // SAFETY: attached, and `number` is an int; -1 without overflow can only be the value.
    let small = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &raw mut overflow) };
    if overflow == 0 {
        out.extend_from_slice(itoa::Buffer::new().format(small).as_bytes());
        return Ok(());
    }
    // Decimal digits of any int, with CPython's own limit of 4300; not `str()`, which a subclass
    // such as an IntEnum may have changed.
    // SAFETY: attached; gives a new reference or null with an exception set.
    let digits = unsafe {
        let digits = ffi::PyNumber_ToBase(number.as_ptr(), 10);
        Bound::from_owned_ptr_or_err(number.py(), digits)?
    };
    out.extend_from_slice(digits.cast::<PyString>()?.to_str()?.as_bytes());
    Ok(())
}

fn float(out: &mut Vec<u8>, number: f64) -> PyResult<()> {
    if !number.is_finite() {
        let name = if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return Err(PyValueError::new_err(format!(
            "Out of range float values are not JSON compliant: {name}"
        )));
    }
    if number.fract() == 0.0 && number.abs() < 1e15 && (number != 0.0 || number.is_sign_positive())
    {
        #[expect(clippy::cast_possible_truncation, reason = "whole and under 1e15")]
        let whole = number as i64;
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
        out.extend_from_slice(b".0");
        return Ok(());
    }
    // SAFETY: attached; gives a NUL-terminated text of PyMem memory, or null.
    unsafe {
        let text = ffi::PyOS_double_to_string(
            number,
            b'r'.cast_signed(),
            0,
            ffi::Py_DTSF_ADD_DOT_0,
            std::ptr::null_mut(),
        );
        if text.is_null() {
            return Err(PyErr::fetch(Python::assume_attached()));
        }
        out.extend_from_slice(CStr::from_ptr(text).to_bytes());
        ffi::PyMem_Free(text.cast());
    }
    Ok(())
}

/// Writes a JSON string.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(bytes.get(plain..index).unwrap_or_default());
        plain = index + 1;
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            _ => {
                out.extend_from_slice(b"\\u00");
                for nibble in [byte >> 4, byte & 15] {
                    out.push(HEX.get(usize::from(nibble)).copied().unwrap_or(b'0'));
                }
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
    out.push(b'"');
}
