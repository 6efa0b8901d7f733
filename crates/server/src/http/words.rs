//! Closed lists of the domain as schemas, so that the document of the API cannot name other words than the
//! parsers accept; and the parsing of single fields, which names the field in every refusal.

use std::fmt::Display;
use std::str::FromStr;

use merkwelt_authz::Role;
use merkwelt_domain::conversation::Speaker;
use merkwelt_domain::memory::{Author, Kind, NoExpiryReason};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::time::Error as TimeError;
use merkwelt_domain::{Content, Interval, Timestamp};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use super::problem::FieldError;

fn one_of(words: impl IntoIterator<Item = &'static str>, description: &str) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words))
        .description(Some(description))
        .build()
}

/// The four kinds.
pub(super) fn kind() -> Object {
    let meaning = "`user_fact`: a lasting fact about the subject. `feedback`: a rule for the agent, always \
                   delivered. `project_state`: the state of something that moves on; needs `expires_at`. \
                   `reference`: where something is to be found; needs `pointer`.";
    one_of(Kind::ALL.map(Kind::name), meaning)
}

/// Who made a statement.
pub(super) fn origin() -> Object {
    let meaning = "Who made the statement. What the key of an agent writes is always `model`.";
    one_of(Author::ALL.map(Author::name), meaning)
}

/// Why something has no end.
pub(super) fn no_expiry_reason() -> Object {
    one_of(NoExpiryReason::ALL.map(NoExpiryReason::name), "Why it has no end; excludes `expires_at`.")
}

/// Who spoke.
pub(super) fn speaker() -> Object {
    let words = Speaker::ALL.map(Speaker::name).into_iter().chain(["user"]);
    one_of(words, "Who spoke; `user` is read as `person`.")
}

/// What goes along when a person changes the organisation.
pub(super) fn organisation_switch() -> Object {
    one_of(OrganisationSwitch::ALL.map(OrganisationSwitch::name), "What goes along.")
}

/// What a key is for.
pub(super) fn role() -> Object {
    one_of(Role::ALL.map(Role::name), "What the key is for.")
}

/// How `project_state` is treated.
pub(super) fn project_state() -> Object {
    let meaning = "Whether `project_state` is looked up: `auto` decides by the question.";
    one_of(["auto", "include", "exclude"], meaning)
}

/// Parses one field.
///
/// # Errors
/// [`FieldError`] with the field's name.
pub(super) fn field<T>(name: &str, text: &str) -> Result<T, FieldError>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse().map_err(|reason| FieldError::new(name, reason))
}

/// Parses one field that may be absent.
///
/// # Errors
/// [`FieldError`] with the field's name.
pub(super) fn optional<T>(name: &str, text: Option<&str>) -> Result<Option<T>, FieldError>
where
    T: FromStr,
    T::Err: Display,
{
    text.map(|text| field(name, text)).transpose()
}

/// Parses when something ends. Who means "never" by the last second there is, is told how that is said.
///
/// # Errors
/// [`FieldError`].
pub(super) fn end(text: &str) -> Result<Timestamp, FieldError> {
    let never = "; for what has no end, leave expires_at out and give no_expiry_reason";
    text.parse::<Timestamp>().map_err(|reason| {
        let hint = if reason == TimeError::OutOfRange { never } else { "" };
        FieldError::new("expires_at", format!("{reason}{hint}"))
    })
}

/// Parses the question of a search.
///
/// # Errors
/// [`FieldError`].
pub(super) fn question(text: &str) -> Result<Content, FieldError> {
    Content::question(text, Content::QUESTION_MAX_BYTES).map_err(|reason| FieldError::new("question", reason))
}

/// A span of time: only what holds at some time in it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct IntervalBody {
    /// The first time inside; RFC 3339.
    #[schema(format = DateTime)]
    pub from: String,
    /// The first time after; RFC 3339.
    #[schema(format = DateTime)]
    pub until: String,
}

impl IntervalBody {
    /// Parses the interval.
    ///
    /// # Errors
    /// [`FieldError`].
    pub(super) fn parse(&self) -> Result<Interval, FieldError> {
        let times = || -> Result<(Timestamp, Timestamp), FieldError> {
            Ok((field("from", &self.from)?, field("until", &self.until)?))
        };
        let (from, until) = times().map_err(|error| error.within("interval"))?;
        Interval::new(from, until).map_err(|reason| FieldError::new("interval", reason))
    }
}

/// Refuses a list that is too long.
///
/// # Errors
/// [`FieldError`].
pub(super) fn at_most<T>(name: &str, list: &[T], max: usize) -> Result<(), FieldError> {
    if list.len() <= max {
        Ok(())
    } else {
        Err(FieldError::new(name, format!("must have at most {max} entries")))
    }
}
