//! How libgit2 gets at our transports.

use std::{
    cell::RefCell,
    sync::{Arc, Once},
};

use git2::{ConfigLevel, transport::Transport};

use super::{http::HttpTransport, session::Session, ssh::SshTransport, url::Address};

/// The address that libgit2 sees.
pub(super) const ADDRESS: &str = "ramen://source";

thread_local! {
    static CURRENT: RefCell<Option<Arc<Session>>> = const { RefCell::new(None) };
}

/// Makes a session the one of this thread while it lives.
pub(super) struct Entered;

pub(super) fn enter(session: &Arc<Session>) -> Entered {
    CURRENT.with_borrow_mut(|current| *current = Some(Arc::clone(session)));
    Entered
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = None);
    }
}

fn create(remote: &git2::Remote<'_>) -> Result<Transport, git2::Error> {
    let session = CURRENT.with_borrow(Clone::clone);
    let session = session.ok_or_else(|| git2::Error::from_str("no operation runs here"))?;
    match session.remote.url.address() {
        Address::Http(url) => {
            let transport = HttpTransport::new(&session, url.clone()).map_err(|error| {
                let stopped = session.fail(error);
                git2::Error::from_str(&stopped.to_string())
            })?;
            Transport::smart(remote, true, transport)
        }
        Address::Ssh { .. } => {
            Transport::smart(remote, false, SshTransport::new(Arc::clone(&session)))
        }
        Address::Local(_) => Err(git2::Error::from_str(
            "local repositories need no transport",
        )),
    }
}

/// Prepares libgit2, once for the process.
pub(super) fn setup() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(error) = prepare() {
            tracing::error!(error = error.message(), "libgit2 could not be prepared");
        }
    });
}

#[expect(
    unsafe_code,
    reason = "libgit2's process-wide options have no safe form"
)]
fn prepare() -> Result<(), git2::Error> {
    // SAFETY: these calls change global state of libgit2 and must not run beside other uses of it.
    // They run once, before the first operation of this crate, and no other crate uses libgit2.
    unsafe {
        git2::transport::register("ramen", create)?;
        // The user's and the machine's git configuration is none of our business.
        for level in [
            ConfigLevel::System,
            ConfigLevel::Global,
            ConfigLevel::XDG,
            ConfigLevel::ProgramData,
        ] {
            git2::opts::set_search_path(level, "")?;
        }
        // A repository of another owner may be read: nothing of its configuration is executed.
        git2::opts::set_verify_owner_validation(false)?;
        // The defaults (256 MiB of objects, 8 GiB mapped) are for a developer's machine.
        git2::opts::set_cache_max_size(16 << 20)?;
        git2::opts::set_mwindow_mapped_limit(256 << 20)?;
    }
    Ok(())
}
