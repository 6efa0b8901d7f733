//! The role × action matrix as a page for people who do not read Rust: `matrix.txt`. A change of who may
//! do what shows up there, line by line, and has to be accepted on purpose.
#![cfg(test)]

use std::any::TypeId;
use std::fmt::Write;
use std::path::PathBuf;

use merkwelt_authz::{Action, ActionName, DenyReason, Role, action, class};

const HEADER: &str = "\
Who may do what. A row is an action, a column is the role of an API key; \"yes\" means that keys with
this role may do it, \"-\" that they are refused, whatever else they hold. \"subject\" says whether the
request must be about a person: the one the key is bound to, or one it names and may act for. \"opens\" is
the only part of the store the permission is good for. Being allowed is not yet seeing: what is seen
depends on the person's own memberships at the moment of the request.
";

/// What an action is, in plain words.
fn plainly(action: ActionName) -> &'static str {
    match action {
        ActionName::Recall => "search memories and turns",
        ActionName::Assemble => "put together the context for one answer",
        ActionName::ReadMemory => "read memories by id or list them",
        ActionName::Remember => "keep a memory of a person",
        ActionName::RememberShared => "keep a memory for a group or for everybody in the tenant",
        ActionName::Correct => "replace a memory by a newer version",
        ActionName::Retract => "withdraw a memory",
        ActionName::OpenConversation => "begin a conversation",
        ActionName::AppendTurn => "add a message to a conversation",
        ActionName::ReadConversation => "read or list a person's conversations",
        ActionName::HandOver => "hand a conversation over to another organisation",
        ActionName::ReadSwitch => "see what goes along when a person changes the organisation",
        ActionName::DeleteConversation => "delete a conversation with everything that came from it",
        ActionName::ReadPack => "show again exactly what an agent was given",
        ActionName::ReadDirectory => "see groups and their members",
        ActionName::ManageDirectory => "change groups and their members",
        ActionName::ManageKeys => "create and revoke keys",
        ActionName::ManageTenants => "create and list tenants",
        ActionName::ReadEvidence => "read the evidence log",
        ActionName::Erase => "erase a person and look for what is left",
        ActionName::ReadSources => "see which sources there are and what became of them",
        ActionName::ManageSources => "register, publish, withdraw and delete sources",
        ActionName::Cite => "show the exact text behind a citation",
        ActionName::StoreAnswer => "keep an answer for later questions",
        ActionName::LookUpAnswer => "look for a kept answer that is still right",
        ActionName::CheckAuthorization => "ask whether somebody may do something now",
    }
}

/// What the type of an action says: its name as data, whether it needs a subject, and its class.
struct Kind {
    name: ActionName,
    needs_subject: bool,
    class: &'static str,
}

fn kind<A: Action>() -> Kind {
    let classes = [
        (TypeId::of::<class::Read>(), "read"),
        (TypeId::of::<class::Write>(), "write"),
        (TypeId::of::<class::DirectoryRead>(), "directory read"),
        (TypeId::of::<class::Directory>(), "directory"),
        (TypeId::of::<class::Keys>(), "keys"),
        (TypeId::of::<class::Instance>(), "instance"),
        (TypeId::of::<class::Evidence>(), "evidence"),
        (TypeId::of::<class::Erase>(), "erase"),
        (TypeId::of::<class::SourcesRead>(), "sources read"),
        (TypeId::of::<class::Sources>(), "sources"),
    ];
    let class = classes.iter().find(|(id, _)| *id == TypeId::of::<A::Class>()).unwrap().1;
    Kind { name: A::NAME, needs_subject: A::NEEDS_SUBJECT, class }
}

macro_rules! kinds {
    ($($name:ident)*) => {
        fn kind_of(action: ActionName) -> Kind {
            match action { $(ActionName::$name => kind::<action::$name>(),)* }
        }
    };
}

