-- name: task_get
SELECT n, version, fact, document FROM task WHERE id = ?

-- name: task_born
SELECT n, version, fact, document, born FROM task WHERE id = ?

-- name: task_insert
INSERT INTO task (lane, project, status, rank, ready, lift_at, hold_on, asks, deps, batch, assigned_to, awaiting, owners,
                  document, fact, id, version, born)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (id) DO NOTHING

-- name: task_update
UPDATE task
SET lane = ?, project = ?, status = ?, rank = ?, ready = ?, lift_at = ?, hold_on = ?, asks = ?, deps = ?, batch = ?,
    assigned_to = ?, awaiting = ?, owners = ?, document = ?, fact = ?, version = version + 1
WHERE n = ? AND version = ? AND id = ?

-- name: task_exists
SELECT 1 FROM task WHERE id = ?

-- name: lane_get
SELECT n FROM lane WHERE project = ? AND agent = ?

-- name: lane_insert
INSERT INTO lane (project, agent) VALUES (?, ?) RETURNING n

-- name: lane_all
SELECT n, project, agent FROM lane

-- name: lanes
SELECT project, agent FROM lane
WHERE EXISTS (SELECT 1 FROM task WHERE task.lane = lane.n AND task.ready = 1)
ORDER BY project, agent

-- name: ready
SELECT rank, n, id FROM task
WHERE lane = ? AND ready = 1
ORDER BY rank, n

-- name: dep_insert
INSERT OR IGNORE INTO dep (on_, task) VALUES (?, ?)

-- name: dep_delete
DELETE FROM dep WHERE on_ = ? AND task = ?

-- name: ended_arises
INSERT OR IGNORE INTO ended
SELECT id FROM task
WHERE id = ? AND status IN ('completed', 'failed', 'cancelled') AND EXISTS (SELECT 1 FROM dep WHERE on_ = task.id)

-- name: ended_over
DELETE FROM ended WHERE task = ?1 AND NOT EXISTS (SELECT 1 FROM dep WHERE on_ = ?1)

-- name: ended_reopened
DELETE FROM ended WHERE task = ?

-- name: waiting_on
SELECT task FROM dep WHERE on_ = ?1 AND task > ?2
UNION
SELECT id FROM task WHERE hold_on = ?1 AND id > ?2
ORDER BY 1 LIMIT ?3

-- name: owned_by
SELECT owners, id FROM task WHERE owners IS NOT NULL ORDER BY id

-- name: overdue_lift
SELECT id FROM task WHERE lift_at IS NOT NULL AND lift_at <= ? ORDER BY lift_at LIMIT ?

-- name: overdue_unawaited
SELECT id FROM task WHERE status = 'verified' AND awaiting IS NULL ORDER BY n LIMIT ?

-- name: overdue_loose
SELECT id FROM task WHERE status = 'blocked' AND deps = 0 ORDER BY n LIMIT ?

-- name: overdue_asking
SELECT id FROM task WHERE asks > 0 AND asks = 2 ORDER BY n LIMIT ?

-- name: overdue_blocked
SELECT DISTINCT task.id FROM ended
CROSS JOIN dep ON dep.on_ = ended.task
CROSS JOIN task ON task.id = dep.task
WHERE task.status = 'blocked'
  AND NOT EXISTS (SELECT 1 FROM dep AS other
                  WHERE other.task = task.id AND NOT EXISTS (SELECT 1 FROM ended AS e WHERE e.task = other.on_))
ORDER BY task.hold_on IS NOT NULL, task.n LIMIT ?

-- name: tally_add
INSERT INTO tally (project, status, count) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count

-- name: counts
SELECT status, count FROM tally WHERE project = ?

-- name: counts_all
SELECT status, sum(count) FROM tally GROUP BY status

-- name: tally_open
SELECT project, status FROM tally WHERE count > 0

-- name: record_get
SELECT n, version, NULL, document FROM record WHERE kind = ? AND id = ?

-- name: record_born
SELECT n, version, NULL, document, born FROM record WHERE kind = ? AND id = ?

-- name: record_insert
INSERT INTO record (project, task, number, asks, document, kind, id, version, born) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (kind, id) DO NOTHING

-- name: record_update
UPDATE record SET project = ?, task = ?, number = ?, asks = ?, document = ?, version = version + 1
WHERE n = ? AND version = ? AND kind = ? AND id = ?

-- name: record_replace
UPDATE record SET project = ?, task = ?, number = ?, asks = ?, document = ?, version = version + 1
WHERE kind = ? AND id = ?

-- name: record_exists
SELECT 1 FROM record WHERE kind = ? AND id = ?

-- name: record_delete
DELETE FROM record WHERE kind = ? AND id = ?

