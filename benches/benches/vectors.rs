//! Vector indexes by themselves, without a table around them: building, size, opening, searches by recall,
//! and searches of few of the rows beside the exact scan of those. One thread, one query a call, CPU time.
//! `cargo bench --package stratagraph-benches --bench vectors`, with
//!
//! - `STRATAGRAPH_VECTORS`: a folder for what the peers read, where graphs are kept from run to run;
//!   without it, everything is made anew and nothing kept.
//! - `STRATAGRAPH_GLOVE`: the raw file of word vectors that `vectors.py glove` has written; left out
//!   without it.
//!
//! `vectors.py` measures the peers on the same files.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod sets;

use std::collections::BTreeMap;
use std::path::Path;

use roaring::RoaringBitmap;
use sets::{Hits, K, ROWS, Set, draw};
use stratagraph::ann::{
    Expected, GraphParams, Index, IvfParams, Query, Scratch, SearchOptions, build_hnsw, build_ivf,
    encode, open, top_k, top_k_batch,
};

/// Least passes over the queries; the fastest counts, as noise only ever adds.
const PASSES: usize = 3;
/// CPU seconds after which no further pass is made.
const ENOUGH: f64 = 0.3;
/// Queries of searches under a filter.
const FILTERED: usize = 100;
const FRAGMENT: [u8; 32] = [1; 32];

