//! Model specs, the host's policy and its registry.

use std::sync::Arc;

use proptest::prelude::*;
use stratagraph::embed::testing::CountingEmbedder;
use stratagraph::embed::{Embedder, ModelPolicy, ModelRegistry, default_model, parse_spec};

use super::model;

const OPEN: ModelPolicy = ModelPolicy {
    allow_paths_and_urls: true,
    hub_cache: None,
};
const CLOSED: ModelPolicy = ModelPolicy {
    allow_paths_and_urls: false,
    hub_cache: None,
};

/// The model of a text that needs no server.
fn local(
    registry: &ModelRegistry,
    text: &str,
    policy: &ModelPolicy,
) -> stratagraph::Result<Arc<dyn Embedder>> {
    registry.resolve_now(text, policy).map(Option::unwrap)
}

#[test]
fn specs_have_one_canonical_text() {
    for (text, canonical) in [
        ("hash:384", "hash:384"),
        (" HASH:0384\n", "hash:384"),
        ("hash:1", "hash:1"),
        ("hash:65536", "hash:65536"),
        ("Static:minilm-l6-128", "static:minilm-l6-128"),
        ("static:/data/Table", "static:/data/Table"),
        ("CANDLE: /dir/m ?", "candle:/dir/m"),
        (
            "candle:/m?query_prompt=query%3A+&dtype=f16&max_tokens=128",
            "candle:/m?dtype=f16&max_tokens=128&query_prompt=query%3A+",
        ),
        (
            "OpenAI:nomic:latest@HTTP://Host:80/v1/?dimensions=256",
            "openai:nomic:latest@http://host/v1?dimensions=256",
        ),
        (
            "openai:@cf/baai/bge@https://h/v1?key_env=OPENAI_API_KEY",
            "openai:@cf/baai/bge@https://h/v1?key_env=OPENAI_API_KEY",
        ),
        ("tei:http://127.0.0.1:8080", "tei:http://127.0.0.1:8080"),
        (
            "sentence-transformers/all-MiniLM-L6-v2",
            "sentence-transformers/all-MiniLM-L6-v2",
        ),
    ] {
        let spec = parse_spec(text).unwrap();
        assert_eq!(spec.to_string(), canonical);
        assert_eq!(parse_spec(canonical).unwrap(), spec);
    }
}

#[test]
fn malformed_specs_are_typed() {
    for (text, code) in [
        ("", "ModelNotFound"),
        ("no such model", "ModelNotFound"),
        ("onnx:m", "ModelNotFound"),
        ("a//b", "ModelNotFound"),
        ("hash:", "InvalidArgument"),
        ("hash:abc", "InvalidArgument"),
        ("hash:-1", "InvalidArgument"),
        ("hash:+1", "InvalidArgument"),
        ("hash:1.5", "InvalidArgument"),
        ("hash:0", "InvalidArgument"),
        ("hash:65537", "ResourceLimitExceeded"),
        ("hash:99999999999999999999999", "ResourceLimitExceeded"),
        ("static:", "InvalidArgument"),
        ("static:a b", "InvalidArgument"),
        ("candle:", "InvalidArgument"),
        ("candle: ?", "InvalidArgument"),
        ("candle:?dtype=f16", "InvalidArgument"),
        ("candle:/m?dtype=f8", "InvalidArgument"),
        ("candle:/m?max_tokens=0", "InvalidArgument"),
        ("candle:/m?max_tokens=-1", "InvalidArgument"),
        ("candle:/m?dtype=f16&dtype=f32", "InvalidArgument"),
        ("candle:/m?unknown=1", "InvalidArgument"),
        ("candle:http://h", "InvalidArgument"),
        ("openai:m", "InvalidArgument"),
        ("openai:@http://h", "InvalidArgument"),
        ("openai:m@ftp://h", "InvalidArgument"),
        ("openai:m@http://h/v1#f", "InvalidArgument"),
        ("openai:m@http://h?dimensions=65537", "InvalidArgument"),
        ("tei:h:80", "InvalidArgument"),
        ("tei:file:///etc", "InvalidArgument"),
        ("tei:http://", "InvalidArgument"),
        ("openai:m@ht\ntp://h", "InvalidArgument"),
        ("m\0", "InvalidArgument"),
        (&"m".repeat(4097), "InvalidArgument"),
    ] {
        assert_eq!(parse_spec(text).unwrap_err().code(), code, "{text:?}");
    }
}

