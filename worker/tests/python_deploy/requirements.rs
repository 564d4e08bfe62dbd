//! The rows REQ01–REQ11, and where packages come from.

use std::path::Path;
use std::process::Command;

use ramen_group::{Outcome, Reason};
use serde_json::json;

use crate::index::{Index, Manner};
use crate::kit::{Kit, each_python};
use crate::wheel::{Wheel, hash_of, simple};

/// A tool that answers with the `VERSION` of a module.
fn version_tool(kit: &Kit, module: &str) {
    let code = format!("import {module}\n\ndef version():\n    return {module}.VERSION\n");
    kit.tool("version", &code, &json!({}));
}

fn expect_version(kit: &Kit, module: &str, version: &str) {
    version_tool(kit, module);
    kit.golden(&[("version", json!({}), json!({"text_contains": version}))]);
}

#[test]
fn req01_comments_continuations_crlf_and_a_missing_last_newline_install() {
    each_python(|python| {
        let kit = Kit::on(python);
        for name in ["alpha", "beta", "gamma"] {
            simple(&kit.wheels(), name, "1.0", &[]);
        }
        kit.requirements(
        "\u{feff}# head\r\n\r\nalpha==1.0 \\\r\n  ; python_version > '3'  # why\r\nbeta\r\ngamma",
    );
        expect_version(&kit, "gamma", "1.0");
        let ran = kit.deploy().ok();
        let lock = ran.report.lock.unwrap();
        assert_eq!(lock.matches("==1.0").count(), 3, "{lock}");
        assert_eq!(lock.matches("--hash=sha256:").count(), 3, "{lock}");
        assert!(ran.report.deps.is_some() && ran.report.lock_key.is_some());
    });
}

#[test]
fn req02_included_files_and_wheels_of_the_repo_install() {
    let kit = Kit::new();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    simple(&kit.path("repo/mcp/libs"), "tiny-lib", "1.2", &["alpha"]);
    kit.requirements("-r more/extra.txt\n");
    kit.write("more/extra.txt", "./libs/tiny_lib-1.2-py3-none-any.whl\n");
    expect_version(&kit, "tiny_lib", "1.2");
    let ran = kit.deploy().ok();
    assert!(ran.report.lock.unwrap().starts_with("alpha==1.0"));
}

/// A source tree with a build backend of its own, so that building needs no index.
fn source_tree(root: &Path, version: &str) {
    let write = |path: &str, text: &str| {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), text).unwrap();
    };
    write(
        "pyproject.toml",
        "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n[project]\nname = \"local-lib\"\ndynamic = [\"version\"]\n",
    );
    write("local_lib.py", &format!("VERSION = {version:?}\n"));
    let backend = r#"
import pathlib, zipfile

VERSION = "@@"
INFO = f"local_lib-{VERSION}.dist-info"
METADATA = f"Metadata-Version: 2.1\nName: local-lib\nVersion: {VERSION}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory, INFO)
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "WHEEL").write_text(WHEEL)
    return INFO


def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = f"local_lib-{VERSION}-py3-none-any.whl"
    files = {"local_lib.py": pathlib.Path("local_lib.py").read_text(), INFO + "/METADATA": METADATA, INFO + "/WHEEL": WHEEL}
    files[INFO + "/RECORD"] = "".join(f"{path},,\n" for path in [*files, INFO + "/RECORD"])
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return name


def build_sdist(directory, config_settings=None):
    raise NotImplementedError
"#;
    write("backend.py", &backend.replace("@@", version));
}

#[test]
fn req02_local_folders_need_permission_and_start_at_mcp() {
    let kit = Kit::new();
    source_tree(&kit.path("repo/mcp/libs/pkg"), "3.0");
    kit.requirements("-r more/extra.txt\n");
    kit.write("more/extra.txt", "-e ./libs/pkg\n");
    expect_version(&kit, "local_lib", "3.0");
    let refused = kit.deploy();
    let finding = refused.failed(Reason::RequirementsInvalid);
    assert_eq!(finding.path.as_deref(), Some("mcp/more/extra.txt"));
    assert_eq!(finding.line, Some(1));
    assert!(
        finding.message.contains("--allow-sdist"),
        "{}",
        finding.message
    );

    let ran = kit.deploy_with(&["--allow-sdist"]).ok();
    assert!(ran.report.lock.unwrap().starts_with("local-lib==3.0"));
    // The repo is as it was.
    assert!(!kit.path("repo/mcp/libs/pkg/build").exists());
    // The same folder again: nothing is built.
    let again = kit.deploy_with(&["--allow-sdist"]).ok();
    assert_eq!(again.report.deps, ran.report.deps);
    // Other content under the same version is another lock.
    kit.write("libs/pkg/local_lib.py", "VERSION = '3.0 patched'\n");
    kit.golden(&[(
        "version",
        json!({}),
        json!({"text_contains": "3.0 patched"}),
    )]);
    let changed = kit.deploy_with(&["--allow-sdist"]).ok();
    assert_ne!(changed.report.deps, ran.report.deps);
}

