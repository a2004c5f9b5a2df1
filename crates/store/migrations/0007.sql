-- Alert rules that people made on the page. Those of the settings file are not stored.
CREATE TABLE alert_rule (
    name       TEXT    NOT NULL PRIMARY KEY,
    body       TEXT    NOT NULL,                -- the rule as JSON; it contains addresses of webhooks, which are secrets
    author     TEXT    NOT NULL,                -- name of the key; empty where no keys are needed
    changed_ns INTEGER NOT NULL
) STRICT;

-- Rules, of the page or of the file, whose notices go to the log only.
CREATE TABLE alert_mute (
    rule     TEXT    NOT NULL PRIMARY KEY,
    until_ns INTEGER,                           -- null: until somebody ends it
    author   TEXT    NOT NULL
) STRICT;
