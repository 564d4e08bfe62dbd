use http_body_util::{Full, StreamBody};

use super::*;
use crate::callers::Limits;

fn door(rate: u32) -> Door {
    Door {
        address: AddressRule::default(),
        sites: Sites {
            loopback: true,
            ..Sites::default()
        },
        callers: Callers::new(Limits {
            rate,
            ..Limits::default()
        }),
    }
}

/// A request in which everything that the gate judges is wrong, but for what `good` mends, in order.
fn parts(good: usize) -> Parts {
    let mut request = http::Request::builder()
        .method(if good > 4 { "POST" } else { "GET" })
        .uri("/a/b/mcp")
        .header(
            "host",
            if good > 3 {
                "localhost"
            } else {
                "evil.example"
            },
        );
    if good > 1 {
        request = request.header("authorization", "Bearer rmk_a");
    }
    if good < 1 {
        request = request.header("x-flood", "x".repeat(MAX_HEADER_BYTES));
    }
    let length = if good > 5 { "2" } else { "4194305" };
    request
        .header("content-length", length)
        .body(())
        .unwrap()
        .into_parts()
        .0
}

#[tokio::test]
async fn the_order_is_headers_credential_address_host_method_size_rate() {
    let keys = KeySet::from_lines("rmk_a");
    let near = CidrSet::parse_list("127.0.0.0/8").unwrap();
    let far = CidrSet::parse_list("10.0.0.0/8").unwrap();
    let door = door(1);
    let peer = IpAddr::from([127, 0, 0, 1]);
    for (good, wanted) in [
        (0, Refusal::Headers),
        (1, Refusal::Credential),
        (2, Refusal::Address),
        (3, Refusal::Host),
        (4, Refusal::Method),
        (5, Refusal::Size),
    ] {
        let ranges = if good > 2 { &near } else { &far };
        let refused = door
            .enter(&parts(good), peer, &keys, ranges, ONLY_POST)
            .await
            .unwrap_err();
        assert_eq!(refused, wanted, "{good} mended");
    }
    door.enter(&parts(6), peer, &keys, &near, ONLY_POST)
        .await
        .unwrap();
    let refused = door
        .enter(&parts(6), peer, &keys, &near, ONLY_POST)
        .await
        .unwrap_err();
    assert_eq!(refused, Refusal::Rate);
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

#[test]
fn one_credential_counts_and_two_are_none() {
    let one = headers(&[("authorization", "Bearer rmk_a")]);
    assert_eq!(bearer(&one), Some(&b"rmk_a"[..]));
    let two = headers(&[
        ("authorization", "Bearer rmk_a"),
        ("authorization", "Bearer rmk_a"),
    ]);
    assert_eq!(bearer(&two), None);
    let long = format!("Bearer {}", "a".repeat(MAX_CREDENTIAL));
    assert_eq!(bearer(&headers(&[("authorization", &long)])), None);
}

#[test]
fn smuggling_forms_are_refused() {
    for pairs in [
        [("content-length", "2"), ("transfer-encoding", "chunked")],
        [("content-length", "2"), ("content-length", "2")],
        [
            ("transfer-encoding", "chunked"),
            ("transfer-encoding", "identity"),
        ],
    ] {
        assert_eq!(
            bounds(&headers(&pairs)),
            Err(Refusal::Ambiguous),
            "{pairs:?}"
        );
    }
    for length in ["two", "+2", "-1", "0x10", "", "2, 2"] {
        let headers = headers(&[("content-length", length)]);
        assert_eq!(size(&headers), Err(Refusal::Ambiguous), "{length:?}");
    }
}

#[test]
fn a_flood_of_headers_is_refused() {
    let mut many = HeaderMap::new();
    for n in 0..=MAX_HEADERS {
        many.append(
            http::HeaderName::try_from(format!("x-{n}")).unwrap(),
            "1".parse().unwrap(),
        );
    }
    assert_eq!(bounds(&many), Err(Refusal::Headers));
}

#[test]
fn compressed_bodies_are_refused_before_a_byte_is_read() {
    assert_eq!(
        size(&headers(&[("content-encoding", "gzip")])),
        Err(Refusal::Encoding)
    );
    assert_eq!(size(&headers(&[("content-encoding", "Identity")])), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let silent = StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >());
    assert_eq!(read(Box::pin(silent)).await, Err(Refusal::Slow));
}

#[tokio::test]
async fn a_body_without_a_length_is_measured_as_it_comes() {
    let piece = Bytes::from(vec![b' '; MAX_MESSAGE / 2]);
    let pieces = |count| {
        let frame = http_body::Frame::data(piece.clone());
        let frames = std::iter::repeat_n(frame.into_data().unwrap(), count)
            .map(|data| Ok::<_, std::io::Error>(http_body::Frame::data(data)));
        StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>()))
    };
    assert_eq!(
        read(pieces(2)).await.map(|body| body.len()),
        Ok(MAX_MESSAGE)
    );
    assert_eq!(read(pieces(3)).await, Err(Refusal::Size));
    assert_eq!(read(Full::new(piece.clone())).await, Ok(piece));
}
