//! Reading a request.

use std::io::{self, BufRead, Read};

#[derive(Default)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

pub(super) fn read_head(stream: &mut impl BufRead) -> io::Result<Head> {
    let mut head = Head::default();
    let mut line = String::new();
    stream.take(8192).read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    head.method = words.next().unwrap_or_default();
    head.target = words.next().unwrap_or_default();
    for _ in 0..100 {
        line.clear();
        stream.take(65_536).read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        head.headers
            .push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(head)
}

pub(super) fn read_body(stream: &mut impl BufRead, head: &Head) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if head.get("transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            stream.take(size).read_to_end(&mut body)?;
            line.clear();
            stream.read_line(&mut line)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = head
        .get("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    stream.take(length).read_to_end(&mut body)?;
    Ok(body)
}
