-- The tour of the README: embed a real sample, edit its source, refresh, search, look back.

-- 1. A source. Any table of the session will do; this one is a CSV file that is edited below.
CREATE EXTERNAL TABLE sample STORED AS CSV LOCATION 'examples/packages.csv'
OPTIONS ('format.has_header' 'true');

COPY (SELECT * FROM sample) TO 'target/tour/packages.csv' STORED AS CSV
OPTIONS ('format.has_header' 'true');

CREATE EXTERNAL TABLE packages (id BIGINT, name VARCHAR, version VARCHAR, month VARCHAR, summary VARCHAR)
STORED AS CSV LOCATION 'target/tour/packages.csv'
OPTIONS ('format.has_header' 'true');

-- 2. Embed every summary once. Rows without a text are rejects: reported, not lost.
SELECT "table", version, rows, dropped_rows, dimensions, model
FROM generate_embeddings(packages, NULL, 'summary', 'id', name => 'packages');

-- 3. The source changes: two summaries are edited, one package is new, one is gone.
COPY (
  SELECT id, name, version, month,
         CASE name WHEN 'boto3' THEN 'Python SDK for cloud storage, queues and databases'
                   WHEN 'certifi' THEN 'Root certificates to verify TLS servers'
                   ELSE summary END AS summary
  FROM sample WHERE name <> 'six'
  UNION ALL
  SELECT 900001, 'stratagraph', '0.1.0', '2026-11', 'Fresh embeddings and vector search inside DataFusion'
) TO 'target/tour/packages.csv' STORED AS CSV OPTIONS ('format.has_header' 'true');

-- 4. Only what changed is embedded; the new version appears at once, or not at all.
SELECT version, inferred_rows, added, changed, deleted, unchanged, live_rows, outcome
FROM refresh_embeddings('packages');

-- Nothing changed since: nothing is written.
SELECT version, inferred_rows, unchanged, outcome FROM refresh_embeddings('packages');

-- 5. Search is a table function: join it with the source.
SELECT s.rank, round(s.similarity, 3) AS similarity, p.name, p.summary
FROM search('packages', 'verify TLS certificates of servers', 5) s
JOIN packages p ON s._row_id = CAST(p.id AS VARCHAR)
ORDER BY s.rank;

-- 6. Every version stays readable until you expire it.
SELECT version, kind, live_rows, masked_rows, fragments, current FROM versions('packages');
SELECT count(*) AS now FROM sg.embeddings.packages;
SELECT count(*) AS before FROM sg.embeddings."packages@0";
