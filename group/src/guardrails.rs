//! `mcp/guardrails.yaml`: which tools have hooks. Parsed and checked; nothing runs the hooks yet, which is remarked on.

use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;

use crate::{Finding, Reason, yaml};

/// The file.
#[derive(Debug, Clone, PartialEq)]
pub struct Guardrails {
    /// Who judges.
    pub engine: Engine,
    /// The engine's configuration, a path from the folder that holds `mcp/`.
    pub config: Option<String>,
    /// What a failing or slow hook is to mean.
    pub fail: FailMode,
    /// How long one hook may take.
    pub timeout: Duration,
    /// Tool name → hooks.
    pub tools: IndexMap<String, ToolHooks>,
}

/// The engine of the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// `mcp/guardrails/policy.py`.
    Policy,
    /// `NeMo` Guardrails.
    Nemo,
    /// Switched off.
    None,
}

/// What a failing hook means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// The call is blocked.
    #[default]
    Closed,
    /// The call proceeds.
    Open,
}

/// The hooks of one tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ToolHooks {
    /// Before the call, on the arguments.
    pub pre: bool,
    /// After the call, on the result.
    pub post: bool,
}

#[derive(Deserialize)]
struct RawFile {
    engine: Engine,
    #[serde(default)]
    config: Option<String>,
    #[serde(default)]
    fail: FailMode,
    #[serde(default)]
    timeout_s: Option<f64>,
    #[serde(default)]
    tools: Option<IndexMap<String, ToolHooks>>,
}

impl Guardrails {
    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Finding> {
        let raw: RawFile = yaml::read(bytes, Reason::GuardrailsInvalid)?;
        let seconds = raw.timeout_s.unwrap_or(10.0);
        if !(seconds > 0.0 && seconds <= 600.0) {
            let message = "`timeout_s` must be above 0 and at most 600";
            return Err(Finding::group(Reason::GuardrailsInvalid, message));
        }
        Ok(Self {
            engine: raw.engine,
            config: raw.config,
            fail: raw.fail,
            timeout: Duration::from_secs_f64(seconds),
            tools: raw.tools.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_loads_with_its_defaults() {
        let file = Guardrails::parse(
            b"engine: nemo\nconfig: mcp/guardrails\ntools:\n  words: {pre: true, post: true}\n  calc: {pre: true}\n",
        )
        .unwrap();
        assert_eq!((file.engine, file.fail), (Engine::Nemo, FailMode::Closed));
        assert_eq!(file.timeout, Duration::from_secs(10));
        assert_eq!(
            file.tools["calc"],
            ToolHooks {
                pre: true,
                post: false
            }
        );
    }

    #[test]
    fn files_of_another_form_are_refused() {
        for text in [
            "",
            "engine: magic\n",
            "engine: none\nfail: maybe\n",
            "engine: none\ntimeout_s: 0\n",
        ] {
            let finding = Guardrails::parse(text.as_bytes()).unwrap_err();
            assert_eq!(finding.reason, Reason::GuardrailsInvalid, "{text}");
        }
    }
}