fn main() {
    // `cargo test --benches` runs this too; there it only has to build.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let kept = std::env::var_os("STRATAGRAPH_VECTORS");
    let temporary = tempfile::tempdir().unwrap();
    let folder = kept.as_ref().map_or(temporary.path(), Path::new);
    let only = std::env::args().nth(1).filter(|a| !a.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    if wanted("clustered") {
        measure(&Set::clustered(&folder.join("clustered.f32")), folder);
    }
    let glove = std::env::var_os("STRATAGRAPH_GLOVE");
    match glove.and_then(|file| Set::glove(Path::new(&file))) {
        Some(glove) if wanted("glove") => measure(&glove, folder),
        Some(_) => {}
        None => println!("\nSTRATAGRAPH_GLOVE names no file: word vectors are left out"),
    }
}

fn measure(set: &Set, folder: &Path) {
    println!("\n## {}, {ROWS} x {}", set.name, set.vectors.dimensions());
    let indexes = [
        ("hnsw", hnsw(set, folder)),
        ("ivf", ivf(set, false, folder)),
        ("ivf codes", ivf(set, true, folder)),
    ];
    let all = [set.vectors.present().clone()];
    for (name, index) in &indexes {
        println!("\n| {name}: effort | recall | QPS | rows measured |\n|---|---|---|---|");
        let points = curve(set, index, &all);
        let at = |recall| interpolated(&points, recall);
        println!("\n{name}: QPS @.95 {}, @.99 {}", at(0.95), at(0.99));
        let run = Run::new(set, Some(index), &all, SearchOptions::default());
        let done = run.passes(&set.queries, &set.truth);
        println!(
            "{name}: at defaults, recall {:.4}, QPS {:.0}",
            done.recall,
            1.0 / done.seconds
        );
    }
    filters(set, &indexes);
}

/// CPU seconds of this thread.
fn cpu() -> f64 {
    // The kernel brings its count up to date when a thread offers to be suspended.
    std::thread::yield_now();
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = counts.split(' ').next().unwrap();
    nanoseconds.parse::<f64>().unwrap() / 1e9
}

/// CPU seconds of all threads, also those that ended, by hundredths.
fn cpu_of_process() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.map(|n| n.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// The graph that an earlier run has left in the folder, or else a new one.
fn hnsw(set: &Set, folder: &Path) -> Index {
    let file = folder.join(format!("{}.hnsw", set.name));
    if !file.exists() {
        let start = cpu_of_process();
        let graph = build_hnsw(&set.vectors, GraphParams::default(), &|| false, &|_, _| ());
        let index = Index::Hnsw(graph.unwrap().unwrap());
        println!("hnsw: built in {:.1} CPU-s", cpu_of_process() - start);
        std::fs::write(&file, encode(&index, &FRAGMENT)).unwrap();
    }
    opened(set, "hnsw", &file)
}

fn ivf(set: &Set, codes: bool, folder: &Path) -> Index {
    let name = if codes { "ivf codes" } else { "ivf" };
    let start = cpu_of_process();
    let params = IvfParams { lists: None, codes };
    let ivf = build_ivf(&set.vectors, params, &|| false, &|_, _| ());
    let ivf = ivf.unwrap().unwrap();
    println!(
        "{name}: built in {:.2} CPU-s, {} lists, {} probed",
        cpu_of_process() - start,
        ivf.lists(),
        ivf.probes()
    );
    let file = folder.join(format!("{}.{}", set.name, name.replace(' ', "-")));
    std::fs::write(&file, encode(&Index::Ivf(ivf), &FRAGMENT)).unwrap();
    opened(set, name, &file)
}

/// The index in `file`, whose pages the kernel holds after the first pass.
fn opened(set: &Set, name: &str, file: &Path) -> Index {
    let expected = Expected {
        rows: ROWS as u32,
        dimensions: set.vectors.dimensions() as u32,
        metric: set.vectors.metric(),
        fragment: FRAGMENT,
    };
    let mut times = Vec::new();
    let mut index = None;
    for _ in 0..PASSES {
        let start = cpu();
        let bytes = std::fs::read(file).unwrap();
        index = Some(open(bytes.into(), name, expected).unwrap());
        times.push((cpu() - start) * 1e3);
    }
    let index = index.unwrap();
    let written = std::fs::metadata(file).unwrap().len();
    println!(
        "{name}: {:.1} bytes per vector in the store, {:.1} in memory; read and checked in {:.1} ms, \
         the first time {:.1}",
        written as f64 / ROWS as f64,
        index.bytes() as f64 / ROWS as f64,
        times.iter().copied().fold(f64::MAX, f64::min),
        times[0],
    );
    index
}

/// One way of searching.
struct Run<'a> {
    set: &'a Set,
    index: Option<&'a Index>,
    /// Those of query `i` at `i`, or the same of all.
    live: &'a [RoaringBitmap],
    options: SearchOptions,
}

struct Done {
    recall: f64,
    /// CPU seconds of a query, from the fastest pass.
    seconds: f64,
    /// Rows that a query measured.
    visited: u64,
    regimes: String,
}

impl<'a> Run<'a> {
    fn new(
        set: &'a Set,
        index: Option<&'a Index>,
        live: &'a [RoaringBitmap],
        options: SearchOptions,
    ) -> Self {
        Self {
            set,
            index,
            live,
            options,
        }
    }

    fn live(&self, query: usize) -> &RoaringBitmap {
        &self.live[query % self.live.len()]
    }

    /// Panics if an answer has fewer rows than there are.
    fn passes(&self, queries: &[Query], truth: &[Hits]) -> Done {
        let mut scratch = Scratch::default();
        let (mut found, mut wanted, mut visited) = (0, 0, 0);
        let mut regimes: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, (query, truth)) in queries.iter().zip(truth).enumerate() {
            let answer = self.one(i, query, &mut scratch);
            let live = self.live(i);
            assert_eq!(answer.hits.len() as u64, live.len().min(K as u64));
            assert!(answer.hits.iter().all(|hit| live.contains(hit.1)));
            let farthest = truth.last().map_or(f32::MIN, |hit| hit.0);
            found += answer.hits.iter().filter(|hit| hit.0 <= farthest).count();
            wanted += truth.len();
            visited += answer.visited;
            *regimes.entry(answer.regime.as_str()).or_default() += 1;
        }
        let (mut least, mut total, mut passes) = (f64::MAX, 0.0, 0);
        while passes < PASSES || total < ENOUGH {
            let start = cpu();
            for (i, query) in queries.iter().enumerate() {
                std::hint::black_box(self.one(i, query, &mut scratch));
            }
            let time = cpu() - start;
            (least, total, passes) = (least.min(time), total + time, passes + 1);
        }
        let names: Vec<&str> = regimes.into_keys().collect();
        Done {
            recall: found as f64 / wanted as f64,
            seconds: least / queries.len() as f64,
            visited: visited / queries.len() as u64,
            regimes: names.join(", "),
        }
    }

    fn one(&self, i: usize, query: &Query, scratch: &mut Scratch) -> stratagraph::ann::Answer {
        let live = self.live(i);
        let vectors = &self.set.vectors;
        top_k(self.index, vectors, query, K, live, &self.options, scratch)
    }
}

