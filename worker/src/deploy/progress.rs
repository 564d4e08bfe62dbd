//! Telling the person, or the program, how far a deploy is.

use std::io::Write as _;

use serde::Serialize;

/// How progress is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProgressMode {
    /// One JSON object a line on stdout.
    Json,
    /// For people, on stderr.
    #[default]
    Text,
    /// Nothing.
    None,
}

/// The phases of a deploy, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    Check,
    Resolve,
    Install,
    Pack,
    Import,
    Test,
}

impl Phase {
    fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Resolve => "resolve",
            Self::Install => "install",
            Self::Pack => "pack",
            Self::Import => "import",
            Self::Test => "test",
        }
    }
}

/// One step.
#[derive(Debug, Serialize)]
struct Event<'a> {
    phase: Phase,
    done: u64,
    total: Option<u64>,
    bytes: Option<u64>,
    message: &'a str,
}

/// Writes progress. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress(pub(crate) ProgressMode);

impl Progress {
    /// One step: `done` of `total`, with what is happening in a few words without secrets.
    pub(crate) fn step(
        self,
        phase: Phase,
        done: u64,
        total: Option<u64>,
        bytes: Option<u64>,
        message: &str,
    ) {
        let line = match self.0 {
            ProgressMode::None => return,
            ProgressMode::Json => {
                let event = Event {
                    phase,
                    done,
                    total,
                    bytes,
                    message,
                };
                serde_json::to_string(&event).unwrap_or_default()
            }
            ProgressMode::Text => {
                let count = total.map_or(String::new(), |total| format!(" {done}/{total}"));
                let bytes = bytes.map_or(String::new(), |bytes| format!(" {}", size(bytes)));
                format!("{:>8}{count}{bytes} {message}", phase.word())
            }
        };
        // Nobody listens any more: the deploy itself goes on.
        let _ = match self.0 {
            ProgressMode::Json => writeln!(std::io::stdout().lock(), "{line}"),
            _ => writeln!(std::io::stderr().lock(), "{line}"),
        };
    }
}

/// `12 kB`, `3.4 MB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut whole = bytes;
    let mut tenths = 0;
    let mut unit = "B";
    for next in UNITS {
        if whole < 1000 {
            break;
        }
        tenths = whole % 1000 / 100;
        whole /= 1000;
        unit = next;
    }
    if whole < 10 {
        format!("{whole}.{tenths} {unit}")
    } else {
        format!("{whole} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let shown: Vec<_> = [0, 999, 1000, 12_345, 3_456_789, 256 << 20]
            .map(size)
            .to_vec();
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.0 kB", "12 kB", "3.4 MB", "268 MB"]
        );
    }

    #[test]
    fn an_event_is_one_line_of_json() {
        let event = Event {
            phase: Phase::Pack,
            done: 3,
            total: None,
            bytes: Some(5),
            message: "a\nb",
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"phase":"pack","done":3,"total":null,"bytes":5,"message":"a\nb"}"#
        );
    }
}