#[test]
fn secrets_are_refused_and_never_repeated() {
    const SECRET: &str = "s3cr3t";
    for text in [
        "openai:m@https://user:s3cr3t@h/v1",
        "openai:m@https://s3cr3t@h/v1",
        "OPENAI:m@HTTPS://u:s3cr3t@h/v1",
        "openai:m@https://h/v1?api_key=s3cr3t",
        "openai:m@https://h/v1?API-KEY=s3cr3t",
        "openai:m@https://h/v1?access_token=s3cr3t",
        "openai:m@https://h/v1?key=s3cr3t",
        "openai:m@https://h/v1?s3cr3t",
        "openai:m@https://h/v1?s3cr3t=1",
        "openai:m@https://h/v1?key_env=s3cr3t-key",
        "openai:m@https:\\\\u:s3cr3t@h",
        "tei:http://u:s3cr3t@h",
        "tei:http:u:s3cr3t@h",
        "tei:http://h?token=s3cr3t",
        "candle:/m?password=s3cr3t",
        "http://u:s3cr3t@h",
        "u:s3cr3t@h",
        "unknown:s3cr3t",
        "hash://u:s3cr3t@h",
    ] {
        let registry = ModelRegistry::default();
        let errors = [
            parse_spec(text).unwrap_err(),
            local(&registry, text, &OPEN).unwrap_err(),
            local(&registry, text, &CLOSED).unwrap_err(),
        ];
        for error in errors {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}

#[test]
fn paths_and_urls_need_the_hosts_leave() {
    let registry = ModelRegistry::default();
    assert!(!ModelPolicy::default().allow_paths_and_urls);
    for text in [
        "candle:/dir",
        "CaNdLe:/dir",
        " candle:dir",
        "static:/dir",
        "STATIC:../dir",
        "static:dir/sub",
        "openai:m@http://h/v1",
        "OPENAI:m@HTTPS://h/v1",
        "tei:http://h",
        "Tei:HTTP://h",
        "tei:h",
        "file:/etc/passwd",
        "FILE:///etc/passwd",
        "http://169.254.169.254/",
        "HTTP:h",
        "/etc/passwd",
        "~/m",
        "../m",
        "m/../../etc",
        "C:\\m",
        "my-file:/etc/passwd",
        "m@http://h",
        "hash:384@http://h",
        "hash:file:/etc",
        "openai:m@ht\ntp://h",
    ] {
        let error = local(&registry, text, &CLOSED).unwrap_err();
        assert_eq!(error.code(), "SourceNotAllowed", "{text}");
    }
    for text in ["candle:/no/such/dir", "static:/no/such/dir"] {
        let error = local(&registry, text, &OPEN).unwrap_err();
        assert_eq!(error.code(), "ModelInvalid", "{text}");
    }
    for text in ["openai:m@http://h/v1", "tei:http://h"] {
        // Nobody has asked these servers who they are.
        assert!(registry.resolve_now(text, &OPEN).unwrap().is_none());
    }
    for text in [
        "file:/etc/passwd",
        "http://h",
        "/etc/passwd",
        "static:other",
    ] {
        let error = local(&registry, text, &OPEN).unwrap_err();
        assert_eq!(error.code(), "ModelNotFound", "{text}");
    }
}

#[test]
fn what_names_no_place_needs_no_leave() {
    let registry = ModelRegistry::default();
    let default = local(&registry, default_model(), &CLOSED).unwrap();
    assert_eq!(default.spec(), default_model());
    for unknown in ["hash", "other", "org/other", "onnx:m"] {
        let error = local(&registry, unknown, &CLOSED).unwrap_err();
        assert_eq!(error.code(), "ModelNotFound");
        assert!(error.to_string().contains("hash:384"));
    }
}

#[test]
fn a_registered_name_comes_first() {
    let registry = ModelRegistry::default();
    let counting = Arc::new(CountingEmbedder::new("acme/m", Arc::new(model(8))));
    registry
        .clone()
        .register("acme/m", counting.clone())
        .unwrap();
    assert_eq!(
        local(&registry, "acme/m", &CLOSED).unwrap().spec(),
        "acme/m"
    );
    let taken = registry.register("acme/m", counting.clone()).unwrap_err();
    assert_eq!(taken.code(), "AlreadyExists");
    registry
        .register(&"n".repeat(128), counting.clone())
        .unwrap();
    let long = "n".repeat(129);
    for bad in [
        "", "hash:384", "a b", "/m", "m/", "a//b", "..", "m@1", "é", &long,
    ] {
        let error = registry.register(bad, counting.clone()).unwrap_err();
        assert_eq!(error.code(), "InvalidIdentifier", "{bad}");
    }
    let names: Vec<String> = registry.list().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[0], "acme/m");
    assert_eq!(names.len(), 2);
}

proptest! {
    #[test]
    fn no_text_panics_and_every_parsed_one_round_trips(
        text in prop_oneof![
            any::<String>(),
            "(hash|static|candle|openai|tei|x):[a-z0-9/:@?=&%#. ]{0,20}",
            "openai:[a-z]{1,3}@https?://[a-z]{1,4}(/[a-z@]{0,3})?(\\?dimensions=[0-9]{1,3})?",
        ],
    ) {
        let registry = ModelRegistry::default();
        let _ = registry.resolve_now(&text, &OPEN);
        let closed = registry.resolve_now(&text, &CLOSED);
        if let Ok(spec) = parse_spec(&text) {
            let canonical = spec.to_string();
            prop_assert_eq!(parse_spec(&canonical).unwrap(), spec);
        }
        prop_assert!(closed.is_err() || text.trim().to_lowercase().starts_with("hash:"));
    }
}
