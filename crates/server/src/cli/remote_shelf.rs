//! The register of sources of a running service, reached over its HTTP face with a key, for commands that bring
//! a folder and the register together.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use merkwelt_domain::memory::Expiry;
use merkwelt_domain::source::SourceState;
use merkwelt_store::source::NewAudience;
use serde_json::{Value, json};

use super::Client;
use super::client::Answer;
use crate::folder::{
    Failure, Known, Label, NewEntry, Past, Prepared, Put, Refusal, Removal, Shelf, Standing,
};

/// Sources of one page of the register.
const PAGE: usize = 200;
/// How often something is sent to a service that has no time for it, and how long to wait in between.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);
/// What a `not_found` means where a change of a source names groups.
fn no_group() -> Refusal {
    Refusal::UnknownGroup(", or the key may not publish sources".to_owned())
}

/// What it means elsewhere.
fn no_source() -> Refusal {
    Refusal::Service("its source is gone; run the command again".to_owned())
}

/// A register behind an address.
pub(super) struct RemoteShelf(pub(super) Client);

impl RemoteShelf {
    fn post(&self, path: &str, body: &Value, missing: fn() -> Refusal) -> Result<Value, Failure> {
        answered(|| self.0.post(path, body, None), missing)
    }

    fn revision(&self, source: &str, revision: &str, verb: &str) -> Result<(), Failure> {
        let path = format!("/v1/sources/{source}/{verb}");
        self.post(&path, &json!({ "revision_id": revision }), no_source).map(drop)
    }
}

impl Shelf for RemoteShelf {
    fn known(&self, label: &Label) -> Result<Vec<Known>, Failure> {
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let page = patiently(|| self.0.get(&format!("/v1/sources?limit={PAGE}{after}")))?;
            if page.status == 404 {
                return Err(Failure::Stop(anyhow!(
                    "the key may not manage sources; use one of role app or tenant_admin"
                )));
            }
            let page = page.success().map_err(Failure::Stop)?;
            let sources = page.get("sources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for source in sources {
                let origin = source.get("origin").and_then(Value::as_str);
                if let Some(key) = origin.and_then(|origin| label.path(origin)) {
                    found.push(
                        known(source, key)
                            .context("the service sent a source that is not understood")
                            .map_err(Failure::Stop)?,
                    );
                }
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(found),
            }
        }
    }

    fn standing(&self, source: &str) -> Result<Option<Standing>, Failure> {
        let answer = patiently(|| self.0.get(&format!("/v1/sources/{source}")))?;
        if answer.status == 404 {
            return Ok(None);
        }
        let source = answer.success().map_err(Failure::Stop)?;
        Ok(state(&source).map(|state| (state, group_ids(&source))))
    }

    fn groups(&self) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let answer = patiently(|| self.0.get("/v1/groups"))?;
        if answer.status == 404 {
            return Ok(None);
        }
        let groups = answer.success().map_err(Failure::Stop)?;
        let pair = |group: &Value| {
            Some((group.get("name")?.as_str()?.to_owned(), group.get("id")?.as_str()?.to_owned()))
        };
        Ok(Some(
            groups.get("groups").and_then(Value::as_array).into_iter().flatten().filter_map(pair).collect(),
        ))
    }

    fn register(&self, new: &NewEntry<'_>) -> Result<String, Failure> {
        let mut body = json!({
            "title": new.title.expose(), "origin": new.origin.expose(), "groups": groups(new.audience),
            "evidence": new.terms.evidence.name(), "purpose": new.terms.purpose.as_ref().map(|p| p.as_str()),
        });
        let (name, value) = match new.terms.expiry {
            Expiry::At(end) => ("expires_at", end.to_string()),
            Expiry::Never(reason) => ("no_expiry_reason", reason.name().to_owned()),
        };
        if let Some(map) = body.as_object_mut() {
            map.retain(|_, value| !value.is_null());
            map.insert(name.to_owned(), json!(value));
        }
        let made = self.post("/v1/sources", &body, no_group)?;
        Ok(text(&made, "id"))
    }

    fn put(&self, source: &str, document: &Prepared, publish: bool) -> Result<Put, Failure> {
        let path = format!("/v1/sources/{source}/revisions?publish={publish}");
        let send = || self.0.put(&path, document.media.type_name(), &document.bytes);
        let receipt = answered(send, no_source)?;
        let count =
            |name: &str| receipt.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let count = |name: &str| count(name).unwrap_or_default();
        Ok(Put {
            revision: text(&receipt, "revision_id"),
            passages: count("passages"),
            indexed: count("indexed"),
            embedded: count("embedded"),
            reused: count("reused"),
        })
    }

    fn publish(&self, source: &str, revision: &str) -> Result<(), Failure> {
        self.revision(source, revision, "publish")
    }

    fn discard(&self, source: &str, revision: &str) -> Result<(), Failure> {
        let path = format!("/v1/sources/{source}/revisions/{revision}");
        answered(|| self.0.delete(&path), no_source).map(drop)
    }

    fn restore(&self, source: &str, revision: &str) -> Result<(), Failure> {
        self.revision(source, revision, "restore")
    }

    fn admit(&self, source: &str, audience: &NewAudience) -> Result<bool, Failure> {
        let path = format!("/v1/sources/{source}/audience");
        let body = json!({ "groups": groups(audience) });
        let body = body.to_string();
        let answer = answered(|| self.0.put(&path, "application/json", body.as_bytes()), no_group)?;
        Ok(answer.get("changed").and_then(Value::as_bool).unwrap_or_default())
    }

    fn withdraw(&self, source: &str) -> Result<Removal, Failure> {
        let path = format!("/v1/sources/{source}/withdraw");
        answered(|| self.0.post_nothing(&path), no_source).map(|it| removal(&it))
    }

    fn delete(&self, source: &str) -> Result<Removal, Failure> {
        let path = format!("/v1/sources/{source}");
        answered(|| self.0.delete(&path), no_source).map(|it| removal(&it))
    }
}

