//! The rules that the API server itself holds groups to, `(rule, message)`, in CEL. They catch what people
//! get wrong most; [`validate`](crate::validate()) looks at everything again.

use schemars::Schema;
use serde_json::{Value, json};

/// A rule and what is said when it is broken.
pub type CelRule = (&'static str, &'static str);

/// Of the group as a whole; its name becomes part of the names of Services and variables.
pub const NAME: CelRule = (
    "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9]*(-[a-z0-9]+)*)$')",
    "a group's name is a small letter, then small letters, digits and single `-`, at most 40 in all",
);
/// Of `source`.
pub const SOURCE: &[CelRule] = &[
    (
        "!self.url.contains('://') || self.url.matches('^(https?|ssh)://[^/]+/.+$')",
        "url must be https://, http://, ssh:// or user@host:path",
    ),
    (
        "self.url.contains('://') || self.url.matches('^([^/:@ ]+@)?[^/:@ ]+:.+$')",
        "url must be https://, http://, ssh:// or user@host:path",
    ),
    (
        "!self.url.matches('^https?://[^/]*@') && !self.url.matches('^ssh://[^/@]*:[^/@]*@')",
        "credentials do not belong in the url; put them in a Secret and name it with secretRef",
    ),
    (
        "!has(self.path) || (!self.path.startsWith('/') && !self.path.matches('(^|/)[.][.](/|$)'))",
        "path is relative to the root of the repository and does not leave it",
    ),
    (
        "!has(self.interval) || (self.interval.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && duration(self.interval) >= duration('30s') && duration(self.interval) <= duration('24h'))",
        "interval is a time like 30s, 5m or 1h30m, from 30s to 24h",
    ),
    (
        "!has(self.timeout) || (self.timeout.matches('^([0-9]+m)?([0-9]+s)?([0-9]+ms)?$') && duration(self.timeout) >= duration('1s') && duration(self.timeout) <= duration('10m'))",
        "timeout is a time like 90s or 2m, from 1s to 10m",
    ),
];
/// Of `source.ref`.
pub const REFERENCE: &[CelRule] = &[
    (
        "[has(self.branch), has(self.tag), has(self.semver), has(self.commit), has(self.name)].filter(given, given).size() <= 1",
        "only one of branch, tag, semver, commit and name can be followed",
    ),
    (
        "!has(self.commit) || self.commit.matches('^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$')",
        "a commit is given by its full id of 40 or 64 hexadecimal digits",
    ),
];
/// `allowedCIDRs` holds ranges that a worker takes too.
macro_rules! ranges {
    () => {
        "self.allowedCIDRs.all(range, isIP(range) || (isCIDR(range) && cidr(range).masked() == cidr(range)))"
    };
}
/// Of `network`.
pub const NETWORK: &[CelRule] = &[(
    ranges!(),
    "allowedCIDRs holds addresses and ranges like 10.0.0.0/8 or 2001:db8::/32, without bits behind the prefix",
)];
/// Of `network.egress`.
pub const EGRESS: &[CelRule] = &[(
    concat!("!has(self.allowedCIDRs) || ", ranges!()),
    "what may be reached is addresses and ranges like 192.0.2.0/24 or 2001:db8::/32, without bits behind the prefix",
)];
/// Of a rule of `access`.
pub const ACCESS: &[CelRule] = &[
    (
        "has(self.subjects) || has(self.groups) || has(self.claims) || has(self.keys)",
        "a rule must say whom it is about: subjects, groups, claims or keys",
    ),
    (
        "!has(self.keys) || !(has(self.subjects) || has(self.groups) || has(self.claims) || has(self.issuer))",
        "a rule is about keys or about tokens; write two rules",
    ),
    (
        "has(self.tools) || has(self.resources) || has(self.prompts)",
        "a rule must say what may be used: tools, resources or prompts",
    ),
];
/// Of a zone.
pub const ZONE: &[CelRule] = &[
    (
        "self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "a zone's name is made of small letters, digits and `-`",
    ),
    (
        "!(has(self.replicas) && has(self.autoscaling))",
        "either replicas or autoscaling, not both",
    ),
];
/// Of `autoscaling`.
pub const AUTOSCALING: &[CelRule] = &[(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas must not be above maxReplicas",
)];
/// Of `worker`.
pub const WORKER: &[CelRule] = &[
    (
        "!has(self.image) || self.image.matches('^[^-\\\\s][^\\\\s]*$')",
        "image must be a reference to an image",
    ),
    (
        "!has(self.python) || self.python.matches('^3[.](1[1-9]|[2-9][0-9])$')",
        "python is a version like 3.11, without the patch number; 3.11 is the oldest",
    ),
    (
        "!has(self.callTimeout) || (self.callTimeout.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && duration(self.callTimeout) >= duration('1s') && duration(self.callTimeout) <= duration('1h'))",
        "callTimeout is a time like 30s or 2m, from 1s to 1h",
    ),
    (
        "!has(self.deployTimeout) || (self.deployTimeout.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && duration(self.deployTimeout) >= duration('10s') && duration(self.deployTimeout) <= duration('2h'))",
        "deployTimeout is a time like 90s or 10m, from 10s to 2h",
    ),
];
/// Of an environment variable.
pub const VARIABLE: &[CelRule] = &[
    (
        "self.name.matches('^[A-Za-z_][A-Za-z0-9_]*$')",
        "a variable's name is made of letters, digits and `_`",
    ),
    (
        "!self.name.startsWith('RAMEN_')",
        "variables RAMEN_… are set by other fields",
    ),
    (
        "!self.name.startsWith('LD_')",
        "variables LD_… would change how programs are loaded",
    ),
];
/// Of `rollout`.
pub const ROLLOUT: &[CelRule] = &[(
    "!has(self.timeout) || (self.timeout.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') && duration(self.timeout) >= duration('10s') && duration(self.timeout) <= duration('1h'))",
    "timeout is a time like 90s or 5m, from 10s to 1h",
)];
/// Of an upstream.
pub const UPSTREAM: &[CelRule] = &[
    (
        "self.name.matches('^[a-z][-a-z0-9]*$')",
        "an upstream's name is a small letter, then small letters, digits and `-`",
    ),
    (
        "has(self.url) != has(self.command)",
        "an upstream needs either a url or a command, not both",
    ),
    (
        "!has(self.url) || self.url.matches('^https?://[^/@#?]+([/?][^#]*)?$')",
        "url must begin with https:// or http://; credentials come from a Secret named in headers",
    ),
    (
        "!has(self.url) || !(has(self.args) || has(self.env))",
        "args and env go with a command, not with a url",
    ),
    (
        "!has(self.command) || !has(self.headers)",
        "headers go with a url, not with a command",
    ),
    (
        "!has(self.timeout) || (self.timeout.matches('^([0-9]+m)?([0-9]+s)?$') && duration(self.timeout) >= duration('1s') && duration(self.timeout) <= duration('10m'))",
        "timeout is a time like 30s or 2m, from 1s to 10m",
    ),
];
/// Of a header or variable of an upstream.
pub const UPSTREAM_VALUE: &[CelRule] = &[(
    "has(self.value) != has(self.secretRef)",
    "either a value or a secretRef",
)];

