-- Where a summary comes from: the last turn it stands for, the rule that made it, `draft` or `approved`.
ALTER TABLE turns ADD COLUMN summary TEXT;
-- What goes along when a person changes the organisation: 0 nothing, 1 an approved summary, 2 the conversation.
ALTER TABLE state ADD COLUMN organisation_switch INTEGER NOT NULL DEFAULT 0;
