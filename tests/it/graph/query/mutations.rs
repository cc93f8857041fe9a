//! What mutations mean, and what the checker says of those that mean nothing.

use stratagraph::Result;
use stratagraph::graph::query::{
    Action, Compare, End, Expr, Mutation, Target, compile, compile_mutation,
};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::graph::value::Value;

use super::fixture::{Builder, findings};

/// People with a key and what connects them; places without one.
fn people() -> GraphSchema {
    let mut schema = Builder::new()
        .node(
            "Person",
            "name:String age:I32? big:I64? ratio:F64? kind:enum(a,b)? tags:[String]? v:Vector(2)? \
             at:DateTime? file:Blob?",
        )
        .node("Place", "title:String")
        .edge("Knows", "Person", "Person", "since:Date?")
        .edge("Place", "Person", "Place", "")
        .build();
    let person = &mut schema.types[0];
    person.key = vec![person.properties[0].id];
    schema
}

fn mutation(params: &str, body: &str, mixed: bool) -> Result<Mutation> {
    let text = format!("query t({params}) {{ {body} }}");
    compile_mutation(&text, None, &people(), mixed)
}

fn good(params: &str, body: &str) -> Mutation {
    mutation(params, body, false).unwrap_or_else(|error| panic!("{body}\n{error}"))
}

/// Code and place of each finding.
fn refused(params: &str, body: &str, expected: &[(&str, &str)]) {
    let text = format!("query t({params}) {{ {body} }}");
    let error = compile_mutation(&text, None, &people(), false).unwrap_err();
    let found = findings(error);
    let seen: Vec<(&str, &str)> = found
        .iter()
        .map(|f| (f.code, &text[f.span.clone()]))
        .collect();
    assert_eq!(seen, expected, "{text}\n{found:#?}");
}

#[test]
fn statements_are_checked_in_their_order() {
    let schema = people();
    let all = good(
        "$n: String, $d: Date?",
        r#"insert Person { name: $n, age: 3, kind: "a", ratio: 2, v: [1, 2], at: now(), tags: [] }
           insert Knows { from: $n, to: "bo", since: $d }
           update Person set { big: age, age: null } where age > 3 and not (kind = "b" or name = $n)
           update Knows set { to: from } where from = $n and since is not null"#,
    );
    assert_eq!(all.statements.len(), 4);
    assert!(!all.inserts_only());
    let person = &schema.types[0];
    let Action::Insert(values) = &all.statements[0].action else {
        panic!("{all:?}");
    };
    let ratio = person.property("ratio").unwrap().id;
    let ratio = values.iter().find(|v| v.target == Target::Property(ratio));
    // A literal is in the type of its target.
    assert_eq!(ratio.unwrap().value, Expr::Literal(Value::Float(2.0)));
    let Action::Update { values, condition } = &all.statements[3].action else {
        panic!("{all:?}");
    };
    assert_eq!(values[0].target, Target::End(End::To));
    assert_eq!(values[0].value, Expr::End(0, End::From));
    let Expr::And(parts) = condition else {
        panic!("{condition:?}");
    };
    let source = Box::new(Expr::End(0, End::From));
    let from = Expr::Compare(Compare::Eq, source, Box::new(Expr::Param(0)));
    assert_eq!(parts[0], from);
}

