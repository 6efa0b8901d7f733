//! A server as an engine. Whatever it does wrong costs a text its vector at most: texts that it cannot take
//! spoil no other, and a server that is away is left alone until it was tried out again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use merkwelt_domain::Env;
use merkwelt_inference::embed::Error;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Role};

use super::probe::{ANSWER, ELSE, QUESTION, Unfit, judge};
use super::settings::{Protocol, Settings};
use super::standing::Standing;
use super::tend::Engine;
use super::transport::{Fault, Transport};
use super::wire;

/// Bytes of text per token of the limit that are sent at most: more cannot be read by any known tokeniser.
const BYTES_PER_TOKEN: usize = 4;
/// How often a text that is refused is sent again at half its length.
const HALVINGS_MAX: u32 = 3;
/// Texts that fail one after another, without one that does not, before it is asked whether the server is to blame.
const FAILURES_MAX: u32 = 3;

/// A server with one model.
pub struct Remote {
    settings: Settings,
    transport: Transport,
    env: Arc<dyn Env>,
    state: Mutex<State>,
    /// Texts in one call, fewer after one that took too long.
    batch: AtomicUsize,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("transport", &self.transport).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    standing: Standing,
    /// The vector of the trial sentence, once known.
    reference: Option<Vec<f32>>,
}

/// How the texts of one request fare.
#[derive(Default)]
struct Effort {
    made: Vec<Result<Embedding, Error>>,
    failures: u32,
    successes: u32,
    /// How often the server broke over texts and took the trial sentence.
    n_broken: usize,
    /// Why the texts that are left are not sent.
    over: Option<Error>,
}

/// The server is asked for the trial sentence once for so many calls over which it breaks.
const BROKEN_PER_TRIAL: usize = 8;

const AWAY: &str = "the server of the model does not answer";
const FAILS: &str = "it fails for every text";

