//! The check that an executing backend asks for at the moment of execution: whether this subject may see
//! a thing now, by present permissions and present state. Every check is in the ledger.

use merkwelt_authz::{Request, action};
use merkwelt_domain::{ConversationId, MemoryId, ReadId, SourceId};
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::query::Key;

use crate::App;
use crate::error::{Error, until_settled};
use crate::memory::records;
use crate::recall::encode;
use crate::record::{Reading, RunContext};
use crate::release::Released;
use crate::view::AuthorizationView;

/// What is asked about.
#[derive(Debug, Clone)]
pub enum Resource {
    /// A memory.
    Memory(MemoryId),
    /// A source.
    Source(SourceId),
    /// A conversation.
    Conversation(ConversationId),
}

impl App {
    /// Whether the subject may see the resource now. Unknown, foreign and ended are all "no".
    ///
    /// # Errors
    /// [`Error`].
    pub async fn check_authorization(
        &self,
        request: &Request,
        resource: &Resource,
        run: &RunContext,
    ) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::CheckAuthorization>(request).await?;
            let now = self.env.now();
            let (key, id) = match resource {
                Resource::Memory(id) => (Key::Memory(id.clone()), id.as_str()),
                Resource::Source(id) => (Key::Source(id.clone()), id.as_str()),
                Resource::Conversation(id) => (Key::Conversation(id.clone()), id.as_str()),
            };
            let found = self.backend.fetch(&allowed, &[key], now).await?.pop().flatten();
            let read_id = ReadId::random(&*self.env);
            let answer = AuthorizationView {
                read_id: read_id.to_string(),
                as_of: now.to_string(),
                allowed: found.is_some(),
                grant_epoch: allowed.epoch().number(),
            };
            let reading = Reading {
                id: read_id,
                kind: ReadKind::Tool,
                run,
                index: records(),
                top_k: 0,
                request: id.as_bytes(),
                tokens: 0,
                content_kept: "none",
                knowledge: None,
            };
            self.release(&allowed, reading, &[], encode(&answer)?, None).await
        })
    }
}
