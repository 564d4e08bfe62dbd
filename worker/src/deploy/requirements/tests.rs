use std::fs;

use ramen_group::Reason;

use super::*;

fn read(files: &[(&str, &str)], allow_sources: bool) -> Plan {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Plan::read(dir.path(), allow_sources)
}

fn plain(text: &str) -> Plan {
    read(&[("requirements.txt", text)], false)
}

/// `path:line message` of each error.
fn errors(plan: &Plan) -> Vec<String> {
    let place = |f: &Finding| {
        format!(
            "{}:{} {}",
            f.path.clone().unwrap(),
            f.line.unwrap_or(0),
            f.message
        )
    };
    plan.errors.iter().map(place).collect()
}

fn only_error(text: &str) -> String {
    let plan = plain(text);
    let errors = errors(&plan);
    assert_eq!(errors.len(), 1, "{text}: {errors:?}");
    errors.into_iter().next().unwrap()
}

const HASH: &str = "sha256:0354a95b311b9bd04a5d71f1d83ae3593af3572e724cb5f22fc48e9957ebfa56";

#[test]
fn no_file_asks_for_nothing() {
    let plan = read(&[], false);
    assert!(plan.is_empty() && plan.errors.is_empty());
}

#[test]
fn req01_comments_blanks_continuations_crlf_and_a_missing_last_newline_are_read_as_pip_does() {
    let plan = plain(
        "\u{feff}# head\r\n\r\nalpha==1.0 \\\r\n  ; python_version > '3'  # why\r\nbeta # note\r\n   # \\\r\ngamma#1\r\ndelta>=1,<2",
    );
    assert_eq!(
        errors(&plan),
        [
            "mcp/requirements.txt:7 `gamma#1` is not a requirement (a name, then versions such as `>=1.0`)"
        ]
    );
    assert_eq!(
        plan.text(),
        "alpha==1.0 ; python_version > '3'\nbeta\ndelta>=1,<2\n"
    );
    assert_eq!(
        plan.place_in("Because delta was not found").unwrap().line,
        8
    );
    assert_eq!(plan.place_at(36).unwrap().line, 5);
}

#[test]
fn req02_included_files_are_relative_to_the_file_that_names_them() {
    let plan = read(
        &[
            (
                "requirements.txt",
                "-r more/extra.txt\n-c limits.txt\nalpha",
            ),
            ("more/extra.txt", "beta\n-r deeper/last.txt"),
            ("more/deeper/last.txt", "gamma"),
            ("limits.txt", "beta<2\n-r more/limits.txt"),
            ("more/limits.txt", "alpha<3"),
        ],
        false,
    );
    assert_eq!(errors(&plan), [""; 0]);
    assert_eq!(plan.text(), "beta\ngamma\nalpha\n");
    assert_eq!(plan.constraints_text(), "beta<2\nalpha<3\n");
    assert_eq!(
        plan.place_in("gamma").unwrap().path,
        "mcp/more/deeper/last.txt"
    );
}

#[test]
fn req02_includes_stay_inside_mcp_and_end() {
    for line in [
        "-r ../secret.txt",
        "--requirement=/etc/passwd",
        "-r more/../../x",
    ] {
        assert!(
            only_error(line).contains("is not a file under mcp/"),
            "{line}"
        );
    }
    assert!(only_error("-r gone.txt").contains("mcp/gone.txt does not exist"));
    let looped = read(
        &[
            ("requirements.txt", "-r a.txt"),
            ("a.txt", "x\n-r requirements.txt"),
        ],
        false,
    );
    assert_eq!(
        errors(&looped),
        ["mcp/a.txt:2 mcp/requirements.txt includes itself"]
    );
}

#[test]
fn req02_paths_start_at_mcp_and_wheels_are_pinned_to_their_own_hash() {
    let wheel = "libs/tiny_lib-1.2-py3-none-any.whl";
    let plan = read(
        &[
            ("requirements.txt", "-r more/a.txt"),
            ("more/a.txt", &format!("./{wheel}")),
            (wheel, "zip"),
        ],
        false,
    );
    assert_eq!(errors(&plan), [""; 0]);
    assert_eq!(plan.text(), "tiny-lib==1.2\n");
    let hash = format!("sha256:{}", crate::deploy::sha256_hex(b"zip"));
    assert!(plan.hashes["tiny-lib"].contains(&hash));
    assert_eq!(plan.wheel_dirs.len(), 1);
}

