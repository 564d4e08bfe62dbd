//! The numbers of packages in frames, and what a host must load.
//!
//! Tools are numbered by their place in the group, resources after them: the places are those of the
//! catalog, so a call finds its package without a search.

use std::collections::BTreeMap;
use std::path::Path;

use ramen_frame::{Load, LoadPackage, PackageKind};
use ramen_group::Group;

/// What a [`Load`] needs beside the group.
pub(crate) struct LoadSetting<'a> {
    pub(crate) group: &'a str,
    /// The folder that holds `tools/`.
    pub(crate) code_dir: &'a Path,
    pub(crate) deps_dir: Option<&'a Path>,
    /// `mcp/env.yaml`, resolved, and what the platform sets over it.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) threads: usize,
}

/// The number of a tool.
pub(crate) fn tool_id(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The number of a resource.
pub(crate) fn resource_id(group: &Group, index: usize) -> u32 {
    tool_id(group.tools.len() + index)
}

/// `tools/calc`, for messages.
pub(crate) fn label(group: &Group, id: u32) -> Option<&str> {
    let index = usize::try_from(id).ok()?;
    match group.tools.get(index) {
        Some(tool) => Some(&tool.dir),
        None => group
            .resources
            .get(index - group.tools.len())
            .map(|resource| resource.dir.as_str()),
    }
}

/// The `LOAD` of a group.
pub(crate) fn load(group: &Group, setting: LoadSetting<'_>) -> Load {
    let LoadSetting {
        group: name,
        code_dir,
        deps_dir,
        env,
        threads,
    } = setting;
    let tools = group.tools.iter().enumerate().map(|(index, tool)| {
        let params = tool.input.params();
        LoadPackage {
            id: tool_id(index),
            kind: PackageKind::Tool,
            name: tool.name.to_string(),
            dir: tool.dir.clone(),
            callable: tool.callable.clone(),
            params: params.iter().map(|param| param.name.clone()).collect(),
            required: params
                .iter()
                .filter(|param| param.required)
                .map(|param| param.name.clone())
                .collect(),
        }
    });
    let resources = group
        .resources
        .iter()
        .enumerate()
        .map(|(index, resource)| LoadPackage {
            id: resource_id(group, index),
            kind: PackageKind::Resource,
            name: resource.name.to_string(),
            dir: resource.dir.clone(),
            callable: resource.callable.clone(),
            params: Vec::new(),
            required: Vec::new(),
        });
    Load {
        group: name.to_owned(),
        code_dir: code_dir.display().to_string(),
        deps_dir: deps_dir.map(|dir| dir.display().to_string()),
        packages: tools.chain(resources).collect(),
        env,
        threads,
        switch_interval_ms: 1,
    }
}
