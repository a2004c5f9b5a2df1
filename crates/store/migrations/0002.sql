-- What a project is about, in the words of whoever made it.
ALTER TABLE project ADD COLUMN description TEXT;

-- Annotations of what has not come yet.
CREATE INDEX annotation_waiting ON annotation (no) WHERE trace IS NULL;
-- Those of a project, in the order they were made.
CREATE INDEX annotation_by_project ON annotation (project);

-- The conversation that a trajectory belongs to; empty when it belongs to none.
ALTER TABLE trajectory ADD COLUMN session TEXT NOT NULL DEFAULT '';
CREATE INDEX trajectory_by_session ON trajectory (session, project, start_ns) WHERE session <> '';
