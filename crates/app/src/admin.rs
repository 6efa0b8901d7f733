//! Tenants, keys and the directory.

use merkwelt_authz::{ApiKey, Credential, Request, Role, action};
use merkwelt_domain::{GroupId, GroupName, KeyId, SubjectRef, TenantId, TenantName, Timestamp};
use merkwelt_store::{DirectoryChange, Group, KeyInfo, NewKey, Tenant};

use crate::App;
use crate::error::{Error, until_settled};

/// A key to create, parsed.
#[derive(Debug, Clone)]
pub struct KeyRequest {
    /// A label for people.
    pub label: TenantName,
    /// What it is for.
    pub role: Role,
    /// The only subject it may act for.
    pub subject: Option<SubjectRef>,
    /// Whether it may act for subjects it names.
    pub act_for: bool,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// A tenant to create, parsed.
#[derive(Debug, Clone)]
pub struct TenantRequest {
    /// Its name.
    pub name: TenantName,
}

/// A change of groups or members, parsed. Subjects and groups are named as the customer names them.
#[derive(Debug, Clone)]
pub enum GroupRequest {
    /// Create a group.
    Create(GroupName),
    /// Delete a group.
    Delete(GroupName),
    /// Make a subject a member.
    Add(GroupName, SubjectRef),
    /// End a membership.
    Remove(GroupName, SubjectRef),
}

impl App {
    /// Creates a tenant and its first key, a tenant admin. The key is shown this once.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the name is taken.
    pub async fn create_tenant(
        &self,
        request: &Request,
        wanted: &TenantRequest,
    ) -> Result<(Tenant, ApiKey), Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageTenants>(request).await?;
            let now = self.env.now();
            let id = TenantId::random(&*self.env);
            let tenant = Tenant { id: id.clone(), name: wanted.name.clone(), created_at: now };
            let first = KeyRequest {
                label: wanted.name.clone(),
                role: Role::TenantAdmin,
                subject: None,
                act_for: false,
                expires_at: None,
            };
            let (key, new) = self.new_key(id, &first);
            self.backend.create_tenant(&allowed, tenant.clone(), new).await?;
            Ok((tenant, key))
        })
    }

    /// All tenants.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_tenants(&self, request: &Request) -> Result<Vec<Tenant>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageTenants>(request).await?;
            Ok(self.backend.tenants(&allowed).await?)
        })
    }

    /// Creates a key of the caller's tenant. It is shown this once.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a role that does not belong to the tenant.
    pub async fn create_key(
        &self,
        request: &Request,
        wanted: &KeyRequest,
    ) -> Result<(Credential, ApiKey), Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageKeys>(request).await?;
            check_key(request.caller().role(), wanted, self.env.now())?;
            let (key, new) = self.new_key(allowed.scope().tenant().clone(), wanted);
            let credential = new.credential.clone();
            self.backend.add_key(&allowed, new, self.env.now()).await?;
            Ok((credential, key))
        })
    }

    fn new_key(&self, tenant: TenantId, wanted: &KeyRequest) -> (ApiKey, NewKey) {
        let key = ApiKey::random(&*self.env);
        let credential = Credential {
            key: key.id().clone(),
            digest: key.digest(),
            tenant,
            role: wanted.role,
            subject: None,
            act_for: wanted.act_for,
            expires_at: wanted.expires_at,
            revoked_at: None,
        };
        let new = NewKey { credential, subject: wanted.subject.clone(), label: wanted.label.clone() };
        (key, new)
    }

    /// Revokes a key of the caller's tenant, from the next request on.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] for the last one with which keys are made.
    pub async fn revoke_key(&self, request: &Request, key: &KeyId) -> Result<(), Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageKeys>(request).await?;
            Ok(self.backend.revoke_key(&allowed, key, self.env.now()).await?)
        })
    }

    /// The keys of the caller's tenant, without their secrets.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_keys(&self, request: &Request) -> Result<Vec<KeyInfo>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageKeys>(request).await?;
            Ok(self.backend.keys(&allowed).await?)
        })
    }

    /// Changes groups or members; it takes effect on the next read.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown group, [`Error::Conflict`] for one that exists.
    pub async fn change_directory(&self, request: &Request, wanted: &GroupRequest) -> Result<(), Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageDirectory>(request).await?;
            let change = match wanted.clone() {
                GroupRequest::Create(name) => {
                    DirectoryChange::CreateGroup { id: GroupId::random(&*self.env), name }
                }
                GroupRequest::Delete(name) => DirectoryChange::DeleteGroup { name },
                GroupRequest::Add(group, subject) => DirectoryChange::AddMember { group, subject },
                GroupRequest::Remove(group, subject) => DirectoryChange::RemoveMember { group, subject },
            };
            self.backend.change(&allowed, change, self.env.now()).await?;
            Ok(())
        })
    }

    /// All groups.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_groups(&self, request: &Request) -> Result<Vec<Group>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadDirectory>(request).await?;
            Ok(self.backend.groups(&allowed).await?)
        })
    }

    /// The members of a group.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown group.
    pub async fn list_members(&self, request: &Request, group: &GroupName) -> Result<Vec<SubjectRef>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadDirectory>(request).await?;
            Ok(self.backend.members(&allowed, group).await?)
        })
    }
}

fn check_key(creator: Role, wanted: &KeyRequest, now: Timestamp) -> Result<(), Error> {
    // Keys of the instance's own tenant run the instance; keys of a tenant never do.
    let of_instance = matches!(wanted.role, Role::InstanceAdmin);
    if (creator == Role::InstanceAdmin) != of_instance && wanted.role != Role::Auditor {
        return Err(Error::invalid(
            "role",
            if of_instance {
                "an instance_admin key belongs to the instance, so only another instance_admin creates it"
            } else {
                "with a key of the instance only instance_admin and auditor keys are created; for a tenant use a key of its tenant_admin"
            },
        ));
    }
    if wanted.subject.is_some() && wanted.act_for {
        return Err(Error::invalid("act_for", "a key bound to a subject cannot act for others"));
    }
    if wanted.expires_at.is_some_and(|end| end <= now) {
        return Err(Error::invalid("expires_at", "must lie in the future"));
    }
    Ok(())
}
