//! `ramen new`: packages by the contract, ready to be validated.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ramen_group::{NAME_RULE, PackageName};
use serde::Serialize;
use serde_json::json;

use crate::exit::Failure;
use crate::output::{self, OutputArg};
use crate::up::spec::group_of_folder;

/// `ramen new`.
#[derive(Args)]
pub(crate) struct NewArgs {
    /// What to make
    #[arg(value_enum)]
    what: What,
    /// Its name: letters, digits, `_` and `-`, a letter first, at most 64
    name: String,
    /// The folder to work in: the group of a package, the parent of a group
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A folder with mcp/, one tool and a golden call
    Group,
    /// A Python function that a model calls
    Tool,
    /// A text under a uri
    Resource,
    /// A template with arguments
    Prompt,
}

/// What was made.
#[derive(Serialize)]
struct Made {
    files: Vec<String>,
}

/// A file to write: its path from the folder, its content.
type File = (PathBuf, String);

/// Runs the command.
pub(crate) fn run(args: &NewArgs) -> Result<ExitCode, Failure> {
    let name = PackageName::parse(&args.name).ok_or_else(|| {
        Failure::usage(format!(
            "the name {:?} does not follow {NAME_RULE}",
            args.name
        ))
    })?;
    let (base, files) = match args.what {
        What::Group => {
            let base = args.dir.join(name.as_str());
            if base.exists() {
                return Err(Failure::error(format!(
                    "{} is there already",
                    base.display()
                )));
            }
            (base, group(&name))
        }
        What::Tool => (mcp_folder(&args.dir)?, tool(&name)),
        What::Resource => (mcp_folder(&args.dir)?, resource(&name)),
        What::Prompt => (mcp_folder(&args.dir)?, prompt(&name)),
    };
    let made = write(&base, &files)?;
    args.output.print(&made, || {
        let list: Vec<String> = made
            .files
            .iter()
            .map(|file| format!("made {file}"))
            .collect();
        list.join("\n")
    })?;
    if args.what == What::Group {
        let served = group_of_folder(&base);
        if served != name.as_str() {
            output::note(&format!(
                "`ramen up` calls this group {served}: names of groups are made of small letters, digits and `-`"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The `mcp` folder of the group at or above `dir`.
fn mcp_folder(dir: &Path) -> Result<PathBuf, Failure> {
    if dir.file_name().is_some_and(|name| name == "mcp") && dir.is_dir() {
        return Ok(dir.to_owned());
    }
    let start = std::path::absolute(dir)
        .map_err(|error| Failure::usage(format!("bad folder {}: {error}", dir.display())))?;
    let found = start
        .ancestors()
        .map(|dir| dir.join("mcp"))
        .find(|mcp| mcp.is_dir());
    found.ok_or_else(|| {
        Failure::usage(format!(
            "there is no mcp folder at or above {}: make a group first (`ramen new group NAME`) or name one with --dir",
            dir.display()
        ))
    })
}

/// Writes all files, or none when one is there already.
fn write(base: &Path, files: &[File]) -> Result<Made, Failure> {
    if let Some((file, _)) = files.iter().find(|(file, _)| base.join(file).exists()) {
        return Err(Failure::error(format!(
            "{} is there already",
            base.join(file).display()
        )));
    }
    let mut made = Vec::new();
    for (file, content) in files {
        let path = base.join(file);
        let written = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&path, content));
        written
            .map_err(|error| Failure::error(format!("cannot write {}: {error}", path.display())))?;
        made.push(shown(&path));
    }
    Ok(Made { files: made })
}

/// A path from the folder that the person is in, where it lies below that.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().and_then(|here| Ok((here, std::path::absolute(path)?)));
    let below = here.as_ref().ok();
    let below = below.and_then(|(here, path)| path.strip_prefix(here).ok());
    below.unwrap_or(path).display().to_string()
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// A Python name for the function of a package.
fn callable(name: &PackageName) -> String {
    format!("{}_func", name.as_str().replace('-', "_"))
}

fn group(name: &PackageName) -> Vec<File> {
    let Some(hello) = PackageName::parse("hello") else {
        return Vec::new();
    };
    let mut files = vec![
        (
            "README.md".into(),
            format!(
                "# {name}\n\nPython functions for MCP clients.\n\n- `ramen up .` serves them on this machine and reloads on save.\n\
                 - `ramen validate .` checks them as a deploy would.\n- `ramen new tool NAME` makes another.\n"
            ),
        ),
        (".gitignore".into(), "__pycache__/\n*.pyc\n.venv/\n".to_owned()),
        ("mcp/requirements.txt".into(), "# one requirement a line, as pip takes them\n".to_owned()),
        (
            "mcp/tests.yaml".into(),
            "# Golden calls: a deploy whose answers differ from these never replaces the revision that serves.\n\
             cases:\n  - name: greets by name\n    tool: hello\n    args: {name: Ada}\n    expect:\n      \
             text_contains: \"Hello, Ada\"\n"
                .to_owned(),
        ),
    ];
    let under_mcp = |(file, text): File| (Path::new("mcp").join(file), text);
    files.extend(
        package(
            "tools",
            &hello,
            &json!({
                "type": "tool",
                "name": "hello",
                "description": "Greet somebody by name.",
                "callable": callable(&hello),
                "input": { "name": { "type": "string", "description": "who to greet" } },
                "output": { "type": "string" }
            }),
            &format!(
                "def {}(name):\n    return f\"Hello, {{name}}!\"\n",
                callable(&hello)
            ),
        )
        .into_iter()
        .map(under_mcp),
    );
    files
}

fn tool(name: &PackageName) -> Vec<File> {
    package(
        "tools",
        name,
        &json!({
            "type": "tool",
            "name": name.as_str(),
            "description": "Say what the tool does, for the model that chooses it.",
            "callable": callable(name),
            "input": { "text": { "type": "string", "description": "what the function gets" } },
            "output": { "type": "string" }
        }),
        &format!(
            "def {}(text):\n    return f\"You said: {{text}}\"\n",
            callable(name)
        ),
    )
}

fn resource(name: &PackageName) -> Vec<File> {
    package(
        "resources",
        name,
        &json!({
            "type": "resource",
            "name": name.as_str(),
            "description": "Say what a reader finds here.",
            "callable": callable(name),
            "uri": format!("group://{name}"),
            "mime_type": "text/markdown"
        }),
        &format!("def {}():\n    return \"# {name}\\n\"\n", callable(name)),
    )
}

fn prompt(name: &PackageName) -> Vec<File> {
    let dir = Path::new("prompts").join(name.as_str());
    let descriptor = json!({
        "type": "prompt",
        "name": name.as_str(),
        "description": "Say what the prompt is for.",
        "skill": "SKILL.md",
        "settings": "settings.json",
        "input": { "topic": { "type": "string", "description": "what it is about" } }
    });
    vec![
        (dir.join(format!("{name}.json")), pretty(&descriptor)),
        (
            dir.join("SKILL.md"),
            format!(
                "---\nname: {name}\ndescription: Say what the prompt is for.\n---\n# {name}\n\nWrite about {{{{topic}}}}.\n"
            ),
        ),
        (
            dir.join("settings.json"),
            "{\n  \"tone\": \"friendly\"\n}\n".to_owned(),
        ),
    ]
}

/// The two files of a package with code.
fn package(
    folder: &str,
    name: &PackageName,
    descriptor: &serde_json::Value,
    code: &str,
) -> Vec<File> {
    let dir = Path::new(folder).join(name.as_str());
    vec![
        (dir.join(format!("{name}.json")), pretty(descriptor)),
        (dir.join(format!("{name}.py")), code.to_owned()),
    ]
}
