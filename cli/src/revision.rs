//! Revisions and ages as a table shows them.

use std::time::Duration;

/// Characters of a commit in a table.
const SHORT: usize = 10;

/// `main@0123456789` for `main@sha1:0123456789abcdef…`.
pub(crate) fn short(revision: &str) -> String {
    let (name, id) = revision
        .rsplit_once('@')
        .map_or(("", revision), |(name, id)| (name, id));
    let id = id.rsplit_once(':').map_or(id, |(_, hex)| hex);
    let id = id.get(..SHORT).unwrap_or(id);
    if name.is_empty() {
        id.to_owned()
    } else {
        format!("{name}@{id}")
    }
}

/// `5s`, `12m`, `3h`, `4d`.
pub(crate) fn age(age: Duration) -> String {
    let secs = age.as_secs();
    match secs {
        0..120 => format!("{secs}s"),
        120..7200 => format!("{}m", secs / 60),
        7200..172_800 => format!("{}h", secs / 3600),
        _ => format!("{}d", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_and_ages_are_short() {
        assert_eq!(
            short("main@sha1:0123456789abcdef0123456789abcdef01234567"),
            "main@0123456789"
        );
        assert_eq!(
            short("sha1:0123456789abcdef0123456789abcdef01234567"),
            "0123456789"
        );
        assert_eq!(short("folder@abc"), "folder@abc");
        assert_eq!(age(Duration::from_secs(119)), "119s");
        assert_eq!(age(Duration::from_mins(2)), "2m");
        assert_eq!(age(Duration::from_secs(200_000)), "2d");
    }
}
