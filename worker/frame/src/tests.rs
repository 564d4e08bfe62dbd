//! Round trips, cuts at every byte, and junk.

use proptest::prelude::*;
use serde_json::{Number, value::RawValue};

use crate::*;

fn load() -> Load {
    Load {
        group: "demo".into(),
        code_dir: "/code".into(),
        deps_dir: None,
        packages: vec![LoadPackage {
            id: 3,
            kind: PackageKind::Resource,
            name: "readme".into(),
            dir: "resources/readme".into(),
            callable: "read".into(),
            params: vec![],
            required: vec![],
        }],
        env: [("A".to_owned(), "b\n".to_owned())].into(),
        threads: 8,
        switch_interval_ms: 1,
    }
}

fn frame_of(bytes: &[u8]) -> Decoder {
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    decoder
}

#[test]
fn every_frame_to_the_host_survives_the_round_trip() {
    for message in [
        ToHost::Load(load()),
        ToHost::Call {
            call: u64::MAX,
            package: 9,
            arguments: b"{}",
        },
        ToHost::Cancel(4),
        ToHost::Interrupt(5),
        ToHost::Stats,
        ToHost::Exit,
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let mut decoder = frame_of(&bytes);
        assert_eq!(
            ToHost::parse(decoder.next_frame().unwrap().unwrap()).unwrap(),
            message
        );
        assert_eq!(decoder.buffered(), 0);
    }
}

#[test]
fn every_frame_from_the_host_survives_the_round_trip() {
    let loaded = Loaded {
        packages: vec![LoadedPackage {
            id: 1,
            ok: false,
            reason: Some("ImportFailed".into()),
            message: Some("ImportError: x".into()),
            is_async: true,
            ms: 4,
        }],
        threads: 0,
        python: "3.11.7".into(),
        warnings: vec![],
    };
    for message in [
        FromHost::Importing(Importing { id: 8 }),
        FromHost::Loaded(loaded),
        FromHost::Result {
            call: 1,
            status: Status::Blob,
            payload: &[0, 255],
        },
        FromHost::Progress {
            call: 2,
            update: Progress {
                progress: Number::from(5),
                total: None,
                message: Some("m".into()),
            },
        },
        FromHost::Log {
            call: 2,
            entry: Log {
                level: "info".into(),
                logger: None,
                data: RawValue::from_string("{\"n\":1180591620717411303424}".into()).unwrap(),
            },
        },
        FromHost::Stats(Stats {
            in_flight: 1,
            threads: 9,
            calls: 7,
        }),
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let mut decoder = frame_of(&bytes);
        assert_eq!(
            FromHost::parse(decoder.next_frame().unwrap().unwrap()).unwrap(),
            message
        );
    }
}

#[test]
fn load_json_uses_the_agreed_names_and_ignores_unknown_ones() {
    let text = r#"{"group":"g","codeDir":"/c","depsDir":null,"later":1,"packages":[{"id":1,"kind":"tool","name":"calc",
        "dir":"tools/calc","callable":"f","params":["a"],"required":["a"]}],"env":{},"threads":8,"switchIntervalMs":1}"#;
    let load = ToHost::parse(RawFrame {
        kind: kind::LOAD,
        payload: text.as_bytes(),
    })
    .unwrap();
    let ToHost::Load(load) = load else {
        panic!("not a LOAD")
    };
    assert_eq!(load.packages[0].kind, PackageKind::Tool);
    assert_eq!(load.packages[0].dir, "tools/calc");
}

#[test]
fn a_length_of_zero_or_over_the_limit_is_refused_before_its_bytes_arrive() {
    assert!(matches!(
        frame_of(&[0, 0, 0, 0, 1]).next_frame(),
        Err(FrameError::Empty)
    ));
    let mut long = u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes().to_vec();
    long.push(2);
    assert!(matches!(
        frame_of(&long).next_frame(),
        Err(FrameError::TooLong(_))
    ));
}

#[test]
fn a_payload_over_the_limit_is_not_encoded_and_leaves_the_buffer_as_it_was() {
    let arguments = vec![b' '; MAX_FRAME];
    let mut out = vec![1, 2, 3];
    let call = ToHost::Call {
        call: 1,
        package: 1,
        arguments: &arguments,
    };
    assert!(matches!(call.encode(&mut out), Err(FrameError::TooLong(_))));
    assert_eq!(out, [1, 2, 3]);
}

proptest! {
    #[test]
    fn any_split_of_the_stream_gives_the_same_frames(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..6),
        cut in 1_usize..50,
    ) {
        let mut bytes = Vec::new();
        for (n, payload) in payloads.iter().enumerate() {
            FromHost::Result { call: n as u64, status: Status::Json, payload }
                .encode(&mut bytes)
                .unwrap();
        }
        let mut decoder = Decoder::new();
        let mut seen = Vec::new();
        for chunk in bytes.chunks(cut) {
            decoder.push(chunk);
            while let Some(frame) = decoder.next_frame().unwrap() {
                let FromHost::Result { payload, .. } = FromHost::parse(frame).unwrap() else {
                    panic!("only results were written")
                };
                seen.push(payload.to_vec());
            }
        }
        prop_assert_eq!(seen, payloads);
    }

    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in any::<u8>()) {
        let mut decoder = frame_of(&bytes);
        while let Ok(Some(frame)) = decoder.next_frame() {
            let _ = ToHost::parse(frame);
            let _ = FromHost::parse(frame);
        }
        let frame = RawFrame { kind, payload: &bytes };
        let _ = ToHost::parse(frame);
        let _ = FromHost::parse(frame);
    }
}
