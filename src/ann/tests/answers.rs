//! Answers have the right rows, number, order and distances.

use proptest::prelude::*;

use super::*;

/// Vectors with NULLs, zero vectors, duplicates and ties.
fn awkward(metric: Metric, rows: usize, dimensions: usize, seed: u64) -> Vectors {
    let mut random = Random(seed);
    let mut vectors = Vectors::with_capacity(metric, dimensions, rows).unwrap();
    let mut last = vec![1.0; dimensions];
    for _ in 0..rows {
        match random.below(12) {
            0 => vectors.push(None),
            1 => vectors.push(Some(&vec![0.0; dimensions])),
            2 => vectors.push(Some(&vec![f32::NAN; dimensions])),
            3..6 => vectors.push(Some(&last)),
            6..9 => {
                last = (0..dimensions)
                    .map(|_| random.below(3) as f32 - 1.0)
                    .collect();
                vectors.push(Some(&last));
            }
            _ => {
                last = (0..dimensions).map(|_| random.normal()).collect();
                vectors.push(Some(&last));
            }
        }
    }
    vectors
}

fn query(metric: Metric, dimensions: usize, random: &mut Random) -> Query {
    loop {
        let vector = (0..dimensions).map(|_| random.normal().round()).collect();
        if let Some(query) = Query::new(metric, vector) {
            return query;
        }
    }
}

/// The distances are those of the metric, each row is live and present, no better row of the scan order
/// is out of order.
fn check(vectors: &Vectors, query: &Query, k: usize, live: &RoaringBitmap, answer: &Answer) {
    let all = brute(vectors, query, usize::MAX, live);
    assert_eq!(answer.hits.len(), k.min(all.len()), "{:?}", answer.regime);
    for hit in &answer.hits {
        assert_eq!(query.distance(vectors.row(hit.1)), Some(hit.0));
        assert!(live.contains(hit.1) && vectors.present().contains(hit.1));
    }
    let order = |a: &(f32, u32), b: &(f32, u32)| (a.0, a.1) < (b.0, b.1);
    assert!(answer.hits.is_sorted_by(order), "{:?}", answer.hits);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answers_hold_what_they_promise(
        metric in 0..3usize,
        rows in 0..400usize,
        dimensions in 1..40usize,
        share in 0..=10u32,
        k in 0..60usize,
        seed: u64,
    ) {
        let metric = METRICS[metric];
        let vectors = awkward(metric, rows, dimensions, seed);
        let mut random = Random(seed ^ 1);
        let live = random_rows(&mut random, rows as u32 + 3, f64::from(share) / 10.0);
        let queries: Vec<_> = (0..9).map(|_| query(metric, dimensions, &mut random)).collect();
        let indexes = [hnsw(&vectors), ivf(&vectors, false), ivf(&vectors, true)];
        let mut scratch = Scratch::default();
        for query in &queries {
            let expected = brute(&vectors, query, k, &live);
            let exact = SearchOptions { exact: true, ..eager() };
            let answer = top_k(indexes[0].as_ref(), &vectors, query, k, &live, &exact, &mut scratch);
            prop_assert_eq!(&answer.hits, &expected);
            for index in indexes.iter().flatten() {
                let answer = top_k(Some(index), &vectors, query, k, &live, &eager(), &mut scratch);
                check(&vectors, query, k, &live, &answer);
            }
            if let Some((bound, _)) = expected.get(k / 2) {
                let bounded = SearchOptions { bound: Some(*bound), ..exact };
                let answer = top_k(None, &vectors, query, k, &live, &bounded, &mut scratch);
                let within: Vec<_> = expected.iter().filter(|hit| hit.0 <= *bound).copied().collect();
                prop_assert_eq!(answer.hits, within);
            }
        }
        let batch = top_k_batch(&vectors, &queries, k, &live);
        for (query, hits) in queries.iter().zip(batch) {
            prop_assert_eq!(hits, brute(&vectors, query, k, &live));
        }
    }
}

