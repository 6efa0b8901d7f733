//! API keys of the caller's own tenant.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use merkwelt_app::KeyRequest;
use merkwelt_authz::{ApiKey, Credential};
use merkwelt_domain::{KeyId, Timestamp};
use merkwelt_store::KeyInfo;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Face;
use super::body::{Id, Json, NoBody, not_repeatable};
use super::caller::Asker;
use super::problem::{FieldError, Problem};
use super::words::{self, field, optional};

/// A key to create. It belongs to the caller's tenant; no other can be named.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyBody {
    /// A label for people: lower-case letters, digits, `.`, `_`, `-`.
    #[schema(max_length = 64, example = "chat-backend")]
    pub label: String,
    /// What it is for.
    #[schema(schema_with = words::role)]
    pub role: String,
    /// The only subject it may act for, as the customer refers to it.
    #[schema(max_length = 256)]
    pub subject: Option<String>,
    /// Whether it may act for subjects that requests name; no if absent.
    pub act_for: Option<bool>,
    /// When it ends; RFC 3339. Never if absent.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

impl std::fmt::Debug for KeyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyBody(..)")
    }
}

impl KeyBody {
    fn parse(&self) -> Result<KeyRequest, FieldError> {
        Ok(KeyRequest {
            label: field("label", &self.label)?,
            role: field("role", &self.role)?,
            subject: optional("subject", self.subject.as_deref())?,
            act_for: self.act_for.unwrap_or(false),
            expires_at: optional::<Timestamp>("expires_at", self.expires_at.as_deref())?,
        })
    }
}

/// A new key. This is the only time that it is shown.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct NewKeyView {
    /// Its public part.
    pub id: String,
    /// The whole key, to be kept by its holder; it cannot be shown again.
    pub key: String,
    /// Its label.
    pub label: String,
    /// What it is for.
    pub role: &'static str,
    /// Whether it acts for one subject only.
    pub bound: bool,
    /// Whether it may act for subjects that requests name.
    pub act_for: bool,
    /// When it ends; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

impl std::fmt::Debug for NewKeyView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewKeyView({})", self.id)
    }
}

impl NewKeyView {
    fn new(wanted: &KeyRequest, credential: &Credential, key: &ApiKey) -> Self {
        Self {
            id: credential.key.to_string(),
            key: key.reveal(),
            label: wanted.label.as_str().to_owned(),
            role: credential.role.name(),
            bound: wanted.subject.is_some(),
            act_for: credential.act_for,
            expires_at: credential.expires_at.map(|end| end.to_string()),
        }
    }
}

/// A key without its secret.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct KeyView {
    /// Its public part.
    pub id: String,
    /// Its label.
    pub label: String,
    /// What it is for.
    pub role: &'static str,
    /// The pseudonym of the only subject it may act for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whether it may act for subjects that requests name.
    pub act_for: bool,
    /// RFC 3339.
    pub created_at: String,
    /// When it ends; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

impl From<KeyInfo> for KeyView {
    fn from(info: KeyInfo) -> Self {
        let credential = info.credential;
        Self {
            id: credential.key.to_string(),
            label: info.label.as_str().to_owned(),
            role: credential.role.name(),
            subject: credential.subject.map(|subject| subject.to_string()),
            act_for: credential.act_for,
            created_at: info.created_at.to_string(),
            expires_at: credential.expires_at.map(|end| end.to_string()),
            revoked_at: credential.revoked_at.map(|end| end.to_string()),
        }
    }
}

/// The keys of the tenant.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct KeysView {
    /// Without their secrets.
    pub keys: Vec<KeyView>,
}

/// List keys
#[utoipa::path(
    get, path = "/v1/keys", operation_id = "list_keys", tag = "keys",
    responses((status = 200, description = "The keys of the caller's tenant.", body = KeysView))
)]
pub(super) async fn list(State(face): State<Face>, asker: Asker) -> Result<Answer<KeysView>, Problem> {
    let keys = face.app.list_keys(&asker.request).await?;
    Ok(Answer(KeysView { keys: keys.into_iter().map(Into::into).collect() }))
}

/// Create a key
///
/// The answer shows it this once.
#[utoipa::path(
    post, path = "/v1/keys", operation_id = "create_key", tag = "keys", request_body = KeyBody,
    responses((status = 201, description = "It is valid from now on.", body = NewKeyView))
)]
pub(super) async fn create(
    State(face): State<Face>,
    asker: Asker,
    body: Json<KeyBody>,
) -> Result<(StatusCode, Answer<NewKeyView>), Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let wanted = body.value.parse()?;
    let (credential, key) = face.app.create_key(&asker.request, &wanted).await?;
    Ok((StatusCode::CREATED, Answer(NewKeyView::new(&wanted, &credential, &key))))
}

/// Revoke a key
///
/// The last working key of a tenant's administrators, or of the instance's, is not revoked: create another first.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", operation_id = "revoke_key", tag = "keys",
    params(("id" = String, Path, description = "The key's public part.")),
    responses((status = 204, description = "It is refused from the next request on."))
)]
pub(super) async fn revoke(
    State(face): State<Face>,
    asker: Asker,
    Id(id): Id<KeyId>,
    body: NoBody,
) -> Result<StatusCode, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    face.app.revoke_key(&asker.request, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
