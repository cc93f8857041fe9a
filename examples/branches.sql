-- The branch tour of the README, after examples/graph.sql: two agents change the Debian packages at once.

-- 1. Each has a branch, which shares every file with main.
SELECT branch, outcome FROM graph_branch_create('debian', 'agent/triage');
SELECT branch, outcome FROM graph_branch_create('debian', 'agent/tidy');

-- 2. One marks what stands on libssl3, for somebody to look at. Each statement is one commit.
SET stratagraph.actor = 'triage';
UPDATE sg."debian@agent/triage"."Package" SET section = 'review'
WHERE id IN (SELECT src FROM sg."debian@agent/triage"."DependsOn" WHERE dst = 'libssl3');
INSERT INTO sg."debian@agent/triage"."Tag" (name) VALUES ('todo::look-at');
INSERT INTO sg."debian@agent/triage"."Tagged" (src, dst)
SELECT id, 'todo::look-at' FROM sg."debian@agent/triage"."Package" WHERE section = 'review';

-- The other tidies up: an edge of a package that goes goes with it.
SET stratagraph.actor = 'tidy';
UPDATE sg."debian@agent/tidy"."Package" SET section = 'crypto' WHERE name = 'openssl';
DELETE FROM sg."debian@agent/tidy"."Package"
WHERE NOT EXISTS (SELECT 1 FROM sg."debian@agent/tidy"."DependsOn" d WHERE d.dst = "Package".id) AND section = 'web';

-- Nobody else sees any of it.
SELECT section, count(*) AS packages FROM sg.debian."Package" WHERE section IN ('review', 'crypto', 'web') GROUP BY section ORDER BY section;

-- 3. The first comes back. Main has not moved: nothing is compared, nothing is copied.
SET stratagraph.actor = 'owner';
SELECT branch, outcome FROM graph_branch_merge('debian', 'agent/triage', 'main', delete_source => true);

-- 4. The second changed a row that the first changed too. A merge takes all or nothing.
SELECT * FROM graph_branch_merge('debian', 'agent/tidy', 'main', dry_run => true);

-- The owner takes what main has for it, and the rest of the branch with it.
REPLACE INTO sg."debian@agent/tidy"."Package" SELECT * FROM sg.debian."Package" WHERE name = 'openssl';
SELECT branch, outcome FROM graph_branch_merge('debian', 'agent/tidy', 'main', delete_source => true);

SELECT section, count(*) AS packages FROM sg.debian."Package" WHERE section IN ('review', 'crypto', 'web') GROUP BY section ORDER BY section;

-- 5. Who did what.
SELECT kind, actor, count(*) AS commits FROM commits('debian') GROUP BY kind, actor ORDER BY min(version);
SELECT branch FROM graph_branches('debian');
