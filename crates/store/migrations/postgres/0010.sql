-- A search within one project examines the latest trajectories of that project, and nothing of the others.
SET LOCAL search_path = gradus;

CREATE INDEX trajectory_by_project_no ON trajectory (project, no) INCLUDE (trace);
