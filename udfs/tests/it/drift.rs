//! A model of files through the verbs: what it computes, and that a changed file is noticed before
//! anything happens.

use std::path::Path;
use std::sync::Arc;

use datafusion::physical_plan::collect;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::embed::testing::tiny_bert::{FILES, copy_to, directory};

use crate::world::{World, doc, docs, typed};

fn copy() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy_to(directory.path()).unwrap();
    directory
}

async fn objects(store: &InMemory) -> Vec<String> {
    let metas: Vec<_> = store.list(None).try_collect().await.unwrap();
    metas.into_iter().map(|m| m.location.to_string()).collect()
}

/// Changes one byte in place and sets the file's times back.
fn flip(path: &Path, at: usize) {
    let times = std::fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(times).unwrap();
}

#[tokio::test]
async fn one_changed_byte_of_any_file_stops_every_verb_before_it_begins() {
    let store = Arc::new(InMemory::new());
    let world = World::trusting(Arc::clone(&store)).await;
    world.docs.set(&docs(20));
    let directory = copy();
    let spec = format!("candle:{}", directory.path().display());
    let generate = format!(
        "SELECT rows, dimensions FROM generate_embeddings(docs, '{spec}', 'title', 'id', name => 't')"
    );
    assert_eq!(world.row(&generate).await, ["20", "24"]);
    let mut edited = docs(20);
    edited[3] = doc("k0003", "another title", "body");
    world.docs.set(&edited);
    let before = objects(&store).await;
    for name in FILES {
        let path = directory.path().join(name);
        let length = std::fs::metadata(&path).unwrap().len() as usize;
        // The last byte of a file of weights is a number; of a text it is a brace.
        for at in [length / 2, length - 1] {
            flip(&path, at);
            for verb in [
                "SELECT * FROM refresh_embeddings('t')",
                "SELECT * FROM search('t', 'a title', 3)",
            ] {
                let (code, message) = world.error(verb).await;
                assert_eq!(code, "DefinitionDrift", "{name}: {message}");
                assert!(message.contains(name), "{name}: {message}");
            }
            let stale = world.row("SELECT state, reason FROM staleness('t')").await;
            assert_eq!(stale, ["stale", "definition_changed"]);
            flip(&path, at);
        }
    }
    // Sizes that other limits refuse are drift too.
    let config = directory.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let edited = text.replace("layers\": 2", "layers\": 0");
    assert_ne!(edited, text);
    std::fs::write(&config, edited).unwrap();
    let refresh = "SELECT * FROM refresh_embeddings('t')";
    assert_eq!(world.code(refresh).await, "DefinitionDrift");
    std::fs::write(&config, text).unwrap();
    assert_eq!(objects(&store).await, before);
    let refresh = "SELECT inferred_rows, changed, outcome FROM refresh_embeddings('t')";
    assert_eq!(world.row(refresh).await, ["1", "1", "published"]);
}

#[tokio::test]
async fn verbs_and_scalars_agree_with_a_model_of_files() {
    let world = World::trusting(Arc::new(InMemory::new())).await;
    world.docs.set(&docs(150));
    let spec = format!("candle:{}", directory().display());
    world
        .sql(&format!(
            "SELECT * FROM generate_embeddings(docs, '{spec}', 'title', 'id', name => 't')"
        ))
        .await;
    let differing = world
        .row(&format!(
            "SELECT count(*) FROM docs d JOIN sg.embeddings.t e ON d.id = e._row_id \
             WHERE e.vector <> embed(d.title, '{spec}')"
        ))
        .await;
    assert_eq!(differing, ["0"]);
    let first = "SELECT similarity > 0.9999 FROM search('t', 'title 7', 1)";
    assert_eq!(world.row(first).await, ["true"]);
    // Longer than the 16 tokens of the model.
    let mut edited = docs(150);
    edited[5] = doc("k0005", &"the fox ".repeat(20), "");
    edited[6] = doc("k0006", "", "");
    world.docs.set(&edited);
    let refresh = "SELECT inferred_rows, dropped_rows, truncated_rows, rejected_rows \
                   FROM refresh_embeddings('t')";
    assert_eq!(world.row(refresh).await, ["2", "1", "1", "1"]);
    let reason = "SELECT _row_id, reason FROM rejected_rows('t')";
    assert_eq!(world.row(reason).await, ["k0006", "empty"]);
}

#[tokio::test]
async fn a_host_that_allows_no_paths_can_still_offer_the_model() {
    let world = World::new().await;
    world.docs.set(&docs(3));
    let spec = format!("candle:{}", directory().display());
    let generate = |model: &str| {
        format!("SELECT rows FROM generate_embeddings(docs, '{model}', 'title', 'id', name => 't')")
    };
    assert_eq!(world.code(&generate(&spec)).await, "SourceNotAllowed");
    let model = stratagraph::embed::Transformer::from_directory(&directory()).unwrap();
    world
        .sg
        .register_model("acme/tiny", Arc::new(model))
        .unwrap();
    assert_eq!(world.row(&generate("acme/tiny")).await, ["3"]);
    let listed =
        "SELECT model, local, dimensions FROM embedding_models() WHERE model = 'acme/tiny'";
    assert_eq!(world.row(listed).await, ["acme/tiny", "true", "24"]);
}

#[tokio::test]
async fn a_plan_keeps_to_the_model_that_it_was_made_with() {
    let world = World::trusting(Arc::new(InMemory::new())).await;
    world.docs.set(&docs(5));
    let files = copy();
    let sql = format!(
        "SELECT id, embed(title, 'candle:{}') AS v FROM docs",
        files.path().display()
    );
    let frame = world.ctx.sql(&sql).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    // The last number of the weights: the same width, other vectors.
    let weights = files.path().join("2_Dense/model.safetensors");
    flip(
        &weights,
        std::fs::metadata(&weights).unwrap().len() as usize - 1,
    );
    let task = world.ctx.task_ctx();
    let error = collect(Arc::clone(&plan), Arc::clone(&task))
        .await
        .unwrap_err();
    assert_eq!(typed(&error, &sql).0, "SchemaChanged");
    assert_eq!(world.sql(&sql).await.len(), 5);
    flip(
        &weights,
        std::fs::metadata(&weights).unwrap().len() as usize - 1,
    );
    assert!(collect(plan, task).await.is_ok());
}
