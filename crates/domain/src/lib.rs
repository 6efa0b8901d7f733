//! Vocabulary and rules of Merkwelt. This crate is pure: it knows no clock, socket, file, database or
//! runtime, and imports nothing else of the workspace. Everything that comes from outside is parsed
//! here once, into a type whose existence is the proof that it was checked.

pub mod basis;
pub mod budget;
pub mod conversation;
pub mod env;
pub mod epoch;
pub mod freshness;
pub mod ids;
pub mod memory;
pub mod routing;
pub mod source;
pub mod statement;
pub mod summary;
pub mod text;
pub mod time;

pub use env::{Env, FaultPoint};
pub use epoch::{ContentEpoch, GrantEpoch, KnowledgeEpoch, PrefixEpoch};
pub use ids::{
    ConversationId, GroupId, GroupName, KeyId, MemoryId, PackId, Purpose, ReadId, RevisionId, SourceId,
    SubjectId, SubjectRef, SummaryRule, TenantId, TenantName,
};
pub use text::Content;
pub use time::{Interval, Timestamp};
