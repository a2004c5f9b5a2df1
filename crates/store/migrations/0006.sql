-- What goes wrong: wrong verdicts for the same reason, over all projects and all time.
CREATE TABLE failure_group (
    no            INTEGER PRIMARY KEY,
    key           TEXT    NOT NULL UNIQUE,      -- that of reports
    evaluator     TEXT    NOT NULL,
    tool          TEXT    NOT NULL,             -- empty for verdicts on whole trajectories
    rule          TEXT    NOT NULL,             -- empty if a model decided
    label         TEXT    NOT NULL,
    reason        TEXT    NOT NULL,             -- with values replaced by their kind
    signature     BLOB    NOT NULL,             -- of the words of a model's reason, to recognise it in other words
    first_seen_ns INTEGER NOT NULL,             -- when the first trajectory with it began
    name          TEXT,                         -- what people call it
    note          TEXT,
    muted_ns      INTEGER
) STRICT;
CREATE INDEX failure_group_by_subject ON failure_group (evaluator, tool, label, rule);

-- Which trajectories have such verdicts, and how many.
CREATE TABLE failure (
    failure_group INTEGER NOT NULL REFERENCES failure_group,
    start_ns      INTEGER NOT NULL,
    trajectory    INTEGER NOT NULL REFERENCES trajectory,
    project       INTEGER NOT NULL,
    agent         TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    verdicts      INTEGER NOT NULL,
    PRIMARY KEY (failure_group, start_ns, trajectory)
) STRICT, WITHOUT ROWID;
CREATE INDEX failure_by_trajectory ON failure (trajectory);

ALTER TABLE outcome ADD COLUMN failure_group INTEGER;       -- null for verdicts that are not wrong
-- Wrong verdicts from before this column. The server groups them when it starts.
CREATE INDEX outcome_ungrouped ON outcome (trajectory) WHERE is_wrong AND failure_group IS NULL;
