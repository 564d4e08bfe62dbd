//! A message as a client sends it: never a panic, and what is refused is answered with JSON that carries its id.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ramen_mcp::envelope;

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    if let Err(reject) = envelope::parse(&body)
        && let Some(answer) = reject.answer()
    {
        let value: serde_json::Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        assert_eq!(value["jsonrpc"], "2.0");
        assert!(value["error"]["code"].is_i64());
        assert!(value["error"]["message"].is_string());
        assert!(value.get("id").is_some());
    } else if envelope::parse(&body).is_ok() {
        serde_json::from_slice::<Box<serde_json::value::RawValue>>(data)
            .expect("what is taken is JSON");
    }
});
