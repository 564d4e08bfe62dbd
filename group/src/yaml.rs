//! Reading the small YAML files beside the packages.

use serde::de::DeserializeOwned;

use crate::{Finding, Reason, json};

/// Reads one document; what is wrong becomes an entry with line and column.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], reason: Reason) -> Result<T, Finding> {
    let text = json::decode(bytes).map_err(|_| Finding::group(reason, "the file is not UTF-8"))?;
    serde_saphyr::from_str(text).map_err(|error| {
        let message = error.without_snippet().to_string();
        // One line, and not the whole file if a value is quoted.
        let message: String = message
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(300)
            .collect();
        let finding = Finding::group(reason, message);
        match error.location() {
            Some(place) if place.line() > 0 => finding.at(
                u32::try_from(place.line()).unwrap_or(u32::MAX),
                u32::try_from(place.column()).unwrap_or(u32::MAX),
            ),
            _ => finding,
        }
    })
}
