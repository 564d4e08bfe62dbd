//! Sign-in: a server that wants one, its authorization server, and a browser that is a thread.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ramen_client::oauth::SignIn;
use ramen_client::{Client, ClientError, Json, Options, ServerConfig};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::http::legacy;
use crate::http::support::{Http, Seen, answer, held, serve, status};
use crate::support::{Log, soon};

/// What the world is like, where it is not as it should be.
#[derive(Clone, Default)]
struct World {
    resource: Option<&'static str>,
    issuer: Option<&'static str>,
    no_pkce: bool,
    callback: Option<&'static str>,
    /// The token that is good; others are refused.
    good: Arc<AtomicUsize>,
    refreshable: bool,
    calls: Calls,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Calls {
    #[default]
    Answered,
    /// They need another right.
    StepUp,
    /// They fail with what they were asked with.
    Quoted,
}

fn base(seen: &Seen) -> String {
    format!("http://{}", seen.header("host").unwrap())
}

impl World {
    async fn serve(&self) -> Http {
        let world = self.clone();
        serve(move |seen| world.answer(seen)).await
    }

    fn answer(&self, seen: &Seen) -> Vec<u8> {
        let base = base(seen);
        let ok = |value: Value| status(200, &value);
        match seen.path.as_str() {
            "/.well-known/oauth-protected-resource/mcp" => ok(json!({
                "resource": self.resource.map_or(format!("{base}/mcp"), str::to_owned),
                "authorization_servers": [format!("{base}/as")],
                "scopes_supported": ["tools:read"],
            })),
            "/.well-known/oauth-authorization-server/as" => ok(json!({
                "issuer": self.issuer.map_or(format!("{base}/as"), str::to_owned),
                "authorization_endpoint": format!("{base}/as/authorize"),
                "token_endpoint": format!("{base}/as/token"),
                "registration_endpoint": format!("{base}/as/register"),
                "code_challenge_methods_supported": if self.no_pkce { json!(["plain"]) } else { json!(["S256"]) },
                "authorization_response_iss_parameter_supported": true,
            })),
            "/as/register" => ok(json!({"client_id": "made-client"})),
            "/as/token" => {
                let number = self.good.fetch_add(1, Ordering::SeqCst) + 1;
                let mut token = json!({"access_token": format!("planted-token-{number}"), "token_type": "Bearer"});
                if self.refreshable {
                    token["refresh_token"] = json!(format!("planted-refresh-{number}"));
                }
                ok(token)
            }
            "/mcp" => {
                let number = self.good.load(Ordering::SeqCst);
                let good = format!("Bearer planted-token-{number}");
                if number == 0 || seen.header("authorization") != Some(&good) {
                    let place = format!("{base}/.well-known/oauth-protected-resource/mcp");
                    let refusal = refuse(401, &format!("Bearer resource_metadata=\"{place}\""));
                    let late = seen.body["params"]["arguments"]["late"] == true;
                    return if late { held(&refusal) } else { refusal };
                }
                if self.calls == Calls::StepUp && seen.method() == "tools/call" && number == 1 {
                    return refuse(
                        403,
                        "Bearer error=\"insufficient_scope\", scope=\"tools:call\"",
                    );
                }
                if self.calls == Calls::Quoted && seen.method() == "tools/call" {
                    let said = seen.header("authorization").unwrap();
                    let error = json!({"code": 1, "message": said, "data": {"t": said}});
                    let refusal = json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error});
                    return match seen.earlier("tools/call") {
                        0 => status(200, &refusal),
                        1 => status(400, &refusal),
                        _ => status(500, &json!({ "oops": said })),
                    };
                }
                legacy(seen).unwrap_or_else(|| {
                    answer(seen, &json!({"content": [{"type": "text", "text": "in"}]}))
                })
            }
            _ => status(404, &json!({})),
        }
    }

    /// A sign-in whose browser agrees at once.
    fn sign_in(&self, folder: &Path, asked: &Arc<std::sync::Mutex<Vec<Url>>>) -> SignIn {
        let (asked, callback) = (Arc::clone(asked), self.callback);
        SignIn::new(folder.join("tokens.json"), move |address| {
            asked.lock().unwrap().push(address.clone());
            let address = address.clone();
            std::thread::spawn(move || agree(&address, callback));
            Ok(())
        })
    }
}

fn refuse(code: u16, challenge: &str) -> Vec<u8> {
    format!("HTTP/1.1 {code} No\r\nwww-authenticate: {challenge}\r\ncontent-length: 0\r\n\r\n")
        .into_bytes()
}

