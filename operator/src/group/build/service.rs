//! The headless Service of a zone: clients and the gateway see every pod and spread calls themselves.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ramen_crds::Zone;

use super::{Validated, selector, zone_meta};
use crate::names;

pub(super) fn build(group: &Validated, zone: &Zone) -> Service {
    let port = |name: &str, port: u16, protocol: Option<&str>| ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        target_port: Some(IntOrString::String(name.to_owned())),
        app_protocol: protocol.map(str::to_owned),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    Service {
        metadata: zone_meta(group, zone),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(selector(group, names::COMPONENT_WORKER, Some(zone))),
            ports: Some(vec![
                port("grpc", names::GRPC_PORT, Some("kubernetes.io/h2c")),
                port("metrics", names::METRICS_PORT, None),
            ]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
