//! A data directory for tests: a clock that stands, faults where a test wants them, a tenant with a key per
//! role, and short words for what callers do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park};

use merkwelt_authz::{
    Action, ApiKey, Credential, Pass, Refusal, Request, Role, action, authenticate, authorize,
};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::env::{Env, FaultPoint, Injected};
use merkwelt_domain::memory::{Author, Kind, Lifetimes, Metadata, Particulars, Statement};
use merkwelt_domain::{Content, ConversationId, MemoryId, Purpose, SubjectId, TenantId, Timestamp};
use merkwelt_ledger::commitment::OpeningKey;
use merkwelt_store::change::{Batch, NewMemory, NewOwner, NewTurn, Outcome, Receipt, Write};
use merkwelt_store::query::{Fusion, KindSet, ModelId, RecallQuery, TopK, Turns, Vector};
use merkwelt_store::record::{Recalled, Record};
use merkwelt_store::{Error, EvidenceLog, Founding, NewKey, Store, Tenant};
use merkwelt_store_sqlite::{MasterKey, OpenError, Options, Sqlite, Threads};

/// 2026-03-02T08:00:00Z.
pub(super) const START: i64 = 1_772_438_400_000;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future without a runtime.
pub(super) fn on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => park(),
        }
    }
}

/// A fixed environment that fails where it is told.
pub(super) struct TestEnv {
    pub(super) fixed: FixedEnv,
    /// One more than the position in `FaultPoint::ALL`; zero is nowhere.
    fault: AtomicUsize,
}

impl TestEnv {
    pub(super) fn new() -> Arc<Self> {
        Self::seeded(1)
    }

    fn seeded(seed: u64) -> Arc<Self> {
        Arc::new(Self { fixed: FixedEnv::seeded(START, seed), fault: AtomicUsize::new(0) })
    }

    pub(super) fn fail_at(&self, point: Option<FaultPoint>) {
        let place = point.map_or(0, |point| FaultPoint::ALL.iter().position(|p| *p == point).unwrap() + 1);
        self.fault.store(place, Ordering::SeqCst);
    }
}

impl Env for TestEnv {
    fn now(&self) -> Timestamp {
        self.fixed.now()
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.fixed.fill(bytes);
    }

    fn reach(&self, point: FaultPoint) -> Result<(), Injected> {
        let place = self.fault.load(Ordering::SeqCst);
        if place > 0 && FaultPoint::ALL[place - 1] == point { Err(Injected) } else { Ok(()) }
    }
}

/// A folder that is removed when the test ends.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("merkwelt-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) struct Keys {
    pub(super) admin: ApiKey,
    pub(super) app: ApiKey,
    pub(super) officer: ApiKey,
    pub(super) auditor: ApiKey,
    pub(super) tenant_admin: ApiKey,
    pub(super) tenant: TenantId,
}

pub(super) fn founding(env: &dyn Env) -> (Founding, Keys) {
    let key = || ApiKey::random(env);
    let (system, tenant) = (TenantId::random(env), TenantId::random(env));
    let keys = Keys {
        admin: key(),
        app: key(),
        officer: key(),
        auditor: key(),
        tenant_admin: key(),
        tenant: tenant.clone(),
    };
    let at = Timestamp::from_millis(START);
    let founding = Founding {
        admin: new_key(&keys.admin, &system, Role::InstanceAdmin),
        keys: vec![
            new_key(&keys.app, &tenant, Role::App),
            new_key(&keys.officer, &tenant, Role::PrivacyOfficer),
            new_key(&keys.auditor, &tenant, Role::Auditor),
            new_key(&keys.tenant_admin, &tenant, Role::TenantAdmin),
        ],
        system,
        tenant: Tenant { id: tenant, name: "first".parse().unwrap(), created_at: at },
        at,
    };
    (founding, keys)
}

pub(super) fn new_key(key: &ApiKey, tenant: &TenantId, role: Role) -> NewKey {
    let credential = Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role,
        subject: None,
        act_for: matches!(role, Role::App | Role::PrivacyOfficer),
        expires_at: None,
        revoked_at: None,
    };
    NewKey { credential, subject: None, label: "test".parse().unwrap() }
}

pub(super) fn master() -> MasterKey {
    MasterKey::from_bytes([7; 32])
}

pub(super) fn options() -> Options {
    Options { threads: Threads::Pool(3.try_into().unwrap()), ..Options::default() }
}

