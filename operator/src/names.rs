//! Every name that is part of the operator's interface: variables, labels, annotations, ports, field
//! managers, names of children.

pub use ramen_crds::labels::{
    COMPONENT_DEPLOY, COMPONENT_WORKER, HINTED_AT, KEY_MADE_FOR, LABEL_COMPONENT, LABEL_GROUP,
    LABEL_ZONE, REQUESTED_AT, ROTATE_KEYS_AT,
};

/// Address and port of `/healthz`, `/readyz` and `/metrics` (`0.0.0.0:8080`).
pub const LISTEN: &str = "RAMEN_OPERATOR_LISTEN";
/// Address and port of the artifact endpoint, from which pods fetch layers (`0.0.0.0:8081`).
pub const ARTIFACTS_LISTEN: &str = "RAMEN_OPERATOR_ARTIFACTS_LISTEN";
/// Address and port of the webhook receiver, or `off` (`0.0.0.0:8082`).
pub const HOOKS_LISTEN: &str = "RAMEN_OPERATOR_HOOKS_LISTEN";
/// Folder of the webhook receivers: each file `<receiver>.<sender>` holds the secrets of one, one a line
/// (several are valid at once). Senders: `github`, `gitlab`, `gitea`, `forgejo`, `bitbucket`, `azure`,
/// `generic`. Unset: no hooks are received.
pub const HOOKS_DIR: &str = "RAMEN_OPERATOR_HOOKS_DIR";
/// Where pods reach the artifact endpoint, such as `http://ramen-artifacts.ramen:8081`.
pub const ARTIFACTS_URL: &str = "RAMEN_OPERATOR_ARTIFACTS_URL";
/// Folder of the artifact store (`/var/lib/ramen/store`), or a bucket: `s3://BUCKET/PREFIX`,
/// `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, with the variables of the provider's own tools.
pub const STORE: &str = "RAMEN_OPERATOR_STORE";
/// `1`: pods read layers from the bucket of the store themselves, and ask the artifact endpoint only for what is
/// not there; they then start without the operator (0).
pub const PODS_BUCKET: &str = "RAMEN_OPERATOR_PODS_BUCKET";
/// A Secret in the namespace of each group with the variables for that, which may only read. Unset: what the pods
/// are given otherwise.
pub const PODS_BUCKET_SECRET: &str = "RAMEN_OPERATOR_PODS_BUCKET_SECRET";
/// Ranges in which the bucket is, separated by commas: the policies of pods let them be reached.
pub const PODS_BUCKET_CIDRS: &str = "RAMEN_OPERATOR_PODS_BUCKET_CIDRS";
/// Folder for fetches (`/var/lib/ramen/scratch`).
pub const SCRATCH: &str = "RAMEN_OPERATOR_SCRATCH";
/// Namespaces to look after, separated by commas. Unset: all.
pub const NAMESPACES: &str = "RAMEN_OPERATOR_NAMESPACES";
/// The operator's own namespace, which holds its lease. Unset: that of its service account.
pub const NAMESPACE: &str = "RAMEN_OPERATOR_NAMESPACE";
/// Name of this replica in the lease. Unset: the host's name.
pub const IDENTITY: &str = "RAMEN_OPERATOR_IDENTITY";
/// Name of the lease, or `off` when there is never a second replica (`ramen-operator`).
pub const LEASE: &str = "RAMEN_OPERATOR_LEASE";
/// The image of workers and deploy jobs whose group names none.
pub const WORKER_IMAGE: &str = "RAMEN_OPERATOR_WORKER_IMAGE";
/// `Always`, `IfNotPresent` or `Never`, for the images of workers and deploy jobs (`IfNotPresent`).
pub const IMAGE_PULL_POLICY: &str = "RAMEN_OPERATOR_IMAGE_PULL_POLICY";
/// The namespace of the gateways: what they need to know of each group is left there as a Secret, and workers let
/// their pods in. Unset: there are none.
pub const GATEWAY_NAMESPACE: &str = "RAMEN_OPERATOR_GATEWAY_NAMESPACE";
/// Who answers names for pods of groups, as a JSON list of peers (as in `to` of a `NetworkPolicy`). Unset: the pods of
/// `kube-system` with the label `k8s-app` of `kube-dns` or `node-local-dns`. A peer without a namespace is of the operator's.
pub const DNS_TO: &str = "RAMEN_OPERATOR_DNS_TO";
/// Who may read the metrics of workers, as a JSON list of peers (as in `from` of a `NetworkPolicy`). Unset: every pod of
/// the cluster. A peer without a namespace is of the operator's.
pub const METRICS_FROM: &str = "RAMEN_OPERATOR_METRICS_FROM";
/// Groups that are reconciled at once (16).
pub const CONCURRENCY: &str = "RAMEN_OPERATOR_CONCURRENCY";
/// Fetches at once (4).
pub const FETCHES: &str = "RAMEN_OPERATOR_FETCHES";
/// `1` allows repositories over plain `http` (0).
pub const ALLOW_HTTP: &str = "RAMEN_OPERATOR_ALLOW_HTTP";
/// What is logged, such as `info` or `info,ramen_operator=debug` (`info`).
pub const LOG: &str = "RAMEN_OPERATOR_LOG";
/// `json` or `text` (`json`).
pub const LOG_FORMAT: &str = "RAMEN_OPERATOR_LOG_FORMAT";

