-- The revisions of sources that a turn rests on, as its writer named them: `src_…@1 src_…@2`.
ALTER TABLE turns ADD COLUMN rests_on TEXT;
