//! Reading by key and listing. Scope, time and standing are conditions of the query (R-030, I-7); what does
//! not meet them is not read.

use merkwelt_domain::freshness::SKEW_MILLIS;
use merkwelt_domain::{ConversationId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::query::{Cursor, Key, KindSet, Listing, ScanQuery};
use merkwelt_store::record::{FlatCost, Found, Listed, Page};
use ring::digest::{SHA256, digest};
use rusqlite::{Row, ToSql, named_params};

use crate::error::Sql as _;
use crate::rows::{
    CONVERSATION_COLUMNS, MEMORY_COLUMNS, TURN_COLUMNS, kind_code, read_conversation, read_memory, read_pack,
    read_turn,
};
use crate::snapshot::{Snapshot, Viewer, visible};

/// What may be served as current at `:now`, as `freshness::admit` decides it.
macro_rules! current {
    () => {
        "standing = 0 AND valid_from <= :now AND (expires_at IS NULL OR expires_at > :now) \
         AND written_at <= :latest"
    };
}

/// What holds during the interval from `:from` until `:until`.
macro_rules! during {
    () => {
        "valid_from < :until AND (expires_at IS NULL OR :from < expires_at)"
    };
}

/// The ways to be visible, as `visible!()` says them. Nothing is visible in two ways.
const WAYS: [&str; 3] = [
    "owner_kind = 2 AND owner = :tenant",
    "owner_kind = 0 AND owner = :subject",
    "owner_kind = 1 AND owner IN (SELECT group_id FROM members WHERE subject = :subject)",
];

/// A statement over the memories that are visible, put together from one for each way, because only so an index
/// answers each alone and in its order.
fn each_way(select: &str, index: &str, rest: &str) -> String {
    WAYS.map(|way| format!("SELECT * FROM (SELECT {select} FROM memories {index} WHERE {way} AND {rest})"))
        .join(" UNION ALL ")
}

fn sql_of_flat_cost() -> String {
    // Kind 1 is a fact.
    let of_each = each_way("tokens, kind", "INDEXED BY memories_by_cost", current!());
    format!("SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(kind = 1), 0) FROM ({of_each})")
}

fn sql_of_prefix_holds_until() -> String {
    // Kinds 0 and 1 are rules and facts.
    let rest = "standing = 0 AND kind IN (0, 1) AND (valid_from > :now OR expires_at > :now)";
    let of_each = each_way("valid_from, expires_at", "INDEXED BY memories_by_cost", rest);
    format!("SELECT min(CASE WHEN valid_from > :now THEN valid_from ELSE expires_at END) FROM ({of_each})")
}

fn sql_of_list() -> String {
    let order = "ORDER BY written_at DESC, id LIMIT :limit";
    let rest = concat!(
        current!(),
        " AND ",
        during!(),
        " AND (:kinds >> kind) & 1 AND (:conversation IS NULL OR conversation = :conversation)
          AND written_at <= :after_at AND (written_at < :after_at OR id > :after_id) "
    );
    format!("{} {order}", each_way(MEMORY_COLUMNS, "INDEXED BY memories_by_owner", &format!("{rest}{order}")))
}

impl Snapshot<'_> {
    fn one<T>(
        &self,
        sql: &str,
        parameters: &[(&str, &dyn ToSql)],
        read: impl FnOnce(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let mut statement = self.db.prepare_cached(sql).sql()?;
        let mut rows = statement.query(parameters).sql()?;
        rows.next().sql()?.map(read).transpose()
    }

    /// Reads by key, in the order of the keys.
    pub(crate) fn fetch(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Found>>, Error> {
        keys.iter().map(|key| self.fetch_one(key, now.millis())).collect()
    }

    fn fetch_one(&self, key: &Key, now: i64) -> Result<Option<Found>, Error> {
        let subject = self.viewer.subject();
        let latest = now.saturating_add(SKEW_MILLIS);
        match key {
            Key::Memory(id) => self.one(
                &format!(
                    "SELECT {MEMORY_COLUMNS} FROM memories WHERE id = :id AND {} AND {}",
                    current!(),
                    visible!()
                ),
                named_params! { ":id": id.as_str(), ":now": now, ":latest": latest, ":subject": subject },
                |row| read_memory(self.cell, row).map(Found::Memory),
            ),
            Key::MemoryAt(id, revision) => self.one(
                &format!(
                    "SELECT {MEMORY_COLUMNS} FROM memories WHERE id = :id AND revision = :revision
                     AND standing <> 3 AND (expires_at IS NULL OR expires_at > :now) AND {}",
                    visible!()
                ),
                named_params! {
                    ":id": id.as_str(), ":revision": revision.number(), ":now": now, ":subject": subject
                },
                |row| read_memory(self.cell, row).map(Found::Memory),
            ),
            Key::Conversation(id) => self.one(
                &format!(
                    "SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE id = :id AND owner = :subject"
                ),
                named_params! { ":id": id.as_str(), ":now": now, ":subject": subject },
                |row| read_conversation(row).map(|(found, turns)| Found::Conversation(found, turns)),
            ),
            Key::Turn(id, number) => self.one(
                &format!(
                    "SELECT {TURN_COLUMNS} FROM turns WHERE conversation = :id AND number = :number
                     AND owner = :subject AND at <= :now AND expires_at > :now"
                ),
                named_params! {
                    ":id": id.as_str(), ":number": number, ":now": now, ":subject": subject
                },
                |row| read_turn(self.cell, row).map(Found::Turn),
            ),
            Key::Summary { of, approved } => self.one(
                &format!(
                    "SELECT {TURN_COLUMNS} FROM turns WHERE conversation = :id AND summary IS NOT NULL
                     AND (:approved = 0 OR summary LIKE '% approved')
                     AND owner = :subject AND at <= :now AND expires_at > :now ORDER BY number DESC LIMIT 1"
                ),
                named_params! {
                    ":id": of.as_str(), ":now": now, ":subject": subject, ":approved": approved,
                },
                |row| read_turn(self.cell, row).map(Found::Turn),
            ),
            Key::Pack(id) => self.one(
                // A pack of a request for nobody in particular is the tenant's.
                "SELECT id, owner, read_id, at, expires_at, body FROM packs
                 WHERE id = :id AND expires_at > :now AND owner = coalesce(:subject, :tenant)",
                named_params! {
                    ":id": id.as_str(), ":now": now, ":subject": subject,
                    ":tenant": self.cell.tenant.as_str(),
                },
                |row| read_pack(self.cell, row).map(Found::Pack),
            ),
            Key::Passage(id) => Ok(self.passage_at(id, now, true)?.map(Found::Passage)),
            Key::PassageAt(id) => Ok(self.passage_at(id, now, false)?.map(Found::Passage)),
            Key::Source(id) => Ok(self.source_head(id, now)?.map(Found::Source)),
        }
    }

    /// One page of a listing.
    pub(crate) fn scan(&self, query: &ScanQuery) -> Result<Page, Error> {
        let binding = Binding::of(self.viewer, query);
        let after = query.after.as_ref().map(|cursor| binding.read(cursor)).transpose()?;
        match &query.listing {
            Listing::Memories { kinds, conversation } => {
                self.memories(query, kinds, conversation.as_ref(), after, &binding)
            }
            Listing::Turns(id) => self.turns(query, id, false, after, &binding),
            Listing::TurnsBackwards(id) => self.turns(query, id, true, after, &binding),
            Listing::Conversations => self.conversations(query, after, &binding),
        }
    }

    fn memories(
        &self,
        query: &ScanQuery,
        kinds: &KindSet,
        conversation: Option<&ConversationId>,
        after: Option<Position>,
        binding: &Binding,
    ) -> Result<Page, Error> {
        let mask: u32 = kinds.iter().fold(0, |mask, kind| mask | 1 << kind_code(kind));
        let (after_at, after_id) = after.unwrap_or((i64::MAX, String::new()));
        let (from, until) = bounds(query);
        let now = query.now.millis();
        let parameters = named_params! {
            ":kinds": mask, ":conversation": conversation.map(ConversationId::as_str),
            ":after_at": after_at, ":after_id": after_id, ":limit": limit(query),
            ":now": now, ":latest": now.saturating_add(SKEW_MILLIS), ":from": from, ":until": until,
            ":subject": self.viewer.subject(), ":tenant": self.cell.tenant.as_str(),
        };
        self.page(query, &sql_of_list(), parameters, binding, |row| {
            let memory = read_memory(self.cell, row)?;
            let place = (memory.written_at.millis(), memory.id.as_str().to_owned());
            Ok((Listed::Memory(memory), place))
        })
    }

    fn turns(
        &self,
        query: &ScanQuery,
        id: &ConversationId,
        backwards: bool,
        after: Option<Position>,
        binding: &Binding,
    ) -> Result<Page, Error> {
        self.own_conversation(id)?;
        let (side, order, start) = if backwards { ("<", "DESC", i64::MAX) } else { (">", "ASC", 0) };
        let sql = format!(
            "SELECT {TURN_COLUMNS} FROM turns WHERE conversation = :id AND owner = :subject
             AND at <= :now AND expires_at > :now AND at < :until AND :from < expires_at
             AND number {side} :after ORDER BY number {order} LIMIT :limit"
        );
        let (from, until) = bounds(query);
        let parameters = named_params! {
            ":id": id.as_str(), ":subject": self.viewer.subject(), ":now": query.now.millis(),
            ":from": from, ":until": until, ":after": after.map_or(start, |(number, _)| number),
            ":limit": limit(query),
        };
        self.page(query, &sql, parameters, binding, |row| {
            let turn = read_turn(self.cell, row)?;
            let place = (i64::from(turn.number), String::new());
            Ok((Listed::Turn(turn), place))
        })
    }

    fn conversations(
        &self,
        query: &ScanQuery,
        after: Option<Position>,
        binding: &Binding,
    ) -> Result<Page, Error> {
        let sql = format!(
            "SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE owner = :subject
             AND (opened_at < :after_at OR (opened_at = :after_at AND id > :after_id))
             ORDER BY opened_at DESC, id LIMIT :limit"
        );
        let (after_at, after_id) = after.unwrap_or((i64::MAX, String::new()));
        let parameters = named_params! {
            ":subject": self.viewer.subject(), ":now": query.now.millis(),
            ":after_at": after_at, ":after_id": after_id, ":limit": limit(query),
        };
        self.page(query, &sql, parameters, binding, |row| {
            let (conversation, turns) = read_conversation(row)?;
            let place = (conversation.opened_at.millis(), conversation.id.as_str().to_owned());
            Ok((Listed::Conversation(conversation, turns), place))
        })
    }

    fn page(
        &self,
        query: &ScanQuery,
        sql: &str,
        parameters: &[(&str, &dyn ToSql)],
        binding: &Binding,
        read: impl Fn(&Row<'_>) -> Result<(Listed, Position), Error>,
    ) -> Result<Page, Error> {
        let mut statement = self.db.prepare_cached(sql).sql()?;
        let mut rows = statement.query(parameters).sql()?;
        let mut records = Vec::new();
        let mut last = (0, String::new());
        let mut more = false;
        while let Some(row) = rows.next().sql()? {
            if records.len() == query.limit.get() {
                more = true;
                break;
            }
            let (record, place) = read(row)?;
            records.push(record);
            last = place;
        }
        let next = if more { Some(binding.write(&last)?) } else { None };
        Ok(Page { records, next, epochs: self.state.epochs })
    }

    fn own_conversation(&self, id: &ConversationId) -> Result<(), Error> {
        let own = self
            .db
            .prepare_cached("SELECT 1 FROM conversations WHERE id = ?1 AND owner = ?2")
            .and_then(|mut statement| statement.exists((id.as_str(), self.viewer.subject())))
            .sql()?;
        if own { Ok(()) } else { Err(Error::NotFound) }
    }

    /// What everything current in scope would cost as one flat list.
    pub(crate) fn flat_cost(
        &self,
        conversation: Option<&ConversationId>,
        now: Timestamp,
    ) -> Result<FlatCost, Error> {
        let (now, subject) = (now.millis(), self.viewer.subject());
        let latest = now.saturating_add(SKEW_MILLIS);
        let tenant = self.cell.tenant.as_str();
        let memories = self.one(
            &sql_of_flat_cost(),
            named_params! { ":now": now, ":latest": latest, ":subject": subject, ":tenant": tenant },
            |row| {
                Ok(FlatCost { items: row.get(0).sql()?, tokens: row.get(1).sql()?, facts: row.get(2).sql()? })
            },
        )?;
        let turns: Option<(u64, u64)> = match conversation {
            None => None,
            Some(id) => self.one(
                "SELECT count(*), coalesce(sum(tokens), 0) FROM turns WHERE conversation = :id
                 AND owner = :subject AND at <= :now AND expires_at > :now",
                named_params! { ":id": id.as_str(), ":now": now, ":subject": subject },
                |row| Ok((row.get(0).sql()?, row.get(1).sql()?)),
            )?,
        };
        let (memories, (turns, turn_tokens)) = (memories.unwrap_or_default(), turns.unwrap_or_default());
        Ok(FlatCost { items: memories.items + turns, tokens: memories.tokens + turn_tokens, ..memories })
    }

    /// The next time at which a rule or fact in scope begins or ends by itself.
    pub(crate) fn prefix_holds_until(&self, now: Timestamp) -> Result<Timestamp, Error> {
        let (subject, tenant) = (self.viewer.subject(), self.cell.tenant.as_str());
        let next: Option<Option<i64>> = self.one(
            &sql_of_prefix_holds_until(),
            named_params! { ":now": now.millis(), ":subject": subject, ":tenant": tenant },
            |row| row.get(0).sql(),
        )?;
        Ok(Timestamp::from_millis(next.flatten().unwrap_or(i64::MAX)))
    }
}

fn bounds(query: &ScanQuery) -> (i64, i64) {
    query.interval.map_or((i64::MIN, i64::MAX), |asked| (asked.from().millis(), asked.until().millis()))
}

/// One more than asked for, to know whether there is a next page.
fn limit(query: &ScanQuery) -> usize {
    query.limit.get() + 1
}

/// Where a listed record stands: a time or a number, and an id where that is not enough.
type Position = (i64, String);

/// Binds a cursor to its listing, so that one of another query is refused.
struct Binding(String);

impl Binding {
    fn of(viewer: &Viewer, query: &ScanQuery) -> Self {
        let listing = match &query.listing {
            Listing::Memories { kinds, conversation } => {
                let kinds: Vec<&str> = kinds.iter().map(merkwelt_domain::memory::Kind::name).collect();
                let conversation = conversation.as_ref().map_or("", ConversationId::as_str);
                format!("memories {} {conversation}", kinds.join(","))
            }
            Listing::Turns(id) => format!("turns {}", id.as_str()),
            Listing::TurnsBackwards(id) => format!("turns backwards {}", id.as_str()),
            Listing::Conversations => "conversations".to_owned(),
        };
        let (from, until) = bounds(query);
        let full = digest(&SHA256, format!("{:?} {listing} {from} {until}", viewer.subject()).as_bytes());
        Self(full.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    fn write(&self, (number, id): &Position) -> Result<Cursor, Error> {
        Cursor::parse(&format!("{}.{number}.{id}", self.0))
    }

    fn read(&self, cursor: &Cursor) -> Result<Position, Error> {
        let mut parts = cursor.as_str().splitn(3, '.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(binding), Some(number), Some(id)) if binding == self.0 => {
                Ok((number.parse().map_err(|_| Error::Cursor)?, id.to_owned()))
            }
            _ => Err(Error::Cursor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    fn plan(sql: &str) -> Vec<String> {
        let db = schema::in_memory(&schema::CELL).unwrap();
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        std::iter::from_fn(|| rows.next().unwrap().map(|row| row.get(3).unwrap())).collect()
    }

    #[test]
    fn what_is_summed_up_for_every_pack_reads_no_row() {
        for sql in [sql_of_flat_cost(), sql_of_prefix_holds_until()] {
            let plan = plan(&sql);
            let of_memories = plan.iter().filter(|step| step.contains("memories"));
            let answered: Vec<bool> = of_memories.map(|step| step.contains("COVERING INDEX")).collect();
            assert_eq!(answered, [true; 3], "{plan:?}");
        }
    }

    #[test]
    fn a_page_of_a_list_reads_no_more_than_a_page_of_the_tenants_and_of_the_persons_own() {
        let plan = plan(&sql_of_list());
        let taken = |step: &&String| step.contains("SEARCH memories");
        let by_time = |step: &&String| step.contains("(owner_kind=? AND owner=? AND written_at<?)");
        assert!(plan.iter().filter(taken).all(|step| by_time(&step)), "{plan:?}");
        // Only what was written at the same moment is sorted; of several groups together, everything.
        let in_order = plan.iter().filter(|step| step.contains("TEMP B-TREE FOR LAST TERM OF ORDER BY"));
        assert_eq!(in_order.count(), 2, "{plan:?}");
    }
}
