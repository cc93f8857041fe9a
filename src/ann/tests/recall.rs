//! Recall at default settings.

use super::*;

fn recall(index: &Index, data: &Clusters, live: &RoaringBitmap, options: &SearchOptions) -> f64 {
    let truth = top_k_batch(&data.vectors, &data.queries, 10, live);
    let mut scratch = Scratch::default();
    let (mut found, mut wanted) = (0, 0);
    for (query, truth) in data.queries.iter().zip(truth) {
        let answer = top_k(
            Some(index),
            &data.vectors,
            query,
            10,
            live,
            options,
            &mut scratch,
        );
        assert_eq!(answer.hits.len(), truth.len());
        let far = truth.last().map_or(f32::MIN, |hit| hit.0);
        found += answer.hits.iter().filter(|hit| hit.0 <= far).count();
        wanted += truth.len();
    }
    found as f64 / wanted.max(1) as f64
}

/// Thresholds of a fragment of the size that they are made for, shrunk to `rows`.
fn shrunk(rows: u32) -> SearchOptions {
    let thresholds = Thresholds {
        exact_rows: rows,
        exact_live: 256,
        ..Thresholds::default()
    };
    SearchOptions {
        thresholds,
        ..SearchOptions::default()
    }
}

fn all_shares(index: &Index, data: &Clusters) {
    let rows = data.vectors.rows();
    let mut random = Random(11);
    for share in [1.0, 0.5, 0.2, 0.1, 0.01, 0.001] {
        let live = random_rows(&mut random, rows, share);
        let recall = recall(index, data, &live, &shrunk(rows));
        assert!(recall >= 0.97, "{} {share}: {recall}", index.kind());
    }
}

#[test]
fn defaults_find_enough_under_every_mask() {
    for metric in METRICS {
        let data = clusters(metric, 4000, 32, 40, 2);
        all_shares(&hnsw(&data.vectors).unwrap(), &data);
    }
}

#[test]
fn lists_find_enough_under_every_mask() {
    for metric in METRICS {
        let data = clusters(metric, 30_000, 32, 300, 2);
        for codes in [false, true] {
            all_shares(&ivf(&data.vectors, codes).unwrap(), &data);
        }
    }
}

#[test]
fn graphs_reach_every_row_of_alike_vectors() {
    let mut random = Random(8);
    let mut vectors = Vectors::with_capacity(Metric::Cosine, 8, 3000).unwrap();
    let few: Vec<Vec<f32>> = (0..20)
        .map(|_| (0..8).map(|_| random.normal()).collect())
        .collect();
    (0..3000).for_each(|row| vectors.push(Some(&few[row * 20 / 3000])));
    if let Some(index) = hnsw(&vectors) {
        let mut scratch = Scratch::default();
        for vector in few {
            let query = Query::new(Metric::Cosine, vector).unwrap();
            let live = vectors.present();
            let answer = top_k(
                Some(&index),
                &vectors,
                &query,
                10,
                live,
                &eager(),
                &mut scratch,
            );
            assert_eq!(answer.hits.last().unwrap().0, answer.hits[0].0);
        }
    }
}

/// Rows that are far from a query, of which a share is live.
fn far_rows(data: &Clusters, query: &Query, share: f64) -> RoaringBitmap {
    let rows = data.vectors.rows();
    let distance = |row: &u32| query.distance(data.vectors.row(*row)).unwrap_or(f32::MAX);
    let mut all: Vec<u32> = (0..rows).collect();
    all.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
    let live = (f64::from(rows) * share) as usize;
    all.into_iter().take(live).collect()
}

#[test]
fn masks_that_avoid_the_query_lose_nothing() {
    let data = clusters(Metric::L2, 4000, 32, 40, 2);
    let indexes = [
        hnsw(&data.vectors),
        ivf(&data.vectors, false),
        ivf(&data.vectors, true),
    ];
    let options = shrunk(data.vectors.rows());
    let mut scratch = Scratch::default();
    for index in indexes.iter().flatten() {
        let (mut found, mut wanted) = (0, 0);
        for query in &data.queries[..30] {
            for share in [0.7, 0.5, 0.3, 0.2] {
                let live = far_rows(&data, query, share);
                let asked = std::slice::from_ref(query);
                let truth = top_k_batch(&data.vectors, asked, 10, &live).remove(0);
                let answer = top_k(
                    Some(index),
                    &data.vectors,
                    query,
                    10,
                    &live,
                    &options,
                    &mut scratch,
                );
                assert_eq!(answer.hits.len(), 10);
                assert!(answer.visited <= 2 * live.len(), "{answer:?}");
                let far = truth.last().map_or(f32::MIN, |hit| hit.0);
                found += answer.hits.iter().filter(|hit| hit.0 <= far).count();
                wanted += 10;
            }
        }
        let recall = f64::from(found as u32) / f64::from(wanted);
        assert!(recall >= 0.97, "{}: {recall}", index.kind());
    }
}
