//! A server as a reranker. A call that fails leaves the order as it was; a server that is away is left alone for
//! a while and tried out again before it is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use merkwelt_domain::Env;
use merkwelt_inference::rerank::{Error, Reranker, Score};

use super::settings::Settings;
use super::wire;
use crate::embedding::{ANSWER, ELSE, Fault, QUESTION, Standing, Transport, Unfit, start_of};

/// Bytes of text per token of the limit that are sent at most.
const BYTES_PER_TOKEN: usize = 4;
/// Refused calls, one after another, before it is asked whether the server is to blame.
const FAILURES_MAX: u32 = 3;

/// A server with one model.
pub struct Remote {
    settings: Settings,
    transport: Transport,
    env: Arc<dyn Env>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    standing: Standing,
    failures: u32,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Remote {
    /// Reads the key; opens no connection.
    ///
    /// # Errors
    /// The key is missing.
    pub fn to(settings: Settings, env: Arc<dyn Env>) -> anyhow::Result<Self> {
        let transport = Transport::to(&settings.way)?;
        Ok(Self { settings, transport, env, state: Mutex::default() })
    }

    /// Tries it on a German question, an answer to it and something else, and takes it into use. Blocks.
    ///
    /// # Errors
    /// It is away, or it cannot be used as it is configured.
    pub fn try_out(&self) -> Result<(), Unfit> {
        let tried = self.trial();
        match &tried {
            Ok(()) => self.state().standing.admit(),
            Err(why) => self.leave_alone(&why.to_string(), None),
        }
        tried
    }

    fn trial(&self) -> Result<(), Unfit> {
        let at = |said: &str| format!("the reranker at {}: {said}", self.transport.endpoint());
        match self.call(QUESTION, &[ELSE, ANSWER]).as_deref() {
            Ok([Some(other), Some(answer)]) if answer.value() > other.value() => Ok(()),
            Ok([Some(_), Some(_)]) => Err(Unfit::Wrong(at(
                "a German question is no nearer to its answer than to an unrelated sentence: the model knows no \
                 German, or ranks nothing; see reranker.model",
            ))),
            Ok(_) => Err(Unfit::Wrong(at("it has no score for a plain German sentence"))),
            Err(Fault::Refused(why) | Fault::Denied(why)) => Err(Unfit::Wrong(at(why))),
            Err(Fault::Unreadable) => Err(Unfit::Wrong(at(
                "its answer is not what the protocol says; see reranker.engine and reranker.url",
            ))),
            Err(Fault::Texts) => {
                Err(Unfit::Wrong(at("it refuses plain German sentences; see reranker.model")))
            }
            Err(Fault::Failed | Fault::Breaks) => {
                Err(Unfit::Away(at("it fails over plain German sentences (HTTP 5xx)")))
            }
            Err(Fault::Slow) => Err(Unfit::Away(at("it takes too long; see reranker.timeout_milliseconds"))),
            Err(Fault::Away(why, _) | Fault::Broke(why)) => Err(Unfit::Away(at(why))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave_alone(&self, why: &str, wanted: Option<Duration>) {
        let mut state = self.state();
        state.failures = 0;
        if state.standing.leave_alone(self.env.now().millis(), wanted) {
            tracing::warn!(endpoint = self.transport.endpoint(), "results are not reranked: {why}");
        }
    }

    /// Whether it may be asked. One request tries it out when it is due again; the others go on without.
    fn is_usable(&self) -> bool {
        {
            let mut state = self.state();
            if state.standing.is_admitted() {
                return true;
            }
            if !state.standing.claim(self.env.now().millis()) {
                return false;
            }
        }
        let there = self.try_out().is_ok();
        if there {
            tracing::info!("the reranker is there");
        }
        there
    }

    fn call(&self, question: &str, texts: &[&str]) -> Result<Vec<Option<Score>>, Fault> {
        let bytes_max = self.settings.max_tokens.saturating_mul(BYTES_PER_TOKEN);
        let cut: Vec<&str> = texts.iter().map(|text| start_of(text, bytes_max)).collect();
        let body = wire::request(&self.settings, start_of(question, bytes_max), &cut);
        let limit = wire::answer_bytes_max(&cut);
        let answer = self.transport.call(&body, self.settings.timeout, limit)?;
        wire::scores(self.settings.protocol, &answer, texts.len()).ok_or(Fault::Unreadable)
    }

    /// INVARIANT: R-117, what somebody wrote takes the reranker away from nobody else: before a server is left alone
    /// that fails, it is asked whether it takes the trial sentences.
    fn failed(&self) {
        let now = self.env.now().millis();
        let mut state = self.state();
        state.failures += 1;
        if state.failures < FAILURES_MAX {
            return;
        }
        state.failures = 0;
        let was_well = state.standing.was_well(now);
        drop(state);
        if was_well {
            return;
        }
        if !self.takes_trial() {
            self.leave_alone("it fails for every question", None);
        }
    }

    fn takes_trial(&self) -> bool {
        let is_well = self.trial().is_ok();
        self.state().standing.note_trial(self.env.now().millis(), is_well);
        is_well
    }
}

const TEXTS: Error = Error("its server does not take these texts");

impl Reranker for Remote {
    fn texts_max(&self) -> usize {
        self.settings.texts
    }

    fn score(&self, question: &str, texts: &[&str]) -> Result<Vec<Option<Score>>, Error> {
        if !self.is_usable() {
            return Err(Error("its server is away"));
        }
        match self.call(question, texts) {
            Ok(scores) => {
                self.state().failures = 0;
                Ok(scores)
            }
            Err(Fault::Texts | Fault::Failed | Fault::Unreadable | Fault::Breaks) => {
                self.failed();
                Err(TEXTS)
            }
            Err(fault) if fault.may_be_of_texts() && self.takes_trial() => Err(TEXTS),
            Err(Fault::Slow) => {
                self.failed();
                Err(Error("its server took too long"))
            }
            Err(Fault::Away(why, wait)) => {
                self.leave_alone(why, wait);
                Err(Error("its server is away"))
            }
            Err(Fault::Broke(why)) => {
                self.leave_alone(why, None);
                Err(Error("its server is away"))
            }
            Err(Fault::Refused(why) | Fault::Denied(why)) => {
                self.leave_alone(&why, None);
                Err(Error("its server refuses to work"))
            }
        }
    }
}