#[test]
fn req02_local_sources_need_permission_and_an_editable_one_is_installed_plainly() {
    let files = [
        ("requirements.txt", "./libs/pkg\n-e ./libs/pkg[fast]"),
        ("libs/pkg/pyproject.toml", ""),
    ];
    let refused = read(&files, false);
    assert_eq!(refused.errors.len(), 2);
    assert!(errors(&refused)[0].contains("--allow-sdist"));
    let allowed = read(&files, true);
    assert_eq!(errors(&allowed), [""; 0]);
    assert_eq!(allowed.local.len(), 2);
    assert_eq!(allowed.local[1].extras, "[fast]");
    assert_eq!(allowed.warnings.len(), 1);
}

#[test]
fn req03_a_hash_and_a_version_control_line_do_not_go_together() {
    let text = format!(
        "alpha==1.0 --hash={HASH}\nbeta @ git+https://git.test/b@{}",
        "a".repeat(40)
    );
    assert!(
        only_error(&text).starts_with("mcp/requirements.txt:2 `beta @ git+https://git.test/b@")
    );
    let allowed = read(&[("requirements.txt", &text)], true);
    assert!(
        errors(&allowed)[0].contains("hashes are all or none"),
        "{:?}",
        errors(&allowed)
    );
}

#[test]
fn req04_hashes_are_kept_by_normalised_name() {
    let plan = plain(&format!(
        "Al_Pha==1.0 --hash={HASH} \\\n  --hash sha256:{}",
        "b".repeat(64)
    ));
    assert_eq!(errors(&plan), [""; 0]);
    assert_eq!(plan.text(), "Al_Pha==1.0\n");
    assert_eq!(plan.hashes["al-pha"].len(), 2);
    assert!(only_error("alpha==1 --hash=sha256:12").contains("hexadecimal"));
    assert!(only_error(&format!("alpha>=1 --hash={HASH}")).contains("no version pinned"));
}

#[test]
fn req07_markers_and_extras_reach_the_resolver() {
    let plan = plain("pywin32; sys_platform=='win32'\nuvicorn[standard, x] >=0.30\nq (>=1)");
    assert_eq!(errors(&plan), [""; 0]);
    assert_eq!(
        plan.text(),
        "pywin32 ; sys_platform=='win32'\nuvicorn[standard,x]>=0.30\nq>=1\n"
    );
}

#[test]
fn req08_a_branch_makes_the_plan_moving_and_a_commit_does_not() {
    let of = |reference: &str| {
        let text = format!("git+https://git.test/b@{reference}");
        read(&[("requirements.txt", &text)], true)
    };
    assert!(of("main").moving && !of(&"0".repeat(40)).moving);
}

#[test]
fn req09_the_built_in_helper_is_not_installed() {
    let plan = plain("ramen_runtime>=1\nalpha");
    assert_eq!(plan.text(), "alpha\n");
    assert_eq!(plan.warnings[0].reason, Reason::ModuleReserved);
    assert_eq!(plan.warnings[0].line, Some(1));
}

#[test]
fn req10_options_that_choose_an_index_are_refused_with_their_line() {
    for option in [
        "--index-url https://x/simple",
        "-i https://x",
        "-ihttps://x",
        "--extra-index-url=https://x/simple",
        "--find-links ./wheels",
        "-f wheels",
        "--no-index",
        "--trusted-host x",
    ] {
        let error = only_error(&format!("alpha\n{option}\n"));
        assert!(error.starts_with("mcp/requirements.txt:2 `-"), "{error}");
        assert!(
            error.contains("who runs the deploy chooses the index"),
            "{error}"
        );
        assert!(!error.contains("https://"), "{error}");
    }
    for option in [
        "--use-feature=x",
        "--config-settings a=b",
        "alpha --global-option=x",
    ] {
        assert!(only_error(option).contains("is not allowed"), "{option}");
    }
}

