-- The graph tour of the README: packages of Debian, what they depend on, how they are tagged.

-- 1. A schema, and a part of the archive in which every edge has both its ends: one commit.
SELECT graph, node_types, edge_types FROM graph_create('debian', 'examples/debian.pg');

-- The built-in model fills the vectors in the same commit.
SELECT nodes_loaded, edges_loaded FROM graph_load('debian', 'examples/data/debian.jsonl.gz', 'overwrite', embed => 'fill');

-- Each type is a table.
SELECT section, count(*) AS packages FROM sg.debian."Package" GROUP BY section ORDER BY packages DESC, section LIMIT 3;

-- 2. What breaks when libssl3 does: reverse dependencies within three hops, with their distance.
SELECT distance, count(*) AS packages FROM graph_reach('debian', 'dependsOn', 'libssl3', 1, 3, 'in')
GROUP BY distance ORDER BY distance;

-- The same with SQL alone.
WITH RECURSIVE reached(id, distance) AS (
  SELECT DISTINCT src, 1 FROM sg.debian."DependsOn" WHERE dst = 'libssl3'
  UNION
  SELECT d.src, r.distance + 1 FROM reached r JOIN sg.debian."DependsOn" d ON d.dst = r.id WHERE r.distance < 3
)
SELECT distance, count(*) AS packages FROM (SELECT id, min(distance) AS distance FROM reached GROUP BY id)
WHERE id <> 'libssl3' GROUP BY distance ORDER BY distance;

-- 3. Command-line programs that do not depend on libc6.
SELECT * FROM graph_query('debian', $$
  query standalone($tag: String) {
    match {
      $p: Package
      $p tagged $t
      $t.name = $tag
      not { $p dependsOn $q  $q.name = "libc6" }
    }
    return { $p.name as package, $p.section as section }
    order { $p.name }
  }
$$, {'tag': 'interface::commandline'});

-- The same with SQL alone.
SELECT p.name AS package, p.section FROM sg.debian."Package" p
WHERE EXISTS (SELECT 1 FROM sg.debian."Tagged" t WHERE t.src = p.id AND t.dst = 'interface::commandline')
  AND NOT EXISTS (SELECT 1 FROM sg.debian."DependsOn" d WHERE d.src = p.id AND d.dst = 'libc6')
ORDER BY p.name;

-- 4. Two hops away: what the packages that vim depends on recommend, and vim does not name itself.
SELECT * FROM graph_query('debian', $$
  query recommended($name: String) {
    match {
      $p: Package { name: $name }
      $p dependsOn $a
      $a $r:dependsOn $b
      $r.kind = "recommends" and $b.name != $name
      not { $p dependsOn $b }
    }
    return { $b.name as package, count(distinct $a) as by }
    order { by desc, $b.name }
    limit 5
  }
$$, {'name': 'vim'});

-- The same with SQL alone.
SELECT r.dst AS package, count(DISTINCT r.src) AS by FROM sg.debian."DependsOn" r
WHERE r.kind = 'recommends' AND r.dst <> 'vim'
  AND EXISTS (SELECT 1 FROM sg.debian."DependsOn" d WHERE d.src = 'vim' AND d.dst = r.src)
  AND NOT EXISTS (SELECT 1 FROM sg.debian."DependsOn" d WHERE d.src = 'vim' AND d.dst = r.dst)
GROUP BY r.dst ORDER BY by DESC, package LIMIT 5;

-- 5. By meaning and by words at once, over the whole archive.
SELECT name, summary, _vector_rank AS meaning, _text_rank AS words
FROM hybrid_search('debian.Package', 'meaning', 'summary', 'fast key value store', 4);

-- The same among the packages within two hops of libc6 alone that are libraries: meaning, words and graph in one query.
SELECT package, round(distance, 3) AS distance, summary FROM graph_query('debian', $$
  query near($what: String, $library: String) {
    match {
      $c: Package { name: $library }
      $p dependsOn{1,2} $c
      $p.section = "libs"
      search($p.summary, "library")
    }
    return { $p.name as package, nearest($p.meaning, $what) as distance, $p.summary as summary }
    order { nearest($p.meaning, $what) }
    limit 4
  }
$$, {'what': 'fast key value store', 'library': 'libc6'});

-- The same with SQL alone: the pattern by joins, the order by DataFusion's own distance.
WITH near AS (
  SELECT DISTINCT d.src AS id FROM sg.debian."DependsOn" d WHERE d.dst = 'libc6'
  UNION
  SELECT DISTINCT e.src FROM sg.debian."DependsOn" d JOIN sg.debian."DependsOn" e ON e.dst = d.src WHERE d.dst = 'libc6'
)
SELECT p.name AS package, round(cosine_distance(p.meaning, embed('fast key value store', 'static:minilm-l6-128', 'query')), 3) AS distance, p.summary
FROM sg.debian."Package" p JOIN near n ON n.id = p.id
JOIN text_search('debian.Package', 'summary', 'library', 100000) t ON t.id = p.id
WHERE p.section = 'libs' ORDER BY distance, p.name LIMIT 4;
