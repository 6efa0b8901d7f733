//! Tenants of the instance.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use merkwelt_app::TenantRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Face;
use super::body::{Json, not_repeatable};
use super::caller::Asker;
use super::problem::Problem;
use super::words::field;

/// A tenant to create.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantBody {
    /// Its name: lower-case letters, digits, `.`, `_`, `-`.
    #[schema(max_length = 64, example = "acme")]
    pub name: String,
}

/// A new tenant with its first key, a tenant admin. This is the only time that the key is shown.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct NewTenantView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// RFC 3339.
    pub created_at: String,
    /// The whole key of its first admin; it cannot be shown again.
    pub key: String,
}

impl std::fmt::Debug for NewTenantView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewTenantView({})", self.id)
    }
}

/// A tenant.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TenantView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// RFC 3339.
    pub created_at: String,
}

/// All tenants but the instance's own.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct TenantsView {
    /// By name.
    pub tenants: Vec<TenantView>,
}

/// List tenants
#[utoipa::path(
    get, path = "/v1/tenants", operation_id = "list_tenants", tag = "tenants",
    responses((status = 200, description = "All tenants.", body = TenantsView))
)]
pub(super) async fn list(State(face): State<Face>, asker: Asker) -> Result<Answer<TenantsView>, Problem> {
    let tenants = face.app.list_tenants(&asker.request).await?;
    let view = |tenant: merkwelt_store::Tenant| TenantView {
        id: tenant.id.to_string(),
        name: tenant.name.as_str().to_owned(),
        created_at: tenant.created_at.to_string(),
    };
    Ok(Answer(TenantsView { tenants: tenants.into_iter().map(view).collect() }))
}

/// Create a tenant
///
/// The answer shows the key of its first admin this once.
#[utoipa::path(
    post, path = "/v1/tenants", operation_id = "create_tenant", tag = "tenants", request_body = TenantBody,
    responses((status = 201, description = "It exists.", body = NewTenantView))
)]
pub(super) async fn create(
    State(face): State<Face>,
    asker: Asker,
    body: Json<TenantBody>,
) -> Result<(StatusCode, Answer<NewTenantView>), Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let wanted = TenantRequest { name: field("name", &body.value.name)? };
    let (tenant, key) = face.app.create_tenant(&asker.request, &wanted).await?;
    let view = NewTenantView {
        id: tenant.id.to_string(),
        name: tenant.name.as_str().to_owned(),
        created_at: tenant.created_at.to_string(),
        key: key.reveal(),
    };
    Ok((StatusCode::CREATED, Answer(view)))
}