/// A local source whose build does this, with permission to build it.
fn building(code: &str) -> Kit {
    let mut kit = Kit::with_tool();
    let root = kit.path("repo/mcp/libs/pkg");
    source_tree(&root, "3.0");
    let backend = std::fs::read_to_string(root.join("backend.py")).unwrap();
    let build = "def build_wheel(directory, config_settings=None, metadata_directory=None):\n";
    assert!(backend.contains(build));
    let backend = backend.replace(build, &format!("{build}    {code}\n"));
    std::fs::write(root.join("backend.py"), backend).unwrap();
    kit.requirements("./libs/pkg\n");
    kit.args.push("--allow-sdist".into());
    kit
}

#[test]
fn a_build_that_writes_without_end_is_stopped_at_the_limit_of_requirements() {
    let writes = "import time\n    with open('data', 'wb') as file:\n        while True: file.write(b'x' * 1_000_000), time.sleep(0.01)";
    let temporary = format!("import os\n    os.chdir(os.environ['TMPDIR'])\n    {writes}");
    for code in [writes, &temporary] {
        let kit = building(code);
        let ran = kit.deploy_with(&["--max-deps-bytes", "1000000"]);
        let finding = ran.failed(Reason::DepsTooLarge);
        for words in ["building pkg: ", "1.0 MB"] {
            assert!(finding.message.contains(words), "{}", finding.message);
        }
        assert!(kit.layers("deps").is_empty());
    }
}

#[test]
fn a_build_that_allocates_without_end_is_ended_and_the_bound_told() {
    let mut kit = building("kept = []\n    while True: kept.append(b'x' * 1_000_000 + b'y')");
    kit.set("RAMEN_HOSTS_MEMORY_MIB", "300");
    let ran = kit.deploy();
    let finding = ran.failed(Reason::InstallFailed);
    for words in ["building pkg: ", "for its memory", "300 MiB"] {
        assert!(finding.message.contains(words), "{}", finding.message);
    }
}

#[test]
fn req03_a_hash_beside_a_version_control_line_is_an_entry_and_the_last_layer_stays() {
    let kit = Kit::new();
    let wheel = simple(&kit.wheels(), "alpha", "1.0", &[]);
    let pin = format!("alpha==1.0 --hash={}\n", hash_of(&wheel));
    kit.requirements(&pin);
    expect_version(&kit, "alpha", "1.0");
    let good = kit.deploy().ok();
    kit.requirements(&format!(
        "{pin}beta @ git+https://git.test/beta@{}\n",
        "a".repeat(40)
    ));
    for more in [&[][..], &["--allow-sdist"]] {
        let ran = kit.deploy_with(more);
        let finding = ran.failed(Reason::RequirementsInvalid);
        assert_eq!(finding.line, Some(2));
        assert!(
            finding.message.contains("git+https://git.test/beta"),
            "{}",
            finding.message
        );
        assert!(ran.report.desired_state().is_none());
    }
    assert_eq!(
        kit.layers("deps"),
        [format!("{}.json", good.report.deps.unwrap().key)]
    );
}

#[test]
fn req04_an_altered_hash_names_the_package_and_leaves_nothing_installed() {
    let kit = Kit::new();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    simple(&kit.wheels(), "beta", "1.0", &[]);
    kit.requirements(&format!(
        "alpha\nbeta==1.0 --hash=sha256:{}\n",
        "0".repeat(64)
    ));
    expect_version(&kit, "beta", "1.0");
    let ran = kit.deploy();
    let finding = ran.failed(Reason::HashMismatch);
    assert!(finding.message.contains("beta==1.0"), "{}", finding.message);
    assert_eq!(
        (finding.path.as_deref(), finding.line),
        (Some("mcp/requirements.txt"), Some(2))
    );
    assert!(kit.layers("deps").is_empty());
    assert!(ran.report.deps.is_none() && ran.report.desired_state().is_none());
    // Nor is the bad lock remembered.
    let beta = kit.wheels().join("beta-1.0-py3-none-any.whl");
    kit.requirements(&format!("alpha\nbeta==1.0 --hash={}\n", hash_of(&beta)));
    kit.deploy().ok();
}

