//! Why a file of a folder is not published. Each reason is a sentence for the person who keeps the folder, and
//! has a name for logs and metrics, because the sentence may repeat words of the file's rights.

/// Why a file was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The name cannot be written down as text.
    #[error("the name is not UTF-8; rename the file")]
    NotUtf8,
    /// The name could not stand in a citation.
    #[error("the name holds control or invisible characters; rename the file")]
    NameUnfit,
    /// The path is too long.
    #[error("the path is longer than {0} bytes; shorten it")]
    NameTooLong(usize),
    /// Two names differ in case or spelling of characters only.
    #[error("another name in this folder differs in upper and lower case only; rename one of them")]
    Ambiguous,
    /// Too many folders in each other.
    #[error("folders are nested deeper than {0}; move it up")]
    TooDeep(usize),
    /// A symbolic link.
    #[error("it is a symbolic link; links are not followed, put the file itself here")]
    Link,
    /// A pipe, socket or device.
    #[error("it is a {0}, not a file; it is not opened")]
    Special(&'static str),
    /// More bytes than a document may have.
    #[error("it has more than {0} MiB; divide it, or raise the limit")]
    TooLarge(u64),
    /// The system does not let us read it.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::ErrorKind),
    /// The folder has too many entries; this one was not looked at.
    #[error("the folder has more than {0} entries; divide it, or raise the limit")]
    TooMany(usize),
    /// It is being written.
    #[error("it was changed while it was read; it is looked at again later")]
    Changing,
    /// Nothing says who may read it.
    #[error("nothing says who may read it; put an .acl file beside it or name groups")]
    NoRights,
    /// What says who may read it is not in order.
    #[error("{0}")]
    BadRights(String),
    /// A group that does not exist.
    #[error("a group that may read it does not exist{0}")]
    UnknownGroup(String),
    /// The document itself cannot be read.
    #[error("{0}")]
    Document(#[from] crate::intake::Unread),
    /// It was taken back or deleted by somebody else.
    #[error("{0}")]
    TakenBack(&'static str),
    /// The service refused it.
    #[error("{0}")]
    Service(String),
}

impl Refusal {
    /// A stable name for machines.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotUtf8 | Self::NameUnfit | Self::NameTooLong(_) | Self::TooDeep(_) => "name",
            Self::TooMany(_) => "too_many",
            Self::Ambiguous => "ambiguous",
            Self::Link => "link",
            Self::Special(_) => "special",
            Self::TooLarge(_) => "too_large",
            Self::Unreadable(_) => "unreadable",
            Self::Changing => "changing",
            Self::NoRights | Self::BadRights(_) => "rights",
            Self::UnknownGroup(_) => "unknown_group",
            Self::Document(unread) => unread.code(),
            Self::TakenBack(_) => "taken_back",
            Self::Service(_) => "service",
        }
    }

    /// Whether it says something about the file as it is now. What could only not be looked at says nothing,
    /// so what is known of it stands.
    pub(crate) fn is_about_the_file(&self) -> bool {
        match self {
            Self::Unreadable(_)
            | Self::TooMany(_)
            | Self::Changing
            | Self::TakenBack(_)
            | Self::Service(_) => false,
            Self::NotUtf8
            | Self::NameUnfit
            | Self::NameTooLong(_)
            | Self::Ambiguous
            | Self::TooDeep(_)
            | Self::Link
            | Self::Special(_)
            | Self::TooLarge(_)
            | Self::NoRights
            | Self::BadRights(_)
            | Self::UnknownGroup(_)
            | Self::Document(_) => true,
        }
    }
}
