//! Cursors, which callers send back as they like, against the embedded store.

use std::sync::{Arc, LazyLock};

use merkwelt_app::{App, Settings, StatementRequest};
use merkwelt_authz::{ApiKey, Request, action, authenticate, authorize};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::{Kind, Particulars};
use merkwelt_domain::{Content, Env, Purpose, Timestamp};
use merkwelt_store::change::NewOwner;
use merkwelt_store::conformance::{START, founding};
use merkwelt_store::query::{Cursor, KindSet, Listing, PageSize, ScanQuery};
use merkwelt_store::record::{Listed, Page};
use merkwelt_store::{Error, Store};
use merkwelt_store_sqlite::{MasterKey, Options, Sqlite, Threads};

use super::face::wait;

/// A store with five memories of one person and five of another.
struct World {
    store: Arc<Sqlite>,
    app: ApiKey,
    /// The first page's end.
    genuine: Cursor,
    _folder: tempfile::TempDir,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let env = Arc::new(FixedEnv::at(START));
    let (founding, keys) = founding(&env);
    let options = Options { threads: Threads::Inline, ..Options::default() };
    let master = MasterKey::from_bytes([7; 32]);
    let shared: Arc<dyn Env> = env;
    let data = folder.path().join("data");
    let store = Arc::new(Sqlite::create(&data, &master, founding, Arc::clone(&shared), options).unwrap());
    let counter = merkwelt_inference::tokens::counter("o200k_base").unwrap();
    let app = App::new(Arc::clone(&store) as _, shared, None, counter, Settings::default());
    let mut world = World { store, app: keys.app, genuine: Cursor::parse("x").unwrap(), _folder: folder };
    for (name, n) in ["anna", "bert"].into_iter().flat_map(|name| (0..5).map(move |n| (name, n))) {
        let statement = StatementRequest {
            owner: NewOwner::Subject,
            kind: Kind::UserFact,
            text: Content::to_keep(&format!("{name} likes {n}"), 100).unwrap(),
            author: None,
            parts: Particulars::default(),
            conversation: None,
        };
        let request = world.request(name);
        wait(app.remember(&request, &[statement], None)).unwrap();
    }
    world.genuine = world.page(None).unwrap().next.unwrap();
    world
});

impl World {
    fn request(&self, name: &str) -> Request {
        let now = Timestamp::from_millis(START);
        let caller = wait(authenticate(&*self.store, &self.app, now)).unwrap();
        Request::new(caller, Some(name.parse().unwrap()), Purpose::default())
    }

    fn page(&self, after: Option<Cursor>) -> Result<Page, Error> {
        let request = self.request("anna");
        let query = ScanQuery {
            listing: Listing::Memories { kinds: KindSet::all(), conversation: None },
            after,
            limit: PageSize::new(2).unwrap(),
            interval: None,
            now: Timestamp::from_millis(START),
        };
        wait(async {
            let pass = authorize::<action::ReadMemory>(&*self.store, &request).await.unwrap();
            self.store.scan(&pass, &query).await
        })
    }
}

/// A cursor is refused or leads into the listing of the person who asks, and its own cursor goes on. Texts that
/// begin with `+` stand for what follows the binding of a genuine cursor.
pub(crate) fn cursor(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let world = &*WORLD;
    let (binding, _) = world.genuine.as_str().split_once('.').unwrap();
    let text = match text.strip_prefix('+') {
        Some(rest) => format!("{binding}.{rest}"),
        None => text.to_owned(),
    };
    let Ok(mut cursor) = Cursor::parse(&text) else { return };
    for _ in 0..4 {
        let page = match world.page(Some(cursor)) {
            Ok(page) => page,
            Err(error) => return assert!(matches!(error, Error::Cursor), "{error}"),
        };
        assert!(page.records.len() <= 2);
        for listed in &page.records {
            let Listed::Memory(memory) = listed else { panic!("not a memory") };
            assert!(memory.statement.text().expose().starts_with("anna"), "a record of somebody else");
        }
        match page.next {
            Some(next) => cursor = next,
            None => return,
        }
    }
    panic!("five memories have more than four further pages of two");
}
