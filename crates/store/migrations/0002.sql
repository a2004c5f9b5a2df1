-- The ready queue: fair between projects, and safe from a trace that ends the process that assembles it.

ALTER TABLE due ADD COLUMN project INTEGER NOT NULL DEFAULT 0;      -- whose turn it takes
ALTER TABLE due ADD COLUMN is_started INTEGER NOT NULL DEFAULT 0;   -- an attempt to assemble it began and has not ended: 1 with others, 2 alone
ALTER TABLE due ADD COLUMN is_suspect INTEGER NOT NULL DEFAULT 0;   -- the process ended while it was assembled with others; it is taken alone
ALTER TABLE due ADD COLUMN quarantined_ns INTEGER;                  -- when it was given up; only a person brings it back
ALTER TABLE due ADD COLUMN reason TEXT;                             -- why the last attempt failed
UPDATE due SET project = coalesce((SELECT project FROM trace WHERE no = story), 0);

DROP INDEX due_by_time;
DROP INDEX due_again;
CREATE INDEX due_by_project ON due (project, is_ended, arrived_ns) WHERE attempts = 0;
CREATE INDEX due_again ON due (not_before_ns) WHERE attempts > 0 AND quarantined_ns IS NULL;
CREATE INDEX due_quarantined ON due (quarantined_ns) WHERE quarantined_ns IS NOT NULL;
