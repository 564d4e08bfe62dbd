//! File descriptors: each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is left for everything but connections: files, the runtime, connections to others.
const OTHERS: u64 = 512;

/// Allows the process as many descriptors as it may have, and says how many of `wanted` connections
/// there is room for. The usual soft limit of 1,024 is for programs that call `select`; we do not.
pub fn places(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors cannot be raised");
            limit.current
        }
    };
    // `None`: no limit.
    let Some(current) = current else {
        return wanted;
    };
    let room = current.saturating_sub(OTHERS).max(current / 2);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if room < wanted {
        tracing::warn!(
            descriptors = current,
            wanted,
            connections = room,
            "too few file descriptors for so many connections; raise the hard limit (ulimit -Hn)"
        );
    }
    wanted.min(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_places_than_descriptors() {
        let limit = getrlimit(Resource::Nofile).maximum;
        assert_eq!(places(10), 10);
        if let Some(limit) = limit {
            assert!((places(usize::MAX) as u64) < limit);
        }
        assert_eq!(getrlimit(Resource::Nofile).current, limit, "raised");
    }
}