fn query(url: &Url, name: &str) -> String {
    let found = url.query_pairs().find(|(key, _)| key == name);
    found
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

/// What a browser does after the person agreed.
fn agree(address: &Url, answer: Option<&str>) {
    let mut callback = Url::parse(&query(address, "redirect_uri")).unwrap();
    let mut issuer = address.clone();
    issuer.set_query(None);
    issuer.set_path("/as");
    match answer {
        Some(answer) => callback.set_query(Some(answer)),
        None => {
            callback
                .query_pairs_mut()
                .append_pair("code", "the-code")
                .append_pair("iss", issuer.as_str());
        }
    }
    callback
        .query_pairs_mut()
        .append_pair("state", &query(address, "state"));
    // Something else that knocks there first is not the answer.
    for path in ["/favicon.ico", "/callback?code=forged&state=guessed"] {
        get(&callback, path);
    }
    get(
        &callback,
        &format!("{}?{}", callback.path(), callback.query().unwrap()),
    );
}

fn get(to: &Url, path: &str) {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", to.port().unwrap())).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let _ = stream.read_to_string(&mut String::new());
}

async fn connect(http: &Http, sign_in: SignIn) -> Result<Client, ClientError> {
    let config = ServerConfig::http(http.url().parse().unwrap());
    let options = Options {
        sign_in: Some(sign_in),
        ..Options::default()
    };
    soon(Client::connect("web", &config, &options)).await
}

async fn call(client: &Client) -> String {
    let args = Json::from(&json!({}));
    soon(client.call_tool("one", &args)).await.unwrap()
}

fn at(http: &Http, path: &str) -> Vec<Seen> {
    http.all()
        .into_iter()
        .filter(|seen| seen.path == path)
        .collect()
}

fn field(seen: &Seen, name: &str) -> String {
    query(
        &Url::parse(&format!("http://x/?{}", seen.form)).unwrap(),
        name,
    )
}

#[tokio::test]
async fn a_person_signs_in_once_and_the_token_is_kept_for_its_server_alone() {
    let log = Log::default();
    let _guard = log.start();
    let dir = tempfile::tempdir().unwrap();
    let (world, asked) = (World::default(), Arc::default());
    let http = world.serve().await;
    let client = connect(&http, world.sign_in(dir.path(), &asked))
        .await
        .unwrap();
    assert_eq!(call(&client).await, "in");

    let address = asked.lock().unwrap()[0].clone();
    assert_eq!(query(&address, "response_type"), "code");
    assert_eq!(query(&address, "client_id"), "made-client");
    assert_eq!(query(&address, "scope"), "tools:read");
    assert_eq!(query(&address, "resource"), http.url());
    assert_eq!(query(&address, "code_challenge_method"), "S256");
    let token = &at(&http, "/as/token")[0];
    assert_eq!(field(token, "grant_type"), "authorization_code");
    assert_eq!(
        field(token, "code"),
        "the-code",
        "the forged one was not taken"
    );
    assert_eq!(field(token, "resource"), http.url());
    assert_eq!(
        field(token, "redirect_uri"),
        query(&address, "redirect_uri")
    );
    let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(field(token, "code_verifier")));
    assert_eq!(query(&address, "code_challenge"), digest);

    let file = dir.path().join("tokens.json");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(!log.text().contains("planted"), "{}", log.text());

    // The next connection has it, from the file.
    let again = connect(&http, world.sign_in(dir.path(), &asked))
        .await
        .unwrap();
    assert_eq!(call(&again).await, "in");
    assert_eq!(asked.lock().unwrap().len(), 1);
    // Another server does not get it.
    let other = World::default();
    let elsewhere = other.serve().await;
    connect(&elsewhere, other.sign_in(dir.path(), &asked))
        .await
        .unwrap();
    let first = &at(&elsewhere, "/mcp")[0];
    assert_eq!(first.header("authorization"), None);
}

#[tokio::test]
async fn a_token_that_a_server_quotes_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        calls: Calls::Quoted,
        ..World::default()
    };
    let http = world.serve().await;
    let sign_in = world.sign_in(dir.path(), &Arc::default());
    let client = connect(&http, sign_in).await.unwrap();
    for _ in 0..3 {
        let args = Json::from(&json!({}));
        let error = soon(client.call_tool("one", &args)).await.unwrap_err();
        let shown = format!("{error} {error:?} {}", error.chain());
        assert!(
            shown.contains("***") && !shown.contains("planted"),
            "{shown}"
        );
    }
    assert_eq!(at(&http, "/as/token").len(), 1);
}