kinds! {
    Recall Assemble ReadMemory Remember RememberShared Correct Retract OpenConversation AppendTurn
    ReadConversation HandOver ReadSwitch DeleteConversation ReadPack ReadDirectory ManageDirectory ManageKeys ManageTenants
    ReadEvidence Erase ReadSources ManageSources Cite StoreAnswer LookUpAnswer CheckAuthorization
}

fn matrix() -> String {
    let mut page = format!("{HEADER}\n{:<20}", "action");
    for role in Role::ALL {
        write!(page, "{:<width$}", role.name(), width = role.name().len() + 2).unwrap();
    }
    page.push_str("subject  opens      in plain words\n");
    for action in ActionName::ALL.iter().copied() {
        let kind = kind_of(action);
        write!(page, "{:<20}", action.name()).unwrap();
        for role in Role::ALL {
            let mark = if role.may(action) { "yes" } else { "-" };
            write!(page, "{mark:<width$}", width = role.name().len() + 2).unwrap();
        }
        let subject = if kind.needs_subject { "must" } else { "may" };
        writeln!(page, "{subject:<9}{:<11}{}", kind.class, plainly(action)).unwrap();
    }
    page
}

/// The lines of two pages that are not the same, in the order of the page.
fn difference(kept: &str, made: &str) -> String {
    let (kept, made): (Vec<_>, Vec<_>) = (kept.lines().collect(), made.lines().collect());
    let mut shown = String::new();
    for line in kept.iter().filter(|line| !made.contains(line)) {
        writeln!(shown, "- {line}").unwrap();
    }
    for line in made.iter().filter(|line| !kept.contains(line)) {
        writeln!(shown, "+ {line}").unwrap();
    }
    shown
}

#[expect(
    clippy::disallowed_methods,
    reason = "the person who runs the test says whether to accept the change"
)]
fn is_update() -> bool {
    std::env::var("MERKWELT_UPDATE").is_ok_and(|value| value == "1")
}

#[test]
fn r_031_the_matrix_for_people_says_what_the_code_does() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/matrix.txt");
    let made = matrix();
    if is_update() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "who may do what is no longer what crates/authz/tests/matrix.txt says:\n\n{}\n\
         - stands in the file, + is what the code does now. If the change is meant, accept it with\n\
         MERKWELT_UPDATE=1 cargo test -p merkwelt-authz --test matrix\n\
         and have the new page reviewed by somebody who answers for access.\n",
        difference(&kept, &made)
    );
}

#[test]
fn the_difference_shows_the_changed_line_in_both_forms_and_no_other() {
    assert_eq!(difference("a -\nb -\n", "a -\nb yes\n"), "- b -\n+ b yes\n");
    assert_eq!(difference("a -\n", "a -\n"), "");
}

#[test]
fn the_type_of_an_action_carries_its_own_name() {
    for action in ActionName::ALL.iter().copied() {
        assert_eq!(kind_of(action).name, action);
    }
}

#[test]
fn the_list_of_roles_is_complete() {
    let place = |role| match role {
        Role::InstanceAdmin => 0,
        Role::TenantAdmin => 1,
        Role::App => 2,
        Role::Agent => 3,
        Role::PrivacyOfficer => 4,
        Role::Auditor => 5,
    };
    assert_eq!(Role::ALL.map(place), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_name_is_the_same_in_the_matrix_in_a_file_and_on_the_wire() {
    for role in Role::ALL {
        assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        assert_eq!(role.name().parse(), Ok(role));
    }
    for action in ActionName::ALL.iter().copied() {
        assert_eq!(serde_json::to_value(action).unwrap(), action.name());
    }
    for reason in [DenyReason::Role, DenyReason::ActFor, DenyReason::NoSubject, DenyReason::NoGrants] {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
    }
    for unknown in ["", "App", "admin", "app ", "root"] {
        assert!(unknown.parse::<Role>().is_err(), "{unknown:?}");
    }
}
