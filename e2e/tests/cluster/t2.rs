//! The API alone.

mod drills;
mod gateway;
mod operator;
mod rules;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
    runtime::{conditions, wait::await_condition},
};
use ramen_e2e::{Audit, Tier, with_temp_ns};
use serde_json::json;

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_kind_can_be_defined_and_its_rules_are_enforced() {
    with_temp_ns(Tier::T2, async |namespace| {
        // `with_temp_ns` has waited for the namespace's default ServiceAccount already.
        let definitions = Api::<CustomResourceDefinition>::all(namespace.client.clone());
        // The test's namespace in the group keeps two runs apart.
        let group = format!("{}.ramen.test", namespace.name);
        let name = format!("bowls.{group}");
        let bowl = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": "Bowl", "plural": "bowls", "singular": "bowl" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": {
                        "type": "object",
                        "properties": { "noodles": { "type": "integer" }, "eggs": { "type": "integer" } },
                        "x-kubernetes-validations": [
                            { "rule": "self.eggs <= self.noodles", "message": "more eggs than noodles" },
                        ],
                    }},
                }}}],
            },
        }))?;
        definitions.create(&PostParams::default(), &bowl).await?;
        let ready = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(std::time::Duration::from_secs(30), ready).await??;

        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Bowl"));
        let bowls = Api::<DynamicObject>::namespaced_with(
            namespace.client.clone(),
            &namespace.name,
            &kind,
        );
        let with = |name: &str, eggs: u32| {
            DynamicObject::new(name, &kind).data(json!({ "spec": { "noodles": 2, "eggs": eggs } }))
        };
        let made = bowls.create(&PostParams::default(), &with("good", 1)).await?;
        assert!(made.uid().is_some());
        let refused = bowls.create(&PostParams::default(), &with("bad", 3)).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("more eggs than noodles"), "{message}");

        definitions.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn the_audit_log_names_every_call_and_who_made_it() {
    with_temp_ns(Tier::T2, async |namespace| {
        let audit = Audit::start()?;
        namespace.apply::<ConfigMap>("seen", json!({})).await?;
        namespace.api::<ServiceAccount>().get("default").await?;
        let ours = audit.calls()?.into_iter();
        let ours = ours
            .filter(|call| call.user == "admin" && call.namespace == namespace.name)
            // The one that has waited for the ServiceAccount may end after the start.
            .filter(|call| call.verb != "watch")
            .map(|call| {
                format!(
                    "{} {} {} {}",
                    call.verb, call.resource, call.name, call.code
                )
            })
            .collect::<Vec<_>>();
        assert_eq!(
            ours,
            [
                "patch configmaps seen 201",
                "get serviceaccounts default 200"
            ]
        );
        Ok(())
    })
    .await;
}
