//! The session layer: turns of the present sitting, in memory only, gone at a restart or after an idle
//! time. It is reached only with a tenant and a conversation that the store has just
//! confirmed to be the caller's; it is no authority of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use merkwelt_domain::conversation::Turn;
use merkwelt_domain::{ConversationId, TenantId, Timestamp};

use crate::error::Conflict;
use crate::remember::IdempotentRequest;
use crate::settings::SessionLimits;

type SessionKey = (TenantId, ConversationId);

struct Session {
    turns: VecDeque<Turn>,
    /// Idempotency keys of this sitting with the digest of their request and the number it got.
    answered: VecDeque<(String, [u8; 32], u32)>,
    n_seen: u32,
    touched_at: Timestamp,
}

impl Session {
    fn at(now: Timestamp) -> Self {
        Self { turns: VecDeque::new(), answered: VecDeque::new(), n_seen: 0, touched_at: now }
    }

    fn answer(&self, idempotent: Option<&IdempotentRequest>) -> Result<Option<u32>, Conflict> {
        let Some(request) = idempotent else { return Ok(None) };
        match self.answered.iter().find(|(key, ..)| key == request.key.as_str()) {
            Some((_, digest, number)) if *digest == request.digest => Ok(Some(*number)),
            Some(_) => Err(Conflict::Idempotency),
            None => Ok(None),
        }
    }
}

/// The sittings of one tenant.
type OfTenant = BTreeMap<ConversationId, Session>;

/// All sittings of this process, each tenant's apart: what others do ends no sitting of a tenant.
pub(crate) struct Sessions {
    limits: SessionLimits,
    open: Mutex<BTreeMap<TenantId, OfTenant>>,
}

impl Sessions {
    pub(crate) fn new(limits: SessionLimits) -> Self {
        Self { limits, open: Mutex::new(BTreeMap::new()) }
    }

    /// Appends a turn and gives it its number. A repeated request gets the number it got before.
    ///
    /// # Errors
    /// [`Conflict::Idempotency`]: the idempotency key came with another request.
    pub(crate) fn append(
        &self,
        key: SessionKey,
        mut turn: Turn,
        idempotent: Option<&IdempotentRequest>,
        now: Timestamp,
    ) -> Result<u32, Conflict> {
        let mut open = self.lock();
        self.drop_idle(&mut open, now);
        let own = open.entry(key.0).or_default();
        if !own.contains_key(&key.1) && own.len() >= self.limits.n_sessions_max {
            drop_oldest(own);
        }
        let session = own.entry(key.1).or_insert_with(|| Session::at(now));
        if let Some(number) = session.answer(idempotent)? {
            return Ok(number);
        }
        session.n_seen = session.n_seen.saturating_add(1);
        session.touched_at = now;
        turn.number = session.n_seen;
        session.turns.push_back(turn);
        if let Some(request) = idempotent {
            session.answered.push_back((request.key.as_str().to_owned(), request.digest, session.n_seen));
        }
        while session.turns.len() > self.limits.n_turns_max {
            session.turns.pop_front();
        }
        while session.answered.len() > self.limits.n_turns_max {
            session.answered.pop_front();
        }
        Ok(session.n_seen)
    }

