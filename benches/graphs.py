#!/usr/bin/env python3
"""The graph queries of a social network here and in its peers, in one run on one machine.

  python benches/social.py DATA                   (or --degrees powerlaw, --persons N)
  python benches/graphs.py PROGRAM DATA STORE     PROGRAM is the release program, STORE a folder for its store

Prints CPU milliseconds a statement: of the peers' process, least of several rounds; of ours the difference
between many statements and few of them in one process, divided by their number, so that starting it and
reading the topology for the first time do not count. Answers are compared where they have one order.
Peers that are not installed are left out: pip install duckdb kuzu ladybug igraph pyarrow numpy
"""
import importlib, json, os, resource, shutil, subprocess, sys, time

PROGRAM, DATA, STORE = sys.argv[1:4]
ONLY = sys.argv[4].split(",") if sys.argv[4:] and sys.argv[4] else None
LEAST, MOST = 3, 12

SCHEMA = """node Person { pid: I64 @key  name: String  gender: String  birthday: Date?  age: I64  isMarried: Bool }
node City { cid: I64 @key city: String state: String country: String lat: F64 lng: F64 population: I32? }
node State { sid: I64 @key state: String country: String } node Country { coid: I64 @key country: String }
node Interest { iid: I64 @key interest: String } edge Follows: Person -> Person  edge LivesIn: Person -> City
edge HasInterest: Person -> Interest  edge CityIn: City -> State  edge StateIn: State -> Country"""
NODES = {"Person": ("persons", 'id AS pid, name, gender, birthday, age, "isMarried"'),
         "City": ("cities", "id AS cid, city, state, country, lat, lng, population"),
         "State": ("states", "id AS sid, state, country"), "Country": ("countries", "id AS coid, country"),
         "Interest": ("interests", "id AS iid, interest")}
EDGES = {"Follows": "follows", "LivesIn": "lives_in", "HasInterest": "has_interest", "CityIn": "city_in",
         "StateIn": "state_in"}

def gq(body, ret):
    return f"SELECT * FROM graph_query('social', 'query q() {{ match {{ {body} }} return {{ {ret} }} }}')"

def ranked(body, ret, tail):
    return f"SELECT * FROM graph_query('social', 'query q() {{ match {{ {body} }} return {{ {ret} }} {tail} }}')"