#[test]
fn a_wheel_that_cannot_be_installed_is_told_in_the_installers_words() {
    let alpha = Wheel {
        name: "alpha",
        version: "1.0",
        ..Wheel::default()
    };
    let of_another_format = Wheel {
        format: Some("2.0"),
        ..alpha
    };
    let damaged = Wheel {
        record: Some("nothing of a list\n"),
        ..alpha
    };
    for (wheel, words) in [
        (of_another_format, "Unsupported wheel major version"),
        (damaged, "`RECORD` file is invalid"),
    ] {
        let kit = Kit::with_tool();
        wheel.write(&kit.wheels());
        kit.requirements("# one\nalpha==1.0\n");
        let ran = kit.deploy();
        let finding = ran.failed(Reason::InstallFailed);
        for word in [words, "alpha"] {
            assert!(finding.message.contains(word), "{}", finding.message);
        }
        assert_eq!(finding.path.as_deref(), Some("mcp/requirements.txt"));
        assert!(kit.layers("deps").is_empty());
        assert!(ran.report.deps.is_none() && ran.report.desired_state().is_none());
    }
}

#[test]
fn req05_a_resolution_without_end_is_stopped_at_the_deadline() {
    let mut kit = Kit::new();
    let index = Index::start(Manner::Hang);
    kit.unset("PIP_NO_INDEX");
    kit.set("PIP_INDEX_URL", &index.url("u:p4ssw0rd"));
    kit.requirements("alpha>=1\n");
    version_tool(&kit, "alpha");
    let ran = kit.deploy_with(&["--timeout", "10"]);
    let finding = ran.failed(Reason::InstallTimeout);
    assert!(finding.message.contains("deadline"), "{}", finding.message);
    assert!(
        ran.report.timings.resolve_ms > 0,
        "{:?}",
        ran.report.timings
    );
    assert!(kit.layers("deps").is_empty());
}

#[test]
fn req06_two_pins_that_exclude_each_other_are_both_named() {
    let kit = Kit::new();
    simple(&kit.wheels(), "fastmcp", "2.7.0", &[]);
    simple(&kit.wheels(), "fastmcp", "3.1.0", &[]);
    kit.requirements("fastmcp==2.7.0\nfastmcp>=3.1.0\n");
    version_tool(&kit, "fastmcp");
    let ran = kit.deploy();
    let finding = ran.failed(Reason::RequirementsUnsatisfiable);
    for pin in ["fastmcp==2.7.0", "fastmcp>=3.1.0"] {
        assert!(finding.message.contains(pin), "{}", finding.message);
    }
}

#[test]
fn req06_a_conflict_between_dependencies_names_the_packages() {
    let kit = Kit::new();
    simple(&kit.wheels(), "alpha", "1.0", &["shared<2"]);
    simple(&kit.wheels(), "beta", "1.0", &["shared>=2"]);
    simple(&kit.wheels(), "shared", "1.0", &[]);
    simple(&kit.wheels(), "shared", "2.0", &[]);
    kit.requirements("alpha\nbeta\n");
    version_tool(&kit, "alpha");
    let ran = kit.deploy();
    let finding = ran.failed(Reason::RequirementsUnsatisfiable);
    for name in ["alpha", "beta", "shared"] {
        assert!(finding.message.contains(name), "{}", finding.message);
    }
    let ran = {
        kit.requirements("nowhere-to-be-found==1\n");
        kit.deploy()
    };
    assert!(
        ran.failed(Reason::RequirementsUnsatisfiable)
            .message
            .contains("nowhere-to-be-found")
    );
}

