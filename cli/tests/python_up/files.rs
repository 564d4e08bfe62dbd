//! `ramen up -f`: groups from git repositories.

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Place, Repo};
use crate::{BROKEN, OTHER, TOOL};

pub(crate) fn document(name: &str, bare: &Path, more: &str) -> String {
    let url = bare.display();
    format!(
        "---\napiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata:\n  name: {name}\nspec:\n  source:\n    url: file://{url}\n    \
         ref: {{branch: main}}\n    interval: 1h\n  network: {{allowedCIDRs: [127.0.0.0/8]}}\n{more}"
    )
}

pub(crate) fn call(place: &Place, group: &str) -> String {
    let args = [
        "call",
        "demo_calculator_tool",
        "var1=6",
        "var2=7",
        "func=multiply",
        "--group",
        group,
    ];
    let ran = place.run(&args);
    if ran.code == Some(0) {
        ran.out
    } else {
        ran.err
    }
}

/// Changes the tool in the working copy, pushes, and pokes as a hook would.
pub(crate) fn push(place: &Place, repo: &Repo, code: &str, group: &str) -> String {
    std::fs::write(repo.work.join(TOOL), code).unwrap();
    let commit = place.push(repo);
    let poked = place.run(&["poke", group]);
    assert_eq!(poked.code, Some(0), "{poked:?}");
    commit
}