OURS = {
 "nothing": "SELECT 1",
 "q1": ranked("$f follows $p", "$p.pid as id, $p.name as name, count($f) as n", "order { n desc, $p.pid } limit 3"),
 "q2": "SELECT m.id, m.name, m.n, c.city, c.state FROM ("
       + ranked("$f follows $p", "$p.pid as id, $p.name as name, count($f) as n", "order { n desc, $p.pid } limit 1")
       + """) m JOIN sg.social."LivesIn" l ON l.src = CAST(m.id AS VARCHAR) JOIN sg.social."City" c ON c.id = l.dst""",
 "q3": ranked('$p livesIn $c  $c cityIn $s  $s stateIn $k  $k.country = "United States"',
              "$c.city as city, avg($p.age) as a", "order { a, $c.city } limit 5"),
 "q4": ranked("$p: Person  $p.age >= 30  $p.age <= 40  $p livesIn $c  $c cityIn $s  $s stateIn $k",
              "$k.country as country, count() as n", "order { n desc, $k.country } limit 3"),
 "q5": gq('$i: Interest { interest: "Fine Dining" }  $p hasInterest $i  $p.gender = "male"  $p livesIn $c  '
          '$c.city = "London"  $c.country = "United Kingdom"', "count($p) as n"),
 "q6": ranked('$i: Interest { interest: "Tennis" }  $p hasInterest $i  $p.gender = "female"  $p livesIn $c',
              "count($p) as n, $c.city as city, $c.country as country", "order { n desc, $c.city } limit 5"),
 "q7": ranked('$p: Person  $p.age >= 23  $p.age <= 30  $p livesIn $c  $c cityIn $s  $s.country = "United States"  '
              '$i: Interest { interest: "Photography" }  $p hasInterest $i',
              "count($p) as n, $s.state as state, $s.country as country", "order { n desc, $s.state } limit 1"),
 "q8": gq("$a follows $b  $b follows $c", "count() as n"),
 "q9": gq("$a follows $b  $b follows $c  $b.age < 50  $c.age > 25", "count() as n"),
 "hop1": gq("$a: Person { pid: 1 }  $a follows $b", "count(distinct $b) as n"),
 "hop2": gq("$a: Person { pid: 1 }  $a follows $x  $x follows $b", "count(distinct $b) as n"),
 "hop3": gq("$a: Person { pid: 1 }  $a follows $x  $x follows $y  $y follows $b", "count(distinct $b) as n"),
 "bfs": "SELECT distance, count(*) AS n FROM graph_reach('social', 'follows', '1', 1, 10) "
        "GROUP BY distance ORDER BY distance",
 "pair": "SELECT distance FROM graph_reach('social', 'follows', '1', 1, 10) WHERE id = '77777'",
 "cycles3": gq("$a follows $b  $b follows $c  $c follows $a", "count() as n"),
 "anti": gq("$p: Person  not { $p follows $q  $q.age >= 50 }", "count($p) as n"),
}
DUCK = {
 "nothing": "select 1",
 "q1": 'select p.id, p.name, count(f."from") n from follows f join persons p on f."to"=p.id group by p.id,p.name order by n desc, p.id limit 3',
 "q2": 'with m as (select p.id, p.name, count(f."from") n from follows f join persons p on f."to"=p.id group by p.id,p.name order by n desc, p.id limit 1) select m.id, m.name, m.n, c.city, c.state from m join lives_in l on l."from"=m.id join cities c on c.id=l."to"',
 "q3": 'select c.city, avg(p.age) a from persons p join lives_in l on l."from"=p.id join cities c on c.id=l."to" join city_in ci on ci."from"=c.id join state_in si on si."from"=ci."to" join countries co on co.id=si."to" where co.country=\'United States\' group by c.id,c.city order by a, c.city limit 5',
 "q4": 'select co.country, count(*) n from persons p join lives_in l on l."from"=p.id join city_in ci on ci."from"=l."to" join state_in si on si."from"=ci."to" join countries co on co.id=si."to" where p.age>=30 and p.age<=40 group by co.country order by n desc limit 3',
 "q5": 'select count(*) from persons p join has_interest h on h."from"=p.id join interests i on i.id=h."to" join lives_in l on l."from"=p.id join cities c on c.id=l."to" where i.interest=\'Fine Dining\' and p.gender=\'male\' and c.city=\'London\' and c.country=\'United Kingdom\'',
 "q6": 'select count(p.id) n, c.city, c.country from persons p join has_interest h on h."from"=p.id join interests i on i.id=h."to" join lives_in l on l."from"=p.id join cities c on c.id=l."to" where i.interest=\'Tennis\' and p.gender=\'female\' group by c.city,c.country order by n desc, c.city limit 5',
 "q7": 'select count(p.id) n, s.state, s.country from persons p join lives_in l on l."from"=p.id join city_in ci on ci."from"=l."to" join states s on s.id=ci."to" join has_interest h on h."from"=p.id join interests i on i.id=h."to" where p.age>=23 and p.age<=30 and s.country=\'United States\' and i.interest=\'Photography\' group by s.state,s.country order by n desc, s.state limit 1',
 "q8": 'select count(*) from follows f1 join follows f2 on f1."to"=f2."from"',
 "q9": 'select count(*) from follows f1 join persons b on b.id=f1."to" join follows f2 on f2."from"=b.id join persons c on c.id=f2."to" where b.age<50 and c.age>25',
 "hop1": 'select count(distinct "to") from follows where "from"=1',
 "hop2": 'select count(distinct f2."to") from follows f1 join follows f2 on f1."to"=f2."from" where f1."from"=1',
 "hop3": 'select count(distinct f3."to") from follows f1 join follows f2 on f1."to"=f2."from" join follows f3 on f2."to"=f3."from" where f1."from"=1',
 "bfs": 'with recursive r(id,d) using key (id) as (select 1::bigint,0 union select f."to", min(r.d)+1 from r join follows f on f."from"=r.id left join recurring.r rr on rr.id=f."to" where rr.id is null group by f."to") select d,count(*) from r where d > 0 group by d order by d',
 "cycles3": 'select count(*) from follows a join follows b on a."to"=b."from" join follows c on b."to"=c."from" and c."to"=a."from"',
 "anti": 'select count(*) from persons p where not exists (select 1 from follows f join persons q on q.id=f."to" where f."from"=p.id and q.age>=50)',
}
KUZU_NODES = {"Person": "id INT64, name STRING, gender STRING, birthday DATE, age INT64, isMarried BOOLEAN",
              "City": "id INT64, city STRING, state STRING, country STRING, lat DOUBLE, lon DOUBLE, population INT32",
              "State": "id INT64, state STRING, country STRING", "Country": "id INT64, country STRING",
              "Interest": "id INT64, interest STRING"}
