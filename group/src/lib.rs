//! The group repo contract: what lies under `mcp/`, who may be called how, and what is wrong with
//! the rest.
//!
//! Owns the layout, the naming and type rules, `input` → JSON Schema, argument checks, secret
//! references, prompt rendering, the reasons of the errors list and the types of reports. Reads
//! files, and that is all the I/O it does: it must not know Python, Kubernetes, git or sockets.
//!
//! Start with [`scan()`], which never fails: a broken package becomes a [`Finding`] and the rest
//! loads. The hot path of a call is [`Tool::prepare`].

pub mod access;
mod caller;
mod catalog;
pub mod cidr;
mod descriptor;
mod env_file;
mod golden;
mod guardrails;
mod input;
pub mod json;
mod key_files;
mod name;
mod prompt;
mod reason;
mod report;
mod requirements;
mod scan;
mod schema;
pub mod secrets;
mod stdlib;
pub mod strays;
pub mod yaml;

pub use access::{AccessRules, Allowed, Identity};
pub use caller::{AddressRule, FORWARDED_FOR, caller_address};
pub use catalog::GroupCatalog;
pub use cidr::{Cidr, CidrError, CidrSet};
pub use descriptor::{Descriptor, parse_descriptor};
pub use env_file::{EnvFile, ResolvedEnv, changes_loading, variable_refusal};
pub use golden::{Expect, GoldenCase, GoldenTests};
pub use guardrails::{Engine, FailMode, Guardrails, ToolHooks};
pub use input::{ArgFault, ArgFaults, InputSchema, Param};
pub use key_files::{KeyFault, KeyFiles, KeyPrint, keys_of_entries, read_small};
pub use name::{NAME_RULE, PackageName};
pub use prompt::{Prompt, PromptArgument, Template};
pub use reason::{Reason, Stage, errors_page};
pub use report::{
    DesiredState, Finding, Golden, LayerRef, Outcome, PackageKind, Report, ReportPackage, Timings,
    shorten,
};
pub use requirements::Requirements;
pub use scan::{CallFault, Group, Resource, Tool, scan};
pub use schema::{OutputSchema, SchemaFault};
pub use secrets::{SecretFault, SecretTable};
