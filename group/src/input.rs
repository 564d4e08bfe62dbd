//! `input` → `inputSchema`, and the check of a call's arguments on their raw JSON.

use std::fmt;

use serde_json::value::RawValue;

use crate::json::{self, Kind, Member, Node, Reader, quote_into};
use crate::schema::{
    Additional, Check, Compiler, Edit, Mode, ObjectRules, Place, Problem, Property, Schema, types,
};

/// Parameters of one package.
pub(crate) const MAX_PARAMS: usize = 128;

/// The parameters of a tool or prompt: the JSON Schema to list, and a compiled check.
#[derive(Clone)]
pub struct InputSchema {
    json: Box<RawValue>,
    params: Vec<Param>,
    root: Schema,
}

/// One parameter.
#[derive(Debug, Clone)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Whether a call must give it: true unless it has a default.
    pub required: bool,
    /// The default as JSON text.
    pub default: Option<String>,
    /// The values of a string enum, for completion.
    pub values: Vec<String>,
    /// `x-mcp-header`: the header that carries the parameter over HTTP.
    pub header: Option<String>,
    /// The schema as listed (one member of `properties`).
    pub schema: Box<RawValue>,
}

/// One thing wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgFault {
    /// The argument (`rows[3].name` for a nested place); absent for the arguments as a whole.
    pub argument: Option<String>,
    /// What is wrong with it: `is missing`, `must be a number`. Never quotes a value.
    pub message: String,
}

impl fmt::Display for ArgFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "argument `{argument}` {}", self.message),
            None => write!(f, "arguments {}", self.message),
        }
    }
}

/// What is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgFaults {
    /// `arguments` is no JSON object: `-32602` in both eras.
    NotAnObject,
    /// The JSON itself is bad (lone surrogate, number out of range, too deep).
    Malformed(&'static str),
    /// Argument failures: `-32602` (legacy) or `isError` (modern). From one to eight.
    Faults(Vec<ArgFault>),
}

impl fmt::Display for ArgFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("arguments must be an object"),
            Self::Malformed(message) => write!(f, "arguments are not good JSON: {message}"),
            Self::Faults(faults) => {
                for (n, fault) in faults.iter().enumerate() {
                    if n > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{fault}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ArgFaults {}

impl InputSchema {
    /// Compiles `input`; absent means no parameters. Problems go to `problems`.
    pub(crate) fn compile(node: Option<&Node<'_>>, problems: &mut Vec<Problem>) -> Self {
        let mut compiler = Compiler::new(Mode::Input, None);
        let mut built = Builder::default();
        if let Some(node) = node {
            match node.members() {
                Some(_) if is_whole_schema(node) => compiler.error(node.start, unwrap_it(node)),
                Some(members) if members.len() <= MAX_PARAMS => {
                    for member in members {
                        built.param(&mut compiler, member);
                    }
                }
                Some(_) => compiler.error(
                    node.start,
                    format!("`input` has more than {MAX_PARAMS} parameters"),
                ),
                None => compiler.error(
                    node.start,
                    format!(
                        "`input` must be an object of parameters, not {}",
                        node.kind()
                    ),
                ),
            }
        }
        problems.append(&mut compiler.problems);
        built.finish()
    }

    /// The JSON Schema to list as `inputSchema`.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// The parameters in the order of the descriptor.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The parameter with this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    /// Checks the text of an arguments object. `Ok(None)`: pass it on as it is. `Ok(Some(text))`:
    /// pass this on instead (`5.0` became `5`, defaults are filled in).
    pub fn check(&self, arguments: &str) -> Result<Option<String>, ArgFaults> {
        let mut reader = Reader::new(arguments);
        match reader.peek() {
            Ok(Kind::Object) => {}
            Ok(_) => return Err(ArgFaults::NotAnObject),
            Err(fault) => return Err(ArgFaults::Malformed(fault.message)),
        }
        let mut check = Check::new(&[], arguments.len());
        let syntax = check
            .value(&self.root, &mut reader, &Place::Root)
            .and_then(|()| reader.finish());
        if let Err(fault) = syntax {
            return Err(ArgFaults::Malformed(fault.message));
        }
        if !check.faults.is_empty() {
            let faults = check.faults.into_iter().map(|fault| ArgFault {
                argument: Some(fault.place).filter(|place| !place.is_empty()),
                message: fault.message,
            });
            return Err(ArgFaults::Faults(faults.collect()));
        }
        if check.edits.is_empty() {
            return Ok(None);
        }
        Ok(Some(apply(arguments, check.edits)))
    }
}

/// Applies edits, which never overlap but may be there twice (two branches, one value).
fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort();
    edits.dedup();
    let mut out = String::with_capacity(text.len() + 64);
    let mut from = 0;
    for edit in edits {
        out.push_str(&text[from..edit.from]);
        out.push_str(&edit.with);
        from = edit.to;
    }
    out.push_str(&text[from..]);
    out
}

#[derive(Default)]
struct Builder {
    params: Vec<Param>,
    properties: Vec<Property>,
    headers: std::collections::HashSet<String>,
}

/// Whether `input` is one JSON Schema, as MCP's own `inputSchema` is, instead of a map of parameters. A parameter may well
/// be named `type` or `properties`; as a parameter each is an object with a `type` or an `enum` of its own.
fn is_whole_schema(node: &Node<'_>) -> bool {
    let says = |name: &str, what: fn(&str) -> bool| {
        node.get(name).and_then(Node::as_str).is_some_and(what)
    };
    let no_parameter = |value: &Node<'_>| {
        value.members().is_some()
            && value.get("type").and_then(Node::as_str).is_none()
            && value.get("enum").is_none()
    };
    says("type", |word| word == "object")
        || says("$schema", |_| true)
        || node.get("properties").is_some_and(no_parameter)
}

