-- What a flat list of everything visible would cost is summed up for every context pack, without reading a row.
-- Tokens come before the times, so that no list takes this index for its times.
CREATE INDEX memories_by_cost
  ON memories (owner_kind, owner, tokens, kind, valid_from, expires_at, written_at, standing) WHERE standing = 0;
