use k8s_openapi::api::core::v1::ConfigMap;

use super::*;

fn object(name: &str) -> PartialObjectMeta<ConfigMap> {
    Stub::stub(ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("ns".to_owned()),
        ..ObjectMeta::default()
    })
}

fn words(events: Vec<watcher::Result<Event<PartialObjectMeta<ConfigMap>>>>) -> Vec<String> {
    let word = |event: watcher::Result<Event<PartialObjectMeta<ConfigMap>>>| {
        let name = |object: PartialObjectMeta<ConfigMap>| object.metadata.name.unwrap_or_default();
        match event {
            Ok(Event::Init) => "init".to_owned(),
            Ok(Event::InitApply(object)) => format!("list {}", name(object)),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::Apply(object)) => format!("apply {}", name(object)),
            Ok(Event::Delete(object)) => format!("delete {}", name(object)),
            Err(error) => error.to_string(),
        }
    };
    events.into_iter().map(word).collect()
}

#[test]
fn several_namespaces_look_like_one_list_and_a_list_made_again_tells_what_is_gone() {
    let mut parts = vec![
        ("a".to_owned(), Part::default()),
        ("b".to_owned(), Part::default()),
    ];
    let mut heard = Vec::new();
    for (n, event) in [
        (0, Event::Init),
        (0, Event::InitApply(object("one"))),
        (0, Event::InitApply(object("two"))),
        (1, Event::Init),
        (0, Event::InitDone),
        (0, Event::Apply(object("early"))),
        (1, Event::InitDone),
        (1, Event::Apply(object("three"))),
        // After a break of the watch.
        (0, Event::Init),
        (0, Event::InitApply(object("one"))),
        (0, Event::InitApply(object("early"))),
        (0, Event::InitDone),
    ] {
        heard.extend(words(join_one(&mut parts, n, Ok(event))));
    }
    assert_eq!(
        heard,
        [
            "list one",
            "list two",
            "list early",
            "done",
            "apply three",
            "apply one",
            "apply early",
            "delete two",
        ]
    );
}
