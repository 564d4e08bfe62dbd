use serde_json::{Value, json};

use super::super::validate::tests::{data, operator, referenced, validated};
use super::*;
use crate::group::dereference::Referenced;

fn desired() -> ramen_group::DesiredState {
    serde_json::from_value(json!({
        "revision": "main@sha1:aa", "python": "3.11",
        "code": {"key": "t", "digest": "sha256:00", "size": 1},
    }))
    .unwrap()
}

fn children(group: &Validated) -> Children<Prepared> {
    let wanted = Wanted {
        desired: Some(desired()),
        image: None,
        remembered: "{}".to_owned(),
    };
    let operator = Operator {
        gateways: Some("gateways".to_owned()),
        ..operator()
    };
    build(group, &operator, &wanted)
}

fn full() -> Validated {
    let secrets = vec![("weather".to_owned(), Some(data(&[("TOKEN", "s3cret")])))];
    validated(
        json!({
            "secrets": [{"name": "weather"}],
            "network": {
                "allowedCIDRs": ["10.0.0.0/8", "2001:db8::/32"],
                "egress": {"allowedCIDRs": ["192.0.2.0/24"], "ports": [443]},
            },
            "zones": [
                {"name": "a", "replicas": 3, "nodeSelector": {"zone": "a"}},
                {"name": "b", "autoscaling": {"minReplicas": 2, "maxReplicas": 5}},
                {"name": "c"},
            ],
            "worker": {"python": "3.11", "callTimeout": "10m", "env": [
                {"name": "PIP_INDEX_URL", "value": "http://index:3141/simple"},
                {"name": "API_BASE", "value": "https://api"},
                {"name": "TZ", "value": "UTC"},
            ]},
        }),
        Referenced {
            secrets,
            ..referenced()
        },
    )
}

fn job(group: &Validated) -> k8s_openapi::api::batch::v1::Job {
    let revision = ramen_rollout::Revision {
        commit: "aa".to_owned(),
        label: "main@sha1:aa".to_owned(),
    };
    deploy_job::build(group, &operator(), "0123456789", &revision, &desired().code)
}

#[test]
fn the_deployment_of_a_zone() {
    insta::assert_yaml_snapshot!(children(&full()).deployments[0]);
}

#[test]
fn the_job_of_a_deploy() {
    insta::assert_yaml_snapshot!(job(&full()));
}

#[test]
fn the_policies_of_a_zone_and_of_deploys() {
    let policies = children(&full()).network_policies;
    assert_eq!(policies.len(), 4);
    // Without gateways there is nothing to let in.
    let none = network_policy::build(&full(), &operator());
    let text = serde_json::to_string(&none).unwrap();
    assert!(!text.contains("gateway"), "{text}");
    insta::assert_yaml_snapshot!([&policies[0], &policies[3]]);
}

/// The peers of every rule of a policy of workers, by port.
fn peers_of(operator: &Operator, direction: &str, port: u16) -> Vec<Value> {
    let policies = network_policy::build(&full(), operator);
    let policy = serde_json::to_value(&policies[0]).unwrap();
    let rules = policy["spec"][direction].as_array().unwrap();
    let rules = rules.iter().filter(|rule| {
        let ports = rule["ports"].as_array().unwrap();
        ports.iter().any(|one| one["port"] == port)
    });
    let side = if direction == "ingress" { "from" } else { "to" };
    rules
        .flat_map(|rule| rule[side].as_array().unwrap().clone())
        .collect()
}

#[test]
fn sec_the_labels_of_ramen_open_nothing_in_another_namespace() {
    let gateways = Some("gateways".to_owned());
    let operator = Operator {
        gateways,
        ..operator()
    };
    for (direction, port) in [("ingress", 50051), ("egress", 8081), ("egress", 53)] {
        let peers = peers_of(&operator, direction, port);
        assert!(!peers.is_empty(), "{direction} {port}");
        for peer in peers.iter().filter(|peer| peer["ipBlock"].is_null()) {
            let namespace = &peer["namespaceSelector"]["matchLabels"];
            assert!(
                namespace["kubernetes.io/metadata.name"].is_string(),
                "{direction} {port}: {peer}"
            );
        }
    }
    // An operator that is no pod has no peers, which must not become a rule for everybody.
    let outside = Operator {
        network: Network::new(None, Vec::new(), Vec::new()),
        ..operator
    };
    assert_eq!(peers_of(&outside, "egress", 8081), Vec::<Value>::new());
    let policies = serde_json::to_string(&network_policy::build(&full(), &outside)).unwrap();
    let ours = r#""app.kubernetes.io/component":"operator""#;
    assert!(!policies.contains(ours), "{policies}");
}

/// What nearly every cluster has must be open before anybody names it.
#[test]
fn names_are_looked_up_at_the_usual_pods_and_at_caches_on_the_node() {
    for port in [53, 5353] {
        let peers = peers_of(&super::super::validate::tests::operator(), "egress", port);
        let label = json!({
            "key": "k8s-app", "operator": "In", "values": ["kube-dns", "node-local-dns"],
        });
        let usual = json!([
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchExpressions": [label]},
            },
            {"ipBlock": {"cidr": "169.254.20.10/32"}},
            {"ipBlock": {"cidr": "169.254.10.10/31"}},
        ]);
        assert_eq!(json!(peers), usual, "{port}");
    }
}