KUZU_EDGES = {"Follows": ("Person", "Person"), "LivesIn": ("Person", "City"), "HasInterest": ("Person", "Interest"),
              "CityIn": ("City", "State"), "StateIn": ("State", "Country")}
KUZU = {
 "q1": "MATCH (f:Person)-[:Follows]->(p:Person) RETURN p.id, p.name, count(f.id) AS n ORDER BY n DESC, p.id LIMIT 3",
 "q2": "MATCH (f:Person)-[:Follows]->(p:Person) WITH p, count(f.id) AS n ORDER BY n DESC, p.id LIMIT 1 MATCH (p)-[:LivesIn]->(c:City) RETURN p.id, p.name, n, c.city, c.state",
 "q8": "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person) RETURN count(*)",
 "q9": "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person) WHERE b.age<50 AND c.age>25 RETURN count(*)",
 "hop1": "MATCH (a:Person {id:1})-[:Follows]->(b) RETURN count(DISTINCT b.id)",
 "hop2": "MATCH (a:Person {id:1})-[:Follows]->()-[:Follows]->(b) RETURN count(DISTINCT b.id)",
 "hop3": "MATCH (a:Person {id:1})-[:Follows]->()-[:Follows]->()-[:Follows]->(b) RETURN count(DISTINCT b.id)",
 "bfs": "MATCH (a:Person {id:1})-[e:Follows* SHORTEST 1..10]->(b:Person) RETURN length(e) AS d, count(*) ORDER BY d",
 "pair": "MATCH (a:Person {id:1})-[e:Follows* SHORTEST 1..10]->(b:Person {id:77777}) RETURN length(e)",
 "anti": "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:Follows]->(q:Person) WHERE q.age>=50 } RETURN count(*)",
}

def least(call, rounds=5, budget=4.0):
    call()
    best, began = None, time.perf_counter()
    for _ in range(rounds):
        before = time.process_time(); answer = call(); used = (time.process_time() - before) * 1e3
        best = used if best is None else min(best, used)
        if time.perf_counter() - began > budget: break
    return best, answer

