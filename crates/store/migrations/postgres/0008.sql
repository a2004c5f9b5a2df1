-- Calls to judges that several servers agree on; see SQLite's migration.
SET LOCAL search_path = gradus;

CREATE TABLE judge_call (
    key           BYTEA PRIMARY KEY,
    rule          TEXT COLLATE "C" NOT NULL,
    project       BIGINT NOT NULL,
    trajectory_id TEXT COLLATE "C" NOT NULL,
    step          BIGINT NOT NULL,
    rubric_hash   TEXT COLLATE "C" NOT NULL,
    judge         TEXT COLLATE "C" NOT NULL,
    owner         TEXT COLLATE "C" NOT NULL,
    fence         BIGINT NOT NULL,
    begun_ns      BIGINT NOT NULL,
    reserved_usd  DOUBLE PRECISION NOT NULL,
    answer        TEXT COLLATE "C",
    answered_ns   BIGINT
);
CREATE INDEX judge_call_open ON judge_call (rule, reserved_usd) WHERE answer IS NULL;
CREATE INDEX judge_call_by_time ON judge_call (answered_ns) WHERE answer IS NOT NULL;
CREATE INDEX judge_call_by_trajectory ON judge_call (trajectory_id) WHERE answer IS NOT NULL;
CREATE INDEX judge_call_by_project ON judge_call (project);

-- Where a server runs, as the database sees it, so that people find it.
ALTER TABLE node ADD COLUMN address TEXT COLLATE "C" NOT NULL DEFAULT '';
