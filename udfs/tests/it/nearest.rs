//! `ORDER BY distance LIMIT k`: the rewrite gives the rows of the plan without it, or does not fire.

use crate::graph_load::support::{Append, load, world};
use crate::world::World;

const SCHEMA: &str = r#"
node Doc { name: String @key  size: I32?  v: Vector(3)? }
edge Cites: Doc -> Doc
"#;

/// Vectors with equal distances, none, and no direction; rows that died; several fragments.
async fn docs() -> World {
    let world = world(SCHEMA).await;
    let row = |n: usize| {
        let (x, y) = ((n * 7 % 5) as f64 - 2.0, (n * 3 % 4) as f64 - 1.0);
        let v = match n % 9 {
            0 => "null".to_owned(),
            1 => "[0, 0, 0]".to_owned(),
            _ => format!("[{x}, {y}, 0.5]"),
        };
        let size = if n.is_multiple_of(4) {
            "null".to_owned()
        } else {
            (n % 5).to_string()
        };
        format!("{{\"type\":\"Doc\",\"data\":{{\"name\":\"d{n:02}\",\"size\":{size},\"v\":{v}}}}}")
    };
    for part in [0..20, 20..31] {
        let text: Vec<String> = part.map(row).collect();
        load(&world.sg, &text.join("\n"), Append).await.unwrap();
    }
    let changed = r#"{"type":"Doc","data":{"name":"d02","size":9,"v":[5, 5, 5]}}"#;
    load(&world.sg, changed, crate::graph_load::support::Merge)
        .await
        .unwrap();
    world
}

/// Whether the plan of a statement has the rewrite.
async fn fires(world: &World, sql: &str) -> bool {
    let plan = world.sql(&format!("EXPLAIN {sql}")).await;
    format!("{plan:?}").contains("NearestRowsExec")
}

#[tokio::test]
async fn the_first_rows_by_distance_are_those_of_the_whole_scan() {
    let world = docs().await;
    let near = "cosine_distance(v, [1.0, 0.5, 0.1])";
    let far = "array_distance(v, [1.0, 0.5, 0.1])";
    for (fire, sql) in [
        (
            true,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} # LIMIT 5"),
        ),
        (
            true,
            format!("SELECT id, {near} AS d FROM sg.g.\"Doc\" ORDER BY d # LIMIT 7"),
        ),
        (
            true,
            format!("SELECT * FROM sg.g.\"Doc\" ORDER BY {near} #, id DESC LIMIT 6"),
        ),
        (
            true,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} #, size, id LIMIT 9"),
        ),
        (
            true,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} #, id LIMIT 4 OFFSET 3"),
        ),
        (
            true,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} #, id LIMIT 40"),
        ),
        (
            true,
            "SELECT t.id FROM sg.g.\"Doc\" AS t ORDER BY cosine_distance([1, 0, 0], t.v) #, t.id LIMIT 5".to_owned(),
        ),
        (
            true,
            "SELECT id FROM (SELECT id, v AS w FROM sg.g.\"Doc\") ORDER BY cosine_distance(w, [0.3, -0.2, 0.9]) #, id LIMIT 5".to_owned(),
        ),
        (
            true,
            "SELECT id FROM sg.g.\"Doc\" ORDER BY array_distance(v, [1.0, 0.5, 0.1]) #, id LIMIT 5".to_owned(),
        ),
        // What stands between or asks for something else is left as it is.
        (
            false,
            format!("SELECT id FROM sg.g.\"Doc\" WHERE size > 1 ORDER BY {near} #, id LIMIT 5"),
        ),
        (
            false,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} # DESC, id LIMIT 5"),
        ),
        (
            false,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} # NULLS FIRST, id LIMIT 5"),
        ),
        (
            false,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY size, {near} #, id LIMIT 5"),
        ),
        (
            false,
            format!("SELECT id FROM sg.g.\"Doc\" ORDER BY {near} #, id"),
        ),
        (
            false,
            "SELECT a.id FROM sg.g.\"Doc\" a JOIN sg.g.\"Doc\" b ON a.size = b.size ORDER BY cosine_distance(a.v, [1.0, 0.5, 0.1]) #, a.id, b.id LIMIT 5".to_owned(),
        ),
        (
            false,
            format!(
                "SELECT id FROM (SELECT * FROM sg.g.\"Doc\" LIMIT 3) ORDER BY {near} #, id LIMIT 2"
            ),
        ),
        (
            false,
            format!(
                "SELECT size, min({far}) AS d FROM sg.g.\"Doc\" GROUP BY size ORDER BY d #, size LIMIT 2"
            ),
        ),
    ] {
        let plain = sql.replace(" #", " + 0.0");
        let asked = sql.replace(" #", "");
        assert!(!fires(&world, &plain).await, "{plain}");
        assert_eq!(fires(&world, &asked).await, fire, "{asked}");
        let with = world.sql(&asked).await;
        let without = world.sql(&plain).await;
        // Where the statement itself leaves ties open, the distances decide.
        if asked.contains(", id")
            || asked.contains(", t.id")
            || asked.contains(", a.id")
            || asked.contains(", size")
        {
            assert_eq!(with, without, "{asked}");
        } else {
            assert_eq!(with.len(), without.len(), "{asked}");
        }
    }
}

#[tokio::test]
async fn random_queries_agree_in_both_modes() {
    let world = docs().await;
    for mode in ["exact", "auto"] {
        world.sql(&format!("SET stratagraph.ann = {mode}")).await;
        for n in 0..25 {
            let component = |i: usize| ((n * 13 + i * 7) % 11) as f64 / 3.0 - 1.5;
            let q = format!("[{}, {}, {}]", component(1), component(2), component(3));
            let of = |tail: &str| {
                format!(
                    "SELECT id, cosine_distance(v, {q}) AS d FROM sg.g.\"Doc\" \
                     ORDER BY cosine_distance(v, {q}){tail}, id LIMIT {}",
                    n % 7 + 1
                )
            };
            assert_eq!(
                world.sql(&of("")).await,
                world.sql(&of(" + 0.0")).await,
                "{q}"
            );
        }
    }
}

#[tokio::test]
async fn two_orders_of_one_table_stay_apart() {
    let world = docs().await;
    let of = |q: &str| {
        format!("(SELECT id FROM sg.g.\"Doc\" ORDER BY cosine_distance(v, {q}), id LIMIT 1)")
    };
    let (x, y) = ("[1.0, 0.0, 0.0]", "[-1.0, 0.0, 0.0]");
    let both = world
        .sql(&format!("SELECT * FROM {} a CROSS JOIN {} b", of(x), of(y)))
        .await;
    let mut single = Vec::new();
    for query in [of(x), of(y)] {
        single.push(world.sql(&query[1..query.len() - 1]).await);
    }

    let joined = format!("{both:?}");
    for row in single {
        let id = format!("{row:?}");
        let id = id.trim_matches(|c| c == '[' || c == ']').to_owned();
        assert!(joined.contains(&id), "{joined} lacks {id}");
    }
}
