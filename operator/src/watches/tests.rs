use super::*;

#[test]
fn an_object_belongs_to_its_owner_whatever_its_labels_say() {
    let mut meta = ObjectMeta::default();
    assert_eq!(group_of(&meta), None);
    let owner = |kind: &str| k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
        api_version: "ramen.dev/v1alpha1".to_owned(),
        kind: kind.to_owned(),
        name: "calc".to_owned(),
        controller: Some(true),
        ..Default::default()
    };
    meta.owner_references = Some(vec![owner("Other"), owner("McpGroup")]);
    assert_eq!(group_of(&meta), Some("calc"));
}
