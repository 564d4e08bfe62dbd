//! The autoscaler of a zone that wants one.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec,
    MetricTarget, ResourceMetricSource,
};
use ramen_crds::{Replicas, Zone};

use super::{Validated, zone_meta};
use crate::names::child;

pub(super) fn build(group: &Validated, zone: &Zone) -> Option<HorizontalPodAutoscaler> {
    let Replicas::Scaled {
        min,
        max,
        cpu_percent,
    } = zone.replicas
    else {
        return None;
    };
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    Some(HorizontalPodAutoscaler {
        metadata: zone_meta(group, zone),
        spec: Some(HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: "Deployment".to_owned(),
                name: child::zone(&group.key.name, zone.name.as_str()),
            },
            min_replicas: Some(number(min)),
            max_replicas: number(max),
            metrics: Some(vec![MetricSpec {
                type_: "Resource".to_owned(),
                resource: Some(ResourceMetricSource {
                    name: "cpu".to_owned(),
                    target: MetricTarget {
                        type_: "Utilization".to_owned(),
                        average_utilization: Some(number(cpu_percent)),
                        ..MetricTarget::default()
                    },
                }),
                ..MetricSpec::default()
            }]),
            ..HorizontalPodAutoscalerSpec::default()
        }),
        ..HorizontalPodAutoscaler::default()
    })
}