    /// The turns held, oldest first.
    pub(crate) fn turns(&self, key: &SessionKey, now: Timestamp) -> Vec<Turn> {
        let mut open = self.lock();
        self.drop_idle(&mut open, now);
        let session = open.get(&key.0).and_then(|own| own.get(&key.1));
        session.map(|session| session.turns.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many turns are held.
    pub(crate) fn count(&self, key: &SessionKey, now: Timestamp) -> usize {
        let mut open = self.lock();
        self.drop_idle(&mut open, now);
        open.get(&key.0).and_then(|own| own.get(&key.1)).map_or(0, |session| session.turns.len())
    }

    /// Forgets a sitting; how many turns it held.
    pub(crate) fn forget(&self, key: &SessionKey) -> usize {
        let mut open = self.lock();
        let gone = open.get_mut(&key.0).and_then(|own| own.remove(&key.1));
        gone.map_or(0, |session| session.turns.len())
    }

    fn drop_idle(&self, open: &mut BTreeMap<TenantId, OfTenant>, now: Timestamp) {
        let oldest = now.millis().saturating_sub(self.limits.idle_ms_max);
        open.retain(|_, own| {
            own.retain(|_, session| session.touched_at.millis() >= oldest);
            !own.is_empty()
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantId, OfTenant>> {
        // A panic while the lock was held cannot leave a half-made session: every step is complete.
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn drop_oldest(own: &mut OfTenant) {
    let oldest = own.iter().min_by_key(|(_, session)| session.touched_at).map(|(id, _)| id.clone());
    if let Some(id) = oldest {
        own.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use merkwelt_domain::Content;
    use merkwelt_domain::basis::RestsOn;
    use merkwelt_domain::conversation::Speaker;
    use merkwelt_domain::env::fixed::FixedEnv;

    use super::*;

    fn turn(conversation: &ConversationId, text: &str) -> Turn {
        Turn {
            conversation: conversation.clone(),
            number: 0,
            speaker: Speaker::Person,
            text: Content::question(text, 100).unwrap(),
            at: Timestamp::from_millis(0),
            tokens: 1,
            expires_at: Timestamp::from_millis(1),
            rests_on: RestsOn::default(),
            summary: None,
        }
    }

    #[test]
    fn r_001_a_sitting_ends_when_it_is_idle_and_forgets_its_oldest_turns() {
        let env = FixedEnv::at(0);
        let limits = SessionLimits { idle_ms_max: 100, n_turns_max: 2, n_sessions_max: 10 };
        let sessions = Sessions::new(limits);
        let key = (TenantId::random(&env), ConversationId::random(&env));
        let at = Timestamp::from_millis;
        for (i, text) in ["one", "two", "three"].into_iter().enumerate() {
            assert_eq!(
                sessions.append(key.clone(), turn(&key.1, text), None, at(0)),
                Ok(u32::try_from(i).unwrap() + 1)
            );
        }
        let numbers: Vec<_> = sessions.turns(&key, at(100)).iter().map(|t| t.number).collect();
        assert_eq!(numbers, [2, 3]);
        assert!(sessions.turns(&key, at(101)).is_empty());
    }

    #[test]
    fn r_023_sittings_of_others_end_none_of_a_tenant_s() {
        let env = FixedEnv::at(0);
        let sessions = Sessions::new(SessionLimits { n_sessions_max: 2, ..SessionLimits::default() });
        let (a, b) = (TenantId::random(&env), TenantId::random(&env));
        let now = Timestamp::EPOCH;
        let say = |tenant: &TenantId| {
            let conversation = ConversationId::random(&env);
            let key = (tenant.clone(), conversation.clone());
            sessions.append(key.clone(), turn(&conversation, "hello"), None, now).unwrap();
            key
        };
        let (first, second) = (say(&a), say(&a));
        (0..9).for_each(|_| drop(say(&b)));
        assert_eq!((sessions.turns(&first, now).len(), sessions.turns(&second, now).len()), (1, 1));
        let third = say(&a);
        assert!(sessions.turns(&first, now).is_empty() || sessions.turns(&second, now).is_empty());
        assert_eq!(sessions.turns(&third, now).len(), 1);
    }

    #[test]
    fn a_repeated_turn_is_answered_not_written_twice() {
        let env = FixedEnv::at(0);
        let sessions = Sessions::new(SessionLimits::default());
        let key = (TenantId::random(&env), ConversationId::random(&env));
        let request = |digest| IdempotentRequest { key: "k1".parse().unwrap(), digest: [digest; 32] };
        let say = |digest| {
            sessions.append(key.clone(), turn(&key.1, "hello"), Some(&request(digest)), Timestamp::EPOCH)
        };
        assert_eq!((say(1), say(1)), (Ok(1), Ok(1)));
        assert_eq!(say(2), Err(Conflict::Idempotency));
        assert_eq!(sessions.turns(&key, Timestamp::EPOCH).len(), 1);
    }

    #[test]
    fn one_tenant_s_sitting_is_not_another_s_even_under_the_same_conversation_id() {
        let env = FixedEnv::at(0);
        let sessions = Sessions::new(SessionLimits::default());
        let conversation = ConversationId::random(&env);
        let (a, b) = (TenantId::random(&env), TenantId::random(&env));
        let now = Timestamp::from_millis(0);
        sessions.append((a.clone(), conversation.clone()), turn(&conversation, "of a"), None, now).unwrap();
        assert!(sessions.turns(&(b, conversation.clone()), now).is_empty());
        assert_eq!(sessions.forget(&(a, conversation)), 1);
    }
}