#[test]
fn batches_equal_single_searches_at_any_magnitude() {
    for metric in METRICS {
        for scales in [
            [1.0f32, 1.0],
            [1e-22, 1e-18],
            [1e17, 1e19],
            [1e-30, 1e30],
            [1.0, 1e-6],
        ] {
            let mut random = Random(5);
            let mut vectors = Vectors::with_capacity(metric, 24, 500).unwrap();
            let base: Vec<f32> = (0..24).map(|_| random.normal()).collect();
            let row = |random: &mut Random, spread: f32| -> Vec<f32> {
                let scale = scales[random.below(2)];
                base.iter()
                    .map(|x| (x + spread * random.normal()) * scale)
                    .collect()
            };
            for i in 0..500 {
                let spread = [1.0, 1e-3, 1e-7][i % 3];
                vectors.push(Some(&row(&mut random, spread)));
            }
            let queries: Vec<_> = (0..12)
                .filter_map(|_| Query::new(metric, row(&mut random, 1e-4)))
                .collect();
            let live = random_rows(&mut random, 500, 0.8);
            let batch = top_k_batch(&vectors, &queries, 7, &live);
            for (query, hits) in queries.iter().zip(batch) {
                assert_eq!(
                    hits,
                    brute(&vectors, query, 7, &live),
                    "{metric:?} {scales:?}"
                );
            }
        }
    }
}

#[test]
fn every_live_row_is_found_wherever_it_is() {
    let Clusters { vectors, queries } = clusters(Metric::Cosine, 3000, 16, 30, 1);
    let indexes = [hnsw(&vectors), ivf(&vectors, false), ivf(&vectors, true)];
    let all = vectors.present().clone();
    let mut scratch = Scratch::default();
    for query in &queries[..20] {
        let ranked = brute(&vectors, query, 3000, &all);
        // The farthest rows, and the farthest with the nearest few.
        for count in [1, 5, 9, 11, 40, 300, 1500] {
            let far = ranked[3000 - count..].iter().map(|hit| hit.1);
            let live: RoaringBitmap = far.chain(ranked[..1].iter().map(|hit| hit.1)).collect();
            for index in indexes.iter().flatten() {
                for k in [1, 10, 200] {
                    let answer = top_k(
                        Some(index),
                        &vectors,
                        query,
                        k,
                        &live,
                        &eager(),
                        &mut scratch,
                    );
                    check(&vectors, query, k, &live, &answer);
                    assert!(answer.visited <= 2 * live.len() + 200, "{answer:?}");
                }
            }
        }
    }
}

#[test]
fn regimes_follow_the_share_of_live_rows() {
    let Clusters { vectors, queries } = clusters(Metric::L2, 2000, 8, 20, 3);
    let graph = hnsw(&vectors).unwrap();
    let lists = ivf(&vectors, false).unwrap();
    let mut scratch = Scratch::default();
    let mut regime = |index: &Index, live: &RoaringBitmap, options: &SearchOptions| {
        top_k(
            Some(index),
            &vectors,
            &queries[0],
            10,
            live,
            options,
            &mut scratch,
        )
        .regime
    };
    let mut random = Random(9);
    let all = vectors.present().clone();
    let defaults = SearchOptions::default();
    assert_eq!(regime(&graph, &all, &defaults), Regime::Exact);
    assert_eq!(regime(&graph, &all, &eager()), Regime::Beam);
    assert_eq!(regime(&lists, &all, &eager()), Regime::Lists);
    assert_eq!(
        regime(&graph, &random_rows(&mut random, 2000, 0.6), &eager()),
        Regime::Beam
    );
    let tenth = random_rows(&mut random, 2000, 0.1);
    assert_eq!(regime(&graph, &tenth, &eager()), Regime::TwoHop);
    let mut strict = eager();
    strict.thresholds.exact_live = tenth.len();
    assert_eq!(regime(&graph, &tenth, &strict), Regime::Exact);
    // An index of other vectors is not used.
    let other = clusters(Metric::L2, 1999, 8, 20, 3);
    let answer = top_k(
        Some(&graph),
        &other.vectors,
        &queries[0],
        10,
        &all,
        &eager(),
        &mut scratch,
    );
    assert_eq!(answer.regime, Regime::Exact);
    let narrow = Query::new(Metric::L2, vec![1.0; 7]).unwrap();
    assert!(
        top_k(
            Some(&graph),
            &vectors,
            &narrow,
            10,
            &all,
            &eager(),
            &mut scratch
        )
        .hits
        .is_empty()
    );
}

