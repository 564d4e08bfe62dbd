//! Each reason of the errors list has a test that brings it up: a folder of `tests/fixtures` whose entry names it, or the test
//! of this table, wherever in the repository that is.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ramen_group::Reason;

const GROUP_CHECKS: &str = "operator/src/group/validate.rs";
const GROUP_CHILDREN: &str = "operator/src/group/build/tests.rs";
const HTTP: &str = "source/tests/http/faults.rs";
const WALK: &str = "source/tests/walk/main.rs";
const SCAN: &str = "group/src/scan/tests.rs";
const DEPLOY: &str = "worker/tests/python_deploy/group.rs";
const PACKAGES: &str = "worker/tests/python_deploy/packages.rs";
const REQUIREMENTS: &str = "worker/tests/python_deploy/requirements.rs";
const STORE: &str = "worker/tests/python_deploy/store.rs";
const RELOAD: &str = "worker/tests/front/reload.rs";
const JOBS: &str = "operator/src/deploy/jobs/tests.rs";

/// A reason, a file of tests, and the test in it that asserts the reason.
const TESTS: &[(Reason, &str, &str)] = &[
    (
        Reason::InvalidSpec,
        GROUP_CHECKS,
        "all_faults_of_a_spec_are_told_at_once",
    ),
    (
        Reason::SecretMissing,
        GROUP_CHECKS,
        "a_secret_that_is_missing_is_named_and_waited_for",
    ),
    (
        Reason::SecretKeyMissing,
        GROUP_CHECKS,
        "a_secret_without_the_key_that_is_needed_is_named",
    ),
    (
        Reason::SecretKeyRefused,
        GROUP_CHECKS,
        "a_secret_that_is_missing_is_named_and_waited_for",
    ),
    (
        Reason::VariableRefused,
        GROUP_CHILDREN,
        "variables_of_the_loader_are_left_out_of_pods_and_told",
    ),
    (
        Reason::AccessKeyUnknown,
        GROUP_CHECKS,
        "what_a_group_names_and_is_not_there_is_told_and_costs_no_more",
    ),
    (
        Reason::UpstreamUnusable,
        GROUP_CHECKS,
        "what_a_group_names_and_is_not_there_is_told_and_costs_no_more",
    ),
    (
        Reason::SourceInvalid,
        "source/tests/walk/repositories.rs",
        "an_empty_repository_and_no_repository_are_told_apart",
    ),
    (
        Reason::SourceUnreachable,
        HTTP,
        "git08_no_error_holds_the_password_of_the_address",
    ),
    (
        Reason::AuthenticationFailed,
        HTTP,
        "git07_a_server_that_always_says_401_is_asked_once",
    ),
    (
        Reason::HostKeyMismatch,
        "source/tests/ssh.rs",
        "git17_an_unknown_or_changed_host_key_is_refused_with_its_fingerprint",
    ),
    (
        Reason::CertificateRefused,
        HTTP,
        "tls_with_an_authority_of_ones_own_works_and_checks_the_name",
    ),
    (
        Reason::RefNotFound,
        "source/tests/http/main.rs",
        "git01_git18_a_ref_that_goes_away_is_named_and_comes_back",
    ),
    (
        Reason::FetchTimeout,
        HTTP,
        "git16_hanging_dripping_and_endless_servers_are_ended",
    ),
    (
        Reason::FetchTooLarge,
        HTTP,
        "git16_hanging_dripping_and_endless_servers_are_ended",
    ),
    (
        Reason::McpFolderMissing,
        DEPLOY,
        "an_empty_group_and_a_folder_without_mcp_say_so",
    ),
    (
        Reason::SubmoduleRefused,
        WALK,
        "git03_git04_git05_submodules_pointers_and_links_are_entries_and_the_rest_loads",
    ),
    (
        Reason::PathRefused,
        WALK,
        "names_that_git_refuses_to_add_are_entries",
    ),
    (
        Reason::CaseTwins,
        WALK,
        "git10_twins_in_case_and_unicode_form_all_load",
    ),
    (
        Reason::FileTooLarge,
        WALK,
        "deep_and_large_trees_end_at_the_limits",
    ),
    (
        Reason::TreeTooLarge,
        WALK,
        "deep_and_large_trees_end_at_the_limits",
    ),
    (
        Reason::EnvSkipped,
        DEPLOY,
        "env_yaml_is_exported_before_the_import_and_a_missing_secret_skips_its_key_with_a_warning",
    ),
    (
        Reason::GuardrailsNotEnforced,
        "worker/tests/python_deploy/contract.rs",
        "guardrails_load_with_a_warning_that_they_are_not_enforced",
    ),
    (
        Reason::StdlibShadowed,
        SCAN,
        "slips_in_the_layout_are_remarked_on",
    ),
    (
        Reason::ModuleReserved,
        REQUIREMENTS,
        "req09_the_built_in_ramen_runtime_wins_over_a_requirement_and_over_a_module",
    ),
    (
        Reason::DescriptionMissing,
        "group/src/descriptor/tests.rs",
        "what_nobody_reads_is_remarked_on",
    ),
    (
        Reason::FieldUnknown,
        "group/src/descriptor/tests.rs",
        "what_nobody_reads_is_remarked_on",
    ),
    (
        Reason::LayoutIgnored,
        SCAN,
        "slips_in_the_layout_are_remarked_on",
    ),
    (
        Reason::RequirementsInvalid,
        REQUIREMENTS,
        "req10_an_option_that_chooses_an_index_is_an_entry_with_its_line",
    ),
    (
        Reason::RequirementsUnsatisfiable,
        REQUIREMENTS,
        "req06_two_pins_that_exclude_each_other_are_both_named",
    ),
    (
        Reason::HashMismatch,
        REQUIREMENTS,
        "req04_an_altered_hash_names_the_package_and_leaves_nothing_installed",
    ),
    (
        Reason::IndexUnreachable,
        REQUIREMENTS,
        "with_the_index_down_known_requirements_still_deploy_and_new_ones_say_why_not",
    ),
    (
        Reason::InstallFailed,
        REQUIREMENTS,
        "a_wheel_that_cannot_be_installed_is_told_in_the_installers_words",
    ),
    (
        Reason::InstallTimeout,
        REQUIREMENTS,
        "req05_a_resolution_without_end_is_stopped_at_the_deadline",
    ),
    (
        Reason::InstallerMissing,
        REQUIREMENTS,
        "a_missing_installer_is_named",
    ),
    (
        Reason::DepsTooLarge,
        REQUIREMENTS,
        "req11_requirements_over_the_limit_are_refused_with_the_limit_named",
    ),
    (
        Reason::DiskFull,
        STORE,
        "req11_a_full_disk_is_called_so_wherever_it_is_and_room_heals_it",
    ),
    (
        Reason::PythonUnavailable,
        DEPLOY,
        "a_python_without_a_host_names_those_there_are",
    ),
    (
        Reason::ImportTimeout,
        PACKAGES,
        "pkg05_imports_that_exit_sleep_spin_or_crash_are_entries_in_bounded_time",
    ),
    (
        Reason::ImportCrashed,
        PACKAGES,
        "pkg05_imports_that_exit_sleep_spin_or_crash_are_entries_in_bounded_time",
    ),
    (
        Reason::GoldenFailed,
        DEPLOY,
        "a_golden_call_that_fails_fails_the_revision_and_names_the_case",
    ),
    (
        Reason::NothingToServe,
        DEPLOY,
        "an_empty_group_and_a_folder_without_mcp_say_so",
    ),
    (
        Reason::LayerMissing,
        RELOAD,
        "a_missing_or_damaged_layer_is_told_and_heals",
    ),
    (
        Reason::LayerCorrupt,
        RELOAD,
        "a_missing_or_damaged_layer_is_told_and_heals",
    ),
    (
        Reason::DeployJobFailed,
        JOBS,
        "ops10_a_job_that_ran_out_of_memory_says_so_and_stays_for_its_log",
    ),
    (
        Reason::DeployJobRefused,
        JOBS,
        "ops06_a_job_without_a_pod_says_in_the_words_of_the_quota_why",
    ),
    (
        Reason::ReloadFailed,
        "operator/src/reload/tests.rs",
        "what_the_canary_refuses_no_other_pod_is_asked",
    ),
    (
        Reason::HostCrashed,
        DEPLOY,
        "a_host_that_is_killed_while_it_loads_is_an_entry_and_no_package_serves",
    ),
    (
        Reason::Internal,
        RELOAD,
        "a_cache_that_cannot_be_used_is_no_fault_of_the_revision",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reasons that an `expected.json` of the fixtures names. The tests of the scan and of the deploy step hold each entry to what
/// they find.
fn of_fixtures() -> BTreeSet<String> {
    let fixtures = root().join("tests/fixtures");
    let cases = fs::read_dir(fixtures.join("broken_files")).unwrap();
    let folders = cases.map(|case| case.unwrap().path());
    let mut named = BTreeSet::new();
    for folder in folders.chain([fixtures.join("broken_group")]) {
        let text = fs::read_to_string(folder.join("expected.json")).unwrap();
        let entries: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let reasons = entries.iter().map(|entry| entry["reason"].as_str());
        named.extend(reasons.map(|reason| reason.unwrap().to_owned()));
    }
    named
}

/// The text of a test: from its name to the brace that ends it.
fn body<'a>(text: &'a str, file: &str, name: &str) -> &'a str {
    let Some(at) = text.find(&format!("fn {name}(")) else {
        panic!("{file} has no test {name}");
    };
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let code = text[line..at].trim_start();
    let indent = &text[line..at - code.len()];
    let above = text[..line].lines().next_back().unwrap_or_default().trim();
    assert!(
        above == "#[test]" || above.starts_with("#[tokio::test"),
        "{file}: {name} is no test"
    );
    let end = format!("\n{indent}}}");
    let length = text[line..].find(&end).unwrap();
    &text[line..line + length]
}

#[test]
fn each_reason_has_a_test_that_brings_it_up() {
    let fixtures = of_fixtures();
    let without: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| !fixtures.contains(reason.as_str()))
        .filter(|reason| !TESTS.iter().any(|(tested, _, _)| tested == *reason))
        .collect();
    assert!(
        without.is_empty(),
        "no fixture and no row of TESTS: {without:?}"
    );
}

#[test]
fn each_test_of_the_table_exists_and_asserts_its_reason() {
    for (reason, file, test) in TESTS {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let body = body(&text, file, test);
        let (value, name) = (format!("Reason::{reason}"), format!("\"{reason}\""));
        let told = body.match_indices(&value).any(|(at, found)| {
            let next = body[at + found.len()..].chars().next();
            !next.is_some_and(char::is_alphanumeric)
        });
        assert!(
            told || body.contains(&name),
            "{file}: {test} says nothing of {reason}"
        );
    }
}
