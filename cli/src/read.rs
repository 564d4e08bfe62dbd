//! `ramen read`: one resource. Texts and bytes go to stdout as they are, so that they can be piped.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output::{self, OutputArg};
use crate::peer::Peer;

/// `ramen read`.
#[derive(Args)]
pub(crate) struct ReadArgs {
    /// The URI of the resource, as `ramen ls resources` shows it
    uri: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(crate) fn run(args: &ReadArgs) -> Result<ExitCode, Failure> {
    let runtime = crate::runtime()?;
    let peer = Peer::open(&args.connect)?;
    let result = peer.finish(&runtime, read(&peer, &args.uri))?;
    if args.output.is_table() {
        for piece in pieces(&result)? {
            piece.print();
        }
    } else {
        args.output.print_raw(&result)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(peer: &Peer, uri: &str) -> Result<Box<RawValue>, Failure> {
    // Asked for at once: a server may answer for more than it lists.
    let result = peer
        .request("resources/read", &json!({ "uri": uri }).to_string())
        .await;
    match result {
        Err(failure) if failure.code() == Failure::usage("").code() => {
            peer.find("resources", "uri", uri).await?;
            Err(failure)
        }
        result => result,
    }
}

#[derive(Deserialize)]
struct ReadResult {
    #[serde(default)]
    contents: Vec<Contents>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contents {
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
}

/// What goes to stdout for one part of the resource.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Bytes { data: Vec<u8>, kind: String },
}

fn pieces(result: &RawValue) -> Result<Vec<Piece>, Failure> {
    let unreadable = |why: String| Failure::error(format!("the resource cannot be read: {why}"));
    let result: ReadResult =
        serde_json::from_str(result.get()).map_err(|error| unreadable(error.to_string()))?;
    let pieces = result.contents.into_iter().map(|contents| {
        if let Some(text) = contents.text {
            return Ok(Piece::Text(text));
        }
        let data = STANDARD
            .decode(contents.blob.unwrap_or_default())
            .map_err(|error| unreadable(error.to_string()))?;
        Ok(Piece::Bytes {
            data,
            kind: contents.mime_type.unwrap_or_else(|| "bytes".to_owned()),
        })
    });
    pieces.collect()
}

impl Piece {
    fn print(&self) {
        match self {
            Self::Text(text) => {
                output::raw(text.as_bytes());
                if !text.ends_with('\n') {
                    output::raw(b"\n");
                }
            }
            // A terminal would take bytes for commands.
            Self::Bytes { data, kind } if std::io::stdout().is_terminal() => {
                let bytes = data.len();
                output::line(&format!(
                    "[{kind}, {bytes} bytes; send them to a file with `>`]"
                ));
            }
            Self::Bytes { data, .. } => output::raw(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(value: &Value) -> Result<Vec<Piece>, Failure> {
        pieces(&RawValue::from_string(value.to_string()).unwrap())
    }

    #[test]
    fn texts_stay_texts_and_blobs_become_bytes() {
        let result = json!({"contents": [
            {"uri": "a://b", "text": "# Demo"},
            {"uri": "a://b", "mimeType": "image/png", "blob": "iVA="},
        ]});
        assert_eq!(
            read(&result).unwrap(),
            [
                Piece::Text("# Demo".to_owned()),
                Piece::Bytes {
                    data: vec![0x89, b'P'],
                    kind: "image/png".to_owned()
                },
            ]
        );
        assert_eq!(read(&json!({})).unwrap(), []);
    }

    #[test]
    fn a_blob_that_is_no_base64_is_an_error() {
        let failure = read(&json!({"contents": [{"blob": "!"}]})).unwrap_err();
        assert!(
            failure
                .to_string()
                .starts_with("the resource cannot be read")
        );
    }
}
