-- The list of sessions, latest first; see SQLite's migration.
SET LOCAL search_path = gradus;

CREATE INDEX trajectory_session_by_start ON trajectory (start_ns, project, session) WHERE session <> '';
CREATE INDEX trajectory_session_by_project ON trajectory (project, start_ns, session) WHERE session <> '';

-- Bodies are compressed already: the server need not try it again.
ALTER TABLE block ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE trajectory ALTER COLUMN body SET STORAGE EXTERNAL;
