-- Vectors of another model while everything is embedded anew, sealed as `vector` is. They are searched by nobody
-- and take the place of `vector` in one transaction; `next_model` says of which model they are.
ALTER TABLE state ADD COLUMN next_model TEXT;
ALTER TABLE memories ADD COLUMN vector_next BLOB;
ALTER TABLE turns ADD COLUMN vector_next BLOB;
ALTER TABLE passages ADD COLUMN vector_next BLOB;

-- What has no vector yet is found without reading the rest.
CREATE INDEX memories_without_vector ON memories (seq) WHERE vector IS NULL AND standing = 0 AND kind <> 0;
CREATE INDEX turns_without_vector ON turns (seq) WHERE vector IS NULL;
CREATE INDEX passages_without_vector ON passages (seq) WHERE vector IS NULL AND terms IS NOT NULL;