#[test]
fn a_bound_leaves_out_only_farther_rows() {
    let Clusters { vectors, queries } = clusters(Metric::L2, 2000, 8, 20, 3);
    let all = vectors.present().clone();
    let mut scratch = Scratch::default();
    for index in [hnsw(&vectors), ivf(&vectors, false)].iter().flatten() {
        for query in &queries[..20] {
            let free = top_k(
                Some(index),
                &vectors,
                query,
                10,
                &all,
                &eager(),
                &mut scratch,
            );
            for at in [0, 4, 9] {
                let bound = free.hits[at].0;
                let bounded = SearchOptions {
                    bound: Some(bound),
                    ..eager()
                };
                let answer = top_k(
                    Some(index),
                    &vectors,
                    query,
                    10,
                    &all,
                    &bounded,
                    &mut scratch,
                );
                assert!(answer.hits.iter().all(|hit| hit.0 <= bound));
                assert!(answer.hits.len() >= at.min(1), "{at} {answer:?}");
                assert!(answer.visited <= free.visited);
            }
        }
    }
}

#[test]
fn builds_are_deterministic_and_can_be_cancelled() {
    let Clusters { vectors, .. } = clusters(Metric::Dot, 1500, 12, 10, 4);
    assert_eq!(hnsw(&vectors), hnsw(&vectors));
    assert_eq!(ivf(&vectors, true), ivf(&vectors, true));
    let cancelled = build_hnsw(&vectors, GraphParams::default(), &|| true, &|_, _| ());
    assert!(matches!(cancelled, Err(crate::Error::Cancelled { .. })));
    let cancelled = build_ivf(&vectors, IvfParams::default(), &|| true, &|_, _| ());
    assert!(matches!(cancelled, Err(crate::Error::Cancelled { .. })));
    let last = std::cell::Cell::new((0, 0));
    build_hnsw(&vectors, GraphParams::default(), &|| false, &|done, all| {
        last.set((done, all))
    })
    .unwrap();
    assert_eq!(last.get(), (1500, 1500));
    let wide = GraphParams {
        m: 256,
        ..GraphParams::default()
    };
    assert!(build_hnsw(&vectors, wide, &|| false, &|_, _| ()).is_err());
}

#[test]
fn nothing_to_index_is_no_index() {
    let mut vectors = Vectors::with_capacity(Metric::Cosine, 4, 10).unwrap();
    assert!(hnsw(&vectors).is_none() && ivf(&vectors, false).is_none());
    (0..10).for_each(|_| vectors.push(Some(&[0.0; 4])));
    assert!(hnsw(&vectors).is_none() && ivf(&vectors, false).is_none());
    vectors.push(Some(&[1.0; 4]));
    for index in [hnsw(&vectors), ivf(&vectors, true)] {
        let query = Query::new(Metric::Cosine, vec![1.0, 0.0, 0.0, 0.0]).unwrap();
        let live: RoaringBitmap = (0..11).collect();
        let mut scratch = Scratch::default();
        let answer = top_k(
            index.as_ref(),
            &vectors,
            &query,
            5,
            &live,
            &eager(),
            &mut scratch,
        );
        assert_eq!(answer.hits, [(0.5, 10)]);
    }
}