/// What to write instead of a whole schema, with the first parameter of the author as the example.
fn unwrap_it(node: &Node<'_>) -> String {
    const NOT: &str = "`input` maps each parameter to its schema and is no JSON Schema itself";
    let parameters = node.get("properties").and_then(Node::members);
    let Some(first) = parameters.and_then(<[_]>::first) else {
        return format!("{NOT}: `\"input\": {{}}` is a function without parameters");
    };
    let name: String = first.name.chars().take(64).collect();
    format!(
        "{NOT}: leave out `type`, `properties` and `required` around it and write \
         `\"input\": {{\"{name}\": {{…}}}}`; every parameter without a `default` is required"
    )
}

/// A name that can be a keyword argument and that the usual model APIs take.
fn is_param_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

impl Builder {
    fn param<'n>(&mut self, compiler: &mut Compiler<'n>, member: &'n Member<'n>) {
        let node = &member.node;
        if !is_param_name(&member.name) {
            compiler.error(
                member.at,
                "a parameter's name has 1 to 64 letters, digits, `_`, `-` or `.`",
            );
            return;
        }
        let Some(members) = node.members() else {
            compiler.error(
                node.start,
                format!(
                    "parameter `{}` must be an object like {{\"type\": \"string\"}}, not {}",
                    member.name,
                    node.kind()
                ),
            );
            return;
        };
        let before = compiler.problems.len();
        let (declared, values) = (node.get("type"), node.get("enum"));
        let bits = match (declared, values) {
            (None, None) => {
                compiler.error(
                    node.start,
                    format!("parameter `{}` needs a `type` or an `enum`", member.name),
                );
                return;
            }
            (None, Some(_)) => types::STRING,
            (Some(declared), _) => match declared.as_str().and_then(types::parse) {
                Some(bits) if bits != types::NULL => bits,
                _ => {
                    compiler.error(
                        declared.start,
                        "`type` of a parameter must be one of string, number, integer, boolean, \
                         array, object",
                    );
                    return;
                }
            },
        };
        if let Some(values) = values {
            self.values(compiler, values, declared.is_none(), bits);
        }
        self.headers(compiler, member, bits);
        let mut schema = compiler.schema(node);
        schema.types = bits;
        if compiler.problems[before..]
            .iter()
            .any(|problem| problem.error)
        {
            return;
        }
        let default = match node
            .get("default")
            .map(|node| (node, fit(&schema, &node.minified())))
        {
            None => None,
            Some((_, Ok(default))) => Some(default),
            Some((node, Err(fault))) => {
                let message = format!("`default` {fault}");
                compiler.problems.push(Problem::beyond(node.start, message));
                return;
            }
        };
        let strings = values.and_then(Node::items).unwrap_or_default();
        let Some(listed) = listed(members, declared.is_none()) else {
            return;
        };
        self.params.push(Param {
            name: member.name.to_string(),
            description: node
                .get("description")
                .and_then(Node::as_str)
                .map(str::to_owned),
            required: default.is_none(),
            default: default.clone(),
            values: strings
                .iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect(),
            header: node
                .get("x-mcp-header")
                .and_then(Node::as_str)
                .map(str::to_owned),
            schema: listed,
        });
        self.properties.push(Property {
            name: (&*member.name).into(),
            schema,
            required: default.is_none(),
            default: default.map(Into::into),
        });
    }

    /// The values of an `enum` are of the parameter's type, strings when none is given.
    #[expect(
        clippy::unused_self,
        reason = "keeps the parts of a parameter side by side"
    )]
    fn values(&self, compiler: &mut Compiler<'_>, values: &Node<'_>, untyped: bool, bits: u8) {
        let only = Schema::of_types(bits);
        for value in values.items().unwrap_or_default() {
            if fit(&only, &value.minified()).is_ok() {
                continue;
            }
            if untyped {
                compiler.error(
                    value.start,
                    "values of an `enum` without `type` are strings",
                );
            } else {
                compiler.problems.push(Problem::beyond(
                    value.start,
                    "a value of the `enum` is not of the parameter's `type`",
                ));
            }
        }
    }

    /// `x-mcp-header`: an HTTP token, used once, on what fits a header, reached through
    /// `properties` alone.
    fn headers<'n>(&mut self, compiler: &mut Compiler<'n>, member: &'n Member<'n>, bits: u8) {
        let node = &member.node;
        if let Some(header) = node.get("x-mcp-header") {
            let token = header.as_str().filter(|text| is_token(text));
            match token {
                None => compiler.error(header.start, "`x-mcp-header` must be an HTTP header name"),
                Some(_) if bits & (types::STRING | types::INTEGER | types::BOOL) == 0 => {
                    compiler.error(
                        header.start,
                        "`x-mcp-header` goes on a string, integer or boolean",
                    );
                }
                Some(token) => {
                    if !self.headers.insert(token.to_ascii_lowercase()) {
                        compiler.problems.push(Problem::beyond(
                            header.start,
                            "two parameters have the same `x-mcp-header`",
                        ));
                    }
                }
            }
        }
        for property in node
            .get("properties")
            .and_then(Node::members)
            .unwrap_or_default()
        {
            let declared = property.node.get("type");
            let inner = match declared.map(|node| node.as_str().and_then(types::parse)) {
                Some(bits) => bits.unwrap_or(0),
                None if property.node.get("enum").is_some() => types::STRING,
                None => 0,
            };
            self.headers(compiler, property, inner);
        }
        for keyword in [
            "items",
            "prefixItems",
            "anyOf",
            "oneOf",
            "allOf",
            "not",
            "additionalProperties",
        ] {
            if let Some(at) = node.get(keyword).and_then(find_header) {
                compiler.problems.push(Problem::beyond(
                    at,
                    "`x-mcp-header` must be reached through `properties` alone",
                ));
            }
        }
    }

    fn finish(self) -> InputSchema {
        let mut json = String::from("{\"type\":\"object\",\"properties\":{");
        for (n, param) in self.params.iter().enumerate() {
            if n > 0 {
                json.push(',');
            }
            quote_into(&mut json, &param.name);
            json.push(':');
            json.push_str(param.schema.get());
        }
        json.push('}');
        let mut required = self.params.iter().filter(|param| param.required).peekable();
        if required.peek().is_some() {
            json.push_str(",\"required\":[");
            for (n, param) in required.enumerate() {
                if n > 0 {
                    json.push(',');
                }
                quote_into(&mut json, &param.name);
            }
            json.push(']');
        }
        json.push_str(",\"additionalProperties\":false}");
        let json = RawValue::from_string(json).expect("written by this function as JSON");
        let mut root = Schema::of_types(types::OBJECT);
        let rules = ObjectRules {
            properties: self.properties,
            additional: Additional::Refuse,
            ..ObjectRules::default()
        };
        root.object = Some(Box::new(rules.with_index()));
        InputSchema {
            json,
            params: self.params,
            root,
        }
    }
}