/// Sends until the service has time.
fn patiently(send: impl Fn() -> anyhow::Result<Answer>) -> Result<Answer, Failure> {
    let mut n_left = ATTEMPTS;
    loop {
        n_left -= 1;
        let answer = send().map_err(Failure::Stop)?;
        if !matches!(answer.status, 429 | 503) || n_left == 0 {
            return Ok(answer);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The body of a success. A key that is no longer valid and a service that is gone stop all, everything else
/// stops one file.
fn answered(send: impl Fn() -> anyhow::Result<Answer>, missing: fn() -> Refusal) -> Result<Value, Failure> {
    let answer = patiently(send)?;
    match answer.status {
        200..=299 => answer.success().map_err(Failure::Stop),
        401 => Err(Failure::Stop(anyhow!("the key is not valid (any more)"))),
        404 => Err(missing().into()),
        status => {
            let problem = answer.json().unwrap_or_default();
            let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("no detail");
            Err(Refusal::Service(format!("the service answered {status}: {detail}")).into())
        }
    }
}

fn groups(audience: &NewAudience) -> Option<Vec<&str>> {
    match audience {
        NewAudience::Tenant => None,
        NewAudience::Groups(names) => Some(names.iter().map(|name| name.as_str()).collect()),
    }
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn removal(answer: &Value) -> Removal {
    Removal { done: answer.get("done").and_then(Value::as_bool).unwrap_or_default() }
}

fn known(source: &Value, key: &str) -> Option<Known> {
    let state = state(source)?;
    let revisions = source.get("revisions")?.as_array()?;
    let is = |name: &'static str, wanted: &'static str| {
        move |revision: &&Value| revision.get(name).and_then(Value::as_str) == Some(wanted)
    };
    let is_current = |revision: &&Value| revision.get("current").and_then(Value::as_bool) == Some(true);
    let current = revisions.iter().find(is_current).and_then(past);
    let approved = revisions.iter().rev().find(is("approval", "approved")).and_then(past);
    let newest = revisions.iter().rev().take_while(is("approval", "draft"));
    let mut drafts: Vec<Past> = newest.filter_map(past).collect();
    drafts.reverse();
    let groups = group_ids(source);
    Some(Known { id: text(source, "id"), key: key.to_owned(), state, groups, current, approved, drafts })
}

fn state(source: &Value) -> Option<SourceState> {
    let state = source.get("state")?.as_str()?;
    SourceState::ALL.into_iter().find(|known| known.name() == state)
}

fn group_ids(source: &Value) -> Option<Vec<String>> {
    let groups = source.get("groups")?.as_array()?;
    let mut ids: Vec<String> = groups.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    ids.sort();
    Some(ids)
}

fn past(revision: &Value) -> Option<Past> {
    Some(Past {
        revision: text(revision, "id"),
        digest: digest(revision.get("document_sha256")?.as_str()?)?,
        kept: revision.get("kept")?.as_bool()?,
    })
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    (hex.len() == 64).then_some(digest)
}
