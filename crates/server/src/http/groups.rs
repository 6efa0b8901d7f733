//! Groups and their members. A reference to a person stands only in bodies, never in an address, because
//! addresses end up in logs of proxies.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use merkwelt_app::GroupRequest;
use merkwelt_domain::{GroupName, SubjectRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Face;
use super::body::{Id, Json, NoBody, not_repeatable};
use super::caller::Asker;
use super::problem::{FieldError, Problem};
use super::words::{at_most, field};

/// The most members that one request adds or removes.
const MEMBERS_MAX: usize = 100;

/// A group to create.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupBody {
    /// Its name: lower-case letters, digits, `.`, `_`, `-`.
    #[schema(max_length = 64, example = "support-de")]
    pub name: String,
}

/// A change of members. Adding a member twice or removing none is no error.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MembersBody {
    /// Subjects to add, as the customer refers to them; at most 100.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub add: Vec<String>,
    /// Subjects to remove; at most 100.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub remove: Vec<String>,
}

/// A group.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct GroupView {
    /// Its id, as answers name it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// How many members it has.
    pub members: u64,
}

/// A group that was created.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct CreatedGroupView {
    /// Its name.
    pub name: String,
}

/// All groups.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct GroupsView {
    /// By name.
    pub groups: Vec<GroupView>,
}

/// The members of a group.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct MembersView {
    /// As the customer refers to them.
    pub members: Vec<String>,
}

/// How many changes were made.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ChangedView {
    /// Members that were to be added.
    pub added: usize,
    /// Members that were to be removed.
    pub removed: usize,
}

impl MembersBody {
    fn parse(&self, group: &GroupName) -> Result<Vec<GroupRequest>, FieldError> {
        at_most("add", &self.add, MEMBERS_MAX)?;
        at_most("remove", &self.remove, MEMBERS_MAX)?;
        let add = |subject| GroupRequest::Add(group.clone(), subject);
        let remove = |subject| GroupRequest::Remove(group.clone(), subject);
        let added = subjects("add", &self.add)?.into_iter().map(add);
        let removed = subjects("remove", &self.remove)?.into_iter().map(remove);
        let changes: Vec<_> = added.chain(removed).collect();
        if changes.is_empty() {
            Err(FieldError::new("add", "name a subject to add or to remove"))
        } else {
            Ok(changes)
        }
    }
}

fn subjects(name: &str, texts: &[String]) -> Result<Vec<SubjectRef>, FieldError> {
    texts.iter().enumerate().map(|(i, text)| field(&format!("{name}[{i}]"), text)).collect()
}

/// List groups
#[utoipa::path(
    get, path = "/v1/groups", operation_id = "list_groups", tag = "directory",
    responses((status = 200, description = "All groups.", body = GroupsView))
)]
pub(super) async fn list(State(face): State<Face>, asker: Asker) -> Result<Answer<GroupsView>, Problem> {
    let groups = face.app.list_groups(&asker.request).await?;
    let view = |group: merkwelt_store::Group| GroupView {
        id: group.id.to_string(),
        name: group.name.as_str().to_owned(),
        members: group.members,
    };
    Ok(Answer(GroupsView { groups: groups.into_iter().map(view).collect() }))
}

/// Create a group
#[utoipa::path(
    post, path = "/v1/groups", operation_id = "create_group", tag = "directory", request_body = GroupBody,
    responses((status = 201, description = "It exists and has no members.", body = CreatedGroupView))
)]
pub(super) async fn create(
    State(face): State<Face>,
    asker: Asker,
    body: Json<GroupBody>,
) -> Result<(StatusCode, Answer<CreatedGroupView>), Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    let name: GroupName = field("name", &body.value.name)?;
    let view = CreatedGroupView { name: name.as_str().to_owned() };
    face.app.change_directory(&asker.request, &GroupRequest::Create(name)).await?;
    Ok((StatusCode::CREATED, Answer(view)))
}

/// Delete a group
///
/// What it owns is visible to nobody any more.
#[utoipa::path(
    delete, path = "/v1/groups/{name}", operation_id = "delete_group", tag = "directory",
    params(("name" = String, Path, description = "The group's name.")),
    responses((status = 204, description = "It is gone."))
)]
pub(super) async fn delete(
    State(face): State<Face>,
    asker: Asker,
    Id(name): Id<GroupName>,
    body: NoBody,
) -> Result<StatusCode, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    face.app.change_directory(&asker.request, &GroupRequest::Delete(name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the members of a group
#[utoipa::path(
    get, path = "/v1/groups/{name}/members", operation_id = "list_members", tag = "directory",
    params(("name" = String, Path, description = "The group's name.")),
    responses((status = 200, description = "Its members.", body = MembersView))
)]
pub(super) async fn members(
    State(face): State<Face>,
    asker: Asker,
    Id(name): Id<GroupName>,
) -> Result<Answer<MembersView>, Problem> {
    let members = face.app.list_members(&asker.request, &name).await?;
    Ok(Answer(MembersView { members: members.iter().map(|m| m.expose().to_owned()).collect() }))
}

/// Change the members of a group
///
/// It takes effect on the next read. The changes are made one after the other, first additions, then
/// removals; after a failure the request can be repeated.
#[utoipa::path(
    post, path = "/v1/groups/{name}/members", operation_id = "change_members", tag = "directory",
    params(("name" = String, Path, description = "The group's name.")), request_body = MembersBody,
    responses((status = 200, description = "All changes are in force.", body = ChangedView))
)]
pub(super) async fn change_members(
    State(face): State<Face>,
    asker: Asker,
    Id(name): Id<GroupName>,
    body: Json<MembersBody>,
) -> Result<Answer<ChangedView>, Problem> {
    not_repeatable(body.idempotent.as_ref())?;
    for change in body.value.parse(&name)? {
        face.app.change_directory(&asker.request, &change).await?;
    }
    let view = ChangedView { added: body.value.add.len(), removed: body.value.remove.len() };
    Ok(Answer(view))
}
