//! The parameters of `input`, one after the other, until they are one schema.

use serde_json::value::RawValue;

use super::{InputSchema, Param, apply};
use crate::json::{Member, Node, Reader, quote_into};
use crate::schema::{
    Additional, Check, Compiler, ObjectRules, Place, Problem, Property, Schema, types,
};

#[derive(Default)]
pub(super) struct Builder {
    params: Vec<Param>,
    properties: Vec<Property>,
    headers: std::collections::HashSet<String>,
}

/// Whether `input` is one JSON Schema, as MCP's own `inputSchema` is, instead of a map of parameters. A parameter may well
/// be named `type` or `properties`; as a parameter each is an object with a `type` or an `enum` of its own.
pub(super) fn is_whole_schema(node: &Node<'_>) -> bool {
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
pub(super) fn unwrap_it(node: &Node<'_>) -> String {
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
    pub(super) fn param<'n>(&mut self, compiler: &mut Compiler<'n>, member: &'n Member<'n>) {
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

    /// `x-mcp-header`: an HTTP token that gRPC takes for text, used once, on what fits a header, reached through
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
                // On its way to a worker it would be metadata of gRPC, which has bytes under such names.
                Some(token) if token.to_ascii_lowercase().ends_with("-bin") => {
                    compiler.problems.push(Problem::beyond(
                        header.start,
                        "`x-mcp-header` must not end in `-bin`, where gRPC has values that are no text",
                    ));
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

    pub(super) fn finish(self) -> InputSchema {
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
        quote_into(&mut out, &member.name);
        out.push(':');
        member.node.minify_into(&mut out);
    }
    out.push('}');
    RawValue::from_string(out).ok()
}
