//! Keys of the issuer: new ones, such as are taken back, and times in which nobody can be asked.

use super::*;
use crate::logs::Log;

/// Longer than keys stay before they are fetched again.
const LATER: Duration = Duration::from_secs(301);
/// Longer than a stream goes without a look at its caller.
const A_LOOK: Duration = Duration::from_secs(61);
/// Longer than keys go on without a word of their issuer.
const A_DAY: Duration = Duration::from_hours(24);
/// Longer than until a fetch that failed is tried again.
const AGAIN: Duration = Duration::from_secs(31);

/// All clocks but that of tokens go on by this at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn fetched(issuer: &Issuer, times: usize) {
    eventually("keys are fetched", || issuer.fetched() >= times).await;
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_fetched_once_and_foreign_names_do_not_flood_it() {
    let (issuer, _worker, gateway) = bench().await;
    assert_eq!(
        called_with(&gateway, &issuer.good()).await.status,
        StatusCode::OK
    );
    let second = Signer::new("second");
    issuer.show(vec![issuer.signer.jwk(), second.jwk()]);
    let token = second.sign(&json!({"alg": "ES256", "kid": "second"}), &issuer.claims());
    let begun = std::time::Instant::now();
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    assert_eq!(issuer.fetched(), 2);
    for n in 0..20 {
        let header = json!({"alg": "ES256", "kid": format!("unknown {n}")});
        let token = second.sign(&header, &issuer.claims());
        assert_eq!(
            called_with(&gateway, &token).await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    // One more in ten seconds, should it have taken so long.
    let more = usize::try_from(begun.elapsed().as_secs() / 10).unwrap();
    assert!(issuer.fetched() <= 2 + more, "{}", issuer.fetched());
}

#[tokio::test]
async fn a_token_that_no_key_at_hand_signed_has_the_keys_fetched_whatever_it_names() {
    let (issuer, _worker, gateway) = bench().await;
    let first = issuer.good();
    assert_eq!(called_with(&gateway, &first).await.status, StatusCode::OK);
    // Another key of the same name.
    let second = Signer::new("first");
    issuer.show(vec![second.jwk()]);
    let renamed = second.sign(&second.header(), &issuer.claims());
    let got = called_with(&gateway, &renamed).await;
    assert_eq!(
        (got.status, issuer.fetched()),
        (StatusCode::UNAUTHORIZED, 1)
    );
    pass(Duration::from_secs(11)).await;
    let got = called_with(&gateway, &renamed).await;
    assert_eq!((got.status, issuer.fetched()), (StatusCode::OK, 2));
    // Tokens that name no key.
    let third = Signer::new("third");
    issuer.show(vec![third.jwk()]);
    let nameless = third.sign(&json!({"alg": "ES256", "typ": "at+jwt"}), &issuer.claims());
    pass(Duration::from_secs(11)).await;
    let got = called_with(&gateway, &nameless).await;
    assert_eq!((got.status, issuer.fetched()), (StatusCode::OK, 3));
    // Whose key is gone is out, and floods nobody.
    pass(Duration::from_secs(11)).await;
    let stranger = Signer::new("third");
    for n in 0..20 {
        let mut claims = issuer.claims();
        claims["jti"] = json!(n);
        let token = stranger.sign(&stranger.header(), &claims);
        let got = called_with(&gateway, &token).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(issuer.fetched(), 4);
    // One that is over is no reason to ask.
    pass(Duration::from_secs(11)).await;
    let mut over = issuer.claims();
    over["exp"] = json!(now() - 60);
    let over = third.sign(&third.header(), &over);
    let got = called_with(&gateway, &over).await;
    assert_eq!(
        (got.status, issuer.fetched()),
        (StatusCode::UNAUTHORIZED, 4)
    );
}

#[tokio::test]
async fn sec_in_an_outage_the_keys_at_hand_go_on_for_a_day_and_without_any_it_is_503() {
    let (log, _logging) = Log::begin();
    let (issuer, _worker, gateway) = bench().await;
    issuer.fail(true);
    let got = called_with(&gateway, &issuer.good()).await;
    assert_eq!(
        (got.status, got.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "1")
    );
    issuer.fail(false);
    let seen = issuer.fresh();
    pass(Duration::from_secs(2)).await;
    until(&gateway, &seen, StatusCode::OK).await;
    issuer.fail(true);
    assert_eq!(log.count("keys cannot be fetched"), 1);
    let before = issuer.fetched();
    pass(LATER).await;
    fetched(&issuer, before + 1).await;
    assert_eq!(
        called_with(&gateway, &issuer.fresh()).await.status,
        StatusCode::OK
    );
    // It may be signed with a new key: nobody can tell, not even after the first attempt.
    let second = Signer::new("second");
    let token = second.sign(&second.header(), &issuer.claims());
    for _ in 0..3 {
        pass(Duration::from_secs(2)).await;
        assert_eq!(
            called_with(&gateway, &token).await.status,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
    pass(A_DAY).await;
    until(&gateway, &seen, StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(
        called_with(&gateway, &issuer.fresh()).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(log.count("keys cannot be fetched"), 2, "once an outage");
    assert_eq!(log.count("keys could not be fetched for a day"), 1);
    issuer.fail(false);
    pass(AGAIN).await;
    until(&gateway, &seen, StatusCode::OK).await;
}

#[tokio::test]
async fn sec_a_key_that_is_taken_back_ends_what_it_opened_although_nothing_new_comes() {
    let (issuer, worker, gateway) = bench().await;
    let token = issuer.good();
    let mut events = listening(&gateway, &token).await;
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    assert_eq!(issuer.fetched(), 1);
    issuer.show(vec![Signer::new("second").jwk()]);
    pass(LATER).await;
    fetched(&issuer, 2).await;
    until(&gateway, &token, StatusCode::UNAUTHORIZED).await;
    pass(A_LOOK).await;
    ended(&mut events).await;
    drop(worker);
}

#[tokio::test]
async fn an_issuer_that_shows_no_key_any_more_has_taken_all_of_them_back() {
    let (issuer, _worker, gateway) = bench().await;
    let token = issuer.good();
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    issuer.show(Vec::new());
    pass(LATER).await;
    until(&gateway, &token, StatusCode::UNAUTHORIZED).await;
}

#[tokio::test]
async fn a_key_that_the_issuer_takes_back_proves_nothing_any_more() {
    let (issuer, _worker, gateway) = bench().await;
    let token = issuer.good();
    assert_eq!(called_with(&gateway, &token).await.status, StatusCode::OK);
    let second = Signer::new("second");
    issuer.show(vec![second.jwk()]);
    let other = second.sign(&json!({"alg": "ES256", "kid": "second"}), &issuer.claims());
    assert_eq!(called_with(&gateway, &other).await.status, StatusCode::OK);
    assert_eq!(
        called_with(&gateway, &token).await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn an_issuer_that_names_another_in_its_description_is_not_believed() {
    let (issuer, _worker, gateway) = bench().await;
    issuer.lie();
    let got = called_with(&gateway, &issuer.good()).await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
}
