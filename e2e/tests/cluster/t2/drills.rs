//! Components that end and come back. Nothing else runs beside these (`e2e/nextest.toml`).

mod control_plane;

use std::{future::Future, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use ramen_e2e::{Tier, drill, with_temp_ns};
use serde_json::json;

/// Tries until it works: while a server is away, there is nothing to watch.
async fn eventually<T, F: Future<Output = kube::Result<T>>>(
    mut action: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let end = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        match tokio::time::timeout(Duration::from_secs(5), action()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) if tokio::time::Instant::now() > end => return Err(error.into()),
            Err(late) if tokio::time::Instant::now() > end => return Err(late.into()),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn what_was_written_is_there_after_the_api_server_and_etcd_were_killed() {
    with_temp_ns(Tier::T2, async |namespace| {
        let written = json!({ "data": { "soup": "miso" } });
        namespace.apply::<ConfigMap>("kept", written).await?;
        for component in ["kube-apiserver", "etcd"] {
            drill("kill", component)?;
            let maps = namespace.api::<ConfigMap>();
            let kept = eventually(|| maps.get("kept")).await?;
            let data = kept.data.unwrap_or_default();
            assert_eq!(data.get("soup").map(String::as_str), Some("miso"));
        }
        Ok(())
    })
    .await;
}
