-- One row: the generations, and the model the vectors come from.
CREATE TABLE state (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  grants  INTEGER NOT NULL,
  content INTEGER NOT NULL,
  prefix  INTEGER NOT NULL,
  model   TEXT
) STRICT;
INSERT INTO state (one, grants, content, prefix) VALUES (1, 0, 0, 0);

-- Directory. `erasing` is the tombstone: while it stands, nothing of the subject is read or written.
CREATE TABLE subjects (
  id        TEXT PRIMARY KEY,
  ref_tag   BLOB NOT NULL UNIQUE,
  reference BLOB NOT NULL,
  erasing   INTEGER NOT NULL DEFAULT 0 CHECK (erasing IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
  id   TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
  group_id TEXT NOT NULL REFERENCES groups (id) ON DELETE CASCADE,
  subject  TEXT NOT NULL REFERENCES subjects (id) ON DELETE CASCADE,
  PRIMARY KEY (group_id, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_by_subject ON members (subject);

-- Content. `owner_kind` 0 is a subject, 1 a group, 2 the tenant. `body`, `terms` (by which it is found),
-- `vector` and `opening` are ciphertext under the owner's key, the tags are keyed.
CREATE TABLE conversations (
  seq       INTEGER PRIMARY KEY,
  id        TEXT NOT NULL UNIQUE,
  owner     TEXT NOT NULL REFERENCES subjects (id),
  keep_days INTEGER,
  opened_at INTEGER NOT NULL,
  turns     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX conversations_by_owner ON conversations (owner, opened_at);

CREATE TABLE turns (
  seq          INTEGER PRIMARY KEY,
  conversation TEXT NOT NULL REFERENCES conversations (id),
  number       INTEGER NOT NULL,
  owner        TEXT NOT NULL REFERENCES subjects (id),
  speaker      INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  tokens       INTEGER NOT NULL,
  body         BLOB NOT NULL,
  terms        BLOB NOT NULL,
  vector       BLOB,
  opening      BLOB NOT NULL,
  UNIQUE (conversation, number)
) STRICT;
CREATE INDEX turns_by_owner ON turns (owner);

CREATE TABLE memories (
  seq           INTEGER PRIMARY KEY,
  id            TEXT NOT NULL,
  revision      INTEGER NOT NULL CHECK (revision > 0),
  owner_kind    INTEGER NOT NULL CHECK (owner_kind IN (0, 1, 2)),
  owner         TEXT NOT NULL,
  kind          INTEGER NOT NULL,
  author        INTEGER NOT NULL,
  valid_from    INTEGER NOT NULL,
  expires_at    INTEGER,
  no_expiry     INTEGER,
  written_at    INTEGER NOT NULL,
  written_by    TEXT NOT NULL,
  conversation  TEXT,
  tokens        INTEGER NOT NULL,
  standing      INTEGER NOT NULL DEFAULT 0 CHECK (standing IN (0, 1, 2, 3)),
  standing_at   INTEGER,
  superseded_by INTEGER,
  slot_tag      BLOB,
  text_tag      BLOB NOT NULL,
  body          BLOB NOT NULL,
  terms         BLOB NOT NULL,
  vector        BLOB,
  opening       BLOB NOT NULL,
  UNIQUE (id, revision),
  CHECK ((expires_at IS NULL) <> (no_expiry IS NULL))
) STRICT;
CREATE UNIQUE INDEX one_active_revision ON memories (id) WHERE standing = 0;
CREATE UNIQUE INDEX one_active_per_slot ON memories (owner_kind, owner, slot_tag)
  WHERE standing = 0 AND slot_tag IS NOT NULL;
CREATE INDEX memories_by_text ON memories (owner_kind, owner, text_tag) WHERE standing = 0;
CREATE INDEX memories_by_owner ON memories (owner_kind, owner, written_at);
CREATE INDEX memories_by_conversation ON memories (conversation) WHERE conversation IS NOT NULL;

CREATE TABLE openings (
  read_id    TEXT PRIMARY KEY,
  owner_kind INTEGER NOT NULL,
  owner      TEXT NOT NULL,
  keep_until INTEGER NOT NULL,
  body       BLOB NOT NULL
) STRICT;
CREATE INDEX openings_by_owner ON openings (owner_kind, owner);
CREATE INDEX openings_by_end ON openings (keep_until);

CREATE TABLE packs (
  id         TEXT PRIMARY KEY,
  owner_kind INTEGER NOT NULL,
  owner      TEXT NOT NULL,
  read_id    TEXT NOT NULL,
  at         INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  body       BLOB NOT NULL
) STRICT;
CREATE INDEX packs_by_owner ON packs (owner_kind, owner);
CREATE INDEX packs_by_end ON packs (expires_at);

-- Answers to repeated requests: ids and numbers only.
CREATE TABLE idempotency (
  tag        BLOB PRIMARY KEY,
  owner_kind INTEGER NOT NULL,
  owner      TEXT NOT NULL,
  request    BLOB NOT NULL,
  answer     TEXT NOT NULL,
  keep_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_owner ON idempotency (owner_kind, owner);
CREATE INDEX idempotency_by_end ON idempotency (keep_until);

-- Erasures. The subject's pseudonym is random and means nothing once its row and key are gone; it stays so
-- that a restored backup can be cleaned again.
CREATE TABLE erasures (
  subject       TEXT PRIMARY KEY,
  requested_at  INTEGER NOT NULL,
  actor         TEXT NOT NULL,
  step          INTEGER NOT NULL,
  memories      INTEGER NOT NULL DEFAULT 0,
  conversations INTEGER NOT NULL DEFAULT 0,
  turns         INTEGER NOT NULL DEFAULT 0,
  evidence      INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Evidence. Entries are neither changed nor removed, whoever asks.
CREATE TABLE ledger (
  position INTEGER PRIMARY KEY,
  at       INTEGER NOT NULL,
  hash     BLOB NOT NULL CHECK (length(hash) = 32),
  entry    BLOB NOT NULL
) STRICT;
CREATE TRIGGER ledger_is_not_changed BEFORE UPDATE ON ledger
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_is_not_shortened BEFORE DELETE ON ledger
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

-- Inner nodes of the tree from level 6 on, so that a proof reads at most 63 leaves and a few nodes.
CREATE TABLE ledger_nodes (
  level    INTEGER NOT NULL,
  position INTEGER NOT NULL,
  hash     BLOB NOT NULL CHECK (length(hash) = 32),
  PRIMARY KEY (level, position)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER nodes_are_not_changed BEFORE UPDATE ON ledger_nodes
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER nodes_are_not_removed BEFORE DELETE ON ledger_nodes
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

-- The right edge of the tree, so that an append reads one row.
CREATE TABLE ledger_head (
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  frontier BLOB NOT NULL,
  last_at  INTEGER NOT NULL
) STRICT;
CREATE TRIGGER head_is_not_removed BEFORE DELETE ON ledger_head
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