#[test]
fn req07_a_marker_of_another_platform_is_skipped_and_an_extra_installed() {
    let kit = Kit::new();
    simple(&kit.wheels(), "plug", "1.0", &[]);
    Wheel {
        name: "server",
        version: "0.31",
        requires: &["plug>=1; extra == 'standard'"],
        extras: &["standard"],
        files: &[("server.py", "VERSION = '0.31'\n")],
        format: None,
        record: None,
    }
    .write(&kit.wheels());
    kit.requirements("pywin32; sys_platform=='win32'\nserver[standard]>=0.30\n");
    expect_version(&kit, "plug", "1.0");
    let ran = kit.deploy().ok();
    assert!(!ran.report.lock.unwrap().contains("pywin32"));
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn req08_a_branch_is_resolved_at_each_deploy_and_the_commit_recorded() {
    let kit = Kit::new();
    let repo = kit.path("upstream");
    source_tree(&repo, "1.0");
    git(&repo, &["init", "-q"]);
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "-qm", "one"]);
    let first = git(&repo, &["rev-parse", "HEAD"]);
    kit.requirements(&format!("local-lib @ git+file://{}@main\n", repo.display()));
    expect_version(&kit, "local_lib", "1.0");
    let ran = kit.deploy_with(&["--allow-sdist"]).ok();
    assert!(ran.report.lock.unwrap().contains(&first));

    source_tree(&repo, "2.0");
    git(&repo, &["commit", "-qam", "two"]);
    let second = git(&repo, &["rev-parse", "HEAD"]);
    expect_version(&kit, "local_lib", "2.0");
    let ran = kit.deploy_with(&["--allow-sdist"]).ok();
    assert!(ran.report.lock.unwrap().contains(&second));
}

#[test]
fn req09_the_built_in_ramen_runtime_wins_over_a_requirement_and_over_a_module() {
    let kit = Kit::new();
    simple(&kit.wheels(), "ramen-runtime", "9.9", &[]);
    kit.requirements("ramen_runtime\n");
    let code = "import ramen_runtime\n\ndef which():\n    return str(hasattr(ramen_runtime, 'progress'))\n";
    kit.tool("which", code, &json!({}));
    kit.write("tools/which/utils/ramen_runtime.py", "VERSION = 'mine'\n");
    kit.golden(&[("which", json!({}), json!({"text_contains": "True"}))]);
    let ran = kit.deploy().ok();
    let about: Vec<_> = ran
        .report
        .warnings
        .iter()
        .filter(|w| w.reason == Reason::ModuleReserved)
        .collect();
    assert!(
        about
            .iter()
            .any(|w| w.path.as_deref() == Some("mcp/requirements.txt")),
        "{about:?}"
    );
    assert!(
        about
            .iter()
            .any(|w| w.path.as_deref() != Some("mcp/requirements.txt")),
        "{about:?}"
    );
    assert!(ran.report.deps.is_none());
}

#[test]
fn req10_an_option_that_chooses_an_index_is_an_entry_with_its_line() {
    let kit = Kit::new();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    version_tool(&kit, "alpha");
    for option in [
        "--extra-index-url https://evil.test/simple",
        "--find-links ./w",
        "--trusted-host evil.test",
    ] {
        kit.requirements(&format!("# first\nalpha\n{option}\n"));
        let ran = kit.deploy();
        let finding = ran.failed(Reason::RequirementsInvalid);
        assert_eq!(finding.line, Some(3), "{finding:?}");
        // The static half finds it, too.
        assert_eq!(
            kit.deploy_with(&["--no-install"]).report.errors,
            ran.report.errors
        );
    }
}

#[test]
fn req10_pre_is_allowed_and_means_pre_releases() {
    let kit = Kit::new();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    simple(&kit.wheels(), "alpha", "2.0rc1", &[]);
    kit.requirements("alpha\n");
    expect_version(&kit, "alpha", "1.0");
    kit.deploy().ok();
    kit.requirements("--pre\nalpha\n");
    expect_version(&kit, "alpha", "2.0rc1");
    kit.deploy().ok();
}

#[test]
fn req11_requirements_over_the_limit_are_refused_with_the_limit_named() {
    let kit = Kit::new();
    let data = "x".repeat(3 << 20);
    let files = [
        ("alpha.py", "VERSION = '1'\n"),
        ("alpha_data.txt", data.as_str()),
    ];
    Wheel {
        name: "alpha",
        version: "1.0",
        files: &files,
        ..Wheel::default()
    }
    .write(&kit.wheels());
    kit.requirements("alpha\n");
    version_tool(&kit, "alpha");
    let ran = kit.deploy_with(&["--max-deps-bytes", "1000000"]);
    let finding = ran.failed(Reason::DepsTooLarge);
    assert!(finding.message.contains("1.0 MB"), "{}", finding.message);
    assert!(kit.layers("deps").is_empty());
    kit.deploy().ok();
}

