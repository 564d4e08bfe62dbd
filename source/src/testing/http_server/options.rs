//! What a test server does.

use std::{net::SocketAddr, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::testing::Authority;

/// What a client must send.
#[derive(Debug, Clone)]
pub enum Login {
    /// Basic.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

impl Login {
    pub(super) fn header(&self) -> String {
        match self {
            Self::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        }
    }
}

/// How the server misbehaves.
#[derive(Debug, Clone, Default)]
pub enum Fault {
    /// It does not.
    #[default]
    None,
    /// Every request is answered with this status.
    Status(u16),
    /// `info/refs` is redirected to this address plus the path and query of the request.
    Redirect(String),
    /// `info/refs` is redirected to exactly this address.
    RedirectExactly(String),
    /// What begins with the first is redirected to the second plus the rest; the others are served.
    Renamed(String, String),
    /// It takes the request and never answers.
    Hang,
    /// It answers with one byte of a valid answer at a time, with a pause between.
    Drip(Duration),
    /// The list of refs never ends.
    EndlessRefs,
    /// The pack never ends.
    EndlessPack,
    /// It closes the connection in the middle of the pack.
    BreakOff,
    /// It answers with a page for people.
    Page,
}

/// How to serve.
#[derive(Debug, Clone, Default)]
pub struct SmartHttpOptions {
    /// The login, if one is asked for.
    pub login: Option<Login>,
    /// Serve over TLS.
    pub tls: Option<Authority>,
    /// A fault.
    pub fault: Fault,
    /// Address to bind; loopback and any port when absent.
    pub listen: Option<SocketAddr>,
}

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `GET`, `POST`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The header `authorization`.
    pub authorization: Option<String>,
}
