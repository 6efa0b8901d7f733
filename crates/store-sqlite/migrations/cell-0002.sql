-- The generation of sources and of the rights to them.
ALTER TABLE state ADD COLUMN knowledge INTEGER NOT NULL DEFAULT 0;

-- The register of sources. `state` 0 draft, 1 active, 2 withdrawn, 3 deleted; `audience` 0 everybody in the
-- tenant, 1 the members of `source_groups`, and nobody if there are none. `body` holds title and origin under
-- the source's key; it is gone once a source is deleted without a copy.
CREATE TABLE sources (
  id            TEXT PRIMARY KEY,
  state         INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2, 3)),
  audience      INTEGER NOT NULL CHECK (audience IN (0, 1)),
  expires_at    INTEGER,
  no_expiry     INTEGER,
  evidence      INTEGER NOT NULL,
  purpose       TEXT,
  registered_at INTEGER NOT NULL,
  ended_at      INTEGER NOT NULL,
  current       TEXT,
  origin_tag    BLOB UNIQUE,
  body          BLOB,
  CHECK ((expires_at IS NULL) <> (no_expiry IS NULL)),
  CHECK ((state = 1) = (current IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE source_groups (
  source   TEXT NOT NULL REFERENCES sources (id),
  group_id TEXT NOT NULL REFERENCES groups (id) ON DELETE CASCADE,
  PRIMARY KEY (source, group_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX source_groups_by_group ON source_groups (group_id);

-- Revisions stay when their passages are gone: evidence names them. `approval` 0 draft, 1 approved.
CREATE TABLE revisions (
  id            TEXT PRIMARY KEY,
  source        TEXT NOT NULL REFERENCES sources (id),
  number        INTEGER NOT NULL CHECK (number > 0),
  digest        BLOB NOT NULL CHECK (length(digest) = 32),
  media         TEXT NOT NULL,
  received_at   INTEGER NOT NULL,
  valid_from    INTEGER NOT NULL,
  approval      INTEGER NOT NULL DEFAULT 0 CHECK (approval IN (0, 1)),
  published_at  INTEGER,
  passages      INTEGER NOT NULL,
  superseded_by INTEGER,
  superseded_at INTEGER,
  opening       BLOB,
  UNIQUE (source, number)
) STRICT, WITHOUT ROWID;

-- The manifest, and what is searched. `body`, `terms` and `vector` are ciphertext under the source's key.
CREATE TABLE passages (
  seq      INTEGER PRIMARY KEY,
  revision TEXT NOT NULL REFERENCES revisions (id),
  number   INTEGER NOT NULL CHECK (number > 0),
  source   TEXT NOT NULL REFERENCES sources (id),
  digest   BLOB NOT NULL CHECK (length(digest) = 32),
  region   TEXT NOT NULL,
  tokens   INTEGER NOT NULL,
  body     BLOB,
  terms    BLOB,
  vector   BLOB,
  UNIQUE (revision, number)
) STRICT;
CREATE INDEX passages_by_source ON passages (source);
