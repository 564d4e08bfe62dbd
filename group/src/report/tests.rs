use super::*;

fn package(name: &str, ok: bool) -> ReportPackage {
    ReportPackage {
        kind: PackageKind::Tool,
        name: name.to_owned(),
        description: None,
        ok,
        uri: None,
    }
}

#[test]
fn the_outcome_follows_from_packages_and_errors() {
    let both = [package("a", true), package("b", false)];
    let broken = Finding::package("tools/b", Reason::ImportFailed, "no");
    let of = |packages: &[ReportPackage], errors: &[Finding]| Outcome::of(packages, errors);
    assert_eq!(of(&both[..1], &[]), Outcome::Ok);
    assert_eq!(of(&both, std::slice::from_ref(&broken)), Outcome::Partial);
    assert_eq!(
        of(&both[1..], std::slice::from_ref(&broken)),
        Outcome::Failed
    );
    for fatal in [
        Reason::GoldenFailed,
        Reason::RequirementsUnsatisfiable,
        Reason::InstallTimeout,
    ] {
        assert_eq!(
            of(&both, &[Finding::group(fatal, "no")]),
            Outcome::Failed,
            "{fatal}"
        );
    }
    assert_eq!(
        of(&both, &[Finding::group(Reason::EnvInvalid, "no")]),
        Outcome::Partial
    );
}

#[test]
fn a_report_is_camel_case_and_reads_what_it_wrote() {
    let mut report: Report = serde_json::from_str(r#"{"outcome":"partial","newer":1}"#).unwrap();
    report.packages = vec![package("a", true), package("b", false)];
    report.code = Some(LayerRef {
        key: "k".to_owned(),
        digest: "sha256:00".to_owned(),
        size: 1,
    });
    report.python = Some("3.11".to_owned());
    report.lock_key = Some("l".to_owned());
    let text = serde_json::to_string(&report).unwrap();
    assert!(
        text.contains("\"lockKey\":\"l\"") && text.contains("\"totalMs\":0"),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    let desired = report.desired_state().unwrap();
    assert_eq!(desired.exclude, ["tools/b"]);
    report.outcome = Outcome::Failed;
    assert_eq!(report.desired_state(), None);
}

#[test]
fn findings_print_as_compilers_do() {
    let finding = Finding::package("tools/a", Reason::NameMismatch, "no")
        .at_path("mcp/tools/a/a.json")
        .at(3, 5);
    assert_eq!(
        finding.to_string(),
        "mcp/tools/a/a.json:3:5: NameMismatch: no"
    );
    assert_eq!(
        Finding::package("tools/a", Reason::ImportFailed, "no").to_string(),
        "tools/a: ImportFailed: no"
    );
    assert_eq!(
        Finding::group(Reason::EnvInvalid, "no").to_string(),
        "EnvInvalid: no"
    );
}

#[test]
fn clients_are_told_the_content_where_there_is_no_revision() {
    let layer = LayerRef {
        key: "0a1b2c".to_owned(),
        digest: "sha256:00".to_owned(),
        size: 1,
    };
    let mut desired = DesiredState {
        revision: "main@sha1:ff".to_owned(),
        code: layer,
        deps: None,
        python: "3.11".to_owned(),
        exclude: Vec::new(),
    };
    assert_eq!(desired.version(), "main@sha1:ff");
    desired.revision.clear();
    assert_eq!(desired.version(), "0a1b2c");
}
