//! Conversations and their turns. A conversation is recorded with owner and life cycle before its first
//! turn; its turns are kept only when the caller asked for it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::basis::RestsOn;
use crate::freshness::{Evidence, Standing, Validity};
use crate::ids::{ConversationId, SubjectId};
use crate::memory::Expiry;
use crate::summary::SummaryOf;
use crate::text::Content;
use crate::time::Timestamp;

/// Why a turn or a conversation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The role is none of the closed list. There is none for retrieved documents: they are never stored
    /// as messages.
    #[error("role must be one of person, assistant, tool")]
    Role,
    /// The retention is not between one day and ten years.
    #[error("keep_days must be between 1 and 3650")]
    KeepDays,
}

/// Who spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The subject.
    Person,
    /// The agent.
    Assistant,
    /// A tool, whose output is data and no message of the person.
    Tool,
}

impl Speaker {
    /// All speakers.
    pub const ALL: [Self; 3] = [Self::Person, Self::Assistant, Self::Tool];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl FromStr for Speaker {
    type Err = Error;

    /// Reads our names and `user`, the common name of the person's role in chat interfaces.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "user" {
            return Ok(Self::Person);
        }
        Self::ALL.into_iter().find(|speaker| speaker.name() == text).ok_or(Error::Role)
    }
}

/// How long the turns of a conversation live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retention {
    /// In memory only, for the present sitting; gone at a restart. The default.
    Session,
    /// On disk, because the caller asked for it, for this many days.
    KeptDays(u32),
}

impl Retention {
    /// Kept for 1 to 3,650 days.
    ///
    /// # Errors
    /// [`Error::KeepDays`].
    pub fn kept(days: u32) -> Result<Self, Error> {
        if (1..=3650).contains(&days) { Ok(Self::KeptDays(days)) } else { Err(Error::KeepDays) }
    }
}

/// A conversation as recorded before its first turn. The organisation is the cell it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// Whose conversation it is; nobody else reads it.
    pub owner: SubjectId,
    /// Its life cycle.
    pub retention: Retention,
    /// When it was opened.
    pub opened_at: Timestamp,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The conversation it belongs to.
    pub conversation: ConversationId,
    /// Its place, counted from one.
    pub number: u32,
    /// Who spoke.
    pub speaker: Speaker,
    /// What was said.
    pub text: Content,
    /// When.
    pub at: Timestamp,
    /// Tokens of its text, in the instance's tokeniser.
    pub tokens: u32,
    /// Until when it is kept.
    pub expires_at: Timestamp,
    /// The revisions its words came from, as the caller said.
    pub rests_on: RestsOn,
    /// Where it comes from, if it is a summary of the turns before it.
    pub summary: Option<SummaryOf>,
}

impl Evidence for Turn {
    fn validity(&self) -> Validity {
        Validity { from: self.at, expiry: Expiry::At(self.expires_at) }
    }

    fn standing(&self) -> Standing {
        Standing::Active
    }

    fn written_at(&self) -> Timestamp {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_015_there_is_no_role_for_retrieved_documents() {
        for bad in ["document", "retrieval", "system", "context", ""] {
            assert_eq!(bad.parse::<Speaker>(), Err(Error::Role), "{bad}");
        }
        assert_eq!("user".parse::<Speaker>(), Ok(Speaker::Person));
    }

    #[test]
    fn a_kept_conversation_has_an_end() {
        assert_eq!(Retention::kept(0), Err(Error::KeepDays));
        assert_eq!(Retention::kept(3651), Err(Error::KeepDays));
        assert_eq!(Retention::kept(30), Ok(Retention::KeptDays(30)));
    }
}
