//! The account of an operator outside of the chart, with the chart's own rules.

use anyhow::Context as _;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{AuthInfo, Kubeconfig},
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};

use crate::namespace::{LIMIT, MANAGER, Namespace};

/// What the chart lets its operator do: the template is plain YAML but for one name.
const RULES: &str = include_str!("../../../charts/ramen/templates/_rbac.tpl");
const KIND: &str = include_str!("../../../crds/yaml/mcpgroups.ramen.dev.yaml");
/// Of the account, its roles and its lease.
const NAME: &str = "ramen-operator";
/// Of the gateway's account and roles.
const GATEWAY: &str = "ramen-gateway";

/// A `ServiceAccount` with the rules that the chart gives the operator or the gateway, and a token of it.
#[derive(Clone)]
pub struct Account {
    /// Where it is.
    pub namespace: String,
    /// Its rules are those of the whole cluster.
    pub cluster_wide: bool,
    /// The API server's own address.
    pub server: String,
    pub(super) token: String,
    /// As a kubeconfig has it.
    pub(super) authority: Option<String>,
}

impl Account {
    /// Makes it, its roles and its token.
    ///
    /// # Errors
    /// When the API server refuses one of them.
    pub async fn new(namespace: &Namespace, cluster_wide: bool) -> anyhow::Result<Self> {
        let mut own = rules("ramen.ownRules")?;
        let groups = rules("ramen.rules")?;
        let subjects =
            json!([{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace.name }]);
        let to = |kind: &str, name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
        if cluster_wide {
            let name = format!("{}-{NAME}", namespace.name);
            let role = json!({ "metadata": { "name": name }, "rules": groups });
            apply::<ClusterRole>(&namespace.client, &name, role).await?;
            let binding = json!({
                "metadata": { "name": name },
                "roleRef": to("ClusterRole", &name), "subjects": subjects,
            });
            apply::<ClusterRoleBinding>(&namespace.client, &name, binding).await?;
        } else {
            own.extend(groups);
        }
        grant(namespace, NAME, (NAME, namespace), &own).await?;
        Self::of(namespace, NAME, cluster_wide).await
    }

    /// Lets this operator leave what gateways need in their namespace.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn serves_gateways_in(&self, gateways: &Namespace) -> anyhow::Result<()> {
        let home = Namespace {
            client: gateways.client.clone(),
            name: self.namespace.clone(),
        };
        let rules = rules("ramen.forGatewaysRules")?;
        grant(gateways, NAME, (NAME, &home), &rules).await
    }

    /// The gateway's, in a namespace of its own, with its rules in the namespace of the groups.
    ///
    /// # Errors
    /// When the API server refuses one of them.
    pub async fn gateway(own: &Namespace, groups: &Namespace) -> anyhow::Result<Self> {
        let account = (GATEWAY, own);
        let reads = rules("ramen.gatewayOwnRules")?;
        grant(own, "ramen-gateway-own", account, &reads).await?;
        let looks = rules("ramen.gatewayRules")?;
        grant(groups, GATEWAY, account, &looks).await?;
        Self::of(own, GATEWAY, false).await
    }

    /// A client with the rights of the account.
    ///
    /// # Errors
    /// When `KUBECONFIG` names no cluster.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut config = Config::infer().await?;
        config.auth_info = AuthInfo {
            token: Some(self.token.clone().into()),
            ..AuthInfo::default()
        };
        Ok(Client::try_from(config)?)
    }

    /// Makes the account and a token of it; its rights stand in roles that name it.
    async fn of(namespace: &Namespace, name: &str, cluster_wide: bool) -> anyhow::Result<Self> {
        namespace.apply::<ServiceAccount>(name, json!({})).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Vec::new(),
                expiration_seconds: Some(24 * 3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts = namespace.api::<ServiceAccount>();
        let made = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .context("asking for a token of an account")?;
        let (server, authority) = server()?;
        Ok(Self {
            namespace: namespace.name.clone(),
            cluster_wide,
            server,
            authority,
            token: made.status.context("a token request without status")?.token,
        })
    }

    /// Replaces the rules of the account's namespace, as somebody does who takes a right away: `edit` gets them one by
    /// one and says which stay as they then are.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn restrict(
        &self,
        namespace: &Namespace,
        edit: impl FnMut(&mut Value) -> bool,
    ) -> anyhow::Result<()> {
        let mut all = rules("ramen.ownRules")?;
        all.extend(rules("ramen.rules")?);
        all.retain_mut(edit);
        namespace
            .apply::<Role>(NAME, json!({ "rules": all }))
            .await
            .map(drop)
    }
}

