//! The one vocabulary of reasons: every entry of an errors list, whoever found it, names one of
//! these. `docs/reference/errors.md` is generated from this file (see [`errors_page`]).

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Where in the life of a revision a reason can appear; the chapters of the errors page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// What the McpGroup names.
    Group,
    /// Getting the repository.
    Source,
    /// Reading the layout and the descriptors.
    Contract,
    /// Installing `requirements.txt`.
    Requirements,
    /// Importing and checking the code.
    Code,
    /// Putting the revision in service.
    Rollout,
}

impl Stage {
    /// All stages, in the order in which a revision goes through them.
    pub const ALL: [Self; 6] = [
        Self::Group,
        Self::Source,
        Self::Contract,
        Self::Requirements,
        Self::Code,
        Self::Rollout,
    ];

    /// Chapter title of the errors page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Group => "What the McpGroup names",
            Self::Source => "Getting the repository",
            Self::Contract => "Layout and descriptors",
            Self::Requirements => "Requirements",
            Self::Code => "Importing and checking the code",
            Self::Rollout => "Going into service",
        }
    }
}

macro_rules! reasons {
    ($( $stage:ident { $( $name:ident: $summary:literal, $fix:literal; )+ } )+) => {
        /// Why a package, a file or a whole revision was refused (or, for a warning, remarked on).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason {
            $( $( #[doc = $summary] $name, )+ )+
            /// A reason that a newer program wrote and this one does not know.
            #[serde(other)]
            Unknown,
        }

        impl Reason {
            /// Every reason, in the order of the errors page (without `Unknown`).
            pub const ALL: &'static [Self] = &[ $( $( Self::$name, )+ )+ ];

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $( $( Self::$name => stringify!($name), )+ )+
                    Self::Unknown => "Unknown",
                }
            }

            /// What happened, in one sentence.
            pub fn summary(self) -> &'static str {
                match self {
                    $( $( Self::$name => $summary, )+ )+
                    Self::Unknown => "The entry was written by a newer version of Ramen.",
                }
            }

            /// What to do about it.
            pub fn fix(self) -> &'static str {
                match self {
                    $( $( Self::$name => $fix, )+ )+
                    Self::Unknown => "Read the entry's message, or upgrade this program.",
                }
            }

            /// Where the reason comes up.
            pub fn stage(self) -> Stage {
                match self {
                    $( $( Self::$name => Stage::$stage, )+ )+
                    Self::Unknown => Stage::Contract,
                }
            }
        }
    };
}

