//! The account of workers and deploy jobs: it has no rights and no token.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::{Validated, meta};
use crate::names::{self, child};

pub(super) fn build(group: &Validated) -> ServiceAccount {
    ServiceAccount {
        metadata: meta(
            group,
            child::account(&group.key.name),
            names::COMPONENT_WORKER,
            None,
        ),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