pub(super) struct World {
    pub(super) env: Arc<TestEnv>,
    pub(super) keys: Keys,
    pub(super) options: Options,
    store: Option<Sqlite>,
    pub(super) folder: Folder,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(options())
    }

    /// An instance with other ids and keys than those of [`World::new`].
    pub(super) fn other() -> Self {
        Self::over(TestEnv::seeded(2), options())
    }

    pub(super) fn with(options: Options) -> Self {
        Self::over(TestEnv::new(), options)
    }

    fn over(env: Arc<TestEnv>, options: Options) -> Self {
        let folder = Folder::new();
        let (founding, keys) = founding(env.as_ref());
        let store = Sqlite::create(&folder.0, &master(), founding, env.clone(), options.clone()).unwrap();
        Self { env, keys, options, store: Some(store), folder }
    }

    pub(super) fn store(&self) -> &Sqlite {
        self.store.as_ref().unwrap()
    }

    pub(super) fn root(&self) -> &Path {
        &self.folder.0
    }

    pub(super) fn cell(&self) -> PathBuf {
        self.root().join("tenants").join(self.keys.tenant.as_str())
    }

    pub(super) fn close(&mut self) {
        self.store = None;
    }

    pub(super) fn reopen(&mut self) -> Result<(), OpenError> {
        self.close();
        self.store = Some(Sqlite::open(&self.folder.0, &master(), self.env.clone(), self.options.clone())?);
        Ok(())
    }

    pub(super) fn request(&self, key: &ApiKey, who: Option<&str>) -> Request {
        let caller = on(authenticate(self.store(), key, self.env.now())).unwrap();
        Request::new(caller, who.map(|who| who.parse().unwrap()), Purpose::default())
    }

    pub(super) fn act<A: Action, T>(
        &self,
        key: &ApiKey,
        who: Option<&str>,
        act: impl FnOnce(&Pass<'_, A::Class>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let request = self.request(key, who);
        match on(authorize::<A>(self.store(), &request)) {
            Ok(pass) => act(&pass),
            Err(Refusal::Denied(_)) => Err(Error::NotFound),
            Err(Refusal::Unavailable(_)) => Err(Error::Unavailable),
        }
    }

    pub(super) fn id(&self, who: &str) -> SubjectId {
        self.act::<action::Recall, _>(&self.keys.app, Some(who), |pass| {
            Ok(pass.scope().subject().unwrap().clone())
        })
        .unwrap()
    }

    pub(super) fn commit(&self, who: &str, writes: Vec<Write>) -> Result<Receipt, Error> {
        let at = self.env.now();
        self.act::<action::Correct, _>(&self.keys.app, Some(who), |pass| {
            on(self.store().commit(Batch::writes(pass, writes, None, at)))
        })
    }

    pub(super) fn new_memory(&self, note: Note<'_>) -> NewMemory {
        let now = self.env.now();
        let parts = Particulars {
            slot: note.slot.map(|slot| slot.parse().unwrap()),
            metadata: Metadata::new(note.metadata.as_object().cloned().unwrap_or_default()).unwrap(),
            ..Particulars::default()
        };
        let text = Content::to_keep(note.text, Content::STATEMENT_MAX_BYTES).unwrap();
        let statement =
            Statement::new(note.kind, text, Author::Person, parts, &Lifetimes::default(), now).unwrap();
        NewMemory {
            id: MemoryId::random(self.env.as_ref()),
            owner: note.owner,
            statement,
            at: now,
            conversation: note.conversation,
            tokens: 4,
            vector: note.vector.map(|values| Vector { model: model(values.len()), values }),
            opening: self.opening(),
        }
    }

    pub(super) fn opening(&self) -> OpeningKey {
        let mut bytes = [0; 32];
        self.env.fill(&mut bytes);
        OpeningKey::from_bytes(bytes)
    }

    pub(super) fn remember(&self, who: &str, note: Note<'_>) -> Result<Outcome, Error> {
        let receipt = self.commit(who, vec![Write::Remember(self.new_memory(note))])?;
        Ok(receipt.outcomes[0].clone())
    }

    pub(super) fn open_conversation(&self, who: &str) -> ConversationId {
        let id = ConversationId::random(self.env.as_ref());
        let owner = self.id(who);
        let opened_at = self.env.now();
        let retention = Retention::KeptDays(30);
        let conversation = Conversation { id: id.clone(), owner, retention, opened_at };
        let _ = self.commit(who, vec![Write::Open(conversation)]).unwrap();
        id
    }

    pub(super) fn new_turn(
        &self,
        conversation: &ConversationId,
        text: &str,
        vector: Option<Vec<f32>>,
    ) -> NewTurn {
        let now = self.env.now();
        let turn = Turn {
            conversation: conversation.clone(),
            number: 0,
            speaker: Speaker::Person,
            text: Content::to_keep(text, Content::TURN_MAX_BYTES).unwrap(),
            at: now,
            tokens: 5,
            expires_at: now.plus_days(30),
            rests_on: RestsOn::default(),
            summary: None,
        };
        let vector = vector.map(|values| Vector { model: model(values.len()), values });
        NewTurn { turn, vector, opening: self.opening() }
    }

    pub(super) fn say(&self, who: &str, conversation: &ConversationId, text: &str) -> Result<Receipt, Error> {
        self.commit(who, vec![Write::Append(self.new_turn(conversation, text, None))])
    }

    pub(super) fn recall(&self, who: &str, query: &RecallQuery) -> Result<Recalled, Error> {
        self.act::<action::Recall, _>(&self.keys.app, Some(who), |pass| on(self.store().recall(pass, query)))
    }

    pub(super) fn texts(&self, who: &str, question: &str) -> Vec<String> {
        let recalled = self.recall(who, &self.ask(question, None)).unwrap();
        recalled.candidates.iter().map(|candidate| text_of(&candidate.record)).collect()
    }

    pub(super) fn ask(&self, question: &str, vector: Option<Vec<f32>>) -> RecallQuery {
        let fusion = Fusion { floor: 0.0, span: 1.0 };
        RecallQuery {
            question: Content::question(question, 1000).unwrap(),
            vector: vector.map(|values| (Vector { model: model(values.len()), values }, fusion)),
            k: TopK::new(10).unwrap(),
            kinds: KindSet::all(),
            turns: Turns::All,
            documents: false,
            conversation: None,
            metadata: Vec::new(),
            interval: None,
            now: self.env.now(),
        }
    }

    pub(super) fn entries(&self) -> Vec<Vec<u8>> {
        self.act::<action::ReadEvidence, _>(&self.keys.auditor, None, |pass| {
            on(self.store().entries(pass, 0, u32::MAX))
        })
        .unwrap()
    }
}