reasons! {
    Group {
        InvalidSpec: "A field of the McpGroup cannot be used as it is. Nothing new is acted on; what serves goes on.",
            "Correct the fields that the message names; `docs/reference/mcpgroup.md` says what each of them takes.";
        SecretMissing: "A Secret that the McpGroup names is not in its namespace. Nothing new is acted on; what serves goes on.",
            "Make the Secret, or correct its name; the group goes on by itself.";
        SecretKeyMissing: "A Secret that the McpGroup names lacks a key that is needed. Nothing new is acted on; what serves goes on.",
            "Add the key that the message names; the group goes on by itself.";
        SecretKeyRefused: "A key of a Secret of `spec.secrets` cannot be a variable; it is left out.",
            "Rename the key in the Secret: letters, digits, `_`, `-` and `.`, and no two keys that become the same variable.";
        VariableRefused: "A variable of `spec.worker.env` would change how programs are loaded; it is left out.",
            "Take it out of the McpGroup. It was allowed when the group was made; a group with one is no longer taken at apply.";
        AccessKeyUnknown: "An access rule names a key that the group does not have. The rule lets nobody in by it, and all other keys are shut out all the same.",
            "Make the key, or correct the name: keys have the names of the entries of their Secret, or of their files.";
        UpstreamUnusable: "A value that an upstream needs is not in its Secret; its tools are missing, the group's own are served.",
            "Add the Secret or the key that the message names.";
    }
    Source {
        SourceInvalid: "The repository address or the wanted ref cannot be used.",
            "Correct `source.url` or `source.ref` in the McpGroup; the message names the part.";
        SourceUnreachable: "The git server could not be reached or broke off.",
            "Check the address, DNS and egress rules; it is tried again on its own.";
        AuthenticationFailed: "The git server refused the credentials.",
            "Check the Secret named by `source.secretRef`: keys `username` and `password`, `bearerToken`, or `identity` with `known_hosts`.";
        HostKeyMismatch: "The git server's ssh host key is not the one in `known_hosts`.",
            "Compare the fingerprint in the message with the server's published one, then correct `known_hosts`. Do not skip this check.";
        CertificateRefused: "The git server's TLS certificate is not trusted.",
            "Name the authority's certificate with `source.caSecretRef`, or correct the server's certificate.";
        RefNotFound: "The branch, tag, version range or commit does not exist in the repository.",
            "Push it, or correct `source.ref`.";
        FetchTimeout: "Fetching took longer than the deadline.",
            "Make the repository smaller, or look at the git server; it is tried again on its own.";
        FetchTooLarge: "The repository sent more bytes or objects than allowed.",
            "Keep large files out of the branch that Ramen serves.";
        McpFolderMissing: "There is no `mcp/` folder.",
            "Put the packages under `mcp/` at the root of the folder or repository; in a McpGroup `source.path` may name another folder that holds it.";
        SymlinkRefused: "A symbolic link lies under `mcp/`.",
            "Replace the link by the file or folder itself.";
        SubmoduleRefused: "A git submodule lies under `mcp/`.",
            "Copy the submodule's files into the repository, or publish them as a Python package and require it.";
        LfsPointer: "A file is a Git LFS pointer instead of its contents.",
            "Take the file out of Git LFS, or download the data at run time.";
        PathRefused: "A path under `mcp/` has a name that cannot be used safely.",
            "Rename it: no `..`, no control characters, no `.git`, not over 255 bytes a part.";
        CaseTwins: "Two paths differ only in upper and lower case or in the Unicode form of a letter.",
            "Rename one: on macOS and Windows only one of the two can exist.";
        FileTooLarge: "A file of a package is larger than allowed.",
            "Keep data out of the package; load it at run time from where it lives.";
        TreeTooLarge: "`mcp/` holds more files or bytes than allowed, or folders nest too deep.",
            "Keep data out of `mcp/`; load it at run time from where it lives.";
    }
    Contract {
        NameInvalid: "A package's name does not follow `^[A-Za-z][A-Za-z0-9_-]{0,63}$`.",
            "Rename the folder, its files and the `name`: a letter first, then letters, digits, `_` or `-`, 64 characters at most.";
        NameMismatch: "The `name` in the descriptor is not the name of the folder.",
            "Make the folder, `<name>.json`, `<name>.py` and `name` the same, letter for letter.";
        TypeMismatch: "The `type` in the descriptor does not belong in this folder.",
            "Use `tool` under `tools/`, `resource` under `resources/`, `prompt` under `prompts/`.";
        TypeInvalid: "The `type` in the descriptor is none of `tool`, `resource` and `prompt`.",
            "Set `type` to the kind of the folder that the package lies in.";
        DescriptorMissing: "The folder has no `<name>.json`.",
            "Add the descriptor, named like the folder, or remove the folder.";
        DescriptorInvalid: "`<name>.json` is not valid JSON, or a field of it is not what the contract asks for.",
            "Go to the line and column of the entry. `docs/reference/contract.md` says what each field takes.";
        CodeMissing: "The folder has no `<name>.py`.",
            "Add the file, named like the folder.";
        SkillMissing: "A prompt's `SKILL.md` is missing or empty.",
            "Add the file that `skill` names (default `SKILL.md`) with the text of the prompt.";
        SkillInvalid: "A prompt's `SKILL.md` cannot be read as text.",
            "Save it as UTF-8, 2 MiB at most.";
        SettingsMissing: "The settings file that a prompt names does not exist.",
            "Add the file, or take `settings` out of the descriptor.";
        SettingsInvalid: "A prompt's `settings.json` is not a JSON object.",
            "Make it one object of plain JSON: no list, no `NaN`, no comments, 2 MiB at most.";
        UriDuplicate: "Two resources have the same `uri`.",
            "Give each resource its own `uri`. None of the two is served.";
        EnvInvalid: "`mcp/env.yaml` is not a flat list of `KEY: value`.",
            "One `KEY: value` a line; keys are `[A-Za-z_][A-Za-z0-9_]*` and none starts with `RAMEN_` or names a loader variable.";
        EnvSkipped: "A key of `mcp/env.yaml` refers to a secret that the group does not have; the key is not set.",
            "Add the secret to the group, or remove the key.";
        TestsInvalid: "`mcp/tests.yaml` is not a list of golden calls.",
            "Each case has `name`, `tool`, `args` and `expect` with one of `text_contains`, `subset`, `exact`.";
        GuardrailsInvalid: "`mcp/guardrails.yaml` is not valid, or what it names is missing.",
            "Set `engine` to `policy`, `nemo` or `none`; `policy` needs `mcp/guardrails/policy.py`, `nemo` needs `nemoguardrails` in `requirements.txt`.";
        GuardrailsNotEnforced: "`mcp/guardrails.yaml` is valid, and this version does not run its hooks: calls go through without them, also with `fail: closed`.",
            "Do not rely on the file: check in the tool's own code what must be checked. `engine: none` takes the remark away.";
        StdlibShadowed: "A module of the package has the name of a standard library module; the package's own wins inside the package.",
            "Rename the module unless that is what you want.";
        ModuleReserved: "A module or requirement is named `ramen_runtime`; the built-in one wins.",
            "Rename it.";
        DescriptionMissing: "The package has no `description`; a model cannot tell what it is for.",
            "Add one: what it does, when to use it, what it returns.";
        FieldUnknown: "A field of a descriptor is not known and is ignored.",
            "Check the spelling.";
        LayoutIgnored: "A file or folder lies where packages are expected and is ignored.",
            "Move it into a package folder, or remove it.";
    }
    Requirements {
        RequirementsInvalid: "A line of `requirements.txt` cannot be used.",
            "Correct the line; `docs/reference/requirements.md` lists what is allowed.";
        RequirementsUnsatisfiable: "No set of versions fits all requirements.",
            "Correct the name that was not found, or loosen one of the pins that the message names.";
        HashMismatch: "A downloaded package does not have the pinned hash.",
            "Do not ignore this. Compare with the index, then correct the hash.";
        IndexUnreachable: "The package index could not be reached.",
            "Check the address of the index, its credentials and egress rules; it is tried again on its own.";
        InstallFailed: "The installer failed.",
            "Read the installer's words in the entry and in the log of the report.";
        InstallTimeout: "Resolving or installing took longer than the deadline.",
            "Pin exact versions, so that the resolver need not search.";
        InstallerMissing: "The program `uv` was not found.",
            "Install it (`pip install uv`), or set `RAMEN_UV` to its path.";
        DepsTooLarge: "The installed requirements are larger than allowed.",
            "Require less, or raise the limit. What the build of a local source writes counts too.";
        DiskFull: "There is no room left on the disk.",
            "Free some, or give the deploy step more ephemeral storage.";
        PythonUnavailable: "There is no host for the wanted Python version.",
            "Choose one of the versions that the message lists.";
    }
    Code {
        ImportFailed: "Importing the package's code raised an exception.",
            "The message has the exception. A missing module belongs in `requirements.txt`.";
        ImportTimeout: "Importing the package's code took longer than the deadline.",
            "Move slow work from the top of the file into the callable.";
        ImportCrashed: "The process ended while it imported the package's code.",
            "Look for native code, `os._exit`, a signal, or more memory than there is (the message names the bound); try the import with plain Python.";
        CallableMissing: "The code does not define the `callable`.",
            "Define the function, or correct `callable` in the descriptor.";
        CallableNotCallable: "What `callable` names is not a function.",
            "Point `callable` at a function.";
        SignatureMismatch: "The function's parameters do not fit `input`.",
            "Give the function one keyword parameter for each entry of `input`, and no other without a default.";
        GoldenFailed: "A golden call of `mcp/tests.yaml` did not give what it expects.",
            "Correct the code or the expectation; the revision is not served before that.";
    }
    Rollout {
        NothingToServe: "No package of the revision can be served.",
            "Repair at least one; the last good revision goes on serving.";
        LayerMissing: "An artifact is not in the store.",
            "Nothing to do: it is built again.";
        LayerCorrupt: "An artifact does not have the digest it should have.",
            "It is built again; if it comes back, check the store's disk.";
        DeployJobFailed: "The deploy job ended without a report.",
            "The message says how it ended (memory, deadline, killed); the last good revision goes on serving.";
        DeployJobRefused: "The cluster does not run the deploy job.",
            "The message says what stands in its way (quota, Pod Security, image, node). It is tried again on its own until it runs; the last good revision goes on serving.";
        ReloadFailed: "The workers could not load the revision.",
            "Read the message; the last good revision goes on serving.";
        HostCrashed: "The process that runs the code ended unexpectedly.",
            "Look at the log for the call that ran; native code and memory are the usual causes.";
        Internal: "Ramen itself failed.",
            "Report it with the log line that has the reference of the message.";
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text of `docs/reference/errors.md`.
pub fn errors_page() -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo run -p ramen-group --example errors_page`. Do not edit. -->\n\
         # Reasons and what to do\n\n\
         Each entry of an errors list (`ramen validate`, `ramen up`, `report.json`, `.status.errors`) has one of these reasons.\n\
         A package with an entry is left out; the other packages of the group are served.\n",
    );
    for stage in Stage::ALL {
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\n| reason | what happened | what to do |\n|---|---|---|\n",
            stage.title()
        );
        for reason in Reason::ALL.iter().filter(|r| r.stage() == stage) {
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(
                page,
                "| <a id=\"{}\"></a>`{reason}` | {} | {} |",
                reason.as_str().to_lowercase(),
                cell(reason.summary()),
                cell(reason.fix())
            );
        }
    }
    page
}
