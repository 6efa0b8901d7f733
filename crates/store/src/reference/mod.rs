//! The reference backend: everything in memory, every question answered by a full scan, one lock. It is what
//! a backend has to do, written so that it is obviously right; it is neither fast nor durable.
//!
//! Rows of all tenants lie in the same lists, so that isolation is the work of one predicate
//! (`View::sees`) and not of the layout.

mod directory;
mod erase;
mod index;
mod library;
mod log;
mod read;
mod registry;
mod rows;
mod view;
mod write;

use std::sync::{Arc, Mutex};

use merkwelt_authz::{Class, Fut, Pass, Scope, class};
use merkwelt_domain::{ConversationId, Env, FaultPoint, SubjectId, Timestamp};

use crate::change::{Batch, Part, Receipt};
use crate::error::Error;
use crate::ports::{Erased, Founding, Residue, Store};
use crate::query::{Key, ModelId, RecallQuery, ScanQuery};
use crate::record::{FlatCost, Found, Page, Recalled};

pub(crate) use index::Engine;
use rows::State;
use view::View;

/// The reference backend.
pub struct Reference {
    state: Mutex<State>,
    env: Arc<dyn Env>,
    engine: Engine,
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reference(..)")
    }
}

impl Reference {
    /// A new instance with its first tenants and keys. Ids and signing keys are drawn from `env`.
    ///
    /// # Errors
    /// [`Error::Exists`] if the founding repeats a tenant or key, [`Error::NotFound`] if a key is of a
    /// tenant that is not founded.
    pub fn found(founding: Founding, env: Arc<dyn Env>) -> Result<Self, Error> {
        Self::with_engine(founding, env, Engine::Filtering)
    }

    pub(crate) fn with_engine(founding: Founding, env: Arc<dyn Env>, engine: Engine) -> Result<Self, Error> {
        let state = registry::found(founding, &*env)?;
        Ok(Self { state: Mutex::new(state), env, engine })
    }

    /// Looks at the state.
    fn read<T>(&self, look: impl FnOnce(&State) -> Result<T, Error>) -> Result<T, Error> {
        look(&*self.state.lock().map_err(|_| Error::Unavailable)?)
    }

    /// Changes the state as a whole or, on an error, not at all.
    fn write<T>(&self, change: impl FnOnce(&mut State, &dyn Env) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.state.lock().map_err(|_| Error::Unavailable)?;
        let mut next = state.clone();
        let value = change(&mut next, &*self.env)?;
        self.env.reach(FaultPoint::BeforeCommit).map_err(|_| Error::Unavailable)?;
        // INVARIANT: I-11, this assignment is the commit point; nothing was visible before it.
        *state = next;
        self.env.reach(FaultPoint::AfterCommit).map_err(|_| Error::Unavailable)?;
        Ok(value)
    }

    /// Looks at the state under a capability that still holds.
    fn under<C: Class, T>(
        &self,
        pass: &Pass<'_, C>,
        look: impl FnOnce(&State, &View) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.read(|state| look(state, &View::open(state, pass)?))
    }
}

impl Store for Reference {
    fn recall<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a RecallQuery,
    ) -> Fut<'a, Result<Recalled, Error>> {
        Box::pin(
            async move { self.under(pass, |state, view| index::recall(state, view, self.engine, query)) },
        )
    }

    fn vector_model<'a>(&'a self, scope: &'a Scope) -> Fut<'a, Result<Option<ModelId>, Error>> {
        Box::pin(async move { self.read(|state| Ok(state.model_of(scope.tenant()))) })
    }

    fn fetch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        keys: &'a [Key],
        now: Timestamp,
    ) -> Fut<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                Ok(keys.iter().map(|key| read::find(state, view, key, now)).collect())
            })
        })
    }

    fn scan<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a ScanQuery,
    ) -> Fut<'a, Result<Page, Error>> {
        Box::pin(async move { self.under(pass, |state, view| read::scan(state, view, query)) })
    }

    fn flat_cost<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        conversation: Option<&'a ConversationId>,
        now: Timestamp,
    ) -> Fut<'a, Result<FlatCost, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| Ok(read::flat_cost(state, view, conversation, now)))
        })
    }

    fn prefix_holds_until<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        now: Timestamp,
    ) -> Fut<'a, Result<Timestamp, Error>> {
        Box::pin(
            async move { self.under(pass, |state, view| Ok(read::prefix_holds_until(state, view, now))) },
        )
    }

    fn commit<'a>(&'a self, batch: Batch<'a>) -> Fut<'a, Result<Receipt, Error>> {
        Box::pin(async move {
            let (part, idempotency, at) = batch.into_parts();
            self.write(|state, env| match part {
                Part::Writes(pass, writes) => write::writes(state, env, pass, writes, idempotency, at),
                Part::Read(pass, record) => write::read(state, env, pass, *record, at),
            })
        })
    }

    fn erase<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        now: Timestamp,
    ) -> Fut<'a, Result<Erased, Error>> {
        Box::pin(async move { self.write(|state, _| erase::erase(state, pass, now)) })
    }

    fn residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        subject: &'a SubjectId,
    ) -> Fut<'a, Result<Residue, Error>> {
        Box::pin(async move { self.read(|state| erase::residue(state, pass, subject)) })
    }
}