pub(super) fn model(dimension: usize) -> ModelId {
    ModelId::new("test", "1", dimension)
}

pub(super) fn text_of(record: &Record) -> String {
    match record {
        Record::Memory(memory) => memory.statement.text().expose().to_owned(),
        Record::Passage(passage) => passage.text.expose().to_owned(),
        Record::Turn(turn) => turn.text.expose().to_owned(),
    }
}

/// A statement in the making.
pub(super) struct Note<'n> {
    pub(super) text: &'n str,
    pub(super) kind: Kind,
    pub(super) owner: NewOwner,
    pub(super) slot: Option<&'n str>,
    pub(super) metadata: serde_json::Value,
    pub(super) conversation: Option<ConversationId>,
    pub(super) vector: Option<Vec<f32>>,
}

pub(super) fn note(text: &str) -> Note<'_> {
    Note {
        text,
        kind: Kind::UserFact,
        owner: NewOwner::Subject,
        slot: None,
        metadata: serde_json::Value::Null,
        conversation: None,
        vector: None,
    }
}

/// Every file below a folder with its bytes.
pub(super) fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found
}

/// The files that contain one of the needles, each of at least four bytes, and which one.
pub(super) fn holding(root: &Path, needles: &[Vec<u8>]) -> Vec<String> {
    let mut by_start: BTreeMap<[u8; 4], Vec<&Vec<u8>>> = BTreeMap::new();
    for needle in needles {
        by_start.entry(needle[..4].try_into().unwrap()).or_default().push(needle);
    }
    let mut holding = BTreeSet::new();
    for (path, bytes) in files(root) {
        for (at, start) in bytes.array_windows::<4>().enumerate() {
            for needle in by_start.get(start).into_iter().flatten() {
                if bytes[at..].starts_with(needle) {
                    holding.insert(format!("{} holds {:?}", path.display(), String::from_utf8_lossy(needle)));
                }
            }
        }
    }
    holding.into_iter().collect()
}
