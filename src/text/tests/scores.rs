//! Scores are those of tantivy over the live rows.

use proptest::prelude::*;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::query::Bm25Weight;

use super::*;

const WORDS: [&str; 24] = [
    "data",
    "date",
    "dates",
    "database",
    "store",
    "stored",
    "storage",
    "key",
    "keys",
    "value",
    "fast",
    "graph",
    "the",
    "of",
    "a",
    "Größe",
    "grosse",
    "e\u{301}te\u{301}",
    "été",
    "İstanbul",
    "東京",
    "京東",
    "👍",
    "x",
];

fn text(words: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let word = prop_oneof![4 => 0..6usize, 1 => 0..WORDS.len()];
    proptest::collection::vec(word, words).prop_map(|words| {
        let words: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        words.join(" ")
    })
}

fn texts() -> impl Strategy<Value = Vec<Option<String>>> {
    proptest::collection::vec(proptest::option::weighted(0.9, text(0..14)), 0..50)
}

#[derive(Debug, Clone)]
struct Case {
    texts: Vec<Option<String>>,
    cuts: Vec<usize>,
    dead: u32,
    allowed: Option<u32>,
    rows: Vec<u32>,
    query: String,
    analyser: &'static str,
}

fn case() -> impl Strategy<Value = Case> {
    let rows = proptest::collection::vec(0..1_000_000u32, 50);
    let cuts = proptest::collection::vec(0..51usize, 0..4);
    let dead = prop_oneof![Just(0u32), 0..=90u32];
    let allowed = proptest::option::of(prop_oneof![0..=5u32, 0..=100u32]);
    let analyser = prop_oneof![Just("english"), Just("simple"), Just("german")];
    (texts(), cuts, dead, allowed, rows, text(0..6), analyser).prop_map(
        |(texts, cuts, dead, allowed, rows, query, analyser)| Case {
            texts,
            cuts,
            dead,
            allowed,
            rows,
            query,
            analyser,
        },
    )
}

impl Case {
    fn table(&self) -> (Analyser, Table) {
        let analyser = Analyser::parse(self.analyser).unwrap();
        let live = |row: usize| self.rows[row] % 100 >= self.dead;
        let percent = self.allowed.unwrap_or(100);
        let allowed = |row: usize| self.rows[row] / 100 % 100 < percent;
        let allowed: Option<&dyn Fn(usize) -> bool> = self.allowed.map(|_| &allowed as _);
        let table = Table::new(&analyser, self.texts.clone(), &self.cuts, live, allowed);
        (analyser, table)
    }
}

/// Edits between two words where a swap of neighbours is one (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut d = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            d[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = d[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                (d[i - 1][j] + 1).min(d[i][j - 1] + 1).min(replaced)
            };
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                d[i][j] = d[i][j].min(d[i - 2][j - 2] + 1);
            }
        }
    }
    d[a.len()][b.len()]
}

/// Scores of a fuzzy query by definition.
fn fuzzy(table: &Table, analyser: &Analyser, text: &str, edits: usize) -> BTreeMap<usize, f32> {
    let rows = table.live_rows();
    let documents: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let terms = analyser.terms(table.texts[*row].as_deref().unwrap_or(""));
            terms.into_iter().map(|t| t.term).collect()
        })
        .collect();
    let tokens: usize = documents.iter().map(Vec::len).sum();
    let average = tokens as f32 / rows.len() as f32;
    let mut scores = BTreeMap::new();
    for term in analyser.terms(text) {
        let near = |word: &&String| distance(word, &term.term) <= edits;
        let frequency = |d: &Vec<String>| d.iter().filter(near).count() as u32;
        let with = documents.iter().filter(|d| frequency(d) > 0).count();
        let weight =
            Bm25Weight::for_one_term_without_explain(with as u64, rows.len() as u64, average);
        for (row, document) in rows.iter().zip(&documents) {
            let frequency = frequency(document);
            if frequency > 0 && table.is_allowed(*row) {
                let norm = FieldNormReader::fieldnorm_to_id(document.len() as u32);
                *scores.entry(*row).or_insert(0.0) += weight.score(norm, frequency);
            }
        }
    }
    scores
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn scores_are_those_of_tantivy_over_the_live_rows(case in case()) {
        let (analyser, table) = case.table();
        for mode in [Mode::Bm25, Mode::All, Mode::Phrase] {
            check(&table, &analyser, &case.query, mode);
        }
        for edits in 0..=2u8 {
            let mode = Mode::Fuzzy { max_edits: edits };
            let query = TextQuery::new(&analyser, &case.query, mode).unwrap();
            let expected = fuzzy(&table, &analyser, &case.query, usize::from(edits));
            assert_close(&table.scores(&query), &expected, &format!("{mode:?}"));
        }
    }

    /// An index changes speed, never answers: not a bit of a score depends on parts or predicates.
    #[test]
    fn scores_do_not_depend_on_parts_or_predicates(case in case()) {
        let (analyser, table) = case.table();
        let whole = Case { cuts: Vec::new(), allowed: None, ..case.clone() }.table().1;
        for mode in [Mode::Bm25, Mode::All, Mode::Phrase, Mode::Fuzzy { max_edits: 1 }] {
            let query = TextQuery::new(&analyser, &case.query, mode).unwrap();
            let mut expected = whole.scores(&query);
            expected.retain(|row, _| table.is_allowed(*row));
            prop_assert_eq!(table.scores(&query), expected, "{:?}", mode);
        }
    }

    #[test]
    fn phrases_of_documents_are_found(case in case(), from in 0..10usize, len in 1..4usize) {
        let (analyser, table) = case.table();
        let texts = table.texts.iter().flatten();
        let words = texts.max_by_key(|text| text.len()).map_or("", |text| text.as_str());
        let words: Vec<&str> = words.split(' ').skip(from).take(len).collect();
        check(&table, &analyser, &words.join(" "), Mode::Phrase);
        check(&table, &analyser, &words.join(" "), Mode::All);
    }
}

/// Enough rows for many blocks of postings and windows of rows.
#[test]
fn large_parts_score_like_tantivy() {
    let analyser = Analyser::default();
    let mut state = 1u64;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut texts = Vec::new();
    for _ in 0..12_000 {
        let words = 1 + next(12);
        let words: Vec<String> = (0..words)
            .map(|_| {
                let rank = next(400) * next(400) / 400;
                format!("w{rank}")
            })
            .collect();
        texts.push((next(20) > 0).then(|| words.join(" ")));
    }
    for (dead, percent) in [(0, None), (10, Some(50)), (60, Some(1)), (90, None)] {
        let live = |row: usize| (row * 7919) % 100 >= dead;
        let allowed = |row: usize| (row * 104_729) % 100 < percent.unwrap_or(100);
        let allowed: Option<&dyn Fn(usize) -> bool> = percent.map(|_| &allowed as _);
        let table = Table::new(&analyser, texts.clone(), &[5_000, 5_100], live, allowed);
        for text in [
            "w0",
            "w0 w1 w2",
            "w0 w0 w3 w300",
            "w1 w0",
            "w5 w5",
            "w399",
            "nothing w0",
        ] {
            for mode in [Mode::Bm25, Mode::All, Mode::Phrase] {
                check(&table, &analyser, text, mode);
            }
        }
    }
}
