//! Writing memories: remember, correct, retract. Validate, embed, commit with its evidence, acknowledge
//! (I-11). No language model is on this path.

use merkwelt_authz::{ActionName, Pass, Request, Role, Scope, action, class};
use merkwelt_domain::memory::{Author, Expiry, Kind, Particulars, Revision, Statement};
use merkwelt_domain::{Content, ConversationId, MemoryId, Purpose, Timestamp};
use merkwelt_store::change::{Batch, Idempotency, IdempotencyKey, NewMemory, NewOwner, Receipt, Write};
use merkwelt_store::query::{Key, Vector};
use merkwelt_store::record::Found;

use crate::App;
use crate::error::{Attempt, Error, until_settled};

/// A statement to keep, parsed.
#[derive(Debug, Clone)]
pub struct StatementRequest {
    /// Whose it is to be.
    pub owner: NewOwner,
    /// Its kind.
    pub kind: Kind,
    /// The words.
    pub text: Content,
    /// Who made it, as the caller says; an agent's key always writes as a model.
    pub author: Option<Author>,
    /// The optional parts.
    pub parts: Particulars,
    /// The conversation it came from.
    pub conversation: Option<ConversationId>,
}

/// A correction, parsed.
#[derive(Debug, Clone)]
pub struct CorrectRequest {
    /// Which memory.
    pub id: MemoryId,
    /// The revision the caller believes to be current.
    pub expected: Option<Revision>,
    /// The new state; its owner is ignored.
    pub statement: StatementRequest,
}

/// An idempotency key with the digest of the request it came with.
#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    /// The caller's key.
    pub key: IdempotencyKey,
    /// SHA-256 of method, path and body.
    pub digest: [u8; 32],
}