#[test]
fn a_node_type_goes_before_an_edge_type_of_its_name() {
    let all = good("", r#"insert Place { title: "x" }"#);
    assert!(!all.statements[0].row.is_edge && all.inserts_only());
}

#[test]
fn only_inserts_and_whole_upserts_are_the_same_on_every_state() {
    assert!(good("", r#"upsert Person { name: "a" }"#).inserts_only());
    assert!(!good("", r#"upsert Person partial { name: "a" }"#).inserts_only());
    assert!(!good("", r#"delete Person where name = "a""#).inserts_only());
}

#[test]
fn conditions_are_those_of_reads() {
    good(
        "$s: String",
        "delete Person where name starts_with $s and tags contains $s",
    );
    good("", r#"delete Person where name contains "x" or id = "y""#);
    refused("", "delete Person where age", &[("T7", "age")]);
    refused(
        "",
        "delete Person where age = \"x\"",
        &[("T7", "age = \"x\"")],
    );
    refused("", "delete Person where nme = \"x\"", &[("T11", "nme")]);
    refused("", "delete Person where from = \"x\"", &[("T11", "from")]);
    refused("", "delete Person where file is null", &[("T11", "file")]);
    refused("", "delete Person where name = $x", &[("T14", "$x")]);
    refused("", "delete Person where age = null", &[("T31", "null")]);
    refused("", "delete Person where count() > 1", &[("T8", "count")]);
}

#[test]
fn assignments_are_checked() {
    refused("", r#"insert Persn { name: "x" }"#, &[("T10", "Persn")]);
    refused(
        "",
        r#"insert Person { name: "x", nme: 1 }"#,
        &[("T11", "nme")],
    );
    refused("", "insert Person { age: 1 }", &[("T12", "Person")]);
    refused("", "insert Person { name: null }", &[("T12", "null")]);
    refused("", r#"insert Knows { from: "x" }"#, &[("T12", "Knows")]);
    refused(
        "",
        r#"insert Person { name: "x", name: "y" }"#,
        &[("T13", "name")],
    );
    refused("", r#"insert Person { name: $x }"#, &[("T14", "$x")]);
}

#[test]
fn values_are_of_the_type_of_their_property() {
    refused(
        "",
        r#"insert Person { name: "x", age: "3" }"#,
        &[("T7", "\"3\"")],
    );
    refused(
        "",
        r#"insert Person { name: "x", age: 3000000000 }"#,
        &[("T7", "3000000000")],
    );
    refused(
        "",
        r#"insert Person { name: "x", age: now() }"#,
        &[("T7", "now()")],
    );
    refused(
        "",
        r#"insert Person { name: "x", kind: "c" }"#,
        &[("T7", "\"c\"")],
    );
    refused(
        "",
        r#"insert Person { name: "x", v: [1] }"#,
        &[("T7", "[1]")],
    );
    refused(
        "$f: F64",
        r#"insert Person { name: "x", age: $f }"#,
        &[("T7", "$f")],
    );
    refused(
        "",
        r#"insert Person { name: "x", file: "y" }"#,
        &[("T24", "file")],
    );
    refused(
        "",
        r#"insert Person { name: "x", big: age }"#,
        &[("T38", "age")],
    );
    refused(
        "",
        r#"update Person set { name: "x" } where age = 1"#,
        &[("T36", "name")],
    );
    refused(
        "",
        r#"update Person set { age: big } where age = 1"#,
        &[("T7", "big")],
    );
    refused("", r#"upsert Place { title: "x" }"#, &[("T37", "Place")]);
    refused("", "upsert Person partial { age: 1 }", &[("T12", "Person")]);
    // A parameter may be narrower when it is known.
    good("$n: I64", r#"insert Person { name: "x", age: $n }"#);
}

#[test]
fn deletes_stand_alone_unless_it_is_said() {
    let body = r#"insert Person { name: "x" } delete Person where name = "y""#;
    refused("", body, &[("Q013", "Person")]);
    assert_eq!(mutation("", body, true).unwrap().statements.len(), 2);
}

#[test]
fn reads_and_mutations_are_told_apart() {
    let read = "query r() { match { $p: Person } return { $p } }";
    let error = compile_mutation(read, None, &people(), false).unwrap_err();
    assert_eq!(findings(error)[0].code, "Q012");
    let write = r#"query w() { insert Person { name: "x" } }"#;
    assert_eq!(
        findings(compile(write, None, &people()).unwrap_err())[0].code,
        "Q012"
    );
}
