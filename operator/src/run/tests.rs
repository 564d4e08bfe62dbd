use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use ramen_group::LayerRef;
use ramen_source::layer::pack_tree;
use ramen_source::tree::TreeFile;
use ramen_source::{Kind, Tree};
use serde_json::json;

use super::*;
use crate::group::GroupKey;
use crate::testing::{api, context};

/// Puts a layer of code into the store.
async fn layer(store: &Store, dir: &std::path::Path, name: &str) -> LayerRef {
    let files = vec![TreeFile {
        path: "tools/a/a.py".to_owned(),
        data: name.as_bytes().to_vec(),
    }];
    let tree = Tree {
        files,
        ..Tree::default()
    };
    let packed = pack_tree(&tree, dir).unwrap();
    store.put(Kind::Code, name, &packed).await.unwrap()
}

#[tokio::test]
async fn layers_that_no_group_needs_go_as_soon_as_it_is_known_what_all_need() {
    let (client, _server) = api();
    let (ctx, mut writers, folder) = context(client);
    let store = ctx.work.artifacts.store();
    let needed = layer(store, folder.path(), "needed").await;
    layer(store, folder.path(), "left").await;
    let there = async || {
        let left = store.find(Kind::Code, "left").await.unwrap();
        let needed = store.find(Kind::Code, "needed").await.unwrap();
        (needed.is_some(), left.is_some())
    };
    let mut show = |name: &str, leaves: bool| {
        let mut group = crate::group::test_group(json!({}));
        group.metadata.name = Some(name.to_owned());
        if leaves {
            let time = serde_json::from_value(json!("2026-01-01T00:00:00Z"));
            group.metadata.deletion_timestamp = time.unwrap();
        }
        let event = Event::Apply(DeserializeGuard(Ok(group)));
        writers.groups().apply_watcher_event(&event);
    };
    show("calc", false);
    show("other", false);
    ctx.keeps(&GroupKey::new("team-a", "calc"), vec![needed]);
    assert_eq!(ctx.layers(), Err(vec![GroupKey::new("team-a", "other")]));
    remove_layers(&ctx, Duration::ZERO).await;
    assert_eq!(there().await, (true, true));
    // One that is being removed holds up nothing.
    show("other", true);
    remove_layers(&ctx, Duration::ZERO).await;
    assert_eq!(there().await, (true, false));
}
