CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tenants (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  system     INTEGER NOT NULL CHECK (system IN (0, 1)),
  created_at INTEGER NOT NULL,
  key        BLOB NOT NULL,
  seed       BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
  id         TEXT PRIMARY KEY,
  tenant     TEXT NOT NULL REFERENCES tenants (id),
  digest     BLOB NOT NULL CHECK (length(digest) = 32),
  role       TEXT NOT NULL,
  subject    TEXT,
  act_for    INTEGER NOT NULL CHECK (act_for IN (0, 1)),
  label      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;
