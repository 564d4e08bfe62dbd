//! The file of the settings changes while the gateway runs.

use std::path::Path;

use ramen_gateway::oidc::SettingsFile;

use super::*;
use crate::logs::Log;

/// Replaced as editors and kubelets do it.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn a_file_of_other_issuers_counts_without_a_restart_and_a_bad_one_changes_nothing() {
    let (log, _logging) = Log::begin();
    let (one, two) = (Issuer::start().await, Issuer::start().await);
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("oidc.yaml");
    put(&path, &one.text(""));
    let file = SettingsFile::read(path.clone(), None).unwrap();
    let (worker, gateway) = trusting(file.follow()).await;
    let (of_one, of_two) = (one.good(), two.good());
    assert_eq!(called_with(&gateway, &of_one).await.status, StatusCode::OK);
    assert_eq!(
        called_with(&gateway, &of_two).await.status,
        StatusCode::UNAUTHORIZED
    );
    let mut events = listening(&gateway, &of_one).await;
    // Another beside it ends nothing.
    let both = format!("{}- issuer: {}\n", one.text(""), two.name());
    put(&path, &both);
    until(&gateway, &of_two, StatusCode::OK).await;
    assert_eq!(called_with(&gateway, &of_one).await.status, StatusCode::OK);
    assert_eq!(one.fetched(), 1, "its keys are at hand");
    let described = format!("/.well-known/oauth-protected-resource{PATH}");
    let described = gateway.get(&described).await.json();
    assert_eq!(
        described["authorization_servers"],
        json!([one.name(), two.name()])
    );
    put(&path, "issuers: [");
    eventually("the file is refused", || {
        log.count("the issuers stay as they are") == 1
    })
    .await;
    assert_eq!(
        called_with(&gateway, &one.fresh()).await.status,
        StatusCode::OK
    );
    put(&path, &two.text(""));
    until(&gateway, &of_one, StatusCode::UNAUTHORIZED).await;
    assert_eq!(called_with(&gateway, &of_two).await.status, StatusCode::OK);
    assert_eq!(log.count("the issuers stay as they are"), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    ended(&mut events).await;
    drop(worker);
}

#[tokio::test]
async fn what_was_verified_is_held_to_settings_that_changed() {
    let issuer = Issuer::start().await;
    let oidc = issuer.oidc();
    let (_worker, gateway) = trusting(Arc::clone(&oidc)).await;
    let token = issuer.good();
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    issuer.fail(true);
    for (more, status) in [
        ("  algorithms: [RS256]\n", StatusCode::UNAUTHORIZED),
        ("  algorithms: [RS256, ES256]\n", StatusCode::OK),
        // Then the token names nobody.
        ("  subjectClaim: email\n", StatusCode::UNAUTHORIZED),
        ("  scopes: [tools]\n", StatusCode::OK),
    ] {
        oidc.set(issuer.settings(more));
        assert_eq!(called_with(&gateway, &token).await.status, status, "{more}");
    }
    let other = issuer.text("").replace(PUBLIC, "https://other.example");
    oidc.set(ramen_gateway::oidc::Settings::parse(&other, None).unwrap());
    assert_eq!(
        called_with(&gateway, &token).await.status,
        StatusCode::UNAUTHORIZED,
        "it is for another gateway"
    );
    assert_eq!(issuer.fetched(), 1, "no key was needed anew");
}
