//! Which action stands behind which address. The authorisation itself happens in the use cases; this table
//! tells a denial from an unknown id in the signals, and the coverage test compares it with the document
//! of the API, so that no address can be added without cases for it.

use axum::http::Method;
use merkwelt_authz::ActionName as A;

/// Method, address template, and the actions of which a caller needs at least one.
pub const ROUTES: &[(&str, &str, &[A])] = &[
    ("POST", "/v1/memories", &[A::Remember, A::RememberShared]),
    ("GET", "/v1/memories", &[A::ReadMemory]),
    ("POST", "/v1/memories/batch", &[A::Remember, A::RememberShared]),
    ("GET", "/v1/memories/{id}", &[A::ReadMemory]),
    ("PUT", "/v1/memories/{id}", &[A::Correct]),
    ("DELETE", "/v1/memories/{id}", &[A::Retract]),
    ("POST", "/v1/recall", &[A::Recall]),
    ("POST", "/v1/context", &[A::Assemble]),
    ("GET", "/v1/packs/{id}", &[A::ReadPack]),
    ("POST", "/v1/conversations", &[A::OpenConversation]),
    ("GET", "/v1/conversations", &[A::ReadConversation]),
    ("GET", "/v1/conversations/{id}", &[A::ReadConversation]),
    ("DELETE", "/v1/conversations/{id}", &[A::DeleteConversation]),
    ("POST", "/v1/conversations/{id}/turns", &[A::AppendTurn]),
    ("POST", "/v1/conversations/{id}/summary", &[A::AppendTurn]),
    ("GET", "/v1/conversations/{id}/handover", &[A::HandOver]),
    ("GET", "/v1/organisation-switch", &[A::ReadSwitch]),
    ("PUT", "/v1/organisation-switch", &[A::ManageDirectory]),
    ("GET", "/v1/groups", &[A::ReadDirectory]),
    ("POST", "/v1/groups", &[A::ManageDirectory]),
    ("DELETE", "/v1/groups/{name}", &[A::ManageDirectory]),
    ("GET", "/v1/groups/{name}/members", &[A::ReadDirectory]),
    ("POST", "/v1/groups/{name}/members", &[A::ManageDirectory]),
    ("GET", "/v1/keys", &[A::ManageKeys]),
    ("POST", "/v1/keys", &[A::ManageKeys]),
    ("DELETE", "/v1/keys/{id}", &[A::ManageKeys]),
    ("GET", "/v1/tenants", &[A::ManageTenants]),
    ("POST", "/v1/tenants", &[A::ManageTenants]),
    ("POST", "/v1/sources", &[A::ManageSources]),
    ("GET", "/v1/sources", &[A::ReadSources]),
    ("GET", "/v1/sources/{id}", &[A::ReadSources]),
    ("DELETE", "/v1/sources/{id}", &[A::ManageSources]),
    ("PUT", "/v1/sources/{id}/revisions", &[A::ManageSources]),
    ("GET", "/v1/sources/{id}/revisions/{revision}", &[A::ReadSources]),
    ("DELETE", "/v1/sources/{id}/revisions/{revision}", &[A::ManageSources]),
    ("POST", "/v1/sources/{id}/publish", &[A::ManageSources]),
    ("POST", "/v1/sources/{id}/restore", &[A::ManageSources]),
    ("PUT", "/v1/sources/{id}/audience", &[A::ManageSources]),
    ("POST", "/v1/sources/{id}/withdraw", &[A::ManageSources]),
    ("GET", "/v1/citations/{id}", &[A::Cite]),
    ("POST", "/v1/answers", &[A::StoreAnswer]),
    ("POST", "/v1/answers/lookup", &[A::LookUpAnswer]),
    ("POST", "/v1/authorizations/check", &[A::CheckAuthorization]),
    ("GET", "/v1/ledger/checkpoint", &[A::ReadEvidence]),
    ("GET", "/v1/ledger/export", &[A::ReadEvidence]),
    ("GET", "/v1/ledger/entries/{index}/proof", &[A::ReadEvidence]),
];

/// Addresses that need no key: they tell nothing about a tenant.
pub const PUBLIC: &[&str] = &["/healthz", "/readyz", "/metrics", "/openapi.json"];

/// The actions behind an address; none for one that needs no key.
#[must_use]
pub fn actions(method: &Method, route: &str) -> &'static [A] {
    // The router answers HEAD with the same use case as GET.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let found = ROUTES.iter().find(|(m, r, _)| *m == method && *r == route);
    found.map_or(&[], |(_, _, actions)| actions)
}
