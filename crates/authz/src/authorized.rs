//! The capability, the closed set of actions, and the only function that makes one (I-1). A capability
//! borrows the request it was minted for, so it can neither be kept in a job row nor moved into a task
//! that outlives the request.

use std::marker::PhantomData;
use std::ops::Deref;

use merkwelt_domain::{GrantEpoch, KeyId, Purpose, SubjectId, SubjectRef, TenantId};

use crate::caller::Caller;
use crate::decide::{ActionName, Decision, DenyReason, Principal, decide};
use crate::grants::{GrantError, GrantSource};
use crate::scope::Scope;

mod sealed {
    /// Nobody outside this file can add an action or a class.
    pub trait Sealed {}
}

/// What a store method asks of a capability. Closed.
#[diagnostic::on_unimplemented(note = "classes are a closed set: see the authz crate")]
pub trait Class: sealed::Sealed + Send + Sync + 'static {}

/// An action as a type. Closed.
#[diagnostic::on_unimplemented(note = "actions are a closed set: see the authz crate")]
pub trait Action: sealed::Sealed + Send + Sync + 'static {
    /// What its store methods ask for.
    type Class: Class;
    /// The action as data.
    const NAME: ActionName;
    /// Whether it makes no sense without a subject.
    const NEEDS_SUBJECT: bool;
}

/// The classes of store methods.
pub mod class {
    use super::{Class, sealed::Sealed};

    macro_rules! classes {
        ($($(#[$doc:meta])* $name:ident,)*) => {$(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}
            impl Sealed for $name {}
            impl Class for $name {}
        )*};
    }

    classes! {
        /// Reads content and records the read.
        Read,
        /// Writes content.
        Write,
        /// Reads groups and members.
        DirectoryRead,
        /// Changes groups and members.
        Directory,
        /// Creates and revokes keys.
        Keys,
        /// Creates and lists tenants.
        Instance,
        /// Reads the ledger.
        Evidence,
        /// Erases and looks for residue.
        Erase,
        /// Reads the register of sources.
        SourcesRead,
        /// Changes sources and their revisions.
        Sources,
    }
}

/// The actions.
pub mod action {
    use super::{Action, class, sealed::Sealed};
    use crate::decide::ActionName;

    macro_rules! action_types {
        ($($(#[$doc:meta])* $name:ident: $class:ident, $needs:literal;)*) => {$(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}
            impl Sealed for $name {}
            impl Action for $name {
                type Class = class::$class;
                const NAME: ActionName = ActionName::$name;
                const NEEDS_SUBJECT: bool = $needs;
            }
        )*};
    }

    action_types! {
        /// Search.
        Recall: Read, false;
        /// Assemble a context pack.
        Assemble: Read, false;
        /// Read by id or list.
        ReadMemory: Read, false;
        /// Write a memory of the subject.
        Remember: Write, true;
        /// Write a memory of a group or the tenant.
        RememberShared: Write, false;
        /// Replace by a new revision.
        Correct: Write, false;
        /// Withdraw.
        Retract: Write, false;
        /// Open a conversation.
        OpenConversation: Write, true;
        /// Append a turn.
        AppendTurn: Write, true;
        /// Read a conversation.
        ReadConversation: Read, true;
        /// Hand a conversation over.
        HandOver: Read, true;
        /// Read the rule for a change of the organisation.
        ReadSwitch: DirectoryRead, false;
        /// Delete a conversation.
        DeleteConversation: Write, true;
        /// Rebuild a pack.
        ReadPack: Read, false;
        /// Read groups and members.
        ReadDirectory: DirectoryRead, false;
        /// Change groups and members.
        ManageDirectory: Directory, false;
        /// Create and revoke keys.
        ManageKeys: Keys, false;
        /// Create and list tenants.
        ManageTenants: Instance, false;
        /// Read the ledger.
        ReadEvidence: Evidence, false;
        /// Erase a subject.
        Erase: Erase, true;
        /// Read the register of sources.
        ReadSources: SourcesRead, false;
        /// Register, publish, withdraw and delete sources.
        ManageSources: Sources, false;
        /// Resolve a citation.
        Cite: Read, false;
        /// Keep an answer for later questions.
        StoreAnswer: Read, false;
        /// Look for a kept answer.
        LookUpAnswer: Read, false;
        /// Ask whether something is allowed now.
        CheckAuthorization: Read, false;
    }
}

/// One request of a caller: for whom, and what for. The face builds it from the wire; the tenant is the
/// caller's own and cannot be named.
#[derive(Debug)]
pub struct Request {
    caller: Caller,
    subject: Option<SubjectRef>,
    purpose: Purpose,
}

impl Request {
    /// A request of `caller`, for `subject` if one was named.
    #[must_use]
    pub fn new(caller: Caller, subject: Option<SubjectRef>, purpose: Purpose) -> Self {
        Self { caller, subject, purpose }
    }

