//! Lines and files on a store.

use std::sync::Arc;

use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use stratagraph::graph::input::{
    InputOptions, Line, LineReader, Source, Summary, TypedBatch, glob, read,
};
use stratagraph::{Error, Result};
use tokio::io::AsyncWriteExt;

use super::support::*;

async fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

async fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZstdEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

#[expect(clippy::disallowed_methods, reason = "files that others wrote")]
async fn store(files: &[(&str, Vec<u8>)]) -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for (name, bytes) in files {
        let put = store.put(&Path::from(*name), bytes.clone().into()).await;
        put.unwrap();
    }
    store
}

async fn load_files(
    files: &[(&str, Vec<u8>)],
    pattern: &str,
    options: InputOptions,
) -> Result<(Vec<TypedBatch>, Summary)> {
    let sources = glob(&store(files).await, pattern).await?;
    let mut batches: Vec<TypedBatch> = vec![];
    let summary = read(sources, schema().into(), options, &mut batches).await?;
    Ok((batches, summary))
}

/// All lines as `number:text`, or where they end.
async fn lines(bytes: &[u8], limit: usize) -> Result<Vec<String>> {
    let store = store(&[("a.jsonl", bytes.to_vec())]).await;
    let path = Path::from("a.jsonl");
    let mut reader = LineReader::open(&Source { store, path }, 0, limit).await?;
    let mut lines = vec![];
    while let Some(line) = reader.next().await? {
        lines.push(match line {
            Line::Text(number, text) => format!("{number}:{text}"),
            Line::NotUtf8(number, valid) => format!("{number}!{valid}"),
        });
    }
    Ok(lines)
}

#[tokio::test]
async fn blank_lines_and_comments_are_counted_and_passed_over() {
    let text = b"\xEF\xBB\xBFa\r\n\n \t\r\n// comment\n  // {\nb // c\n\xEF\xBB\xBFd\r";
    let lines = lines(text, 100).await.unwrap();
    assert_eq!(lines, ["1:a", "6:b // c", "7:\u{feff}d\r"]);
    let lines = super::files::lines(b"a\nb\xFFc\n\xC3\n", 100)
        .await
        .unwrap();
    assert_eq!(lines, ["1:a", "2!1", "3!0"]);
    assert!(super::files::lines(b"", 100).await.unwrap().is_empty());
}

#[tokio::test]
async fn lines_end_at_their_limit() {
    let limit = 200_000;
    for bom in ["", "\u{feff}"] {
        for end in ["", "\n", "\r\n"] {
            for (more, accepted) in [(-1, true), (0, true), (1, false)] {
                let line = "x".repeat((limit as i64 + more) as usize);
                let text = format!("{bom}{line}{end}y\n{line}{end}");
                let text = match end {
                    "" => format!("{bom}{line}"),
                    _ => text,
                };
                let read = lines(text.as_bytes(), limit).await;
                if accepted {
                    assert_eq!(read.unwrap()[0].len(), line.len() + 2, "{bom:?} {end:?}");
                    continue;
                }
                let error = read.unwrap_err();
                assert_eq!(error.code(), "ResourceLimitExceeded");
                let text = error.to_string();
                assert!(
                    text.contains("line 1 of \"a.jsonl\" is longer than 200000"),
                    "{text}"
                );
            }
        }
    }
    let text = format!("a\nb\n{}", "x".repeat(11));
    let error = lines(text.as_bytes(), 10).await.unwrap_err();
    assert!(matches!(
        error,
        Error::LineTooLong {
            line: 3,
            limit: 10,
            ..
        }
    ));
}

