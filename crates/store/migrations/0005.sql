-- Questions that a judge is asked again and again, to notice that its answers moved.
CREATE TABLE anchor_set (
    rule        TEXT NOT NULL,
    evaluator   TEXT NOT NULL,
    judge       TEXT NOT NULL,
    rubric_hash TEXT NOT NULL,
    state       TEXT NOT NULL,                  -- the questions with their labels, and the rounds, as JSON
    PRIMARY KEY (rule, evaluator, judge, rubric_hash)
) STRICT, WITHOUT ROWID;
