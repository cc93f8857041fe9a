//! A vector has the same bits alone and in any company.

use std::sync::OnceLock;

use proptest::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::*;

/// A text of 1 to 20 words of the tiny vocabulary.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "the", "fox", "dog", "read", "files", "x", "embedded", "?",
    ]);
    prop::collection::vec(word, 1..20).prop_map(|words| words.join(" "))
}

/// The tiny model's files around random weights of the widths from which inputs share a product.
fn widen(copy: &Copy) {
    for (from, name, size) in [
        (r#""hidden_size": 32"#, "hidden_size", 128),
        (r#""intermediate_size": 64"#, "intermediate_size", 640),
        (r#""num_hidden_layers": 2"#, "num_hidden_layers", 1),
    ] {
        copy.edit("config.json", from, &format!(r#""{name}": {size}"#));
    }
    copy.modules(&[TRANSFORMER, POOLING]);
    let mut state = 1u64;
    let mut number = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 25) as f32 - 0.25
    };
    let grown = |size: &usize| match size {
        32 => 128,
        64 => 640,
        other => *other,
    };
    let whole = std::fs::read(directory().join("model.safetensors")).unwrap();
    let mut tensors = Vec::new();
    for (name, view) in SafeTensors::deserialize(&whole).unwrap().tensors() {
        if !name.contains("layer.1.") {
            let shape: Vec<usize> = view.shape().iter().map(grown).collect();
            let count = shape.iter().product::<usize>();
            let bytes: Vec<u8> = (0..count).flat_map(|_| number().to_le_bytes()).collect();
            tensors.push((name, shape, bytes));
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
}

/// Each text alone, in pieces of `chunk`, and all of them in `threads` calls at a time.
fn check_company(model: &Transformer, texts: &[String], threads: usize, chunk: usize) {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let alone: Vec<Vec<f32>> = texts.iter().flat_map(|t| embed(model, &[*t])).collect();
    let chunked: Vec<Vec<f32>> = texts.chunks(chunk).flat_map(|c| embed(model, c)).collect();
    assert!(alone == chunked, "in pieces of {chunk}");
    std::thread::scope(|scope| {
        let call = |_| scope.spawn(|| embed(model, &texts));
        let calls: Vec<_> = (0..threads).map(call).collect();
        for call in calls {
            assert!(call.join().unwrap() == alone, "in {threads} threads");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]
    #[test]
    fn a_vector_has_the_same_bits_in_any_company(
        texts in prop::collection::vec(text(), 1..70),
        threads in 1usize..5,
        chunk in 1usize..70,
    ) {
        static MODELS: OnceLock<[Transformer; 2]> = OnceLock::new();
        let models = MODELS.get_or_init(|| {
            let copy = Copy::new();
            widen(&copy);
            [copy.open().unwrap(), Transformer::from_directory(&directory()).unwrap()]
        });
        for model in models {
            check_company(model, &texts, threads, chunk);
        }
    }
}

/// The same with real weights, over texts of many lengths.
#[test]
fn real_weights_give_the_same_bits_in_any_company() {
    let Some(directory) = from_environment(MINILM) else {
        return;
    };
    let model = Transformer::from_directory(&directory).unwrap();
    let words = [
        "graph",
        "tables",
        "of",
        "embeddings",
        "refresh",
        "incrementally",
        "(fast)",
    ];
    let text = |n: usize| -> String {
        let words: Vec<&str> = (0..n * n % 23 + 1)
            .map(|w| words[(n + w * w) % words.len()])
            .collect();
        words.join(" ")
    };
    let texts: Vec<String> = (0..120).map(text).collect();
    for chunk in [2, 7, 64, 120] {
        check_company(&model, &texts, 2, chunk);
    }
}
