use std::sync::{Arc, Mutex};

use ramen_group::{LayerRef, Reason, Report};
use ramen_source::cache::CacheError;
use ramen_source::layer::Incoming;
use ramen_source::layer::pack_tree;
use ramen_source::store::{StoreError, digest_of};
use ramen_source::testing::S3;
use ramen_source::tree::{TreeLimits, walk_folder};
use ramen_source::{Cache, Kind};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers one request after the other from a list, whatever is asked; the last one again and again.
struct Scripted {
    url: Url,
    seen: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
enum Say {
    Answer(u16, Vec<u8>),
    /// Announces more than it sends.
    Short(Vec<u8>),
    Hangup,
}

impl Scripted {
    async fn start(script: Vec<Say>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let requests = Arc::clone(&seen);
        tokio::spawn(async move {
            for turn in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = request(&mut stream).await;
                requests.lock().unwrap().push(request);
                let answer = match &script[turn.min(script.len() - 1)] {
                    Say::Hangup => continue,
                    Say::Answer(status, body) => (*status, body, body.len()),
                    Say::Short(body) => (200, body, body.len() + 3),
                };
                let head = format!(
                    "HTTP/1.1 {} x\r\ncontent-length: {}\r\n\r\n",
                    answer.0, answer.2
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(answer.1).await.unwrap();
            }
        });
        Self { url, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// A whole request as text; bodies with a length only.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut wanted = None;
    let mut buffer = [0; 4096];
    loop {
        if wanted.is_none()
            && let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            wanted = Some(end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap()));
        }
        if wanted.is_some_and(|wanted| text.len() >= wanted) {
            return String::from_utf8_lossy(&text).into_owned();
        }
        let n = stream.read(&mut buffer).await.unwrap();
        if n == 0 {
            return String::from_utf8_lossy(&text).into_owned();
        }
        text.extend_from_slice(&buffer[..n]);
    }
}

struct Place {
    dir: TempDir,
    cache: Cache,
    layer: LayerRef,
    archive: Vec<u8>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let prompt = dir.path().join("group/mcp/prompts/p");
        std::fs::create_dir_all(&prompt).unwrap();
        std::fs::write(prompt.join("SKILL.md"), "hello").unwrap();
        let tree = walk_folder(&dir.path().join("group"), &TreeLimits::default()).unwrap();
        let packed = pack_tree(&tree, dir.path()).unwrap();
        std::fs::write(dir.path().join("token"), "secret-token\n").unwrap();
        Self {
            cache: Cache::open(&dir.path().join("cache")).unwrap(),
            layer: packed.reference(&tree.id),
            archive: std::fs::read(packed.path()).unwrap(),
            dir,
        }
    }

    fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    fn depot(&self, server: &Scripted) -> Depot {
        let at = StoreAt::Endpoint {
            url: server.url.clone(),
            token_file: self.token_file(),
            bucket: None,
        };
        Depot::open(&at, self.cache.root()).unwrap()
    }

    async fn ready(&self, depot: &Depot) -> Result<PathBuf, CacheError> {
        depot.ready(&self.cache, Kind::Code, &self.layer).await
    }

    fn spooled(&self) -> usize {
        let blobs = self.cache.root().join("spool/blobs");
        let spool = std::fs::read_dir(blobs).map_or(0, Iterator::count);
        let incoming = self.cache.root().join("spool/incoming");
        spool + std::fs::read_dir(incoming).map_or(0, Iterator::count)
    }
}

#[tokio::test]
async fn a_layer_is_fetched_once_and_checked() {
    let place = Place::new();
    let ok = Say::Answer(200, place.archive.clone());
    let server = Scripted::start(vec![ok]).await;
    let depot = place.depot(&server);
    let dir = place.ready(&depot).await.unwrap();
    let text = std::fs::read_to_string(dir.join("mcp/prompts/p/SKILL.md")).unwrap();
    assert_eq!(text, "hello");
    place.ready(&depot).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    let line = format!("GET /v1/layers/code/{} HTTP/1.1", place.layer.digest);
    assert!(seen[0].starts_with(&line), "{}", seen[0]);
    assert!(seen[0].contains("authorization: Bearer secret-token\r\n"));
    assert_eq!(place.spooled(), 0);
}

