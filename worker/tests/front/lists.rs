//! Lists that have more than one page.

use serde_json::json;

use crate::harness::Group;
use crate::setup;

#[tokio::test]
async fn net04_every_page_is_another_and_the_last_names_no_next() {
    for (count, wanted) in [(1, vec![1]), (100, vec![100]), (201, vec![100, 100, 1])] {
        let names: Vec<String> = (0..count)
            .map(|number| format!("tool{number:03}"))
            .collect();
        let group = names
            .iter()
            .fold(Group::new(), |group, name| group.scripted(name, "echo"));
        let running = setup().serve(&group).await;
        let client = running.client().await;
        let (mut seen, mut pages, mut cursors) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let params = cursors
                .last()
                .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let result = client.rpc("tools/list", params).await["result"].clone();
            let tools = result["tools"].as_array().unwrap();
            pages.push(tools.len());
            seen.extend(
                tools
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap().to_owned()),
            );
            let Some(next) = result.get("nextCursor") else {
                break;
            };
            assert!(next.is_string() && !cursors.contains(next), "{next}");
            cursors.push(next.clone());
        }
        assert_eq!(pages, wanted);
        assert_eq!(seen, names);
    }
}
