//! The official Rust SDK (rmcp), for the tests of `e2e`: `ramen-foreign client` does the steps of `../node/steps.mjs` with the order on
//! stdin, `ramen-foreign server stdio|http` is the server of `client/tests/python_servers/server.py`.

mod client;
mod server;

use anyhow::bail;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["client"] => Box::pin(client::run()).await,
        ["server", "stdio"] => server::stdio().await,
        ["server", "http"] => server::http().await,
        _ => bail!("usage: ramen-foreign client | server stdio|http"),
    }
}
