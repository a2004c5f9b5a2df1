-- Calls to judges that several servers agree on. A row is written before the call: it says who asks, and reserves what
-- the call may cost. The answer replaces the reservation; a call without an answer leaves no row.
-- The one server of an SQLite store keeps next to nothing here, so there are no indexes.
CREATE TABLE judge_call (
    key           BLOB    NOT NULL PRIMARY KEY, -- hash of all that may change the answer: content, rubric, judge
    rule          TEXT    NOT NULL,             -- whose budget pays
    project       INTEGER NOT NULL,
    trajectory_id TEXT    NOT NULL,
    step          INTEGER NOT NULL,             -- 0 for the whole trajectory
    rubric_hash   TEXT    NOT NULL,
    judge         TEXT    NOT NULL,
    owner         TEXT    NOT NULL,             -- the server that asks
    fence         INTEGER NOT NULL,             -- differs for all calls of a server
    begun_ns      INTEGER NOT NULL,
    reserved_usd  REAL    NOT NULL,
    answer        TEXT,                         -- null while the call is under way
    answered_ns   INTEGER
) STRICT, WITHOUT ROWID;
