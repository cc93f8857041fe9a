//! A server that has another model than the one that made the table.

use super::*;
use crate::world::{docs, strings};

/// What is done to a server, and the member of the definition that says so.
struct Change {
    kind: Kind,
    options: &'static str,
    fault: Fault,
    member: &'static str,
}

fn changes() -> Vec<Change> {
    let change = |kind, options, fault, member| Change {
        kind,
        options,
        fault,
        member,
    };
    let renamed = || Fault::OtherModel("new".to_owned());
    vec![
        change(Kind::OpenAi, "", renamed(), "parameters.reported_model"),
        change(
            Kind::OpenAi,
            "",
            Fault::NoModel,
            "parameters.reported_model",
        ),
        change(Kind::OpenAi, "", Fault::WrongWidth, "dimensions"),
        change(Kind::Tei, "", renamed(), "parameters.model_sha"),
        change(Kind::Tei, "", Fault::WrongWidth, "dimensions"),
        change(
            Kind::OpenAi,
            "?probe=true",
            Fault::OtherVectors,
            "parameters.probe",
        ),
        change(
            Kind::Tei,
            "?probe=true",
            Fault::OtherVectors,
            "parameters.probe",
        ),
    ]
}

#[tokio::test]
async fn drift_is_noticed_before_a_row_is_sent() {
    for change in changes() {
        let served = Served::new(change.kind).await;
        let world = &served.world;
        let mut rows = docs(10);
        world.docs.set(&rows);
        let spec = served.spec() + change.options;
        let table = served.table().model(spec);
        world.sg.generate_embeddings(table).await.unwrap();
        rows[3].1 = Some("edited".to_owned());
        world.docs.set(&rows);
        let (before, good) = (served.objects().await, vectors(&world.sg, "t").await);

        served.server.set(Some(change.fault.clone()));
        served.server.reset();
        for verb in [
            "SELECT * FROM refresh_embeddings('t')",
            "SELECT * FROM refresh_plan('t')",
        ] {
            let (code, message) = world.error(verb).await;
            let what = format!("{:?}: {message}", change.fault);
            assert_eq!(code, "DefinitionDrift", "{what}");
            assert!(message.contains(change.member), "{what}");
            assert!(!message.contains("127.0.0.1"), "{what}");
        }
        let state = "SELECT state, reason FROM staleness('t')";
        assert_eq!(world.row(state).await, ["stale", "definition_changed"]);
        let mut texts = served.sent().1;
        texts.dedup();
        let sent = if change.options.is_empty() { 1 } else { 4 };
        assert_eq!(texts.len(), sent, "{texts:?}");
        assert!(
            !texts
                .iter()
                .any(|t| t == "edited" || t.starts_with("title"))
        );
        assert_eq!(served.objects().await, before, "{:?}", change.fault);

        // The session knows the new model now, and does not take it for the table's.
        let search = "SELECT * FROM search('t', 'title 1', 3)";
        assert_eq!(world.code(search).await, "DefinitionDrift");
        assert_eq!(served.sent().0, 0, "{:?}", change.fault);
        assert_eq!(vectors(&world.sg, "t").await, good);

        served.server.set(None);
        let refresh = "SELECT inferred_rows, changed, outcome FROM refresh_embeddings('t')";
        assert_eq!(world.row(refresh).await, ["1", "1", "published"]);
        assert_eq!(served.right_rows().await, ["10", "10"]);
    }
}

#[tokio::test]
async fn a_table_is_made_again_with_the_new_model() {
    let served = Served::new(Kind::OpenAi).await;
    let world = &served.world;
    world.docs.set(&docs(10));
    served.generate().await;
    served.server.set(Some(Fault::OtherModel("new".to_owned())));
    let again = "SELECT recomputed FROM recompute('t')";
    assert_eq!(world.row(again).await, ["t__r1"]);
    let states = "SELECT \"table\", state FROM staleness('t') UNION ALL SELECT \"table\", state FROM staleness('t__r1') ORDER BY 1";
    let states = world.sql(states).await;
    assert_eq!(
        states,
        [strings(&["t", "stale"]), strings(&["t__r1", "fresh"])]
    );
}

#[tokio::test]
async fn a_search_notices_a_model_that_answers_by_another_name() {
    let served = Served::new(Kind::OpenAi).await;
    let world = &served.world;
    world.docs.set(&docs(10));
    served.generate().await;
    served.server.set(Some(Fault::OtherModel("new".to_owned())));
    let (code, message) = world.error("SELECT * FROM search('t', 'q', 3)").await;
    assert_eq!(code, "ModelFailed");
    assert!(message.contains("\"new\" answered"), "{message}");
    let call = format!("SELECT embed('q', '{}')", served.spec());
    assert_eq!(world.code(&call).await, "ModelFailed");
    served.server.set(None);
    assert_eq!(
        world.sql("SELECT * FROM search('t', 'q', 3)").await.len(),
        3
    );
}
