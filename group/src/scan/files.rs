//! The files beside the packages: requirements, environment, golden calls, guardrails.

use std::fs;

use super::Group;
use super::walk::Tree;
use crate::{Engine, EnvFile, Finding, GoldenTests, Guardrails, Reason, Requirements};

/// Largest of these files.
const MAX_BYTES: u64 = 1 << 20;

pub(super) fn load(group: &mut Group, tree: &Tree) {
    if let Some(bytes) = read(group, tree, "requirements.txt", Reason::RequirementsInvalid) {
        group.requirements = Some(Requirements::read(&group.root, &bytes));
    }
    if let Some(bytes) = read(group, tree, "env.yaml", Reason::EnvInvalid) {
        let (env, errors) = EnvFile::parse(&bytes);
        group.errors.extend(
            errors
                .into_iter()
                .map(|error| error.at_path("mcp/env.yaml")),
        );
        group.env = Some(env);
    }
    if let Some(bytes) = read(group, tree, "tests.yaml", Reason::TestsInvalid) {
        match GoldenTests::parse(&bytes) {
            Ok(tests) => {
                unknown_tools(group, &tests);
                group.tests = Some(tests);
            }
            Err(error) => group.errors.push(error.at_path("mcp/tests.yaml")),
        }
    }
    if let Some(bytes) = read(group, tree, "guardrails.yaml", Reason::GuardrailsInvalid) {
        match Guardrails::parse(&bytes) {
            Ok(guardrails) => {
                judge_engine(group, tree, &guardrails);
                group.guardrails = Some(guardrails);
            }
            Err(error) => group.errors.push(error.at_path("mcp/guardrails.yaml")),
        }
    }
}

fn read(group: &mut Group, tree: &Tree, file: &str, reason: Reason) -> Option<Vec<u8>> {
    // A link or pointer of that name has its entry already.
    if !tree.has(file) || tree.faults_of(file).next().is_some() {
        return None;
    }
    let path = group.root.join(file);
    let small = fs::symlink_metadata(&path).is_ok_and(|meta| meta.len() <= MAX_BYTES);
    let bytes = small.then(|| fs::read(&path).ok()).flatten();
    if bytes.is_none() {
        let message = format!(
            "the file cannot be read, or is larger than {} KiB",
            MAX_BYTES / 1024
        );
        group
            .errors
            .push(Finding::group(reason, message).at_path(format!("mcp/{file}")));
    }
    bytes
}

/// A golden call of a tool that has no folder can never pass.
fn unknown_tools(group: &mut Group, tests: &GoldenTests) {
    for case in &tests.cases {
        let known = group
            .packages
            .iter()
            .any(|package| package.id().strip_prefix("tools/") == Some(case.tool.as_str()));
        if !known {
            let cut = |text: &str| text.chars().take(64).collect::<String>();
            let message = format!(
                "case `{}` calls `{}`, which is not a tool here",
                cut(&case.name),
                cut(&case.tool)
            );
            let finding = Finding::group(Reason::TestsInvalid, message);
            group.errors.push(finding.at_path("mcp/tests.yaml"));
        }
    }
}

/// What the engine needs must be there; and whoever relies on its hooks must know that none is run.
fn judge_engine(group: &mut Group, tree: &Tree, guardrails: &Guardrails) {
    let message = match guardrails.engine {
        Engine::None => return,
        Engine::Policy if tree.has("guardrails/policy.py") => return not_enforced(group),
        Engine::Policy => "`engine: policy` needs mcp/guardrails/policy.py",
        Engine::Nemo => {
            let required = group.requirements.as_ref().is_some_and(|requirements| {
                requirements
                    .names
                    .iter()
                    .any(|name| name == "nemoguardrails")
            });
            if required {
                return not_enforced(group);
            }
            "`engine: nemo` needs `nemoguardrails` in mcp/requirements.txt"
        }
    };
    let finding = Finding::group(Reason::GuardrailsInvalid, message);
    group.errors.push(finding.at_path("mcp/guardrails.yaml"));
}

fn not_enforced(group: &mut Group) {
    let message = "the file is checked, but this version does not enforce it: every call goes through without its hooks";
    let finding = Finding::group(Reason::GuardrailsNotEnforced, message);
    group.warnings.push(finding.at_path("mcp/guardrails.yaml"));
}