/// Makes a role and gives it to an account, which may be one of another namespace.
async fn grant(
    place: &Namespace,
    role: &str,
    (account, home): (&str, &Namespace),
    rules: &[Value],
) -> anyhow::Result<()> {
    place.apply::<Role>(role, json!({ "rules": rules })).await?;
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": home.name }],
    });
    place.apply::<RoleBinding>(role, binding).await.map(drop)
}

/// Address and authority of the API server that `KUBECONFIG` names.
fn server() -> anyhow::Result<(String, Option<String>)> {
    let config = Kubeconfig::read().context("KUBECONFIG names no cluster")?;
    let mut clusters = config.clusters.into_iter();
    let cluster = clusters.find_map(|named| named.cluster);
    let cluster = cluster.context("a kubeconfig without a cluster")?;
    let server = cluster.server.context("a cluster without an address")?;
    Ok((server, cluster.certificate_authority_data))
}

async fn apply<K>(client: &Client, name: &str, mut object: Value) -> anyhow::Result<()>
where
    K: kube::Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    let params = PatchParams::apply(MANAGER).force();
    Api::<K>::all(client.clone())
        .patch(name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("applying {} {name}", K::kind(&())))?;
    Ok(())
}

/// The kind `McpGroup`, installed if it is not; the same for every test, so that they do not stand in each other's way.
///
/// # Errors
/// When the API server refuses it or does not accept its names.
pub async fn crd(client: &Client) -> anyhow::Result<()> {
    let definition: Value = serde_saphyr::from_str(KIND).context("the definition in crds/yaml")?;
    let name = definition["metadata"]["name"]
        .as_str()
        .context("a definition without a name")?
        .to_owned();
    apply::<CustomResourceDefinition>(client, &name, definition).await?;
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    let ready = await_condition(all, &name, conditions::is_crd_established());
    tokio::time::timeout(LIMIT, ready)
        .await
        .context("the kind is not established")??;
    Ok(())
}

/// The rules of one template.
fn rules(template: &str) -> anyhow::Result<Vec<Value>> {
    let begin = format!("{{{{- define \"{template}\" -}}}}");
    let text = RULES
        .split_once(&begin)
        .and_then(|(_, rest)| rest.split_once("{{- end }}"))
        .map(|(text, _)| text)
        .with_context(|| format!("the chart has no template {template}"))?;
    let text = text.replace(r#"{{ include "ramen.fullname" . }}-operator"#, NAME);
    // What stands in a condition is for an operator that is set up so: it may do everything that one can.
    let text = text
        .split("{{ ")
        .map(|part| match part.split_once(" }}") {
            Some((word, rest)) if word == "end" || word.starts_with("if ") => rest.to_owned(),
            Some(_) => format!("{{{{ {part}"),
            None => part.to_owned(),
        })
        .collect::<String>();
    anyhow::ensure!(!text.contains("{{"), "{template} is no plain YAML: {text}");
    serde_saphyr::from_str(&text).with_context(|| format!("the rules of {template}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_those_of_the_chart() {
        let groups = rules("ramen.rules").unwrap();
        assert!(groups.iter().any(|rule| {
            rule["resources"] == json!(["mcpgroups/status"]) && rule["verbs"] == json!(["patch"])
        }));
        assert!(groups.iter().any(|rule| {
            rule["resources"] == json!(["mcpgroups"])
                && rule["verbs"] == json!(["list", "watch", "patch"])
        }));
        let own = rules("ramen.ownRules").unwrap();
        assert!(
            own.iter()
                .any(|rule| rule["resourceNames"] == json!([NAME]))
        );
        assert!(rules("ramen.none").is_err());
    }
}