#[test]
fn a_push_is_served_and_a_bad_push_keeps_the_last_good() {
    let place = Place::new();
    let repo = place.repo("demo");
    let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    let first = up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    assert!(
        first["revision"]
            .as_str()
            .unwrap()
            .starts_with("main@sha1:")
    );
    assert_eq!(call(&place, "demo"), "42\n");

    let good = push(&place, &repo, OTHER, "demo");
    let second = up.until("the push serves", "demo", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(&good))
    });
    assert_eq!(call(&place, "demo"), "43\n");

    let bad = push(&place, &repo, BROKEN, "demo");
    let third = up.until("the bad push is refused", "demo", |s| {
        s["attempted"].as_str().is_some_and(|r| r.ends_with(&bad)) && s["errors"] != json!([])
    });
    assert_eq!(
        (&third["ready"], &third["revision"]),
        (&json!(true), &second["revision"])
    );
    assert_eq!(call(&place, "demo"), "43\n");

    // The same code as what serves, under a new commit: nothing is deployed, and no error is left.
    let mended = push(&place, &repo, OTHER, "demo");
    let fourth = up.until("the mended push serves", "demo", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(&mended))
    });
    assert_eq!(fourth["errors"], json!([]));
    assert_eq!(up.stop(), Some(0));
    place.until_nothing_runs();

    // Without the repository the last good revision still serves.
    std::fs::rename(&repo.bare, place.path("gone")).unwrap();
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    let again = up.until("it serves without its source", "demo", |s| {
        s["ready"] == true && s["errors"] != json!([])
    });
    assert_eq!(again["revision"], fourth["revision"]);
    assert_eq!(call(&place, "demo"), "43\n");
    std::fs::rename(place.path("gone"), &repo.bare).unwrap();
    assert_eq!(place.run(&["poke"]).code, Some(0));
    up.until("the trouble is over", "demo", |s| s["errors"] == json!([]));
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn variables_of_the_group_reach_its_code_in_the_deploy_and_in_calls() {
    const CODE: &str = "import os\nfrom demo_calculator_tool_utils import apply\nANSWER = int(os.environ['ANSWER'])\n\n\
        def calculator_func(var1, var2, func):\n    \
            return ANSWER if var1 == 6 else apply(func, var1, var2)\n";
    let place = Place::new();
    let repo = place.repo("demo");
    // The author's default, which who runs the group overrides.
    std::fs::write(repo.work.join("mcp/env.yaml"), "ANSWER: 1\n").unwrap();
    std::fs::write(repo.work.join(TOOL), CODE).unwrap();
    place.push(&repo);
    let set = "  worker: {env: [{name: ANSWER, value: '44'}]}\n";
    let file = place.write("group.yaml", &document("demo", &repo.bare, set));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string() && s["errors"] == json!([])
    });
    assert_eq!(call(&place, "demo"), "44\n");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_group_that_fails_touches_no_other_and_the_file_is_read_again() {
    let place = Place::new();
    let (one, two) = (place.repo("one"), place.repo("two"));
    let groups = |two_spec: &str| document("one", &one.bare, "") + two_spec;
    let nowhere = document("two", Path::new("/nonexistent/repo.git"), "");
    let file = place.write("groups.yaml", &groups(&nowhere));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("the good one serves", "one", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    let failed = up.until("the other one says why not", "two", |s| {
        s["errors"] != json!([])
    });
    assert_eq!(
        (&failed["ready"], &failed["revision"]),
        (&json!(false), &json!(null))
    );
    let told = failed["errors"][0]["message"].as_str().unwrap();
    assert_eq!(told, "there is no folder /nonexistent/repo.git");
    assert_eq!(call(&place, "one"), "42\n");

    // A file that is no YAML changes nothing.
    place.write("groups.yaml", "a: [");
    up.signal(Signal::HUP);
    place.write("groups.yaml", &groups(&document("two", &two.bare, "")));
    up.until("the mended one serves", "two", |s| {
        s["ready"] == true && s["revision"].is_string() && s["errors"] == json!([])
    });
    assert_eq!(call(&place, "two"), "42\n");
    // Two groups: a caller must choose.
    assert!(place.run(&["ls"]).err.contains("--group"));
    assert_eq!(place.run(&["poke", "nope"]).code, Some(2));

    // A group that is taken out of the file ends; the other goes on.
    place.write("groups.yaml", &document("two", &two.bare, ""));
    let gone = || place.run(&["ls", "--group", "one"]).code == Some(6);
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while !gone() {
        assert!(std::time::Instant::now() < deadline, "{}", up.log());
    }
    assert_eq!(call(&place, "two"), "42\n");
    assert_eq!(up.stop(), Some(0));
    place.until_nothing_runs();
}

#[test]
fn keys_and_secrets_come_from_the_file_and_follow_it() {
    let place = Place::new();
    let repo = place.repo("demo");
    let spec = document(
        "demo",
        &repo.bare,
        "  keys: {secretRef: {name: keys}}\n  secrets: [{name: values}]\n",
    );
    let secrets = |key: &str, value: &str| {
        format!(
            "{spec}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: keys}}\nstringData: {{one: {key}}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: values}}\nstringData: {{WORD: {value}}}\n"
        )
    };
    let code = "import os, ramen_runtime\nfrom demo_calculator_tool_utils import apply\n\ndef calculator_func(var1, var2, func):\n    \
                assert 'RAMEN_SECRET_DEMO__SHELL' not in os.environ\n    \
                return sum(map(ord, ramen_runtime.secrets.resolve('{{$demo.WORD}}'))) if var1 == 6 else apply(func, var1, var2)\n";
    std::fs::write(repo.work.join(TOOL), code).unwrap();
    place.push(&repo);
    let file = place.write(
        "group.yaml",
        &secrets("rmk_first_key_of_the_test", "hello-from-a-secret"),
    );
    // Those of the shell are for a folder.
    let shell = [
        ("RAMEN_SECRET_DEMO__WORD", "of-the-shell"),
        ("RAMEN_SECRET_DEMO__SHELL", "of-the-shell"),
    ];
    let mut up = place.up_with(&["-f", file.to_str().unwrap()], &shell);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    assert_eq!(call(&place, "demo"), "1846\n", "of its letters");
    let target = up.until("its address", "demo", |s| s["address"].is_string())["address"]
        .as_str()
        .unwrap()
        .to_owned();
    let with = |key: &str| place.run(&["ls", "--target", &target, "--key", key]).code;
    assert_eq!(
        (
            with("rmk_first_key_of_the_test"),
            with("rmk_second_key_of_the_test")
        ),
        (Some(0), Some(6))
    );

    place.write(
        "group.yaml",
        &secrets("rmk_second_key_of_the_test", "another-secret-value"),
    );
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while call(&place, "demo") != "2030\n" {
        assert!(std::time::Instant::now() < deadline, "{}", up.log());
    }
    while (
        with("rmk_first_key_of_the_test"),
        with("rmk_second_key_of_the_test"),
    ) != (Some(6), Some(0))
    {
        assert!(std::time::Instant::now() < deadline, "{}", up.log());
    }
    let said = format!("{:?}{}", up.all(), up.log());
    for secret in ["rmk_first", "rmk_second", "hello-from", "another-secret"] {
        assert!(!said.contains(secret), "{secret} was printed");
    }
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_suspended_group_serves_on_and_follows_nothing() {
    let place = Place::new();
    let repo = place.repo("demo");
    let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    let suspended = document("demo", &repo.bare, "").replace(
        "    interval: 1h\n",
        "    interval: 1h\n    suspend: true\n",
    );
    place.write("group.yaml", &suspended);
    up.until("it is suspended", "demo", |s| s["message"] == "suspended");
    let commit = push(&place, &repo, OTHER, "demo");
    assert_eq!(call(&place, "demo"), "42\n");
    place.write("group.yaml", &document("demo", &repo.bare, ""));
    up.until("it follows again", "demo", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(&commit))
    });
    assert_eq!(call(&place, "demo"), "43\n");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn git01_a_ref_that_is_gone_keeps_what_serves() {
    let place = Place::new();
    let repo = place.repo("demo");
    let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    place.git(&repo.bare, &["branch", "-m", "main", "other"]);
    assert_eq!(place.run(&["poke", "demo"]).code, Some(0));
    let gone = up.until("the missing ref is told", "demo", |s| {
        s["errors"][0]["reason"] == "RefNotFound"
    });
    assert_eq!(gone["ready"], true);
    assert_eq!(call(&place, "demo"), "42\n");
    place.git(&repo.bare, &["branch", "-m", "other", "main"]);
    assert_eq!(place.run(&["poke", "demo"]).code, Some(0));
    up.until("all is well again", "demo", |s| s["errors"] == json!([]));
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_file_without_a_group_that_can_run_is_wrong_usage_with_all_faults() {
    let place = Place::new();
    let text = "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {name: A_B}\nspec:\n  source: {url: 'ftp://x', interval: 1s}\n  network: {allowedCIDRs: [nope]}\n";
    let file = place.write("group.yaml", text);
    let ran = place.run(&["up", "-f", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(2));
    for field in [
        "metadata.name",
        "spec.source.url",
        "spec.source.interval",
        "spec.network.allowedCIDRs[0]",
    ] {
        assert!(ran.err.contains(field), "{field}: {}", ran.err);
    }
}

#[test]
fn a_name_that_another_source_has_now_does_not_serve_what_the_first_one_had() {
    let place = Place::new();
    let folder = place.demo("demo");
    std::fs::write(folder.join(TOOL), OTHER).unwrap();
    let mut up = place.up(&[folder.to_str().unwrap()]);
    up.until("the folder serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    assert_eq!(call(&place, "demo"), "43\n");
    assert_eq!(up.stop(), Some(0));
    let repo = place.repo("demo");
    let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
    // Nothing serves while the repository is away.
    std::fs::rename(&repo.bare, place.path("gone")).unwrap();
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    let away = up.until("the repository is asked", "demo", |s| {
        s["errors"] != json!([])
    });
    assert_eq!(
        (&away["ready"], &away["revision"]),
        (&json!(false), &json!(null))
    );
    std::fs::rename(place.path("gone"), &repo.bare).unwrap();
    assert_eq!(place.run(&["poke"]).code, Some(0));
    up.until("the repository serves", "demo", |s| s["ready"] == true);
    assert_eq!(call(&place, "demo"), "42\n");
    let all = up.all();
    let folders = all.iter().filter_map(|s| s["revision"].as_str());
    assert_eq!(folders.filter(|r| r.starts_with("folder@")).count(), 0);
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_spec_that_names_another_repository_is_followed_at_once() {
    let place = Place::new();
    let (one, two) = (place.repo("one"), place.repo("two"));
    std::fs::write(two.work.join(TOOL), OTHER).unwrap();
    let commit = place.push(&two);
    let file = place.write("group.yaml", &document("demo", &one.bare, ""));
    let mut up = place.up(&["-f", file.to_str().unwrap()]);
    up.until("it serves", "demo", |s| {
        s["ready"] == true && s["revision"].is_string()
    });
    place.write("group.yaml", &document("demo", &two.bare, ""));
    up.until("the other repository serves", "demo", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(&commit))
    });
    assert_eq!(call(&place, "demo"), "43\n");
    assert_eq!(up.stop(), Some(0));
}
