//! Wheels, written by hand: a zip file without compression.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// A wheel to write.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wheel<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// `Requires-Dist` values.
    pub(crate) requires: &'a [&'a str],
    /// `Provides-Extra` values.
    pub(crate) extras: &'a [&'a str],
    /// Path in site-packages → text.
    pub(crate) files: &'a [(&'a str, &'a str)],
    /// `Wheel-Version`, when it is not 1.0.
    pub(crate) format: Option<&'a str>,
    /// The text of `RECORD`, when it is not the right one.
    pub(crate) record: Option<&'a str>,
}

impl Wheel<'_> {
    /// Writes the wheel into `dir` and gives its path.
    pub(crate) fn write(&self, dir: &Path) -> PathBuf {
        std::fs::create_dir_all(dir).unwrap();
        let stem = format!("{}-{}", self.name.replace('-', "_"), self.version);
        let info = format!("{stem}.dist-info");
        let mut metadata = format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {}\n",
            self.name, self.version
        );
        for requirement in self.requires {
            writeln!(metadata, "Requires-Dist: {requirement}").unwrap();
        }
        for extra in self.extras {
            writeln!(metadata, "Provides-Extra: {extra}").unwrap();
        }
        let wheel = format!(
            "Wheel-Version: {}\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            self.format.unwrap_or("1.0")
        );
        let mut files: Vec<(String, Vec<u8>)> = self
            .files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect();
        files.push((format!("{info}/METADATA"), metadata.into_bytes()));
        files.push((format!("{info}/WHEEL"), wheel.into_bytes()));
        // Hashes in RECORD are optional.
        let record = files
            .iter()
            .fold(String::new(), |text, (path, _)| text + path + ",,\n");
        let record = match self.record {
            Some(text) => text.to_owned(),
            None => format!("{record}{info}/RECORD,,\n"),
        };
        files.push((format!("{info}/RECORD"), record.into_bytes()));
        let path = dir.join(format!("{stem}-py3-none-any.whl"));
        std::fs::write(&path, zip(&files)).unwrap();
        path
    }
}

/// A package with one module of its own name.
pub(crate) fn simple(dir: &Path, name: &str, version: &str, requires: &[&str]) -> PathBuf {
    let module = format!("{}/__init__.py", name.replace('-', "_"));
    let code = format!("VERSION = {version:?}\n");
    Wheel {
        name,
        version,
        requires,
        files: &[(&module, &code)],
        ..Wheel::default()
    }
    .write(dir)
}

/// `sha256:…` of a file.
pub(crate) fn hash_of(path: &Path) -> String {
    format!(
        "sha256:{}",
        hex::encode(Sha256::digest(std::fs::read(path).unwrap()))
    )
}

/// A zip archive of stored entries.
fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, data) in files {
        let offset = u32::try_from(out.len()).unwrap();
        let size = u32::try_from(data.len()).unwrap().to_le_bytes();
        // version 2.0, no flags, stored, 1980-01-01 00:00.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        common.extend(crc32(data).to_le_bytes());
        common.extend(size);
        common.extend(size);
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(data);
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        // No comment, disk 0, internal attributes 0, mode 0644.
        directory.extend([0; 6]);
        directory.extend((0o100_644_u32 << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, length) = (out.len(), directory.len());
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    out.extend(count);
    out.extend(count);
    out.extend(u32::try_from(length).unwrap().to_le_bytes());
    out.extend(u32::try_from(start).unwrap().to_le_bytes());
    out.extend([0, 0]);
    out
}

fn crc32(data: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
