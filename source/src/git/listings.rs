//! One question to a repository at a time: a hundred groups of one repository ask for its refs as often as
//! one group does.
//!
//! Who asks while a listing is under way waits for the next one, and does not get the one under way: it may
//! have been read before the push that made them ask. All who wait share the next.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::{Credentials, GitError, Remote, RemoteRef, UrlPolicy};

type Refs = Result<Arc<[RemoteRef]>, GitError>;

/// The repositories that are being asked, or waited for.
#[derive(Default)]
pub(super) struct Listings {
    places: Mutex<Vec<Arc<Place>>>,
}

/// One repository with one login. Two with the same address may be shown different refs.
struct Place {
    url: String,
    credentials: Arc<Credentials>,
    policy: UrlPolicy,
    /// Held while somebody asks.
    turn: tokio::sync::Mutex<()>,
    /// The listing that nobody has begun yet.
    next: Mutex<Arc<OnceLock<Refs>>>,
}

impl fmt::Debug for Listings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listings").finish_non_exhaustive()
    }
}

impl Listings {
    /// The refs of a repository, by the next listing; `ask` makes it when nobody else does.
    pub(super) async fn of<F>(&self, remote: &Remote, ask: impl FnOnce() -> F) -> Refs
    where
        F: Future<Output = Result<Vec<RemoteRef>, GitError>>,
    {
        let place = self.place(remote);
        let listing = Arc::clone(&guard(&place.next));
        let turn = place.turn.lock().await;
        let refs = if let Some(refs) = listing.get() {
            refs.clone()
        } else {
            // It begins here: who comes from now on waits for another. Whoever made it before and was
            // stopped left it as it was.
            *guard(&place.next) = Arc::default();
            let refs = ask().await.map(Arc::from);
            listing.get_or_init(|| refs).clone()
        };
        drop(turn);
        drop(listing);
        self.forget(place);
        refs
    }

    fn place(&self, remote: &Remote) -> Arc<Place> {
        let url = remote.url.to_string();
        let mut places = guard(&self.places);
        let known = places.iter().find(|place| {
            place.url == url
                && place.policy == remote.policy
                && (Arc::ptr_eq(&place.credentials, &remote.credentials)
                    || place.credentials == remote.credentials)
        });
        if let Some(place) = known {
            return Arc::clone(place);
        }
        let place = Arc::new(Place {
            url,
            credentials: Arc::clone(&remote.credentials),
            policy: remote.policy.clone(),
            turn: tokio::sync::Mutex::default(),
            next: Mutex::default(),
        });
        places.push(Arc::clone(&place));
        place
    }

    /// Nothing is kept of a repository that nobody asks any more.
    fn forget(&self, place: Arc<Place>) {
        let mut places = guard(&self.places);
        drop(place);
        // Clones are made under the same lock: one owner means that only the list has it.
        places.retain(|place| Arc::strong_count(place) > 1);
    }
}

fn guard<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use super::super::GitUrl;
    use super::*;

    fn remote(url: &str) -> Remote {
        Remote::new(GitUrl::parse(url).unwrap())
    }

    /// A server that answers one listing for each permit, with the number of listings before it.
    struct Server {
        asked: AtomicU32,
        answers: Semaphore,
    }

    impl Server {
        fn new() -> Self {
            Self {
                asked: AtomicU32::new(0),
                answers: Semaphore::new(0),
            }
        }

        async fn ask(&self) -> Result<Vec<RemoteRef>, GitError> {
            let n = self.asked.fetch_add(1, Ordering::Relaxed);
            self.answers.acquire().await.unwrap().forget();
            Ok(vec![RemoteRef {
                name: n.to_string(),
                id: String::new(),
                peeled: None,
                target: None,
            }])
        }
    }

    fn name(refs: &Refs) -> String {
        refs.as_ref().unwrap()[0].name.clone()
    }

    #[tokio::test]
    async fn who_asks_while_a_listing_is_under_way_shares_the_next_one() {
        let (listings, server) = (Listings::default(), Server::new());
        let remote = remote("https://forge.example/acme/library.git");
        let ask = || listings.of(&remote, || server.ask());
        let mut first = Box::pin(ask());
        assert!(futures::poll!(&mut first).is_pending());
        let mut rest: Vec<_> = (0..100).map(|_| Box::pin(ask())).collect();
        for one in &mut rest {
            assert!(futures::poll!(one).is_pending());
        }
        assert_eq!(server.asked.load(Ordering::Relaxed), 1);
        server.answers.add_permits(2);
        assert_eq!(name(&first.await), "0");
        for refs in futures::future::join_all(rest).await {
            assert_eq!(name(&refs), "1");
        }
        assert_eq!(server.asked.load(Ordering::Relaxed), 2);
        assert!(guard(&listings.places).is_empty());
        server.answers.add_permits(1);
        assert_eq!(name(&ask().await), "2", "nothing is remembered");
    }

    #[tokio::test]
    async fn a_listing_that_is_given_up_is_made_by_the_next_in_line() {
        let (listings, server) = (Listings::default(), Server::new());
        let remote = remote("https://forge.example/acme/library.git");
        let ask = || listings.of(&remote, || server.ask());
        let (mut one, mut two, mut three) = (Box::pin(ask()), Box::pin(ask()), Box::pin(ask()));
        assert!(futures::poll!(&mut one).is_pending());
        assert!(futures::poll!(&mut two).is_pending());
        assert!(futures::poll!(&mut three).is_pending());
        // The group of the first is removed.
        drop(one);
        server.answers.add_permits(1);
        let (two, three) = futures::join!(two, three);
        assert_eq!((name(&two), name(&three)), ("1".to_owned(), "1".to_owned()));
    }

    #[tokio::test]
    async fn another_repository_or_login_is_asked_by_itself_and_errors_are_shared() {
        let (listings, server) = (Listings::default(), Server::new());
        let library = remote("https://forge.example/acme/library.git");
        let other = remote("https://forge.example/acme/other.git");
        let login = Remote {
            credentials: Arc::new(Credentials {
                bearer: Some("token".into()),
                ..Credentials::default()
            }),
            ..library.clone()
        };
        server.answers.add_permits(3);
        let ask = |remote| listings.of(remote, || server.ask());
        let _ = futures::join!(ask(&library), ask(&other), ask(&login));
        assert_eq!(server.asked.load(Ordering::Relaxed), 3);

        let asked = AtomicU32::new(0);
        let fail = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(GitError::NotFound {
                url: "x".to_owned(),
            })
        };
        let all = (0..50).map(|_| listings.of(&library, fail));
        for refs in futures::future::join_all(all).await {
            assert!(matches!(refs, Err(GitError::NotFound { .. })), "{refs:?}");
        }
        // The first, and one for all others.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