#[tokio::test]
async fn what_breaks_off_is_asked_for_again() {
    let place = Place::new();
    let server = Scripted::start(vec![
        Say::Hangup,
        Say::Answer(503, b"busy".to_vec()),
        Say::Short(place.archive[3..].to_vec()),
        Say::Answer(200, place.archive.clone()),
    ])
    .await;
    let depot = place.depot(&server);
    place.ready(&depot).await.unwrap();
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn other_bytes_never_become_the_layer() {
    let place = Place::new();
    let mut wrong = place.archive.clone();
    wrong[10] ^= 1;
    let server = Scripted::start(vec![Say::Answer(200, wrong)]).await;
    let error = place.ready(&place.depot(&server)).await.unwrap_err();
    assert!(matches!(error, CacheError::Corrupt { .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::LayerCorrupt);
    assert_eq!(place.spooled(), 0);

    let mut long = place.archive.clone();
    long.push(0);
    let server = Scripted::start(vec![Say::Answer(200, long)]).await;
    let error = place.ready(&place.depot(&server)).await.unwrap_err();
    assert!(matches!(error, CacheError::Corrupt { .. }), "{error:?}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn what_is_missing_or_refused_is_told_at_once() {
    let place = Place::new();
    let server = Scripted::start(vec![Say::Answer(404, Vec::new())]).await;
    let error = place.ready(&place.depot(&server)).await.unwrap_err();
    assert!(matches!(
        error,
        CacheError::Store(StoreError::Missing { .. })
    ));
    assert_eq!(server.seen().len(), 1);

    let server = Scripted::start(vec![Say::Answer(401, Vec::new())]).await;
    let error = place.ready(&place.depot(&server)).await.unwrap_err();
    let text = ramen_redact::chain(&error);
    assert!(text.contains("refuses the token (HTTP 401)"), "{text}");
    assert!(!text.contains("secret-token"));
    assert_eq!(server.seen().len(), 1);

    std::fs::remove_file(place.token_file()).unwrap();
    let error = place.ready(&place.depot(&server)).await.unwrap_err();
    let text = ramen_redact::chain(&error);
    assert!(text.contains("cannot read the token"), "{text}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_new_token_counts_at_the_next_request() {
    let place = Place::new();
    let refused = Say::Answer(401, Vec::new());
    let ok = Say::Answer(200, place.archive.clone());
    let server = Scripted::start(vec![refused, ok]).await;
    let depot = place.depot(&server);
    place.ready(&depot).await.unwrap_err();
    std::fs::write(place.token_file(), "newer\n").unwrap();
    place.ready(&depot).await.unwrap();
    assert!(server.seen()[1].contains("Bearer newer\r\n"));
}

fn report() -> Report {
    serde_json::from_value(serde_json::json!({"outcome": "failed"})).unwrap()
}

#[tokio::test]
async fn a_deploy_hands_over_its_layer_and_its_report() {
    let place = Place::new();
    let reference = serde_json::json!({"key": "g-k", "digest": place.layer.digest, "size": 1});
    let server = Scripted::start(vec![
        // The operator has just started and does not know the token yet.
        Say::Answer(401, Vec::new()),
        Say::Answer(200, reference.to_string().into_bytes()),
        Say::Answer(204, Vec::new()),
        Say::Answer(404, Vec::new()),
        Say::Answer(200, b"a==1".to_vec()),
    ])
    .await;
    let url = format!("{}v1/deploys/ns/g/1/report", server.url);
    let run = DeployRun::new(&url, place.token_file()).unwrap();
    let tree = walk_folder(&place.dir.path().join("group"), &TreeLimits::default()).unwrap();
    let packed = pack_tree(&tree, place.dir.path()).unwrap();
    let layer = run.put_deps("k", &packed).await.unwrap();
    assert_eq!(layer.key, "g-k");
    run.report(&report()).await.unwrap();
    assert_eq!(run.deps("k").await.unwrap(), None);
    assert_eq!(run.lock("i").await.unwrap().as_deref(), Some("a==1"));
    let seen = server.seen();
    let first: Vec<&str> = seen.iter().filter_map(|text| text.lines().next()).collect();
    assert_eq!(
        first[1..],
        [
            "PUT /v1/deploys/ns/g/1/layers/deps/k HTTP/1.1",
            "PUT /v1/deploys/ns/g/1/report HTTP/1.1",
            "GET /v1/deploys/ns/g/1/layers/deps/k HTTP/1.1",
            "GET /v1/deploys/ns/g/1/locks/i HTTP/1.1",
        ]
    );
    assert!(seen[1].contains(&format!("x-ramen-digest: {}\r\n", packed.digest)));
    assert!(seen[2].contains(r#""outcome":"failed""#));
}

#[test]
fn a_store_is_a_folder_or_an_address_with_a_token() {
    let read = |text: &str, token: Option<&str>| {
        StoreAt::read(Path::new(text), token.map(Path::new)).map_err(|fault| fault.len())
    };
    assert_eq!(read("a/b", None), Ok(StoreAt::Folder("a/b".into())));
    assert!(matches!(
        read("http://ramen-artifacts.ns:8081", Some("t")),
        Ok(StoreAt::Endpoint { .. })
    ));
    for wrong in [
        "ftp://x",
        "http://",
        "http://u:p@h",
        "http://h/?q",
        "http://h/#f",
    ] {
        assert!(read(wrong, Some("t")).is_err(), "{wrong}");
    }
    assert!(read("https://h", None).is_err());
    assert!(DeployRun::new("http://h/v1/deploys/a/b/c", "t".into()).is_err());
}

/// The bucket with a place's layer in it, and a store over it as the operator has one.
async fn bucket(place: &Place) -> (S3, Bucket) {
    let server = S3::start(([127, 0, 0, 1], 0).into()).await.unwrap();
    let bucket = Bucket::new("s3://ramen/layers", server.variables()).unwrap();
    let operator = Store::in_bucket(&bucket, &place.dir.path().join("operator")).unwrap();
    let mut archive = Incoming::new(place.dir.path(), 1 << 20).unwrap();
    archive.write(&place.archive).await.unwrap();
    let archive = archive
        .finish(digest_of(&place.layer).unwrap())
        .await
        .unwrap();
    operator
        .put(Kind::Code, &place.layer.key, &archive)
        .await
        .unwrap();
    (server, bucket)
}

fn before(endpoint: &Scripted, place: &Place, bucket: &Bucket) -> Depot {
    let at = StoreAt::Endpoint {
        url: endpoint.url.clone(),
        token_file: place.token_file(),
        bucket: Some(bucket.clone()),
    };
    Depot::open(&at, place.cache.root()).unwrap()
}

#[tokio::test]
async fn a_pod_starts_from_the_bucket_without_an_operator() {
    let place = Place::new();
    let (_server, bucket) = bucket(&place).await;
    let endpoint = Scripted::start(vec![Say::Hangup]).await;
    let depot = before(&endpoint, &place, &bucket);
    let folder = place.ready(&depot).await.unwrap();
    assert!(
        ramen_source::layer::code_dir(&folder)
            .join("prompts/p/SKILL.md")
            .is_file()
    );
    assert_eq!(endpoint.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn what_the_bucket_does_not_give_the_endpoint_does() {
    let place = Place::new();
    let (mut server, bucket) = bucket(&place).await;
    let digest = digest_of(&place.layer).unwrap();
    std::fs::remove_file(server.file(&format!("layers/blobs/{}.tar.zst", digest.hex()))).unwrap();
    let ok = Say::Answer(200, place.archive.clone());
    let endpoint = Scripted::start(vec![ok.clone()]).await;
    place
        .ready(&before(&endpoint, &place, &bucket))
        .await
        .unwrap();
    assert_eq!(
        endpoint.seen().len(),
        1,
        "the operator hears of it and makes it again"
    );
    // Neither does a bucket that is away keep a pod from starting.
    server.stop().await;
    let place = Place::new();
    let endpoint = Scripted::start(vec![Say::Answer(200, place.archive.clone())]).await;
    place
        .ready(&before(&endpoint, &place, &bucket))
        .await
        .unwrap();
    assert_eq!(endpoint.seen().len(), 1);
}

#[test]
fn a_bucket_stands_before_an_endpoint_only() {
    let endpoint = StoreAt::read(Path::new("http://h:1"), Some(Path::new("t"))).unwrap();
    let with = endpoint.clone().with_bucket(Some("s3://layers")).unwrap();
    assert!(matches!(
        with,
        StoreAt::Endpoint {
            bucket: Some(_),
            ..
        }
    ));
    for none in [None, Some("")] {
        assert_eq!(endpoint.clone().with_bucket(none), Ok(endpoint.clone()));
    }
    for wrong in ["layers", "http://x", "s3://"] {
        let (kept, fault) = *endpoint.clone().with_bucket(Some(wrong)).unwrap_err();
        assert_eq!(kept, endpoint);
        assert!(fault.starts_with(names::STORE_BUCKET), "{fault}");
    }
    let folder = StoreAt::Folder("a".into());
    assert!(folder.with_bucket(Some("s3://layers")).is_err());
}