impl App {
    /// Keeps up to 500 statements, all or none.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Invalid`] names `memories[n]` by its number in the reason.
    pub async fn remember(
        &self,
        request: &Request,
        statements: &[StatementRequest],
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Receipt, Error> {
        until_settled!(self.try_remember(request, statements, idempotent))
    }

    async fn try_remember(
        &self,
        request: &Request,
        statements: &[StatementRequest],
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Receipt, Attempt> {
        let is_own = |s: &StatementRequest| s.owner == NewOwner::Subject;
        let now = self.env.now();
        if statements.iter().all(is_own) {
            let allowed = self.allow::<action::Remember>(request).await?;
            let writes = self.new_memories((request, allowed.scope()), statements, now).await?;
            return self.write(&allowed, writes, idempotent, now).await;
        }
        if statements.iter().any(is_own) {
            // Sharing does not include writing for a subject: a mixed batch needs both permissions.
            let _own = self.allow::<action::Remember>(request).await?;
        }
        let allowed = self.allow::<action::RememberShared>(request).await?;
        let writes = self.new_memories((request, allowed.scope()), statements, now).await?;
        self.write(&allowed, writes, idempotent, now).await
    }

    /// Replaces the current revision of a memory (L-07).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Conflict`] if another revision is current, [`Error::Invalid`].
    pub async fn correct(
        &self,
        request: &Request,
        correction: &CorrectRequest,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Receipt, Error> {
        until_settled!(async {
            let now = self.env.now();
            let allowed = self.allow::<action::Correct>(request).await?;
            let author = self.spare_rules(request, &correction.id, now).await?;
            let mut statement = correction.statement.clone();
            if author == Some(Author::Document) {
                // What came from a document stays under its policy, in whatever words it is corrected.
                statement.author = author;
            }
            let mut new = self.new_memory(request, &statement, now)?;
            if new.statement.valid_from() > now {
                return Err(Error::invalid("valid_from", FUTURE_VALUE).into());
            }
            new.vector = self.passage_vector(allowed.scope(), new.statement.text()).await;
            let write = Write::Correct { id: correction.id.clone(), expected: correction.expected, new };
            self.write(&allowed, vec![write], idempotent, now).await
        })
    }

    /// Withdraws a memory.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn retract(
        &self,
        request: &Request,
        id: &MemoryId,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Receipt, Error> {
        until_settled!(async {
            let now = self.env.now();
            let allowed = self.allow::<action::Retract>(request).await?;
            self.spare_rules(request, id, now).await?;
            let write = Write::Retract { id: id.clone(), at: now };
            self.write(&allowed, vec![write], idempotent, now).await
        })
    }

    /// Commits writes with their evidence.
    pub(crate) async fn write(
        &self,
        pass: &Pass<'_, class::Write>,
        writes: Vec<Write>,
        idempotent: Option<&IdempotentRequest>,
        now: Timestamp,
    ) -> Result<Receipt, Attempt> {
        let idempotency = idempotent.map(|i| Idempotency {
            key: i.key.clone(),
            request: i.digest,
            keep_until: now.plus_days(self.settings.idempotency_days),
        });
        Ok(self.backend.commit(Batch::writes(pass, writes, idempotency, now)).await?)
    }

    async fn new_memories(
        &self,
        (request, scope): (&Request, &Scope),
        statements: &[StatementRequest],
        now: Timestamp,
    ) -> Result<Vec<Write>, Attempt> {
        // Every statement is checked before the first is embedded.
        let made = statements.iter().map(|s| self.new_memory(request, s, now));
        let mut new = made.collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<&Content> = new.iter().map(|new| new.statement.text()).collect();
        let vectors: Vec<Option<Vector>> = self.passage_vectors(scope, &texts).await;
        for (new, vector) in new.iter_mut().zip(vectors) {
            new.vector = vector;
        }
        Ok(new.into_iter().map(Write::Remember).collect())
    }

    /// An agent works under rules and does not change them: one injected prompt would otherwise become a lasting
    /// instruction. Gives who made the memory, if the caller sees it.
    async fn spare_rules(
        &self,
        request: &Request,
        id: &MemoryId,
        now: Timestamp,
    ) -> Result<Option<Author>, Attempt> {
        if !request.caller().role().may(ActionName::ReadMemory) {
            return Ok(None);
        }
        let reader = self.allow::<action::ReadMemory>(request).await?;
        let found = self.backend.fetch(&reader, &[Key::Memory(id.clone())], now).await?.pop().flatten();
        match found {
            Some(Found::Memory(memory))
                if memory.statement.kind() == Kind::Feedback && request.caller().role() == Role::Agent =>
            {
                Err(Error::invalid("id", AGENT_RULES).into())
            }
            Some(Found::Memory(memory)) => Ok(Some(memory.statement.author())),
            Some(
                Found::Conversation(..)
                | Found::Turn(_)
                | Found::Pack(_)
                | Found::Passage(_)
                | Found::Source(_),
            )
            | None => Ok(None),
        }
    }

    /// The particulars of a statement from a document: kept for the policy's purpose, and no longer than it says
    ///
    fn document_parts(
        &self,
        purpose: &Purpose,
        parts: &Particulars,
        now: Timestamp,
    ) -> Result<Particulars, Attempt> {
        let policy = self.settings.document_memory.as_ref();
        let policy = policy.filter(|policy| policy.purpose == *purpose);
        let policy = policy.ok_or_else(|| Error::invalid("origin", NO_DOCUMENT_POLICY))?;
        let latest = now.plus_days(policy.keep_days);
        match parts.expiry {
            None => Ok(Particulars { expiry: Some(Expiry::At(latest)), ..parts.clone() }),
            Some(Expiry::At(end)) if end <= latest => Ok(parts.clone()),
            Some(Expiry::At(_) | Expiry::Never(_)) => {
                Err(Error::invalid("expires_at", DOCUMENT_TOO_LONG).into())
            }
        }
    }

    /// A statement, checked; its vector comes after.
    fn new_memory(
        &self,
        request: &Request,
        wanted: &StatementRequest,
        now: Timestamp,
    ) -> Result<NewMemory, Attempt> {
        let role = request.caller().role();
        if role == Role::Agent && wanted.kind == Kind::Feedback {
            return Err(Error::invalid("kind", AGENT_RULES).into());
        }
        let author = author(role, wanted.author);
        let parts = match author {
            Author::Document if wanted.kind == Kind::Feedback => {
                return Err(Error::invalid("kind", "a document states no rules for agents").into());
            }
            Author::Document => self.document_parts(request.purpose(), &wanted.parts, now)?,
            Author::Person | Author::Application | Author::Model | Author::Import => wanted.parts.clone(),
        };
        let statement =
            Statement::new(wanted.kind, wanted.text.clone(), author, parts, &self.settings.lifetimes, now)
                .map_err(|reason| Error::invalid("memory", reason))?;
        if statement.slot().is_some() && statement.valid_from() > now {
            return Err(Error::invalid("valid_from", FUTURE_VALUE).into());
        }
        Ok(NewMemory {
            id: MemoryId::random(&*self.env),
            owner: wanted.owner.clone(),
            at: now,
            conversation: wanted.conversation.clone(),
            tokens: self.counter.count(statement.text().expose()),
            vector: None,
            opening: self.opening_key(),
            statement,
        })
    }
}

/// Why a value for later is refused where it would take the place of a present one: until then there would be
/// none at all.
const FUTURE_VALUE: &str = "what takes the place of a present value must hold from now on";

/// Why an agent's key is refused.
const AGENT_RULES: &str = "an agent's key cannot state, change or withdraw rules";

/// Why nothing from a document is kept.
const NO_DOCUMENT_POLICY: &str = "what a document says becomes a memory only for the purpose and the time that \
    documents.memory_purpose and documents.memory_days of the configuration allow";
const DOCUMENT_TOO_LONG: &str = "is later than documents.memory_days of the configuration allows";

/// What an agent's key writes was written by a model, whatever the request says.
fn author(role: Role, stated: Option<Author>) -> Author {
    match role {
        Role::Agent if stated == Some(Author::Document) => Author::Document,
        Role::Agent => Author::Model,
        Role::InstanceAdmin | Role::TenantAdmin | Role::App | Role::PrivacyOfficer | Role::Auditor => {
            stated.unwrap_or(Author::Application)
        }
    }
}
