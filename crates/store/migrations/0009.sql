-- The list of sessions, latest first. Its rows are read from the index alone: the session and the project are in it.
CREATE INDEX trajectory_session_by_start ON trajectory (start_ns, project, session) WHERE session <> '';
CREATE INDEX trajectory_session_by_project ON trajectory (project, start_ns, session) WHERE session <> '';
