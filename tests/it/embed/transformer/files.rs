//! Files that cannot be used, files that change, and where they are found.

use super::*;

/// Edits after which a vector could not be what the files mean.
const UNKNOWN: [(&str, &str, &str); 20] = [
    (
        "config.json",
        r#""model_type": "bert""#,
        r#""model_type": "mpnet""#,
    ),
    (
        "config.json",
        r#""hidden_act": "gelu""#,
        r#""hidden_act": "relu""#,
    ),
    (
        "config.json",
        r#""is_decoder": false"#,
        r#""is_decoder": true"#,
    ),
    (
        "config.json",
        r#"attention_heads": 4"#,
        r#"attention_heads": 5"#,
    ),
    (
        "config.json",
        r#"attention_heads": 4"#,
        r#"attention_heads": 0"#,
    ),
    (
        "config.json",
        r#""hidden_size": 32"#,
        r#""hidden_size": 36"#,
    ),
    (
        "config.json",
        r#""hidden_size": 32"#,
        r#""hidden_size": -1"#,
    ),
    (
        "config.json",
        r#""vocab_size": 130"#,
        r#""vocab_size": 129"#,
    ),
    (
        "config.json",
        r#"hidden_layers": 2"#,
        r#"hidden_layers": 3"#,
    ),
    ("config.json", r#"norm_eps": 1e-12"#, r#"norm_eps": 0"#),
    ("config.json", "{", "["),
    ("1_Pooling/config.json", r#""mean""#, r#""lasttoken""#),
    (
        "2_Dense/config.json",
        r#"features": 32"#,
        r#"features": 31"#,
    ),
    ("2_Dense/config.json", "activation.Tanh", "activation.ReLU"),
    (
        "2_Dense/config.json",
        "sentence_embedding",
        "token_embeddings",
    ),
    (
        "tokenizer_config.json",
        r#"lower_case": true"#,
        r#"lower_case": false"#,
    ),
    ("modules.json", "dense.Dense", "cnn.CNN"),
    ("modules.json", r#""1_Pooling""#, r#""../1_Pooling""#),
    ("modules.json", r#""1_Pooling""#, r#""/etc""#),
    ("modules.json", r#""2_Dense""#, r#""none""#),
];

#[test]
fn what_cannot_be_computed_exactly_is_refused() {
    assert!(Copy::new().open().is_ok());
    for (file, from, to) in UNKNOWN {
        let copy = Copy::new();
        copy.edit(file, from, to);
        let (code, message) = copy.refused();
        assert_eq!(code, "ModelInvalid", "{file} {to}: {message}");
    }
    for (from, to) in [
        (r#"hidden_layers": 2"#, r#"hidden_layers": 99999999"#),
        (r#""hidden_size": 32"#, r#""hidden_size": 4000000000"#),
        (r#"embeddings": 48"#, r#"embeddings": 4000000000"#),
    ] {
        let copy = Copy::new();
        copy.edit("config.json", from, to);
        copy.modules(&[TRANSFORMER, POOLING]);
        assert_eq!(copy.refused().0, "ResourceLimitExceeded", "{to}");
    }
    // Scores that no memory holds.
    let copy = Copy::new();
    copy.write(
        "config.json",
        &std::fs::read_to_string(copy.path().join("config.json"))
            .unwrap()
            .replace("heads\": 4", "heads\": 32")
            .replace("embeddings\": 48", "embeddings\": 4096"),
    );
    copy.write("sentence_bert_config.json", r#"{"max_seq_length": 4096}"#);
    let (code, message) = copy.refused();
    assert!(
        code == "ModelInvalid" && message.contains("max_tokens="),
        "{message}"
    );
}

#[test]
fn damaged_weights_are_typed() {
    let whole = std::fs::read(directory().join("model.safetensors")).unwrap();
    let huge = [u64::MAX.to_le_bytes().as_slice(), &whole[8..]].concat();
    for bytes in [
        &[][..],
        &whole[..7],
        &whole[..whole.len() - 1],
        &whole[8..],
        &huge,
    ] {
        let copy = Copy::new();
        copy.modules(&[TRANSFORMER, POOLING]);
        std::fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
        assert_eq!(copy.refused().0, "ModelInvalid");
    }
    let copy = Copy::new();
    std::fs::remove_file(copy.path().join("model.safetensors")).unwrap();
    let (code, message) = copy.refused();
    assert_eq!(code, "ModelInvalid");
    assert!(message.contains("model.safetensors"), "{message}");
}

#[test]
fn one_changed_byte_of_any_file_is_another_definition() {
    let copy = Copy::new();
    let registry = ModelRegistry::default();
    let spec = format!("candle:{}", copy.path().display());
    let resolve = || {
        registry
            .resolve_now(&spec, &open_policy())
            .map(Option::unwrap)
    };
    let original = resolve().unwrap();
    assert!(Arc::ptr_eq(&original, &resolve().unwrap()));
    for name in FILES {
        let path = copy.path().join(name);
        let times = std::fs::metadata(&path).unwrap().modified().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(times).unwrap();
            match resolve() {
                Ok(other) => assert_ne!(
                    other.definition().hash(),
                    original.definition().hash(),
                    "{name}"
                ),
                Err(error) => assert!(
                    matches!(
                        error.code(),
                        "ModelInvalid" | "ResourceLimitExceeded" | "NotYetSupported"
                    ),
                    "{name}: {error}"
                ),
            }
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(
            resolve().unwrap().definition(),
            original.definition(),
            "{name}"
        );
    }
    // The place of the files says nothing of the vectors.
    let elsewhere = Transformer::from_directory(&directory()).unwrap();
    assert_eq!(elsewhere.definition(), original.definition());
}

#[test]
fn names_are_found_in_the_hubs_cache_and_nowhere_else() {
    let cache = tempfile::tempdir().unwrap();
    let policy = ModelPolicy {
        allow_paths_and_urls: false,
        hub_cache: Some(cache.path().to_owned()),
    };
    let registry = ModelRegistry::default();
    let resolve = |name: &str| registry.resolve_now(name, &policy).map(Option::unwrap);
    assert_eq!(resolve("acme/tiny").unwrap_err().code(), "ModelNotFound");
    let repository = cache.path().join("models--acme--tiny");
    let snapshot = repository.join("snapshots/0123abcd");
    copy_to(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), "0123abcd\n").unwrap();
    let model = resolve("acme/tiny").unwrap();
    let same = Transformer::from_directory(&directory()).unwrap();
    assert_eq!(model.definition(), same.definition());
    for other in ["tiny", "acme/other", "acme/../tiny"] {
        assert!(matches!(
            resolve(other).unwrap_err().code(),
            "ModelNotFound" | "SourceNotAllowed"
        ));
    }
    // Another snapshot becomes the main one.
    let other = repository.join("snapshots/4567cdef");
    copy_to(&other).unwrap();
    let pooling = r#"{"pooling_mode": "cls"}"#;
    std::fs::write(other.join("1_Pooling/config.json"), pooling).unwrap();
    assert!(Arc::ptr_eq(&model, &resolve("acme/tiny").unwrap()));
    std::fs::write(repository.join("refs/main"), "4567cdef").unwrap();
    let moved = resolve("acme/tiny").unwrap();
    assert_ne!(moved.definition(), model.definition());
    for revision in ["../../..", "/etc", ""] {
        std::fs::write(repository.join("refs/main"), revision).unwrap();
        let fresh = ModelRegistry::default();
        assert_eq!(
            fresh.resolve_now("acme/tiny", &policy).unwrap_err().code(),
            "ModelNotFound"
        );
    }
}
