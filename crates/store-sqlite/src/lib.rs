//! The embedded store: one SQLite file per tenant, everything a person wrote encrypted under that person's
//! key, and search in memory. See DESIGN section 4 for why; the boundary is `merkwelt_store::Store`.
//!
//! ```text
//! data/control.db              tenants, wrapped tenant keys and ledger seeds, API keys
//! data/lock                    held by the one process that has it open
//! data/founding                there until the first start has shown the keys; what lies beside it counts for nothing
//! data/tenants/<id>/cell.db    content, directory, evidence of one tenant
//! data/tenants/<id>/keys.db    one wrapped key per owner
//! ```
//!
//! Nothing here asks for a clock, random bytes or a runtime: they come as `Env`, and blocking work runs on a
//! pool of its own.

mod cell;
mod change;
mod coming;
mod control;
mod crypt;
mod directory;
mod erase;
mod error;
mod examine;
mod fill;
mod instance;
mod keyring;
mod layout;
mod library;
mod log;
mod pool;
mod ports;
mod present;
mod read;
mod readers;
mod recall;
mod reembed;
mod rows;
mod schema;
mod shard;
mod snapshot;
mod terms;
mod wal;
mod witness;
mod writer;
mod writes;

pub use coming::Gathered;
pub use crypt::MasterKey;
pub use error::{Ailing, OpenError};
pub use examine::Examined;
pub use fill::{EmbedTexts, FillPlace, FillStep, Filled};
pub use instance::{Options, Sqlite, Usage};
pub use layout::{exists, is_half_made};
pub use pool::Threads;
pub use reembed::{Begun, EmbedOrStop, Reembedded};
