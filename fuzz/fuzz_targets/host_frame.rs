//! Frames in pieces of any size, in both directions: never a panic, and what was read is written back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ramen_frame::{Decoder, FromHost, ToHost};

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else {
        return;
    };
    let mut decoder = Decoder::new();
    for chunk in data.chunks(usize::from(piece).max(1)) {
        decoder.push(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    if let Ok(message) = ToHost::parse(frame) {
                        let mut bytes = Vec::new();
                        message
                            .encode(&mut bytes)
                            .expect("what was read fits a frame");
                        let mut again = Decoder::new();
                        again.push(&bytes);
                        let frame = again.next_frame().expect("a frame").expect("a whole frame");
                        assert_eq!(ToHost::parse(frame).expect("the same message"), message);
                    }
                    if let Ok(message) = FromHost::parse(frame) {
                        let mut bytes = Vec::new();
                        message
                            .encode(&mut bytes)
                            .expect("what was read fits a frame");
                        let mut again = Decoder::new();
                        again.push(&bytes);
                        let frame = again.next_frame().expect("a frame").expect("a whole frame");
                        assert_eq!(FromHost::parse(frame).expect("the same message"), message);
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