/// Two calls go out with a token that ran out; one is refused when the other has a new one already.
#[tokio::test]
async fn a_refusal_of_an_older_token_asks_nobody_again() {
    let dir = tempfile::tempdir().unwrap();
    let (world, asked) = (World::default(), Arc::default());
    let http = world.serve().await;
    let client = connect(&http, world.sign_in(dir.path(), &asked))
        .await
        .unwrap();
    world.good.store(41, Ordering::SeqCst);
    let late = Json::from(&json!({"late": true}));
    let late = async { soon(client.call_tool("one", &late)).await.unwrap() };
    let other = async {
        soon(http.until("tools/call")).await;
        let answer = call(&client).await;
        http.go_on();
        answer
    };
    let answers = tokio::join!(late, other);
    assert_eq!(answers, ("in".to_owned(), "in".to_owned()));
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_token_that_ran_out_is_renewed_without_a_person() {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        refreshable: true,
        ..World::default()
    };
    let asked = Arc::default();
    let http = world.serve().await;
    let client = connect(&http, world.sign_in(dir.path(), &asked))
        .await
        .unwrap();
    world.good.store(41, Ordering::SeqCst);
    assert_eq!(call(&client).await, "in");
    let tokens = at(&http, "/as/token");
    assert_eq!(field(&tokens[1], "grant_type"), "refresh_token");
    assert_eq!(field(&tokens[1], "refresh_token"), "planted-refresh-1");
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// Nobody agrees at one server; the token of another runs out meanwhile.
#[tokio::test]
async fn a_person_who_does_not_answer_for_one_server_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        refreshable: true,
        ..World::default()
    };
    let (good, silent) = (world.serve().await, World::default().serve().await);
    let silent_port = Url::parse(&silent.url()).unwrap().port();
    let (asked_in, mut asked) = tokio::sync::watch::channel(0);
    let sign_in = SignIn::new(dir.path().join("tokens.json"), move |address| {
        if address.port() == silent_port {
            asked_in.send_modify(|asked| *asked += 1);
        } else {
            let address = address.clone();
            std::thread::spawn(move || agree(&address, None));
        }
        Ok(())
    });
    let client = connect(&good, sign_in.clone()).await.unwrap();
    let waiting = tokio::spawn(async move { connect(&silent, sign_in).await.err() });
    soon(asked.wait_for(|asked| *asked == 1)).await.unwrap();
    world.good.store(41, Ordering::SeqCst);
    assert_eq!(call(&client).await, "in");
    assert!(!waiting.is_finished());
    waiting.abort();
}

/// Each client is a program of its own: they share nothing but the file.
#[tokio::test]
async fn programs_that_share_a_sign_in_renew_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        refreshable: true,
        ..World::default()
    };
    let asked = Arc::default();
    let http = world.serve().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let sign_in = world.sign_in(dir.path(), &asked);
        clients.push(connect(&http, sign_in).await.unwrap());
    }
    world.good.store(41, Ordering::SeqCst);
    let answers = futures::future::join_all(clients.iter().map(call)).await;
    assert!(answers.iter().all(|answer| answer == "in"), "{answers:?}");
    let renewed = at(&http, "/as/token");
    let renewed = renewed
        .iter()
        .filter(|seen| field(seen, "grant_type") == "refresh_token");
    assert_eq!(renewed.count(), 1);
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn calls_that_need_another_right_ask_for_it_beside_those_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        calls: Calls::StepUp,
        ..World::default()
    };
    let asked = Arc::default();
    let http = world.serve().await;
    let client = connect(&http, world.sign_in(dir.path(), &asked))
        .await
        .unwrap();
    assert_eq!(call(&client).await, "in");
    assert_eq!(
        query(&asked.lock().unwrap()[1], "scope"),
        "tools:call tools:read"
    );
}

#[tokio::test]
async fn a_sign_in_that_is_not_what_it_should_be_gives_no_token() {
    let worlds = [
        (
            "another server",
            World {
                resource: Some("https://evil.example/mcp"),
                ..World::default()
            },
        ),
        (
            "another issuer",
            World {
                issuer: Some("https://evil.example"),
                ..World::default()
            },
        ),
        (
            "PKCE",
            World {
                no_pkce: true,
                ..World::default()
            },
        ),
        (
            "another authorization server",
            World {
                callback: Some("code=x&iss=https%3A%2F%2Fevil.example"),
                ..World::default()
            },
        ),
        (
            "does not say who",
            World {
                callback: Some("code=x"),
                ..World::default()
            },
        ),
    ];
    for (part, world) in worlds {
        let dir = tempfile::tempdir().unwrap();
        let http = world.serve().await;
        let error = connect(&http, world.sign_in(dir.path(), &Arc::default()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, ClientError::SignInFailed { .. }),
            "{part}: {error}"
        );
        assert!(error.to_string().contains(part), "{part}: {error}");
        assert!(at(&http, "/as/token").is_empty(), "{part}");
        assert!(!dir.path().join("tokens.json").exists(), "{part}");
    }
}

#[tokio::test]
async fn a_header_of_the_configuration_is_not_replaced_by_a_sign_in() {
    let dir = tempfile::tempdir().unwrap();
    let (world, asked) = (World::default(), Arc::default());
    let http = world.serve().await;
    let config = ServerConfig::http(http.url().parse().unwrap())
        .with("Authorization", "Bearer mine-of-config");
    let options = Options {
        sign_in: Some(world.sign_in(dir.path(), &asked)),
        ..Options::default()
    };
    let error = soon(Client::connect("web", &config, &options))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ClientError::SignIn { status: 401, .. }),
        "{error}"
    );
    assert!(asked.lock().unwrap().is_empty());
}