/// All but that of the name.
pub const ALL: &[&[CelRule]] = &[
    SOURCE,
    REFERENCE,
    NETWORK,
    EGRESS,
    ACCESS,
    ZONE,
    AUTOSCALING,
    WORKER,
    VARIABLE,
    ROLLOUT,
    UPSTREAM,
    UPSTREAM_VALUE,
];

fn add(schema: &mut Schema, rules: &[CelRule]) {
    let rules: Vec<Value> = rules
        .iter()
        .map(|(rule, message)| json!({"rule": rule, "message": message}))
        .collect();
    schema.insert("x-kubernetes-validations".to_owned(), Value::Array(rules));
}

macro_rules! transforms {
    ($($name:ident: $rules:ident),* $(,)?) => {$(
        pub(crate) fn $name(schema: &mut Schema) {
            add(schema, $rules);
        }
    )*};
}

transforms!(
    source: SOURCE,
    reference: REFERENCE,
    network: NETWORK,
    egress: EGRESS,
    access: ACCESS,
    zone: ZONE,
    autoscaling: AUTOSCALING,
    worker: WORKER,
    variable: VARIABLE,
    rollout: ROLLOUT,
    upstream: UPSTREAM,
    upstream_value: UPSTREAM_VALUE,
);

/// Entries of a list are told apart by one field, so that two writers can each have theirs.
pub(crate) fn by_name(schema: &mut Schema) {
    map_list(schema, "name");
}

/// The same by `type`.
pub(crate) fn by_type(schema: &mut Schema) {
    map_list(schema, "type");
}

/// A group that no operator has seen has a status of no generation. Without any status, kstatus would call it
/// done, and whoever waits for it would go on before anything has begun.
pub(crate) fn not_seen_yet(schema: &mut Schema) {
    schema.insert("default".to_owned(), json!({ "observedGeneration": -1 }));
}

fn map_list(schema: &mut Schema, key: &str) {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!([key]));
}