#[test]
fn peers_that_the_operator_is_told_take_the_place_of_the_usual_ones() {
    let peers = |text: &str| text.parse::<crate::args::Peers>().unwrap().0;
    let dns = peers(
        r#"[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "dns"}}}]"#,
    );
    let metrics = peers(
        r#"[{"podSelector": {"matchLabels": {"app": "prometheus"}}}, {"ipBlock": {"cidr": "192.0.2.7/32"}}]"#,
    );
    let operator = Operator {
        network: Network::new(Some("ramen".to_owned()), dns, metrics),
        ..operator()
    };
    let names = peers_of(&operator, "egress", 53);
    assert!(!json!(names).to_string().contains("kube-dns"), "{names:?}");
    assert!(names.iter().any(|peer| {
        peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "dns"
    }));
    // As in the operator's own policy: pods without a namespace are of the operator's.
    let readers = json!([
        {
            "podSelector": {"matchLabels": {"app": "prometheus"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ramen"}},
        },
        {"ipBlock": {"cidr": "192.0.2.7/32"}},
    ]);
    assert_eq!(json!(peers_of(&operator, "ingress", 9090)), readers);
    let usual = peers_of(&super::super::validate::tests::operator(), "ingress", 9090);
    assert_eq!(json!(usual), json!([{"namespaceSelector": {}}]));
}

#[test]
fn ops05_every_pod_is_within_the_restricted_standard() {
    let group = full();
    let pods = children(&group)
        .deployments
        .into_iter()
        .map(|deployment| deployment.spec.unwrap().template.spec.unwrap())
        .chain([job(&group).spec.unwrap().template.spec.unwrap()]);
    for pod in pods {
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["enableServiceLinks"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false);
            assert_eq!(security["readOnlyRootFilesystem"], true);
            assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
            for kind in ["requests", "limits"] {
                for name in ["cpu", "memory", "ephemeral-storage"] {
                    assert!(
                        container["resources"][kind][name].is_string(),
                        "{kind} {name}"
                    );
                }
            }
        }
        for volume in pod["volumes"].as_array().unwrap() {
            let limit = &volume["emptyDir"]["sizeLimit"];
            assert!(
                volume["emptyDir"].is_null() || limit.is_string(),
                "{volume}"
            );
        }
    }
}

#[test]
fn no_value_of_a_secret_is_in_any_child_but_the_secrets_of_its_owner() {
    let group = full();
    let children = children(&group);
    let all = [
        serde_json::to_string(&children.config_maps).unwrap(),
        serde_json::to_string(&children.deployments).unwrap(),
        serde_json::to_string(&children.secrets).unwrap(),
        serde_json::to_string(&job(&group)).unwrap(),
    ];
    assert!(!all.concat().contains("s3cret"));
    for text in [&all[0], &all[1], &all[3]] {
        for own in ["rmk_caller", "rmk_gateway", "rma_admin", "rmt_token"] {
            assert!(!text.contains(own));
        }
    }
}

#[test]
fn variables_of_the_loader_are_left_out_of_pods_and_told() {
    let env = json!([{"name": "LD_PRELOAD", "value": "x.so"}, {"name": "TZ", "value": "UTC"}]);
    let group = validated(json!({"worker": {"env": env}}), referenced());
    let [fault] = &group.faults[..] else {
        panic!("{:?}", group.faults)
    };
    assert_eq!(fault.reason, ramen_group::Reason::VariableRefused);
    assert!(fault.message.contains("LD_PRELOAD"), "{}", fault.message);
    let deployments = serde_json::to_string(&children(&group).deployments).unwrap();
    let job = serde_json::to_string(&job(&group)).unwrap();
    for text in [deployments, job] {
        assert!(
            text.contains("\"TZ\"") && !text.contains("LD_PRELOAD"),
            "{text}"
        );
    }
}

#[test]
fn an_autoscaled_zone_leaves_replicas_alone_and_single_pods_have_no_budget() {
    let children = children(&full());
    let replicas: Vec<_> = children
        .deployments
        .iter()
        .map(|deployment| deployment.spec.as_ref().unwrap().replicas)
        .collect();
    assert_eq!(replicas, [Some(3), None, Some(1)]);
    let name = |meta: &kube::api::ObjectMeta| meta.name.clone().unwrap();
    let names: Vec<_> = children
        .pdbs
        .iter()
        .map(|pdb| name(&pdb.metadata))
        .collect();
    assert_eq!(names, ["calc-a", "calc-b"]);
    assert_eq!(children.hpas.len(), 1);
    assert_eq!(name(&children.hpas[0].metadata), "calc-b");
}

#[test]
fn a_zone_that_may_have_several_pods_has_a_budget() {
    let budgets = |zone: Value| {
        let group = validated(json!({"zones": [zone]}), referenced());
        children(&group).pdbs.len()
    };
    for (zone, wanted) in [
        (json!({"name": "a", "replicas": 0}), 0),
        (json!({"name": "a", "replicas": 1}), 0),
        (json!({"name": "a", "replicas": 2}), 1),
        (
            json!({"name": "a", "autoscaling": {"minReplicas": 1, "maxReplicas": 1}}),
            0,
        ),
        (
            json!({"name": "a", "autoscaling": {"minReplicas": 1, "maxReplicas": 4}}),
            1,
        ),
    ] {
        assert_eq!(budgets(zone.clone()), wanted, "{zone}");
    }
}

#[test]
fn pods_wait_for_something_to_serve() {
    let wanted = Wanted {
        desired: None,
        image: None,
        remembered: "{}".to_owned(),
    };
    let children = build(&full(), &operator(), &wanted);
    assert!(children.deployments.is_empty());
    assert_eq!(children.config_maps.len(), 1);
}

#[test]
fn a_named_secret_of_keys_stands_beside_the_gateways_key() {
    let group = validated(
        json!({"keys": {"secretRef": {"name": "our-keys"}}}),
        Referenced {
            keys: Some(Some(data(&[("alice", "rmk_a")]))),
            ..referenced()
        },
    );
    let children = children(&group);
    let own = &children.secrets[0];
    let entries: Vec<_> = own.data.as_ref().unwrap().keys().collect();
    assert_eq!(entries, ["gateway"]);
    let deployment = serde_json::to_value(&children.deployments[0]).unwrap();
    let volumes = deployment["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    let keys = volumes
        .iter()
        .find(|volume| volume["name"] == "keys")
        .unwrap();
    let names: Vec<&Value> = keys["projected"]["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| &source["secret"]["name"])
        .collect();
    // Ours comes last, so that nobody's entry takes its place; the worker is told which file it is.
    assert_eq!(names, ["our-keys", "calc-mcp-keys"]);
    let items = &keys["projected"]["sources"][1]["secret"]["items"];
    assert_eq!(*items, json!([{"key": "gateway", "path": "ramen-gateway"}]));
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    let file = env
        .iter()
        .find(|entry| entry["name"] == "RAMEN_GATEWAY_KEY_FILE")
        .unwrap();
    assert_eq!(file["value"], "/run/ramen/keys/ramen-gateway");
}

#[test]
fn a_change_of_a_secret_rolls_the_pods_and_nothing_else_does() {
    let pods = |token: &str| {
        let secrets = vec![("weather".to_owned(), Some(data(&[("TOKEN", token)])))];
        let group = validated(
            json!({"secrets": [{"name": "weather"}]}),
            Referenced {
                secrets,
                ..referenced()
            },
        );
        serde_json::to_string(&children(&group).deployments).unwrap()
    };
    assert_eq!(pods("a"), pods("a"));
    assert_ne!(pods("a"), pods("b"));
}

#[test]
fn open_egress_still_leaves_metadata_addresses_out() {
    let group = validated(
        json!({"network": {"allowedCIDRs": ["0.0.0.0/0"], "egress": {"open": true}}}),
        referenced(),
    );
    let policy = serde_json::to_string(&children(&group).network_policies[0]).unwrap();
    assert!(policy.contains("169.254.0.0/16") && policy.contains("fd00:ec2::254/128"));
}

#[test]
fn pods_read_a_bucket_themselves_only_when_the_operator_says_so() {
    let wanted = Wanted {
        desired: Some(desired()),
        image: None,
        remembered: "{}".to_owned(),
    };
    let mut operator = operator();
    operator.bucket = Some(crate::group::PodsBucket {
        address: "s3://layers/team".to_owned(),
        secret: Some("bucket".to_owned()),
        ranges: ramen_group::CidrSet::parse_list("192.0.2.0/24").unwrap(),
    });
    let with = build(&full(), &operator, &wanted);
    let container = |children: &Children<Prepared>| {
        let spec = children.deployments[0].spec.clone().unwrap();
        spec.template.spec.unwrap().containers.remove(0)
    };
    let (plain, direct) = (container(&children(&full())), container(&with));
    let named = |container: &k8s_openapi::api::core::v1::Container| {
        let env = container.env.iter().flatten();
        let mut found = env.filter(|var| var.name == "RAMEN_STORE_BUCKET");
        found.next().and_then(|var| var.value.clone())
    };
    assert_eq!((named(&plain), plain.env_from.clone()), (None, None));
    assert_eq!(named(&direct).as_deref(), Some("s3://layers/team"));
    let from = direct.env_from.unwrap().remove(0).secret_ref.unwrap();
    assert_eq!((from.name.as_str(), from.optional), ("bucket", Some(true)));
    let reaches = |children: &Children<Prepared>| {
        let all = children
            .network_policies
            .iter()
            .map(|policy| serde_json::to_string(&policy.spec.as_ref().unwrap().egress).unwrap());
        all.map(|egress| egress.matches("192.0.2.0/24").count())
            .collect::<Vec<_>>()
    };
    // The group asks for that range itself; jobs hand their layers to the endpoint.
    assert_eq!(reaches(&children(&full())), [1, 1, 1, 1]);
    assert_eq!(reaches(&with), [2, 2, 2, 1]);
}