#[test]
fn a_private_index_is_used_with_its_credentials_which_are_written_nowhere() {
    let mut kit = Kit::new();
    let wheels = kit.path("private");
    simple(&wheels, "alpha", "1.0", &[]);
    let index = Index::start(Manner::Serve(wheels));
    kit.unset("PIP_NO_INDEX");
    kit.unset("PIP_FIND_LINKS");
    kit.set("PIP_INDEX_URL", &index.url("bot:p4ssw0rd"));
    kit.requirements("alpha\nmissing-one\n");
    expect_version(&kit, "alpha", "1.0");
    let bad = kit.deploy();
    assert_eq!(bad.report.outcome, Outcome::Failed);
    kit.requirements("alpha\n");
    let good = kit.deploy().ok();
    let seen = index.requests();
    // `bot:p4ssw0rd`
    assert!(
        seen.iter()
            .any(|line| line.ends_with("Basic Ym90OnA0c3N3MHJk")),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|line| line.starts_with("GET /files/alpha-1.0")),
        "{seen:?}"
    );
    for ran in [&bad, &good] {
        let whole = format!(
            "{}{}{}",
            serde_json::to_string(&ran.report).unwrap(),
            ran.stdout,
            ran.stderr
        );
        assert!(!whole.contains("p4ssw0rd"), "{whole}");
    }
}

#[test]
fn with_the_index_down_known_requirements_still_deploy_and_new_ones_say_why_not() {
    let mut kit = Kit::new();
    let wheels = kit.path("private");
    simple(&wheels, "alpha", "1.0", &[]);
    simple(&wheels, "beta", "1.0", &[]);
    let index = Index::start(Manner::Serve(wheels));
    kit.unset("PIP_NO_INDEX");
    kit.unset("PIP_FIND_LINKS");
    kit.set("PIP_INDEX_URL", &index.url("bot:p4ssw0rd"));
    kit.requirements("alpha\n");
    expect_version(&kit, "alpha", "1.0");
    let good = kit.deploy().ok();
    index.stop();
    kit.tool("more", "def more():\n    return 'more'\n", &json!({}));
    let code_only = kit.deploy().ok();
    assert_eq!(code_only.report.deps, good.report.deps);
    assert_ne!(code_only.report.code, good.report.code);

    kit.requirements("alpha\nbeta\n");
    let down = kit.deploy();
    let finding = down.failed(Reason::IndexUnreachable);
    assert!(!finding.message.contains("p4ssw0rd"), "{}", finding.message);
    assert!(finding.message.contains("127.0.0.1"), "{}", finding.message);
    assert_eq!(kit.layers("deps").len(), 1);
}

#[test]
fn a_missing_installer_is_named() {
    let mut kit = Kit::with_tool();
    kit.requirements("alpha\n");
    kit.set("RAMEN_UV", "/no/such/uv");
    assert!(
        kit.deploy()
            .failed(Reason::InstallerMissing)
            .message
            .contains("/no/such/uv")
    );
    // Without requirements it is not needed.
    kit.requirements("# nothing\n");
    kit.deploy().ok();
}

#[test]
fn a_package_without_wheels_is_refused_with_the_way_out() {
    let kit = Kit::new();
    let sdist = kit.path("onlysrc-1.0");
    std::fs::create_dir(&sdist).unwrap();
    std::fs::write(
        sdist.join("PKG-INFO"),
        "Metadata-Version: 2.1\nName: onlysrc\nVersion: 1.0\n",
    )
    .unwrap();
    let archive = kit.wheels().join("onlysrc-1.0.tar.gz");
    let status = Command::new("tar")
        .arg("czf")
        .arg(archive)
        .arg("-C")
        .arg(kit.path("."))
        .arg("onlysrc-1.0")
        .status();
    assert!(status.unwrap().success());
    kit.requirements("onlysrc\n");
    version_tool(&kit, "onlysrc");
    let ran = kit.deploy();
    let finding = ran.failed(Reason::RequirementsUnsatisfiable);
    assert!(
        finding
            .message
            .contains("onlysrc==1.0 has no usable wheels"),
        "{}",
        finding.message
    );
    assert!(
        finding.message.contains("--allow-sdist"),
        "{}",
        finding.message
    );
    assert!(
        !finding.message.contains("--no-build"),
        "{}",
        finding.message
    );
}
