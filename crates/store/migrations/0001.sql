-- Times are nanoseconds since 1970. A trace is known by its number inside the store: numbers grow with arrival, so rows
-- of one time lie together, which random ids would scatter.

CREATE TABLE project (
    no         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    created_ns INTEGER NOT NULL,
    traces     INTEGER NOT NULL DEFAULT 0,      -- kept by the triggers on trace
    spans      INTEGER NOT NULL DEFAULT 0,
    trajectories INTEGER NOT NULL DEFAULT 0,    -- kept by the triggers on trajectory
    description TEXT                            -- what it is about, in the words of whoever made it
) STRICT;

CREATE TABLE trace (
    no           INTEGER PRIMARY KEY,
    trace_id     BLOB    NOT NULL UNIQUE,
    project      INTEGER NOT NULL REFERENCES project,
    name         TEXT    NOT NULL,              -- of its root, else of the span that came first
    start_ns     INTEGER NOT NULL,
    end_ns       INTEGER NOT NULL,
    spans        INTEGER NOT NULL,
    errors       INTEGER NOT NULL,              -- spans that ended in an error
    bytes        INTEGER NOT NULL,              -- of its blocks, compressed
    has_root     INTEGER NOT NULL,              -- 2 when it has ended
    has_versions INTEGER NOT NULL,              -- some span came more than once, with different content
    story        INTEGER NOT NULL,              -- the first of the traces that are assembled together
    arrived_ns   INTEGER NOT NULL               -- when something of it came last
) STRICT;
CREATE INDEX trace_by_project ON trace (project, start_ns);
CREATE INDEX trace_by_start ON trace (start_ns);
-- Nearly every trace is its own story: only the others need to be found.
CREATE INDEX trace_by_story ON trace (story) WHERE story <> no;

CREATE TRIGGER trace_added AFTER INSERT ON trace BEGIN
    UPDATE project SET traces = traces + 1, spans = spans + NEW.spans WHERE no = NEW.project;
END;
CREATE TRIGGER trace_removed AFTER DELETE ON trace BEGIN
    UPDATE project SET traces = traces - 1, spans = spans - OLD.spans WHERE no = OLD.project;
END;
CREATE TRIGGER trace_grown AFTER UPDATE OF spans ON trace WHEN NEW.spans <> OLD.spans AND NEW.project = OLD.project BEGIN
    UPDATE project SET spans = spans + NEW.spans - OLD.spans WHERE no = NEW.project;
END;
CREATE TRIGGER trace_moved AFTER UPDATE OF project ON trace WHEN NEW.project <> OLD.project BEGIN
    UPDATE project SET traces = traces - 1, spans = spans - OLD.spans WHERE no = OLD.project;
    UPDATE project SET traces = traces + 1, spans = spans + NEW.spans WHERE no = NEW.project;
END;

-- Records of one trace that came together: an OTLP export request of their own, compressed.
CREATE TABLE block (
    no         INTEGER PRIMARY KEY,
    trace      INTEGER NOT NULL REFERENCES trace,
    signal     INTEGER NOT NULL,                -- 0 spans, 1 log records
    arrived_ns INTEGER NOT NULL,
    digest     INTEGER NOT NULL,                -- of the records, to know a request that came twice
    body       BLOB    NOT NULL
) STRICT;
CREATE INDEX block_by_trace ON block (trace);

