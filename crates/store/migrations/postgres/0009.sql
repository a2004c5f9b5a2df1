-- The list of sessions, latest first; see SQLite's migration.
SET LOCAL search_path = gradus;

CREATE INDEX trajectory_session_by_start ON trajectory (start_ns, project, session) WHERE session <> '';
CREATE INDEX trajectory_session_by_project ON trajectory (project, start_ns, session) WHERE session <> '';
