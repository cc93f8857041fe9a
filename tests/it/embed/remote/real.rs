//! A real server, where `STRATAGRAPH_SERVER` names one as a spec, such as
//! `openai:e5-passage@http://127.0.0.1:8899/v1`.

use super::*;

#[tokio::test]
async fn a_real_server_gives_each_text_its_own_vector() {
    let Ok(spec) = std::env::var("STRATAGRAPH_SERVER") else {
        println!("skipped: STRATAGRAPH_SERVER names no server");
        return;
    };
    let registry = ModelRegistry::default();
    let env = Env::system();
    let open = registry.resolve(&spec, &OPEN, &env, Handshake::Fresh);
    let model = open.await.unwrap();
    let topics = [
        "trains",
        "bread",
        "sonatas",
        "volcanoes",
        "tax law",
        "orchids",
        "chess",
    ];
    let text = |n: usize| format!("Note {n} about {}", topics[n % topics.len()]).repeat(1 + n % 3);
    let texts: Vec<String> = (0..70).map(text).collect();
    let texts: Vec<Option<&str>> = texts.iter().map(|t| Some(t.as_str())).collect();
    let all = embed_checked(model.as_ref(), Role::Document, &texts).await;
    let all = all.unwrap();
    assert!(all.errors.is_empty());
    for row in [0, 1, 33, 63, 64, 69] {
        let one = embed_checked(model.as_ref(), Role::Document, &texts[row..=row]).await;
        let alone = vector(&one.unwrap(), 0).unwrap();
        let together = vector(&all, row).unwrap();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        let norms = (dot(&alone, &alone) * dot(&together, &together)).sqrt();
        // Another row's vector is further away; servers round in batches as they like.
        assert!(dot(&alone, &together) / norms > 0.999, "row {row}");
    }
    println!(
        "{}: {} dimensions, {}",
        model.spec(),
        model.dimensions(),
        model.definition().canonical()
    );
}
