//! What `uv` prints when it fails, turned into a reason and plain words.

use ramen_group::Reason;

use super::UvFault;

/// Reads what `uv` printed when it failed.
pub(super) fn explain(stderr: &str) -> UvFault {
    let mut parts: Vec<String> = Vec::new();
    let mut found = false;
    for line in stderr.lines() {
        let text = line
            .trim_start_matches([' ', '│', '╰', '├', '─', '▶'])
            .trim();
        // Its option is not one of ours; `advise` names the way out.
        if text.starts_with("hint:") && text.contains("--no-build") {
            continue;
        }
        let starts = text
            .strip_prefix("error:")
            .or_else(|| text.strip_prefix('×'));
        let starts = starts.or_else(|| {
            text.strip_prefix("cause:")
                .or_else(|| text.strip_prefix("Caused by:"))
        });
        if let Some(rest) = starts {
            found = true;
            parts.push(rest.trim().to_owned());
        } else if line.contains("╰─▶") || text.starts_with("hint:") {
            parts.push(text.to_owned());
        } else if found
            && !text.is_empty()
            && !text.starts_with("warning:")
            && let Some(last) = parts.last_mut()
        {
            last.push(' ');
            last.push_str(text);
        }
    }
    if parts.is_empty() {
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        parts.push(
            last.unwrap_or("the installer failed without a word")
                .trim()
                .to_owned(),
        );
    }
    let whole = parts.join(": ");
    let reason = classify(&whole);
    let message = match reason {
        Reason::RequirementsUnsatisfiable => {
            parts.iter().skip(1).cloned().collect::<Vec<_>>().join(" ")
        }
        Reason::DiskFull => "no space left on the disk that the installer writes to".to_owned(),
        _ => whole.clone(),
    };
    let message = if message.is_empty() {
        whole.clone()
    } else {
        message
    };
    let offset = whole.split_once("at position ").and_then(|(_, rest)| {
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    });
    UvFault {
        reason,
        message: advise(message, &whole),
        offset,
        ended: None,
    }
}

fn classify(text: &str) -> Reason {
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    if has(&[
        "No space left on device",
        "Disk quota exceeded",
        "os error 28",
        "os error 122",
    ]) {
        Reason::DiskFull
    } else if has(&["Hash mismatch", "hash mismatch"]) {
        Reason::HashMismatch
    } else if has(&[
        "Couldn't parse requirement",
        "Unsupported requirement",
        "Unexpected '",
    ]) {
        Reason::RequirementsInvalid
    } else if has(&[
        "could not be queried",
        "Failed to fetch",
        "Request failed after",
        "error sending request",
    ]) {
        Reason::IndexUnreachable
    } else if has(&["No solution found", "unsatisfiable"]) {
        Reason::RequirementsUnsatisfiable
    } else {
        Reason::InstallFailed
    }
}

fn advise(mut message: String, whole: &str) -> String {
    let only_source = ["has no usable wheels", "building from source is disabled"];
    if only_source.iter().any(|words| whole.contains(words)) {
        message
            .push_str(" (only wheels are installed unless sources are allowed: `--allow-sdist`)");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_told_in_the_resolvers_words() {
        let fault = explain(
            "Using CPython 3.11.7\nerror: No solution found when resolving dependencies\n  cause: Because you require beta==1.0 and beta>=2, we can\n         conclude that your requirements are unsatisfiable.\n",
        );
        assert_eq!(fault.reason, Reason::RequirementsUnsatisfiable);
        assert_eq!(
            fault.message,
            "Because you require beta==1.0 and beta>=2, we can conclude that your requirements are unsatisfiable."
        );
    }

    #[test]
    fn the_older_form_with_a_tree_is_read_too() {
        let fault = explain(
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because a was not found,\n      we can conclude.\n",
        );
        assert_eq!(fault.reason, Reason::RequirementsUnsatisfiable);
        assert_eq!(fault.message, "Because a was not found, we can conclude.");
    }

    #[test]
    fn causes_are_joined() {
        let fault = explain(
            "error: Request failed after 3 retries in 7.5s\n  cause: Failed to fetch: http://127.0.0.1:9/simple/alpha/\n  cause: Connection refused (os error 111)\n",
        );
        assert_eq!(fault.reason, Reason::IndexUnreachable);
        assert_eq!(
            fault.message,
            "Request failed after 3 retries in 7.5s: Failed to fetch: http://127.0.0.1:9/simple/alpha/: Connection refused (os error 111)"
        );
    }

    #[test]
    fn a_hash_mismatch_names_the_package_and_both_hashes() {
        let fault = explain(
            "error: Failed to download `beta==1.0`\n  cause: Hash mismatch for `beta==1.0`\n\n         Expected:\n           sha256:00\n\n         Computed:\n           sha256:03\n",
        );
        assert_eq!(fault.reason, Reason::HashMismatch);
        assert!(
            fault.message.contains("beta==1.0") && fault.message.contains("sha256:03"),
            "{}",
            fault.message
        );
    }

    #[test]
    fn the_place_of_a_bad_line_is_found() {
        let fault = explain(
            "error: Couldn't parse requirement in `requirements.txt` at position 17\n  cause: Expected one of `@`\n",
        );
        assert_eq!(
            (fault.reason, fault.offset),
            (Reason::RequirementsInvalid, Some(17))
        );
    }

    #[test]
    fn what_is_not_known_is_the_installers_failure_in_its_own_words() {
        let fault = explain("warning: x\nerror: Failed to build `a`\n  cause: exit status: 1\n");
        assert_eq!(
            (fault.reason, fault.message.as_str()),
            (Reason::InstallFailed, "Failed to build `a`: exit status: 1")
        );
        let silent = explain("\n");
        assert_eq!(silent.reason, Reason::InstallFailed);
        assert_eq!(silent.message, "the installer failed without a word");
    }

    #[test]
    fn a_full_disk_is_called_so() {
        let fault = explain(
            "error: Failed to install: x\n  cause: No space left on device (os error 28)\n",
        );
        assert_eq!(fault.reason, Reason::DiskFull);
    }
}