def statements(lines):
    path = STORE + ".sql"
    with open(path, "w") as file: file.write("".join(line + ";\n" for line in lines))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([PROGRAM, "--store", STORE, "-q", "--format", "json", "-f", path], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode: sys.exit(done.stderr or done.stdout)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, done.stdout

def ours():
    if not os.path.isdir(STORE):
        lines = [f"SELECT graph FROM graph_create('social', '{' '.join(SCHEMA.split())}')", *external()]
        lines += [f"SELECT nodes_loaded FROM graph_load_table('social', '{of}', (SELECT {columns} FROM {table}), 'append')"
                  for of, (table, columns) in NODES.items()]
        lines += [f"""SELECT edges_loaded FROM graph_load_table('social', '{of}', (SELECT "from", "to" FROM {table}), 'append')"""
                  for of, table in EDGES.items()]
        began = time.perf_counter(); cpu, _ = statements(lines)
        print(f"load: {cpu / 1e3:.2f} CPU-s, {time.perf_counter() - began:.2f} s", file=sys.stderr)
    return timed(OURS)

def timed(queries, before=()):
    results = {}
    for name, sql in queries.items():
        if ONLY and name not in ONLY: continue
        few = min(statements([*before, *[sql] * LEAST])[0] for _ in range(2))
        many, out = min((statements([*before, *[sql] * (LEAST + MOST)]) for _ in range(2)), key=lambda pair: pair[0])
        answer = out.strip().splitlines()[-1] if out.strip() else ""
        results[name] = ((many - few) / MOST, answer, few - (many - few) / MOST * (LEAST - 1))
    return results

def external():
    files = [f"{DATA}/{kind}/{file}" for kind in ("nodes", "edges") for file in os.listdir(f"{DATA}/{kind}")]
    name = lambda file: os.path.basename(file).split(".")[0]
    return [f"CREATE EXTERNAL TABLE {name(file)} STORED AS PARQUET LOCATION '{file}'" for file in files]

def datafusion():
    """The program's own DataFusion over the Parquet files, without anything of ours."""
    return timed({name: sql for name, sql in DUCK.items() if name in ("q3", "q4", "q5", "q6", "q7")}, external())

def duck():
    try: import duckdb
    except ImportError: return {}
    c = duckdb.connect(); c.execute("SET threads=2")
    for kind in ("nodes", "edges"):
        for file in os.listdir(f"{DATA}/{kind}"):
            c.execute(f"create table {file.split('.')[0]} as select * from '{DATA}/{kind}/{file}'")
    return {n: least(lambda: c.execute(sql).fetchall()) for n, sql in DUCK.items() if not ONLY or n in ONLY}

def kuzu(module):
    try: k = importlib.import_module(module)
    except ImportError: return {}
    path = f"{STORE}.{module}"
    for old in (path, path + ".wal"):
        shutil.rmtree(old, ignore_errors=True) if os.path.isdir(old) else os.path.exists(old) and os.remove(old)
    db = k.Database(path, buffer_pool_size=4 << 30); c = k.Connection(db, num_threads=2)
    for of, columns in KUZU_NODES.items(): c.execute(f"CREATE NODE TABLE {of}({columns}, PRIMARY KEY(id))")
    for of, (a, b) in KUZU_EDGES.items(): c.execute(f"CREATE REL TABLE {of}(FROM {a} TO {b})")
    began, before = time.perf_counter(), time.process_time()
    for of in KUZU_NODES: c.execute(f"COPY {of} FROM '{DATA}/nodes/{NODES[of][0]}.parquet'")
    for of in KUZU_EDGES: c.execute(f"COPY {of} FROM '{DATA}/edges/{EDGES[of]}.parquet'")
    print(f"{module}: load: {time.process_time() - before:.2f} CPU-s, {time.perf_counter() - began:.2f} s", file=sys.stderr)
    return {n: least(lambda: c.execute(q).get_all()) for n, q in KUZU.items() if not ONLY or n in ONLY}

def floor():
    try: import igraph, numpy as np, pyarrow.parquet as pq
    except ImportError: return {}
    f = pq.read_table(f"{DATA}/edges/follows.parquet"); s, d = f["from"].to_numpy(), f["to"].to_numpy()
    g = igraph.Graph(n=int(max(s.max(), d.max())) + 1, edges=np.stack([s, d], 1), directed=True)
    every = {"bfs": lambda: len(g.distances(source=[1])[0]),
             "pair": lambda: len(g.get_shortest_path(1, 77777)) - 1 if g.vcount() > 77777 else 0}
    return {n: least(call) for n, call in every.items() if not ONLY or n in ONLY}

def ladybug():
    """In a process of its own: it and Kuzu register types under the same names."""
    command = [sys.executable, __file__, *sys.argv[1:4], ",".join(ONLY or []), "ladybug"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}

def main():
    if sys.argv[5:] == ["ladybug"]:
        return print(json.dumps(kuzu("ladybug"), default=str))
    engines = {"here": ours(), "datafusion": datafusion(), "duckdb": duck(), "kuzu": kuzu("kuzu"),
               "ladybug": ladybug(), "igraph": floor()}
    print("| | " + " | ".join(engines) + " | first, here |\n|---" + "|---" * (len(engines) + 1) + "|")
    for name in OURS:
        if ONLY and name not in ONLY: continue
        cells = [f"{e[name][0]:.1f}" if name in e else "" for e in engines.values()]
        first = f"{engines['here'][name][2]:.0f}" if name in engines["here"] else ""
        print(f"| {name} | " + " | ".join(cells) + f" | {first} |")
    for name in OURS:
        for engine, results in engines.items():
            if name in results: print(f"{name} {engine}: {str(results[name][1])[:200]}", file=sys.stderr)

main()