#[tokio::test]
async fn records_over_several_lines_end_at_the_limit_too() {
    let record = "{\"type\":\"Note\",\n\"data\":{}}";
    for (less, accepted) in [(0, true), (1, false)] {
        let options = InputOptions {
            line_bytes: record.len() - less,
            ..compatible()
        };
        let text = format!("{{}}\n{record}\n");
        let read = load_files(&[("a", text.into())], "a", options).await;
        match read {
            Ok((_, summary)) => assert_eq!((summary.nodes, accepted), (1, true)),
            Err(error) => {
                assert!(!accepted);
                assert!(error.to_string().contains("line 3 of \"a\""), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn files_are_read_in_the_order_of_their_names_whatever_their_compression() {
    let note = |text: &str| format!("{{\"type\":\"Note\",\"data\":{{\"text\":\"{text}\"}}}}\n");
    let mut members = gz(note("b1").as_bytes()).await;
    members.extend(gz(note("b2").as_bytes()).await);
    let mut frames = zst(format!("// c\n{}", note("c1")).as_bytes()).await;
    frames.extend(zst(note("c2").as_bytes()).await);
    let files = [
        ("in/c.jsonl.zst", frames),
        ("in/b.jsonl.gz", members),
        (
            "in/a.jsonl",
            format!("{}\n{{\"type\":\"Nope\"}}", note("a1")).into(),
        ),
        ("in/d.jsonl", note("d1").replace("text", "tex").into()),
        ("in/sub/e.jsonl", note("e1").into()),
        ("other.jsonl", note("o1").into()),
    ];
    for (options, nope, last) in [
        (
            strict(),
            (3, "line 3 of \"in/a.jsonl\""),
            (9, "line 1 of \"in/d.jsonl\""),
        ),
        (compatible(), (2, "record 2 of \"in/a.jsonl\""), (0, "")),
    ] {
        let (batches, summary) = load_files(&files, "in/*.jsonl*", options).await.unwrap();
        let (places, mut found) = (summary.places, summary.findings.listed());
        places.name_files(&mut found);
        let loaded = Loaded {
            batches,
            summary: read(vec![], schema().into(), strict(), &mut Vec::new())
                .await
                .unwrap(),
            violations: found.0,
        };
        let texts = loaded.texts(NOTE, "text");
        let texts: Vec<_> = texts.iter().flatten().map(String::as_str).collect();
        assert_eq!(texts, ["a1", "b1", "b2", "c1", "c2"]);
        assert_eq!(loaded.violations[0].record, nope.0);
        assert!(
            loaded.violations[0]
                .message
                .ends_with(&format!("({})", nope.1))
        );
        if last.0 > 0 {
            assert_eq!(loaded.violations[1].record, last.0);
            assert!(loaded.violations[1].message.contains(last.1));
        }
    }
    let (batches, _) = load_files(&files, "in/**.jsonl", strict()).await.unwrap();
    let rows: usize = batches.iter().map(|b| b.batch.num_rows()).sum();
    assert_eq!(rows, 2);
    let (batches, _) = load_files(&files, "in/?.jsonl.gz", strict()).await.unwrap();
    assert_eq!(batches[0].batch.num_rows(), 2);
}

#[tokio::test]
async fn files_that_cannot_be_read_are_typed_errors() {
    let mut cut = gz(&b"{\"type\":\"Note\"}\n".repeat(50_000)).await;
    cut.truncate(cut.len() - 9);
    let files = [
        ("cut.gz", cut),
        ("bad.gz", b"no gzip".to_vec()),
        ("bad.zst", b"no zstd".to_vec()),
    ];
    for name in ["cut.gz", "bad.gz", "bad.zst"] {
        let error = load_files(&files, name, strict()).await.unwrap_err();
        assert_eq!(error.code(), "InvalidArgument", "{error}");
        assert!(error.to_string().contains(name));
    }
    let error = load_files(&files, "none.jsonl", strict())
        .await
        .unwrap_err();
    assert!(error.is_missing_object());
    let error = load_files(&files, "none*", strict()).await.unwrap_err();
    assert_eq!(error.code(), "NotFound");
}

#[tokio::test]
async fn bytes_that_are_no_utf8_are_violations() {
    let text = b"{\"type\":\"Note\"}\n{\"type\":\"N\xFF\"}\n{\"type\":\"Note\"}\n";
    for options in [strict(), compatible()] {
        let (_, summary) = load_files(&[("a", text.to_vec())], "a", options)
            .await
            .unwrap();
        assert_eq!((summary.nodes, summary.records), (2, 3));
        let found = summary.findings.listed().0;
        assert_eq!((found[0].record, found[0].rule), (2, "syntax"));
        assert!(
            found[0]
                .message
                .contains("byte 11 of the line is not UTF-8")
        );
    }
}

#[tokio::test]
async fn a_record_does_not_go_on_in_the_next_file() {
    let files = [
        ("a", b"{\"type\":\"Note\",".to_vec()),
        ("b", b"\"data\":{}}\n{\"type\":\"Note\"}".to_vec()),
    ];
    let (_, summary) = load_files(&files, "?", compatible()).await.unwrap();
    assert_eq!(summary.nodes, 1);
    let found = summary.findings.listed();
    let messages: Vec<_> = found.0.iter().map(|v| v.message.as_str()).collect();
    assert!(messages[0].starts_with("line 1 of \"a\": the record that begins here"));
    assert!(messages[1].starts_with("line 1 of \"b\": column 1: expected '{'"));
}
