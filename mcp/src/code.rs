//! Every JSON-RPC and MCP error code that Ramen emits or understands.

/// The bytes are no JSON (broken syntax, a BOM, bad UTF-8, nested too deep, a number out of range).
pub const PARSE_ERROR: i32 = -32700;
/// JSON, but no request: bad envelope, batch, unusable id, a member given twice.
pub const INVALID_REQUEST: i32 = -32600;
/// Unknown or unsupported method; in the legacy eras also an unknown or blocked tool.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// Bad parameters, unknown prompt, bad cursor, missing `_meta`; modern: unknown tool or resource.
pub const INVALID_PARAMS: i32 = -32602;
/// Something failed on our side.
pub const INTERNAL_ERROR: i32 = -32603;
/// Modern HTTP: a header copy of a body field is missing, unequal or malformed.
pub const HEADER_MISMATCH: i32 = -32020;
/// Modern: the request needs a capability that the client did not declare.
pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
/// Modern: the protocol version is none that we serve.
pub const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;
/// Legacy only: resource not found. Modern servers must not emit it; clients accept it.
pub const RESOURCE_NOT_FOUND: i32 = -32002;
/// Legacy 2025-11-25 only: the client has to visit a URL first. Understood, never emitted.
pub const URL_ELICITATION_REQUIRED: i32 = -32042;
/// Bridge: the worker refused the key (carried over from the published bridge).
pub const BRIDGE_UNAUTHENTICATED: i32 = -32001;
/// Bridge: the transport failed (carried over from the published bridge).
pub const BRIDGE_TRANSPORT: i32 = -32000;

/// The HTTP status that a modern endpoint gives a JSON-RPC error with this code.
pub const fn http_status(code: i32) -> u16 {
    match code {
        METHOD_NOT_FOUND => 404,
        PARSE_ERROR
        | INVALID_REQUEST
        | INVALID_PARAMS
        | HEADER_MISMATCH
        | MISSING_CLIENT_CAPABILITY
        | UNSUPPORTED_PROTOCOL_VERSION => 400,
        _ => 200,
    }
}