/// Field manager of children.
pub const MANAGER: &str = "ramen-operator/mcpgroup";
/// Field manager of the number of pods from when an autoscaler is asked for until it writes.
pub const HANDOVER_MANAGER: &str = "ramen-operator/handover";
/// Field manager of the status.
pub const STATUS_MANAGER: &str = "ramen-operator/status";
/// Name in events, and value of `managed-by`.
pub const OPERATOR: &str = "ramen-operator";

/// `ramen`.
pub const LABEL_NAME: &str = "app.kubernetes.io/name";
/// On namespaces: their name. Kubernetes writes it.
pub const LABEL_NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The group.
pub const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
/// The operator.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// On the pods of a Job: its name. Kubernetes writes it.
pub const LABEL_JOB: &str = "batch.kubernetes.io/job-name";
/// On pods: changes when a Secret changes whose values are variables of the pods.
pub const SECRETS_HASH: &str = "ramen.dev/secrets-hash";

/// gRPC of workers.
pub const GRPC_PORT: u16 = 50051;
/// Metrics of workers.
pub const METRICS_PORT: u16 = 9090;
/// The artifact endpoint.
pub const ARTIFACTS_PORT: u16 = 8081;

/// Key of the `ConfigMap` named `<group>-desired`.
pub const DESIRED_KEY: &str = "desired.json";
/// Key of the `ConfigMap` named `<group>-rollout`.
pub const MEMORY_KEY: &str = "memory.json";
/// Key of Secrets with one token in them.
pub const TOKEN_KEY: &str = "token";
/// Key of the Secret `<group>-mcp-keys` with the callers' key.
pub const KEY_KEY: &str = "key";
/// Key of the Secret `<group>-mcp-keys` with the gateway's key.
pub const GATEWAY_KEY: &str = "gateway";
/// User and group of all pods.
pub const UID: i64 = 65532;

/// Names of a group's children. Lengths are checked by `ramen_crds::validate`.
pub mod child {
    /// The workers' account.
    pub fn account(group: &str) -> String {
        format!("{group}-worker")
    }

    /// The callers' keys.
    pub fn keys(group: &str) -> String {
        format!("{group}-mcp-keys")
    }

    /// The operator's key for `ramen.v1.Admin`.
    pub fn admin_key(group: &str) -> String {
        format!("{group}-admin-key")
    }

    /// The token for reading layers.
    pub fn artifact_token(group: &str) -> String {
        format!("{group}-artifact-token")
    }

    /// What the pods serve.
    pub fn desired(group: &str) -> String {
        format!("{group}-desired")
    }

    /// What the operator remembers of a group.
    pub fn rollout(group: &str) -> String {
        format!("{group}-rollout")
    }

    /// Deployment, Service, `NetworkPolicy` and the like of a zone.
    pub fn zone(group: &str, zone: &str) -> String {
        format!("{group}-{zone}")
    }

    /// A deploy job, and the Secret with its token.
    pub fn deploy(group: &str, id: &str) -> String {
        format!("{group}-deploy-{id}")
    }

    /// The `NetworkPolicy` of deploy jobs: longer than a zone's name can be.
    pub fn deploy_policy(group: &str) -> String {
        format!("{group}-deploy-jobs-egress")
    }
}