#[test]
fn req10_harmless_options_are_allowed() {
    let plan = plain("--pre\n--require-hashes\n--prefer-binary\n--only-binary :all:\nalpha");
    assert_eq!(errors(&plan), [""; 0]);
    assert!(plan.pre);
    assert_eq!(plan.text(), "alpha\n");
    assert!(only_error("--no-binary alpha").contains("--allow-sdist"));
    assert_eq!(
        read(&[("requirements.txt", "--no-binary=alpha\nalpha")], true).no_binary,
        ["alpha"]
    );
}

#[test]
fn addresses_must_be_https_wheels_without_credentials() {
    let wheel = "https://files.test/a/tiny-1.0-py3-none-any.whl";
    assert_eq!(plain(wheel).text(), format!("tiny @ {wheel}\n"));
    assert_eq!(
        plain(&format!("tiny[x] @ {wheel} ; python_version>'3'")).text(),
        format!("tiny[x] @ {wheel} ; python_version>'3'\n")
    );
    assert!(
        only_error("https://me:pw@files.test/tiny-1.0-py3-none-any.whl").contains("credentials")
    );
    assert!(only_error("http://files.test/tiny-1.0-py3-none-any.whl").contains("only https"));
    assert!(only_error("file:///etc/tiny-1.0-py3-none-any.whl").contains("only https"));
    assert!(only_error("tiny @ https://files.test/tiny-1.0.tar.gz").contains("--allow-sdist"));
    assert!(only_error("alpha ${HOME}").contains("environment variables"));
}

#[test]
fn lines_that_are_no_requirements_are_named() {
    for line in [
        "al pha==1",
        "==1.0",
        "alpha==",
        "alpha =>1",
        "[x]",
        "alpha[x",
    ] {
        let plan = plain(line);
        // `alpha==` is left to the resolver, which says where it stops.
        assert!(
            plan.errors.len() == 1 || line == "alpha==" || line == "alpha =>1",
            "{line}"
        );
    }
    assert!(only_error("../outside").contains("does not lie under mcp/"));
    assert!(only_error("./gone").contains("does not exist (paths start at mcp/)"));
}

#[test]
fn wheel_names_are_read() {
    assert_eq!(
        wheel_name("A_b-1.0-py3-none-any.whl"),
        Some(("a-b".into(), "1.0".into()))
    );
    assert_eq!(
        wheel_name("a-1.0-1-cp311-cp311-linux_x86_64.whl"),
        Some(("a".into(), "1.0".into()))
    );
    assert_eq!(wheel_name("a.whl"), None);
    assert_eq!(wheel_name("a-1.0.tar.gz"), None);
}

#[test]
fn nothing_after_a_requirement_reaches_the_installer_as_an_option() {
    for line in [
        "alpha -i https://evil.test",
        "alpha ; python_version > '3' -i https://evil.test",
        "tiny @ https://files.test/tiny-1.0-py3-none-any.whl -f x",
        "./tiny-1.0-py3-none-any.whl -f x",
        "alpha;--pre",
        "alpha;-i evil",
    ] {
        assert!(
            only_error(line).contains("is not allowed after a requirement"),
            "{line}"
        );
    }
}

proptest::proptest! {
    /// Whatever the file says, each line for the installer starts with a name or an address.
    #[test]
    fn no_file_makes_an_option_of_the_installer(
        words in proptest::collection::vec("(--[a-z-]{1,12}|-[a-z]|[a-z]{1,4}|==1\\.0|;|#|\\\\|\n|\r\n| |@|https://x/a-1-py3-none-any\\.whl|\\[x\\]|\\$\\{A\\})", 0..24),
        sources in proptest::bool::ANY,
    ) {
        let plan = read(&[("requirements.txt", &words.concat())], sources);
        for line in plan.text().lines().chain(plan.constraints_text().lines()) {
            proptest::prop_assert!(line.starts_with(|c: char| c.is_ascii_alphanumeric()), "{line:?}");
            proptest::prop_assert!(!line.contains(" -") && !line.contains("${"), "{line:?}");
        }
    }
}
