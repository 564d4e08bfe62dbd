//! One package folder.

use std::fs;

use serde_json::value::RawValue;

use super::walk::Tree;
use super::{Group, Resource, Tool};
use crate::{
    Descriptor, Finding, NAME_RULE, PackageKind, PackageName, Prompt, PromptArgument, Reason,
    ReportPackage, Template, json, parse_descriptor, stdlib,
};

/// Largest descriptor.
const MAX_DESCRIPTOR: u64 = 1 << 20;
/// Largest `SKILL.md` and settings file.
const MAX_TEXT: u64 = 2 << 20;

/// Reads one package: it joins the group's tools, resources or prompts, or the errors list.
pub(super) fn load(group: &mut Group, tree: &Tree, kind: PackageKind, folder: &str) {
    let mut package = Package {
        kind,
        folder,
        dir: format!("{}/{folder}", kind.folder()),
        tree,
        root: &group.root,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let loaded = package.load();
    let Package {
        dir,
        mut errors,
        mut warnings,
        ..
    } = package;
    let mut row = ReportPackage {
        kind,
        name: folder.chars().take(128).collect(),
        description: None,
        ok: errors.is_empty(),
        uri: None,
    };
    if let Some(loaded) = loaded.filter(|_| row.ok) {
        match loaded {
            Loaded::Tool(tool) => {
                row.description.clone_from(&tool.description);
                group.tools.push(*tool);
            }
            Loaded::Resource(resource) => {
                row.description.clone_from(&resource.description);
                row.uri = Some(resource.uri.clone());
                group.resources.push(*resource);
            }
            Loaded::Prompt(prompt) => {
                row.description.clone_from(&prompt.description);
                group.prompts.push(*prompt);
            }
        }
    }
    group.packages.push(row);
    for finding in errors.iter_mut().chain(&mut warnings) {
        finding.package.get_or_insert_with(|| dir.clone());
    }
    group.errors.append(&mut errors);
    group.warnings.append(&mut warnings);
}

enum Loaded {
    Tool(Box<Tool>),
    Resource(Box<Resource>),
    Prompt(Box<Prompt>),
}

struct Package<'g> {
    kind: PackageKind,
    folder: &'g str,
    dir: String,
    tree: &'g Tree,
    root: &'g std::path::Path,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Package<'_> {
    fn path(&self, file: &str) -> String {
        format!("mcp/{}/{file}", self.dir)
    }

    fn error(&mut self, reason: Reason, file: &str, message: impl Into<String>) {
        let path = if file.is_empty() {
            format!("mcp/{}", self.dir)
        } else {
            self.path(file)
        };
        self.errors
            .push(Finding::group(reason, message).at_path(path));
    }

    fn has(&self, file: &str) -> bool {
        self.tree.has(&format!("{}/{file}", self.dir))
    }

    fn read(&self, file: &str, limit: u64) -> Result<Vec<u8>, String> {
        let path = self.root.join(&self.dir).join(file);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.len() > limit => {
                return Err(format!("the file is larger than {} KiB", limit / 1024));
            }
            Ok(meta) if meta.is_file() => {}
            _ => return Err("the file cannot be read".to_owned()),
        }
        fs::read(&path).map_err(|error| format!("the file cannot be read: {error}"))
    }

    fn load(&mut self) -> Option<Loaded> {
        let name = PackageName::parse(self.folder);
        if name.is_none() {
            let shown: String = self.folder.chars().take(80).collect();
            let message = format!("the folder's name `{shown}` does not follow {NAME_RULE}");
            self.error(Reason::NameInvalid, "", message);
        }
        for fault in self.tree.faults_of(&self.dir) {
            self.errors.push(
                Finding::group(fault.reason, fault.message.clone()).at_path(fault.mcp_path()),
            );
        }
        let name = name?;
        if self
            .tree
            .faults_of(&self.dir)
            .any(|fault| fault.path == self.dir)
        {
            // The folder itself is a link or a submodule: nothing in it counts.
            return None;
        }
        let descriptor = self.descriptor();
        if self.kind == PackageKind::Prompt {
            return self.prompt(name, descriptor?);
        }
        self.code();
        let descriptor = descriptor?;
        Some(match self.kind {
            PackageKind::Tool => Loaded::Tool(Box::new(Tool {
                name,
                dir: self.dir.clone(),
                title: descriptor.title,
                description: descriptor.description,
                callable: descriptor.callable,
                input: descriptor.input,
                output: descriptor.output,
                annotations: descriptor.annotations,
                icons: descriptor.icons,
                timeout: descriptor.timeout,
            })),
            _ => Loaded::Resource(Box::new(Resource {
                name,
                dir: self.dir.clone(),
                title: descriptor.title,
                description: descriptor.description,
                callable: descriptor.callable,
                uri: descriptor.uri,
                mime_type: descriptor.mime_type,
                annotations: descriptor.annotations,
                icons: descriptor.icons,
                timeout: descriptor.timeout,
            })),
        })
    }

    fn descriptor(&mut self) -> Option<Descriptor> {
        let file = format!("{}.json", self.folder);
        if !self.has(&file) {
            // A link of that name was refused already.
            if self
                .tree
                .faults_of(&self.dir)
                .any(|fault| fault.path.ends_with(&format!("/{file}")))
            {
                return None;
            }
            let other = self.tree.files_of(&self.dir).find(|path| {
                let stem = path.strip_suffix(".json");
                stem.is_some_and(|stem| !stem.contains('/') && stem != "settings")
            });
            let message = match other {
                Some(other) => {
                    format!("there is no `{file}`; `{other}` is not named like the folder")
                }
                None => format!("there is no `{file}`"),
            };
            self.error(Reason::DescriptorMissing, &file, message);
            return None;
        }
        let bytes = match self.read(&file, MAX_DESCRIPTOR) {
            Ok(bytes) => bytes,
            Err(message) => {
                self.error(Reason::DescriptorInvalid, &file, message);
                return None;
            }
        };
        let path = self.path(&file);
        let placed = |findings: Vec<Finding>| findings.into_iter().map(|f| f.at_path(&*path));
        match parse_descriptor(&bytes, Some((self.kind, self.folder))) {
            Ok((descriptor, warnings)) => {
                self.warnings.extend(placed(warnings));
                Some(descriptor)
            }
            Err(errors) => {
                // A pointer file is no JSON either; one entry is enough.
                if self
                    .tree
                    .faults_of(&self.dir)
                    .all(|fault| fault.mcp_path() != path)
                {
                    self.errors.extend(placed(errors));
                }
                None
            }
        }
    }

    /// The code of a tool or resource, and the names of its modules.
    fn code(&mut self) {
        let file = format!("{}.py", self.folder);
        let linked = self
            .tree
            .faults_of(&self.dir)
            .any(|f| f.path.ends_with(&format!("/{file}")));
        if !self.has(&file) && !linked {
            self.error(Reason::CodeMissing, &file, format!("there is no `{file}`"));
        }
        let mut modules: Vec<(String, String)> = Vec::new();
        for path in self.tree.files_of(&self.dir) {
            let Some(inner) = path.strip_prefix("utils/") else {
                continue;
            };
            let module = match inner.split_once('/') {
                Some((folder, _)) => folder,
                None => match inner.strip_suffix(".py") {
                    Some(stem) => stem,
                    None => continue,
                },
            };
            if !modules.iter().any(|(known, _)| known == module) {
                modules.push((module.to_owned(), path.to_owned()));
            }
        }
        if self.folder == "ramen_runtime" {
            modules.push((self.folder.to_owned(), file));
        }
        for (module, path) in modules {
            let (reason, message) = if module == "ramen_runtime" {
                (
                    Reason::ModuleReserved,
                    "`ramen_runtime` is built in; this one is never imported".to_owned(),
                )
            } else if stdlib::has(&module) {
                let message = format!(
                    "within this package `import {module}` gives this file, not the standard library"
                );
                (Reason::StdlibShadowed, message)
            } else {
                continue;
            };
            let path = self.path(&path);
            self.warnings
                .push(Finding::group(reason, message).at_path(path));
        }
    }

    fn prompt(&mut self, name: PackageName, descriptor: Descriptor) -> Option<Loaded> {
        let names: Vec<&str> = descriptor.input.params().iter().map(|p| &*p.name).collect();
        let template = self.skill(&descriptor.skill, &names);
        let settings = self.settings(descriptor.settings.as_deref());
        let (template, settings) = (template?, settings?);
        let (template, settings) = match settings {
            Some((text, raw)) => (template.with_settings(&text), Some(raw)),
            None => (template, None),
        };
        let arguments = descriptor
            .input
            .params()
            .iter()
            .map(|param| PromptArgument {
                name: param.name.clone(),
                description: param.description.clone(),
                required: param.required,
                default: param.default.as_deref().map(plain),
                values: param.values.clone(),
            })
            .collect();
        Some(Loaded::Prompt(Box::new(Prompt {
            name,
            dir: self.dir.clone(),
            title: descriptor.title,
            description: descriptor.description,
            arguments,
            settings,
            icons: descriptor.icons,
            template,
        })))
    }

    fn skill(&mut self, file: &str, names: &[&str]) -> Option<Template> {
        if !self.has(file) {
            self.error(Reason::SkillMissing, file, format!("there is no `{file}`"));
            return None;
        }
        let bytes = match self.read(file, MAX_TEXT) {
            Ok(bytes) => bytes,
            Err(message) => {
                self.error(Reason::SkillInvalid, file, message);
                return None;
            }
        };
        match json::decode(&bytes) {
            Err(_) => self.error(Reason::SkillInvalid, file, "the file is not UTF-8"),
            Ok("") => self.error(Reason::SkillMissing, file, format!("`{file}` is empty")),
            Ok(text) => return Some(Template::parse(text, names)),
        }
        None
    }

    /// `Some(None)` without settings, `None` with bad ones.
    #[expect(
        clippy::option_option,
        reason = "absent settings and bad ones are different things"
    )]
    fn settings(&mut self, declared: Option<&str>) -> Option<Option<(String, Box<RawValue>)>> {
        let file = declared.unwrap_or("settings.json");
        if !self.has(file) {
            if declared.is_none() {
                return Some(None);
            }
            self.error(
                Reason::SettingsMissing,
                file,
                format!("there is no `{file}`"),
            );
            return None;
        }
        let bytes = match self.read(file, MAX_TEXT) {
            Ok(bytes) => bytes,
            Err(message) => {
                self.error(Reason::SettingsInvalid, file, message);
                return None;
            }
        };
        let Ok(text) = json::decode(&bytes) else {
            self.error(Reason::SettingsInvalid, file, "the file is not UTF-8");
            return None;
        };
        let (at, message) = match json::parse(text) {
            Err(fault) => (fault.at, format!("not JSON: {fault}")),
            Ok(node) if node.members().is_none() => (
                node.start,
                format!("settings are an object, not {}", node.kind()),
            ),
            Ok(node) => {
                let raw = RawValue::from_string(node.minified()).ok()?;
                return Some(Some((text.to_owned(), raw)));
            }
        };
        let (line, column) = json::place(text, at);
        let path = self.path(file);
        self.errors.push(
            Finding::group(Reason::SettingsInvalid, message)
                .at_path(path)
                .at(line, column),
        );
        None
    }
}

/// A default as the string that a prompt takes: a JSON string's text, or the token.
fn plain(default: &str) -> String {
    json::parse(default)
        .ok()
        .and_then(|node| node.as_str().map(str::to_owned))
        .unwrap_or_else(|| default.to_owned())
}
