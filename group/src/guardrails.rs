//! `mcp/guardrails.yaml`: which tools have hooks. Parsed and checked here, run by the worker.

use std::time::Duration;

use indexmap::IndexMap;

/// The file.
#[derive(Debug, Clone, PartialEq)]
pub struct Guardrails {
    /// Who judges.
    pub engine: Engine,
    /// The engine's configuration, a path from the folder that holds `mcp/`.
    pub config: Option<String>,
    /// What a failing or slow hook means.
    pub fail: FailMode,
    /// How long one hook may take.
    pub timeout: Duration,
    /// Tool name → hooks.
    pub tools: IndexMap<String, ToolHooks>,
}

/// The engine of the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// `mcp/guardrails/policy.py`.
    Policy,
    /// NVIDIA NeMo Guardrails.
    Nemo,
    /// Switched off.
    None,
}

/// What a failing hook means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    /// The call is blocked.
    Closed,
    /// The call proceeds.
    Open,
}

/// The hooks of one tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolHooks {
    /// Before the call, on the arguments.
    pub pre: bool,
    /// After the call, on the result.
    pub post: bool,
}