/// Where an `x-mcp-header` lies anywhere within.
fn find_header(node: &Node<'_>) -> Option<usize> {
    if let Some(items) = node.items() {
        return items.iter().find_map(find_header);
    }
    node.members()?.iter().find_map(|member| {
        if member.name == "x-mcp-header" {
            Some(member.at)
        } else {
            find_header(&member.node)
        }
    })
}

/// RFC 9110 `token`.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A JSON text as calls get it, or what keeps it from fitting.
fn fit(schema: &Schema, text: &str) -> Result<String, String> {
    let mut check = Check::new(&[], text.len());
    match check.value(schema, &mut Reader::new(text), &Place::Root) {
        Err(fault) => Err(fault.message.to_owned()),
        Ok(()) => match check.faults.into_iter().next() {
            Some(fault) => Err(fault.message),
            None => Ok(apply(text, check.edits)),
        },
    }
}

/// A parameter as listed: its members in order, with the type that an enum alone implies.
fn listed(members: &[Member<'_>], untyped: bool) -> Option<Box<RawValue>> {
    let mut out = String::from("{");
    if untyped {
        out.push_str("\"type\":\"string\"");
    }
    for member in members {
        if out.len() > 1 {
            out.push(',');
        }
        json::quote_into(&mut out, &member.name);
        out.push(':');
        member.node.minify_into(&mut out);
    }
    out.push('}');
    RawValue::from_string(out).ok()
}

impl fmt::Debug for InputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json.get())
    }
}

impl Default for InputSchema {
    fn default() -> Self {
        Builder::default().finish()
    }
}

#[cfg(test)]
mod tests;