    /// Who asks.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What for.
    #[must_use]
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }
}

/// What a capability lets a store do: the part of [`Authorized`] that does not depend on the action but
/// only on its class. It exists only inside an [`Authorized`].
#[must_use]
#[derive(Debug)]
pub struct Pass<'r, C: Class> {
    request: &'r Request,
    scope: Scope,
    epoch: GrantEpoch,
    action: ActionName,
    class: PhantomData<fn() -> C>,
}

impl<C: Class> Pass<'_, C> {
    /// Where and for whom it holds.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The generation of grants it rests on. A store compares it in the same transaction (I-2).
    #[must_use]
    pub fn epoch(&self) -> GrantEpoch {
        self.epoch
    }

    /// The action it was minted for.
    #[must_use]
    pub fn action(&self) -> ActionName {
        self.action
    }

    /// The key that asked.
    #[must_use]
    pub fn key(&self) -> &KeyId {
        self.request.caller.key()
    }

    /// Whether the key is bound to one person, so that its id alone would name them.
    #[must_use]
    pub fn key_is_personal(&self) -> bool {
        self.request.caller.binding().is_some()
    }

    /// What for.
    #[must_use]
    pub fn purpose(&self) -> &Purpose {
        &self.request.purpose
    }
}

/// Unforgeable, short-lived proof that `A` was allowed in a scope. It has no `Clone`, no serde, no public
/// field and no public constructor, and it borrows the request.
#[must_use]
#[derive(Debug)]
pub struct Authorized<'r, A: Action> {
    pass: Pass<'r, A::Class>,
}

impl<'r, A: Action> Deref for Authorized<'r, A> {
    type Target = Pass<'r, A::Class>;

    fn deref(&self) -> &Self::Target {
        &self.pass
    }
}

/// A denial, made only by [`authorize`]. It is evidence (L-28): the app records it before it answers, and
/// the answer is the same as for something unknown.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    tenant: TenantId,
    key: KeyId,
    bound: Option<SubjectId>,
    action: ActionName,
    reason: DenyReason,
}

impl Denied {
    /// The caller's tenant.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The key that asked.
    #[must_use]
    pub fn key(&self) -> &KeyId {
        &self.key
    }

    /// The person the key is bound to, if it is: its id would then name them (L-19).
    #[must_use]
    pub fn bound_subject(&self) -> Option<&SubjectId> {
        self.bound.as_ref()
    }

    /// What it wanted.
    #[must_use]
    pub fn action(&self) -> ActionName {
        self.action
    }

    /// Why not.
    #[must_use]
    pub fn reason(&self) -> DenyReason {
        self.reason
    }
}

/// Why no capability was minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It was denied.
    Denied(Denied),
    /// The directory could not be asked; nothing was decided.
    Unavailable(GrantError),
}

/// Decides, and mints the capability. The only place in the workspace that builds an [`Authorized`].
///
/// # Errors
/// [`Refusal`].
pub async fn authorize<'r, A: Action>(
    source: &dyn GrantSource,
    request: &'r Request,
) -> Result<Authorized<'r, A>, Refusal> {
    let caller = &request.caller;
    let denied = |reason| {
        let (tenant, key, bound) = (caller.tenant().clone(), caller.key().clone(), caller.binding().cloned());
        Refusal::Denied(Denied { tenant, key, bound, action: A::NAME, reason })
    };
    let decision = decide(
        caller.role(),
        caller.binding(),
        caller.may_act_for(),
        request.subject.as_ref(),
        A::NAME,
        A::NEEDS_SUBJECT,
    );
    let principal = match decision {
        Decision::Allow(principal) => principal,
        Decision::Deny(reason) => return Err(denied(reason)),
    };
    let grants = source.grants(caller.tenant(), &principal).await.map_err(Refusal::Unavailable)?;
    // A source that answers for another principal than the one asked for is not believed.
    let grants = grants.filter(|g| answers_for(&principal, g.subject.as_ref()));
    let grants = grants.ok_or_else(|| denied(DenyReason::NoGrants))?;
    let shared_writes = caller.role().may(ActionName::RememberShared);
    let scope = Scope::new(caller.tenant().clone(), grants.subject, grants.groups, shared_writes);
    let pass = Pass { request, scope, epoch: grants.epoch, action: A::NAME, class: PhantomData };
    Ok(Authorized { pass })
}

fn answers_for(principal: &Principal, subject: Option<&SubjectId>) -> bool {
    match principal {
        Principal::Bound(bound) => subject == Some(bound),
        Principal::Named(_) => subject.is_some(),
        Principal::Nobody => subject.is_none(),
    }
}
