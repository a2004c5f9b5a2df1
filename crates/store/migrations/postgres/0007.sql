-- Alert rules that people made on the page; see SQLite's migration.
SET LOCAL search_path = gradus;

CREATE TABLE alert_rule (
    name       TEXT COLLATE "C" PRIMARY KEY,
    body       TEXT COLLATE "C" NOT NULL,
    author     TEXT COLLATE "C" NOT NULL,
    changed_ns BIGINT NOT NULL
);

CREATE TABLE alert_mute (
    rule     TEXT COLLATE "C" PRIMARY KEY,
    until_ns BIGINT,
    author   TEXT COLLATE "C" NOT NULL
);