-- name: engines
SELECT document FROM record WHERE kind = 'engine' ORDER BY id

-- name: fact_insert
INSERT INTO fact (position, at, prev, other, body) VALUES (?, ?, ?, ?, ?)

-- name: facts
SELECT position, body FROM fact WHERE position > ? ORDER BY position LIMIT ?

-- name: facts_of_task
WITH RECURSIVE chain (position, prev, body) AS (
    SELECT fact.position, fact.prev, fact.body
    FROM task CROSS JOIN fact ON fact.position = task.fact
    WHERE task.id = ?1 AND task.fact > ?2
    UNION ALL
    SELECT fact.position, fact.prev, fact.body
    FROM chain CROSS JOIN fact ON fact.position = chain.prev
    WHERE chain.prev > ?2
)
SELECT position, body FROM chain
UNION ALL
SELECT position, body FROM fact WHERE other = ?1 AND position > ?2
ORDER BY position LIMIT ?3

-- name: position
SELECT coalesce(max(position), 0) FROM fact

-- name: meta
SELECT value FROM meta WHERE key = ?

-- name: meta_set
UPDATE meta SET value = ?2 WHERE key = ?1

-- name: activity_insert
INSERT OR IGNORE INTO activity (run, n, at, body) VALUES (?, ?, ?, ?)

-- name: activity_of_run
SELECT body FROM activity WHERE run = ? AND n > ? ORDER BY n LIMIT ?

-- name: activity_newest
SELECT body FROM activity ORDER BY seq DESC LIMIT ?

-- name: activity_last
SELECT coalesce(max(n), -1) FROM activity WHERE run = ?

-- name: purge_first_kept
SELECT coalesce((SELECT position FROM fact WHERE at >= ? ORDER BY position LIMIT 1), (SELECT max(position) FROM fact))

-- name: purge_facts
DELETE FROM fact WHERE position IN (SELECT position FROM fact WHERE position < ? ORDER BY position LIMIT ?)
RETURNING position

-- name: purge_activity
DELETE FROM activity WHERE seq IN (
    SELECT seq FROM activity AS old
    WHERE old.seq > ?1 AND old.seq <= ?2 AND old.at < ?3
      AND EXISTS (SELECT 1 FROM activity AS later WHERE later.run = old.run AND later.n > old.n)
)

-- name: unindexed
SELECT n, document FROM task WHERE n > ? ORDER BY n LIMIT ?

-- name: words_insert
INSERT INTO words (rowid, title, description, labels) VALUES (?, ?, ?, ?)

-- name: words_delete
DELETE FROM words WHERE rowid = ?

-- name: words_known
SELECT doc FROM vocabulary WHERE term = ?

-- name: similar
SELECT task.id, -bm25(words) FROM words
CROSS JOIN task ON task.n = words.rowid
WHERE words MATCH ? AND task.project = ?
ORDER BY words.rank, task.id LIMIT ?

-- name: similar_all
SELECT task.id, -bm25(words) FROM words
CROSS JOIN task ON task.n = words.rowid
WHERE words MATCH ?
ORDER BY words.rank, task.id LIMIT ?

-- name: tasks_ready
SELECT rank, n, document FROM task WHERE lane = ? AND ready = 1 AND (rank, n) > (?, ?) ORDER BY rank, n

-- name: tasks
SELECT rank, n, document FROM task
WHERE project = ? AND status = ? AND ready = 0 AND (rank, n) > (?, ?) ORDER BY rank, n

-- name: tasks_by_prefix
SELECT rank, n, document FROM task WHERE id >= ? AND id < ? AND (rank, n) > (?, ?) ORDER BY rank, n

-- name: tasks_by_batch
SELECT rank, n, document FROM task WHERE batch = ? AND (rank, n) > (?, ?) ORDER BY rank, n

-- name: tasks_by_assignee
SELECT rank, n, document FROM task WHERE assigned_to = ? AND (rank, n) > (?, ?) ORDER BY rank, n

-- name: tasks_asking
SELECT rank, n, document FROM task WHERE asks > 0 AND (rank, n) > (?, ?) ORDER BY rank, n

-- name: records
SELECT task, number, id, document FROM record
WHERE kind = ? AND (task, number, id) > (?, ?, ?) ORDER BY task, number, id

-- name: records_of_task
SELECT task, number, id, document FROM record
WHERE kind = ? AND task = ? AND (task, number, id) > (?, ?, ?) ORDER BY number, id

-- name: index_behind
SELECT (SELECT max(n) FROM task) > value FROM meta WHERE key = 'indexed'

-- name: activity_bounds
SELECT coalesce((SELECT min(seq) FROM activity), 1) - 1, coalesce((SELECT max(seq) FROM activity), 0)
