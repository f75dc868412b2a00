-- A task, a record or a fact is a JSON document; beside it stands only what lists and conditions look at.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('indexed', 0), ('gone', 0);

CREATE TABLE lane (
    n       INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    agent   TEXT NOT NULL,
    UNIQUE (project, agent)
) STRICT;

-- n is the order of arrival.
CREATE TABLE task (
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    version     INTEGER NOT NULL,
    born        BLOB NOT NULL,
    project     TEXT NOT NULL,
    lane        INTEGER NOT NULL,
    status      TEXT NOT NULL,
    rank        INTEGER NOT NULL,
    ready       INTEGER NOT NULL,
    lift_at     INTEGER,
    hold_on     TEXT,
    asks        INTEGER NOT NULL,
    deps        INTEGER NOT NULL,
    batch       TEXT,
    assigned_to TEXT,
    awaiting    TEXT,
    owners      TEXT,
    fact        INTEGER,
    document    BLOB NOT NULL
) STRICT;
-- A task is in one of these two: by lane while it is ready, by state while it is not.
CREATE INDEX task_ready ON task (lane, rank, n, id) WHERE ready = 1;
CREATE INDEX task_list ON task (project, status, rank, n) WHERE ready = 0;
CREATE INDEX task_lift ON task (lift_at) WHERE lift_at IS NOT NULL;
CREATE INDEX task_hold ON task (hold_on, id) WHERE hold_on IS NOT NULL;
CREATE INDEX task_asks ON task (asks) WHERE asks > 0;
CREATE INDEX task_loose ON task (n) WHERE status = 'blocked' AND deps = 0;
CREATE INDEX task_unawaited ON task (n) WHERE status = 'verified' AND awaiting IS NULL;
CREATE INDEX task_owned ON task (id, owners) WHERE owners IS NOT NULL;
CREATE INDEX task_batch ON task (batch, rank, n) WHERE batch IS NOT NULL;
CREATE INDEX task_assigned ON task (assigned_to, rank, n) WHERE assigned_to IS NOT NULL;

-- Which task is blocked by which.
CREATE TABLE dep (
    on_  TEXT NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (on_, task)
) STRICT, WITHOUT ROWID;
CREATE INDEX dep_task ON dep (task, on_);

-- Tasks that have ended and still block somebody: what a sweep must look at.
CREATE TABLE ended (
    task TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- How many tasks of a project are in a state.
CREATE TABLE tally (
    project TEXT NOT NULL,
    status  TEXT NOT NULL,
    count   INTEGER NOT NULL,
    PRIMARY KEY (project, status)
) STRICT, WITHOUT ROWID;

-- Everything that is not a task. n is never given twice, so (n, version) names one state for ever.
CREATE TABLE record (
    n        INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL,
    id       TEXT NOT NULL,
    version  INTEGER NOT NULL,
    born     BLOB NOT NULL,
    project  TEXT NOT NULL,
    task     TEXT NOT NULL,
    number   INTEGER NOT NULL,
    asks     INTEGER NOT NULL,
    document BLOB NOT NULL,
    UNIQUE (kind, id)
) STRICT;
CREATE INDEX record_list ON record (kind, task, number, id);

-- The newest fact is never deleted: its position would be given again.
-- The facts that a task states of itself are a chain from task.fact backwards by prev: that costs a commit nothing,
-- an index would cost it a page. A fact that somebody else states of a task is found by `other`.
CREATE TABLE fact (
    position INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    prev     INTEGER,
    other    TEXT,
    body     BLOB NOT NULL
) STRICT;
CREATE INDEX fact_other ON fact (other, position) WHERE other IS NOT NULL;

CREATE TABLE activity (
    seq  INTEGER PRIMARY KEY,
    run  TEXT NOT NULL,
    n    INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (run, n)
) STRICT;

-- Words of the tasks with n <= meta.indexed.
CREATE VIRTUAL TABLE words USING fts5 (
    title, description, labels, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row);