impl Remote {
    /// Reads the key; opens no connection.
    ///
    /// # Errors
    /// The key is missing.
    pub fn to(settings: Settings, env: Arc<dyn Env>) -> anyhow::Result<Self> {
        let transport = Transport::to(&settings.way())?;
        let batch = AtomicUsize::new(settings.batch);
        Ok(Self { settings, transport, env, state: Mutex::default(), batch })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the server out of use until it was tried out again.
    fn leave_alone(&self, why: &str, wanted: Option<Duration>) {
        if self.state().standing.leave_alone(self.env.now().millis(), wanted) {
            tracing::warn!(endpoint = self.transport.endpoint(), "retrieval is lexical: {why}");
        }
    }

    /// Whether texts are to blame that failed, and not the server: it takes the trial sentence, as fast as a question
    /// must be. Asked once in a while.
    ///
    /// INVARIANT: R-117, a text that somebody wrote takes the engine away from nobody else.
    fn is_well(&self) -> bool {
        let was_well = self.state().standing.was_well(self.env.now().millis());
        was_well || self.takes_trial()
    }

    fn takes_trial(&self) -> bool {
        let made = self.call(Role::Passage, &[ANSWER], self.bytes_max(), self.settings.question_timeout);
        let is_well = matches!(made.as_deref(), Ok([Ok(_)]));
        self.state().standing.note_trial(self.env.now().millis(), is_well);
        is_well
    }

    /// One call. A server that breaks over it and takes the trial sentence a moment later gets it once more, because
    /// a connection may break by itself; then its texts are to blame. The next that it breaks over are not asked
    /// about each, so that many such texts do not become a flood.
    fn call_fairly(
        &self,
        role: Role,
        texts: &[&str],
        n_broken: &mut usize,
    ) -> Result<Vec<Result<Embedding, Error>>, Fault> {
        let call = || self.call(role, texts, self.bytes_max(), self.timeout(role));
        let fault = match call() {
            Err(fault) if fault.may_be_of_texts() => fault,
            made => return made,
        };
        let is_to_ask = n_broken.is_multiple_of(BROKEN_PER_TRIAL);
        if is_to_ask && !self.takes_trial() {
            return Err(fault);
        }
        *n_broken += 1;
        let again = if is_to_ask { call() } else { Err(fault) };
        again.map_err(|fault| if fault.may_be_of_texts() { Fault::Breaks } else { fault })
    }

    fn timeout(&self, role: Role) -> Duration {
        match role {
            Role::Query => self.settings.question_timeout,
            Role::Passage => self.settings.timeout,
        }
    }

    /// One call. Texts are given their prefix and cut to `bytes_max`.
    fn call(
        &self,
        role: Role,
        texts: &[&str],
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<Vec<Result<Embedding, Error>>, Fault> {
        let descriptor = &self.settings.descriptor;
        let prefix = match role {
            Role::Query => descriptor.query_prefix(),
            Role::Passage => descriptor.passage_prefix(),
        };
        let cut: Vec<&str> = texts.iter().map(|text| start_of(text, bytes_max)).collect();
        let truncated: Vec<bool> = cut.iter().zip(texts).map(|(cut, text)| cut.len() < text.len()).collect();
        let sent: Vec<String> = cut.iter().map(|text| format!("{prefix}{text}")).collect();
        let body = wire::request(&self.settings, &sent);
        let limit = wire::answer_bytes_max(&self.settings, texts.len());
        let answer = self.transport.call(&body, timeout, limit)?;
        let made = wire::vectors(&self.settings, &answer, &truncated).map_err(|_| Fault::Unreadable)?;
        let wrong = made.iter().find_map(|made| match made {
            Err(Error::Dimension { expected, actual }) => Some((*expected, *actual)),
            Ok(_) | Err(_) => None,
        });
        if let Some((expected, actual)) = wrong {
            return Err(Fault::Refused(format!(
                "it answers with {actual} numbers for a text, but the model is described with {expected}; see \
                 embedding.dimension and embedding.model"
            )));
        }
        Ok(made)
    }

    /// Embeds texts together, and divides them where the server does not take them together.
    fn divide(&self, role: Role, texts: &[&str], effort: &mut Effort) {
        if effort.over.is_some() {
            return;
        }
        match self.call_fairly(role, texts, &mut effort.n_broken) {
            Ok(made) => {
                effort.successes += 1;
                effort.made.extend(made);
                self.grow(texts.len());
            }
            Err(Fault::Slow) if texts.len() > 1 => {
                self.batch.store((texts.len() / 2).max(1), Ordering::Relaxed);
                let slow = || Err(Error::Engine("the server took too long over several texts"));
                effort.made.extend(texts.iter().map(|_| slow()));
            }
            Err(Fault::Texts | Fault::Failed | Fault::Unreadable | Fault::Breaks) if texts.len() > 1 => {
                let (first, rest) = texts.split_at(texts.len() / 2);
                self.divide(role, first, effort);
                self.divide(role, rest, effort);
            }
            Err(Fault::Texts | Fault::Failed | Fault::Unreadable) => {
                let text = texts.first().copied().unwrap_or_default();
                let made = self.shorten(role, text);
                let (failed, worked) = if made.is_ok() { (0, 1) } else { (1, 0) };
                (effort.failures, effort.successes) = (effort.failures + failed, effort.successes + worked);
                effort.made.push(made);
                if effort.successes == 0 && effort.failures >= FAILURES_MAX {
                    if self.is_well() {
                        effort.successes += 1;
                    } else {
                        self.leave_alone(FAILS, None);
                        effort.over = Some(Error::Away(FAILS));
                    }
                }
            }
            Err(Fault::Breaks) => effort.made.push(Err(REFUSED)),
            // Somebody waits for a question; there is no time to ask who is to blame.
            Err(Fault::Slow) if role == Role::Passage && self.is_well() => {
                effort.over = Some(Error::Engine("the server took too long over a text"));
            }
            Err(Fault::Slow) => {
                self.leave_alone("it took too long over one text", None);
                effort.over = Some(Error::Away(AWAY));
            }
            Err(Fault::Away(why, wait)) => {
                self.leave_alone(why, wait);
                effort.over = Some(Error::Away(AWAY));
            }
            Err(Fault::Broke(why)) => {
                self.leave_alone(why, None);
                effort.over = Some(Error::Away(AWAY));
            }
            Err(Fault::Refused(why) | Fault::Denied(why)) => {
                self.leave_alone(&why, None);
                effort.over = Some(Error::Away(AWAY));
            }
        }
    }

    /// A text that was refused may be too long: the server counts tokens, and only it can.
    fn shorten(&self, role: Role, text: &str) -> Result<Embedding, Error> {
        let mut bytes = text.len().min(self.bytes_max());
        for _ in 0..HALVINGS_MAX {
            // No token is shorter than a byte, so the rest cannot be too long.
            if bytes < self.settings.descriptor.max_tokens() {
                break;
            }
            bytes /= 2;
            if let Ok(mut made) = self.call(role, &[text], bytes, self.timeout(role)) {
                return made.pop().unwrap_or(Err(REFUSED));
            }
        }
        Err(REFUSED)
    }

    fn grow(&self, n_texts: usize) {
        let batch = self.batch.load(Ordering::Relaxed);
        if n_texts >= batch && batch < self.settings.batch {
            self.batch.store(batch + 1, Ordering::Relaxed);
        }
    }

    fn bytes_max(&self) -> usize {
        self.settings.descriptor.max_tokens().saturating_mul(BYTES_PER_TOKEN)
    }

    /// The vector of one trial sentence, or what is wrong with the server.
    fn trial(&self, role: Role, text: &str) -> Result<Embedding, Unfit> {
        let at = |said: &str| format!("the embedding engine at {}: {said}", self.transport.endpoint());
        let made = self.call(role, &[text], self.bytes_max(), self.settings.timeout);
        match made.map(|mut made| made.pop()) {
            Ok(Some(Ok(vector))) => Ok(vector),
            Ok(Some(Err(_)) | None) => {
                Err(Unfit::Wrong(at("it has no usable vector for a plain German sentence")))
            }
            Err(Fault::Refused(why) | Fault::Denied(why)) => Err(Unfit::Wrong(at(&why))),
            Err(Fault::Unreadable) => Err(Unfit::Wrong(at(&format!(
                "its answer is not what {} says; see embedding.engine and embedding.url",
                self.protocol()
            )))),
            Err(Fault::Texts) => Err(Unfit::Wrong(at(
                "it refuses a plain German sentence; see embedding.model and embedding.send_dimension",
            ))),
            Err(Fault::Failed | Fault::Breaks) => {
                Err(Unfit::Away(at("it fails over a plain German sentence (HTTP 5xx)")))
            }
            Err(Fault::Slow) => Err(Unfit::Away(at("it takes too long; see embedding.timeout_seconds"))),
            Err(Fault::Away(why, _) | Fault::Broke(why)) => Err(Unfit::Away(at(why))),
        }
    }

    fn protocol(&self) -> &'static str {
        match self.settings.protocol {
            Protocol::OpenAi => "the OpenAI protocol",
            Protocol::Ollama => "the protocol of Ollama",
            Protocol::Tei => "the protocol of Text Embeddings Inference",
        }
    }
}

const REFUSED: Error = Error::Engine("the server does not take this text");

/// The start of a text, at most so many bytes, ending between characters.
pub(crate) fn start_of(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

impl Embedder for Remote {
    fn descriptor(&self) -> &Descriptor {
        &self.settings.descriptor
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        self.embed_each(role, texts).into_iter().collect()
    }

    fn embed_each(&self, role: Role, texts: &[&str]) -> Vec<Result<Embedding, Error>> {
        let mut effort = Effort::default();
        if !self.is_available() {
            effort.over = Some(Error::Away(AWAY));
        }
        for together in texts.chunks(self.batch.load(Ordering::Relaxed).max(1)) {
            self.divide(role, together, &mut effort);
        }
        let mut made = effort.made;
        made.resize(texts.len(), Err(effort.over.unwrap_or(Error::Away(AWAY))));
        made
    }

    fn is_available(&self) -> bool {
        self.state().standing.is_admitted()
    }
}

impl Engine for Remote {
    fn is_due(&self) -> bool {
        self.state().standing.is_due(self.env.now().millis())
    }

    fn try_out(&self) -> Result<(), Unfit> {
        let tried = self
            .trial(Role::Query, QUESTION)
            .and_then(|question| Ok((question, self.trial(Role::Passage, ANSWER)?)))
            .and_then(|(question, answer)| Ok((question, answer, self.trial(Role::Passage, ELSE)?)));
        let kept = self.state().reference.clone();
        let judged = tried.and_then(|(question, answer, other)| {
            judge(&question, &answer, &other, kept.as_deref()).map(|()| answer)
        });
        match judged {
            Ok(answer) => {
                self.state().reference.get_or_insert_with(|| answer.into_vec());
                Ok(())
            }
            Err(unfit) => {
                self.leave_alone(&unfit.to_string(), None);
                Err(unfit)
            }
        }
    }

    fn admit(&self) {
        self.state().standing.admit();
    }

    fn is_described(&self) -> bool {
        true
    }

    fn reference(&self) -> Option<Vec<f32>> {
        self.state().reference.clone()
    }

    fn expect(&self, reference: Vec<f32>) -> Result<(), Unfit> {
        let own = self.state().reference.replace(reference);
        // It was tried out before the data were open: now it is tried against what they say.
        if own.is_some() { self.try_out() } else { Ok(()) }
    }

    fn places(&self) -> Option<(usize, Duration)> {
        Some((self.settings.concurrency, self.settings.question_timeout))
    }
}