-- Which block holds the version of a span that counts.
CREATE TABLE span (
    trace   INTEGER NOT NULL REFERENCES trace,
    span_id INTEGER NOT NULL,
    block   INTEGER NOT NULL,
    digest  INTEGER NOT NULL,
    ended   INTEGER NOT NULL,
    error   INTEGER NOT NULL,
    PRIMARY KEY (trace, span_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX span_by_id ON span (span_id);

-- What ties traces without a common root to each other.
CREATE TABLE link (
    key   INTEGER NOT NULL,
    kind  INTEGER NOT NULL,
    trace INTEGER NOT NULL REFERENCES trace,
    PRIMARY KEY (key, kind, trace)
) STRICT, WITHOUT ROWID;
CREATE INDEX link_by_trace ON link (trace);

-- Stories that something came for since they were assembled.
CREATE TABLE due (
    story      INTEGER PRIMARY KEY,
    arrived_ns INTEGER NOT NULL,
    is_ended   INTEGER NOT NULL,                -- the root is there and has ended
    attempts   INTEGER NOT NULL DEFAULT 0,      -- to assemble it that failed; it is set aside since
    not_before_ns INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX due_by_time ON due (is_ended, arrived_ns) WHERE attempts = 0;
CREATE INDEX due_again ON due (not_before_ns) WHERE attempts > 0;

CREATE TABLE trajectory (
    no            INTEGER PRIMARY KEY,
    trajectory_id TEXT    NOT NULL UNIQUE,
    story         INTEGER NOT NULL,
    trace         INTEGER NOT NULL REFERENCES trace,
    project       INTEGER NOT NULL REFERENCES project,
    start_ns      INTEGER NOT NULL,
    end_ns        INTEGER NOT NULL,
    agent         TEXT    NOT NULL,
    session       TEXT    NOT NULL,             -- the conversation it belongs to; empty when it belongs to none
    version       TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    query         TEXT    NOT NULL,             -- its beginning
    steps         INTEGER NOT NULL,
    is_error      INTEGER NOT NULL,
    tools         TEXT    NOT NULL,             -- their names, a line each
    tokens        INTEGER NOT NULL,
    cost_usd      REAL,
    digest        BLOB    NOT NULL,
    body          BLOB    NOT NULL              -- the trajectory as JSON without tool definitions, compressed
) STRICT;
CREATE TRIGGER trajectory_added AFTER INSERT ON trajectory BEGIN
    UPDATE project SET trajectories = trajectories + 1 WHERE no = NEW.project;
END;
CREATE TRIGGER trajectory_removed AFTER DELETE ON trajectory BEGIN
    UPDATE project SET trajectories = trajectories - 1 WHERE no = OLD.project;
END;
CREATE TRIGGER trajectory_moved AFTER UPDATE OF project ON trajectory WHEN NEW.project <> OLD.project BEGIN
    UPDATE project SET trajectories = trajectories - 1 WHERE no = OLD.project;
    UPDATE project SET trajectories = trajectories + 1 WHERE no = NEW.project;
END;

CREATE INDEX trajectory_by_story ON trajectory (story);
CREATE INDEX trajectory_by_trace ON trajectory (trace);
CREATE INDEX trajectory_by_project ON trajectory (project, start_ns);
CREATE INDEX trajectory_by_start ON trajectory (start_ns);
CREATE INDEX trajectory_by_session ON trajectory (session, project, start_ns) WHERE session <> '';

-- What traces are filtered by, in the order they are listed in.
CREATE TABLE facet (
    project  INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    value    TEXT    NOT NULL,
    start_ns INTEGER NOT NULL,
    trace    INTEGER NOT NULL REFERENCES trace,
    PRIMARY KEY (project, kind, value, start_ns, trace)
) STRICT, WITHOUT ROWID;
CREATE INDEX facet_by_trace ON facet (trace, kind, value);

-- The words of a trajectory; its row number is the trajectory's. Signs that belong to a letter are part of a word.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, detail = none, tokenize = "unicode61 categories 'L* N* M* Co'"
);

-- The verdicts that count: one for each question.
CREATE TABLE outcome (
    trajectory INTEGER NOT NULL REFERENCES trajectory,
    evaluator  TEXT    NOT NULL,
    step       INTEGER NOT NULL,                -- 0 for the whole trajectory
    kind       INTEGER NOT NULL,                -- 0 scored, 1 not applicable, 2 failed
    label      TEXT,
    score      REAL,
    is_wrong   INTEGER NOT NULL,                -- below the best that its evaluator gives
    tool       TEXT    NOT NULL,
    judged_ns  INTEGER NOT NULL,
    run        TEXT    NOT NULL,
    line       TEXT    NOT NULL,                -- the outcome as `gradus eval --jsonl` writes it
    PRIMARY KEY (trajectory, evaluator, step)
) STRICT, WITHOUT ROWID;
-- For tools that were wrong: few verdicts are, and what explains them is long.
CREATE INDEX outcome_wrong ON outcome (trajectory, evaluator, tool, is_wrong) WHERE is_wrong;

-- Sums for metrics over time, enough for a mean and for an interval that knows that steps of one trajectory hang together.
CREATE TABLE rollup (
    project   INTEGER NOT NULL,
    evaluator TEXT    NOT NULL,
    bucket    INTEGER NOT NULL,                 -- when the trajectories began, in buckets of five minutes
    agent     TEXT    NOT NULL,
    version   TEXT    NOT NULL,
    model     TEXT    NOT NULL,
    tool      TEXT    NOT NULL,                 -- empty: all tools together
    trajectories INTEGER NOT NULL,
    scored_trajectories INTEGER NOT NULL,       -- with at least one score
    scored    INTEGER NOT NULL,
    sum       REAL    NOT NULL,
    sum_sum   REAL    NOT NULL,
    sum_n     REAL    NOT NULL,
    n_n       REAL    NOT NULL,
    failed    INTEGER NOT NULL,
    not_applicable INTEGER NOT NULL,
    PRIMARY KEY (project, evaluator, tool, bucket, agent, version, model)
) STRICT, WITHOUT ROWID;

-- The same over hours and days, over one name at a time and over all three together, so that a page that looks far back
-- reads few rows, however many names there are. The project 0 stands for all of them.
CREATE TABLE rollup_long (
    size      INTEGER NOT NULL,                 -- of a bucket, in hours: 1 or 24
    project   INTEGER NOT NULL,
    evaluator TEXT    NOT NULL,
    tool      TEXT    NOT NULL,                 -- empty: all tools together
    kind      INTEGER NOT NULL,                 -- whose name: 0 nobody's, so all; 1 the agent's, 2 the version's, 3 the model's,
                                                -- 4 all three together, as a JSON array
    name      TEXT    NOT NULL,
    bucket    INTEGER NOT NULL,
    trajectories INTEGER NOT NULL,
    scored_trajectories INTEGER NOT NULL,
    scored    INTEGER NOT NULL,
    sum       REAL    NOT NULL,
    sum_sum   REAL    NOT NULL,
    sum_n     REAL    NOT NULL,
    n_n       REAL    NOT NULL,
    failed    INTEGER NOT NULL,
    not_applicable INTEGER NOT NULL,
    PRIMARY KEY (size, project, evaluator, tool, kind, name, bucket)
) STRICT, WITHOUT ROWID;

-- What trajectories took and cost, in the same way.
CREATE TABLE usage_long (
    size      INTEGER NOT NULL,
    project   INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    name      TEXT    NOT NULL,
    bucket    INTEGER NOT NULL,
    trajectories INTEGER NOT NULL,
    errors    INTEGER NOT NULL,
    steps     INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    took_ns   REAL    NOT NULL,
    costed    INTEGER NOT NULL,                 -- those whose cost is known
    cost_usd  REAL    NOT NULL,
    PRIMARY KEY (size, project, kind, name, bucket)
) STRICT, WITHOUT ROWID;

-- Trajectories that a model has still to judge.
CREATE TABLE ungraded (
    trajectory INTEGER PRIMARY KEY REFERENCES trajectory,
    rule       TEXT    NOT NULL,
    since_ns   INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,      -- that ended without an answer, through the question's own fault
    delays     INTEGER NOT NULL DEFAULT 0,      -- through no fault of its own
    not_before_ns INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX ungraded_by_rule ON ungraded (rule);

-- What judging cost, by when it was spent.
CREATE TABLE spend (
    bucket   INTEGER NOT NULL,                  -- of five minutes
    rule     TEXT    NOT NULL,
    project  INTEGER NOT NULL,
    calls    INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,                  -- of the calls, those whose price is not known
    cost_usd REAL    NOT NULL,
    PRIMARY KEY (bucket, rule, project)
) STRICT, WITHOUT ROWID;

-- What people, and programs that are no judge of ours, say of a span, a trace, a trajectory or one of its steps.
CREATE TABLE annotation (
    no          INTEGER PRIMARY KEY,
    target      TEXT    NOT NULL,               -- span:ID, trace:ID, trajectory:ID or trajectory:ID#STEP
    project     INTEGER,
    trace       INTEGER,
    name        TEXT    NOT NULL,
    identifier  TEXT    NOT NULL,
    annotator   TEXT    NOT NULL,
    label       TEXT,
    score       REAL,
    explanation TEXT,
    metadata    TEXT    NOT NULL,
    author      TEXT    NOT NULL,
    created_ns  INTEGER NOT NULL,
    updated_ns  INTEGER NOT NULL,
    UNIQUE (target, name, identifier)
) STRICT;
CREATE INDEX annotation_by_trace ON annotation (trace);
-- Annotations of what has not come yet.
CREATE INDEX annotation_waiting ON annotation (no) WHERE trace IS NULL;
-- Those of a project, in the order they were made.
CREATE INDEX annotation_by_project ON annotation (project);
-- What people said, which is little beside what programs say; what was said last comes last.
CREATE INDEX annotation_of_people ON annotation (updated_ns, no) WHERE annotator = 'HUMAN' AND label IS NOT NULL;

CREATE TABLE api_key (
    no         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    hash       BLOB    NOT NULL UNIQUE,
    scopes     TEXT    NOT NULL,
    created_ns INTEGER NOT NULL,
    revoked_ns INTEGER
) STRICT;

-- People who signed in on the page: a cookie holds the session's name, and nothing that is worth more than it.
CREATE TABLE page_session (
    hash       BLOB    NOT NULL PRIMARY KEY,
    key        INTEGER NOT NULL REFERENCES api_key,
    until_ns   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE alert_state (
    rule  TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL
) STRICT;

CREATE TABLE alert_event (
    no    INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    rule  TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    body  TEXT    NOT NULL
) STRICT;
CREATE INDEX alert_event_by_time ON alert_event (at_ns);