/// (recall, QPS) by ascending effort.
fn curve(set: &Set, index: &Index, all: &[RoaringBitmap]) -> Vec<(f64, f64)> {
    let efforts: &[usize] = match index {
        Index::Hnsw(_) => &[10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512],
        Index::Ivf(_) => &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192],
    };
    let mut points = Vec::new();
    for effort in efforts {
        let options = SearchOptions {
            ef: Some(*effort),
            probes: Some(*effort),
            ..SearchOptions::default()
        };
        let run = Run::new(set, Some(index), all, options);
        let done = run.passes(&set.queries, &set.truth);
        let qps = 1.0 / done.seconds;
        println!(
            "| {effort} | {:.4} | {qps:.0} | {} |",
            done.recall, done.visited
        );
        points.push((done.recall, qps));
        if done.recall > 0.995 {
            break;
        }
    }
    points
}

/// QPS at a recall between two efforts.
fn interpolated(points: &[(f64, f64)], recall: f64) -> String {
    let around = points
        .windows(2)
        .find(|pair| pair[0].0 < recall && pair[1].0 >= recall);
    match around {
        Some([low, high]) => {
            let part = (recall - low.0) / (high.0 - low.0);
            format!("{:.0}", low.1 + part * (high.1 - low.1))
        }
        _ if points[0].0 >= recall => format!("{:.0} (recall {:.3})", points[0].1, points[0].0),
        _ => "not reached".to_owned(),
    }
}

/// Searches at defaults, under filters and with masked rows, beside the exact scan of the same rows.
fn filters(set: &Set, indexes: &[(&str, Index)]) {
    print!("\n| live rows | rows | exact, QPS |");
    for (name, _) in indexes {
        print!(" {name}: QPS | time / exact | recall | by |");
    }
    println!(
        "\n|---|---|---|{}",
        "---|---|---|---|".repeat(indexes.len())
    );
    for masked in [0, 100, 500] {
        for filter in [1000, 500, 100, 10, 1] {
            let kept = 1000 - masked;
            let live = draw(1, filter) & draw(2, kept);
            let what = format!("{} %, {} % masked", share(filter), share(masked));
            filtered(set, indexes, &what, &[live]);
        }
    }
    let queries = &set.queries[..FILTERED];
    for filter in [500, 100, 10, 1] {
        let sample = draw(3, 2 * filter);
        let half = sample.len() as usize / 2;
        let lives = queries.iter().map(|q| set.farthest(q, &sample, half));
        let what = format!("{} %, farther half of a sample", share(filter));
        filtered(set, indexes, &what, &lives.collect::<Vec<_>>());
        let keep = ROWS * filter as usize / 1000;
        let everything = set.vectors.present();
        let lives = queries.iter().map(|q| set.farthest(q, everything, keep));
        let what = format!("{} %, farthest of all", share(filter));
        filtered(set, indexes, &what, &lives.collect::<Vec<_>>());
    }
}

/// Of a thousand, in percent.
fn share(permille: u64) -> f64 {
    permille as f64 / 10.0
}

fn filtered(set: &Set, indexes: &[(&str, Index)], what: &str, live: &[RoaringBitmap]) {
    let queries = &set.queries[..FILTERED];
    let truth: Vec<Hits> = if live.len() == 1 {
        top_k_batch(&set.vectors, queries, K, &live[0])
    } else {
        let each = queries.iter().zip(live);
        each.flat_map(|(q, live)| top_k_batch(&set.vectors, std::slice::from_ref(q), K, live))
            .collect()
    };
    let exact = SearchOptions {
        exact: true,
        ..SearchOptions::default()
    };
    let exact = Run::new(set, None, live, exact).passes(queries, &truth);
    print!(
        "| {what} | {} | {:.0} |",
        live[0].len(),
        1.0 / exact.seconds
    );
    for (_, index) in indexes {
        let run = Run::new(set, Some(index), live, SearchOptions::default());
        let done = run.passes(queries, &truth);
        let ratio = done.seconds / exact.seconds;
        print!(
            " {:.0} | {ratio:.2} | {:.3} | {} |",
            1.0 / done.seconds,
            done.recall,
            done.regimes
        );
    }
    println!();
}
