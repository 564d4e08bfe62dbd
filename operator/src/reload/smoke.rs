//! What a worker offers after a reload is what the deploy said.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ramen_group::{PackageKind, ReportPackage};
use ramen_proto::v1::ReloadResponse;
use ramen_redact::Secret;
use serde_json::{Value, json};
use tonic::Code;

use super::worker::Worker;

/// Pages of a list that are read.
const MAX_PAGES: usize = 64;
/// Names that a message lists.
const SHOWN: usize = 10;

/// Compares the numbers in the answer to a reload.
pub(super) fn numbers(response: &ReloadResponse, packages: &[ReportPackage]) -> Result<(), String> {
    for (kind, found) in [
        (PackageKind::Tool, response.tools),
        (PackageKind::Resource, response.resources),
        (PackageKind::Prompt, response.prompts),
    ] {
        let serves = packages.iter().filter(|one| one.ok && one.kind == kind);
        let wanted = serves.count();
        if usize::try_from(found) != Ok(wanted) {
            let folder = kind.folder();
            return Err(format!("it serves {found} {folder} instead of {wanted}"));
        }
    }
    Ok(())
}

/// Asks for `tools/list` as a caller would, and compares the names. A worker whose ranges do not admit
/// the operator cannot be asked: the numbers have to do.
pub(super) async fn tools(
    worker: &Worker,
    key: &Secret,
    packages: &[ReportPackage],
) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut cursor: Option<String> = None;
    for page in 0..MAX_PAGES {
        let request = json!({
            "jsonrpc": "2.0", "id": page, "method": "tools/list",
            "params": cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor})),
        });
        let answer = match worker.call(request.to_string().into_bytes(), key).await {
            Ok(answer) => answer,
            Err(status)
                if matches!(
                    status.code(),
                    Code::PermissionDenied | Code::Unauthenticated | Code::ResourceExhausted
                ) =>
            {
                tracing::debug!(code = %status.code(), "the tools cannot be asked for");
                return Ok(());
            }
            Err(status) => {
                let (code, message) = (status.code(), status.message());
                return Err(format!("tools/list fails: {code}: {message}"));
            }
        };
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("tools/list answers no JSON: {error}"))?;
        let Some(tools) = answer.pointer("/result/tools").and_then(Value::as_array) else {
            let error = answer.pointer("/error/message").and_then(Value::as_str);
            let error: String = error
                .unwrap_or("no list of tools")
                .chars()
                .take(300)
                .collect();
            return Err(format!("tools/list fails: {error}"));
        };
        let of_page = tools.iter().filter_map(|tool| tool.get("name")?.as_str());
        names.extend(of_page.map(str::to_owned));
        cursor = match answer.pointer("/result/nextCursor").and_then(Value::as_str) {
            Some(next) => Some(next.to_owned()),
            None => return compare(&names, packages),
        };
    }
    Err(format!("tools/list has more than {MAX_PAGES} pages"))
}

fn compare(found: &BTreeSet<String>, packages: &[ReportPackage]) -> Result<(), String> {
    let wanted: BTreeSet<&str> = packages
        .iter()
        .filter(|one| one.ok && one.kind == PackageKind::Tool)
        .map(|one| one.name.as_str())
        .collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let missing = list(wanted.difference(&found));
    let more = list(found.difference(&wanted));
    match (missing, more) {
        (None, None) => Ok(()),
        (Some(missing), None) => Err(format!("tools/list lacks {missing}")),
        (None, Some(more)) => Err(format!("tools/list has {more} besides")),
        (Some(missing), Some(more)) => {
            Err(format!("tools/list lacks {missing} and has {more} besides"))
        }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a &'a str>) -> Option<String> {
    let names: Vec<&str> = names.copied().collect();
    if names.is_empty() {
        return None;
    }
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        let more = names.len() - SHOWN;
        // Writing to a String cannot fail.
        let _ = write!(text, " and {more} more");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Vec<ReportPackage> {
        let package = |name: &&str| ReportPackage {
            kind: PackageKind::Tool,
            name: (*name).into(),
            description: None,
            ok: !name.starts_with("bad"),
            uri: None,
        };
        names.iter().map(package).collect()
    }

    #[test]
    fn the_names_of_the_tools_must_be_those_of_the_report() {
        let found = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = packages(&["a", "b", "bad1"]);
        assert_eq!(compare(&found(&["b", "a"]), &wanted), Ok(()));
        let lacks = compare(&found(&["a"]), &wanted);
        assert_eq!(lacks, Err("tools/list lacks b".into()));
        let both = compare(&found(&["a", "c"]), &wanted);
        assert_eq!(both, Err("tools/list lacks b and has c besides".into()));
        let many: Vec<String> = (0..30).map(|n| format!("t{n:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let none = compare(&BTreeSet::new(), &packages(&many)).unwrap_err();
        assert!(none.ends_with("t09 and 20 more"), "{none}");
    }

    #[test]
    fn the_numbers_must_be_those_of_the_report() {
        let response = |tools| ReloadResponse {
            generation: 1,
            tools,
            resources: 0,
            prompts: 0,
        };
        let wanted = packages(&["a", "bad"]);
        assert_eq!(numbers(&response(1), &wanted), Ok(()));
        let more = numbers(&response(2), &wanted);
        assert_eq!(more, Err("it serves 2 tools instead of 1".into()));
    }
}
