"""One-row commits and a traversal of three hops in SQLite, and in Kuzu where `pip install kuzu` was run.

    python3 graph_writes.py FOLDER_OF_THE_GRAPH FOLDER_TO_WRITE [DEPTH]

The graph is `packages.jsonl.gz` and `edges.jsonl.gz`, or one file of both. Every commit is synced.
"""

import gzip
import json
import os
import sqlite3
import statistics
import sys
import time

AROUND = 21
START = "libssl3"


def load(folder):
    nodes, edges = {}, []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jsonl.gz"):
            continue
        with gzip.open(os.path.join(folder, name), "rt") as lines:
            for line in lines:
                row = json.loads(line)
                if row.get("type") == "Package":
                    nodes[row["data"]["name"]] = row["data"].get("section")
                elif row.get("edge") == "DependsOn":
                    edges.append((row["from"], row["to"]))
    return nodes, edges


def commits(name, insert, hops, depth):
    times = []
    for n in range(depth):
        started = time.perf_counter()
        insert(n)
        times.append(time.perf_counter() - started)
        if n + 1 in (AROUND, 300, depth):
            middle = statistics.median(times[-AROUND:]) * 1e3
            best = min(timed(hops) for _ in range(6)) * 1e3
            print(f"{name} after {n + 1} commits: insert {middle:.2f} ms, 3 hops {best:.1f} ms, {hops()} rows")


def timed(run):
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def sqlite(nodes, edges, folder, depth, mode):
    db = sqlite3.connect(os.path.join(folder, f"sqlite-{mode}.db"), isolation_level=None)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE package(name TEXT PRIMARY KEY, section TEXT) WITHOUT ROWID")
    db.execute("CREATE TABLE depends(src TEXT, dst TEXT)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO package VALUES (?, ?)", nodes.items())
    db.executemany("INSERT INTO depends VALUES (?, ?)", edges)
    db.execute("CREATE INDEX by_dst ON depends(dst, src)")
    db.execute("CREATE INDEX by_src ON depends(src, dst)")
    db.execute("COMMIT")

    def insert(n):
        if n % 2 == 0:
            db.execute("INSERT INTO package VALUES (?, 'games')", (f"new-{n // 2:06}",))
        else:
            db.execute("INSERT INTO depends VALUES (?, ?)", (f"new-{n // 2:06}", START))

    def hops():
        return db.execute(
            "WITH RECURSIVE r(id, d) AS (SELECT ?, 0 UNION "
            "SELECT src, d + 1 FROM r JOIN depends ON dst = id WHERE d < 3) "
            "SELECT count(DISTINCT id) FROM r WHERE d > 0",
            (START,),
        ).fetchone()[0]

    commits(f"sqlite {mode.lower()}", insert, hops, depth)


def kuzu(nodes, edges, folder, depth):
    try:
        import kuzu as peer
    except ImportError:
        print("kuzu is not installed")
        return
    db = peer.Connection(peer.Database(os.path.join(folder, "kuzu.db")))
    db.execute("CREATE NODE TABLE Package(name STRING PRIMARY KEY, section STRING)")
    db.execute("CREATE REL TABLE DependsOn(FROM Package TO Package)")
    for name, header, rows in (("Package", "", nodes.items()), ("DependsOn", "", edges)):
        path = os.path.join(folder, f"{name}.csv")
        with open(path, "w") as out:
            out.writelines(f'"{a}","{b or ""}"\n' for a, b in rows)
        db.execute(f'COPY {name} FROM "{path}"{header}')

    def insert(n):
        new = f"new-{n // 2:06}"
        if n % 2 == 0:
            db.execute("CREATE (:Package {name: $n, section: 'games'})", {"n": new})
        else:
            db.execute(
                "MATCH (a:Package {name: $n}), (b:Package {name: $s}) CREATE (a)-[:DependsOn]->(b)",
                {"n": new, "s": START},
            )

    def hops():
        found = db.execute(
            "MATCH (a:Package {name: $s})<-[:DependsOn*1..3]-(b:Package) RETURN count(DISTINCT b.name)",
            {"s": START},
        )
        return found.get_next()[0]

    commits("kuzu", insert, hops, depth)


if __name__ == "__main__":
    graph = load(sys.argv[1])
    depth = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    for mode in ("DELETE", "WAL"):
        sqlite(*graph, sys.argv[2], depth, mode)
    kuzu(*graph, sys.argv[2], depth)
