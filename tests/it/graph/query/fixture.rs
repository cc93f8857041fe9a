//! A schema to ask, and helpers that compile queries against it.

use stratagraph::Error;
use stratagraph::graph::diagnostic::Diagnostic;
use stratagraph::graph::query::{Query, Var, compile};
use stratagraph::graph::schema::{EdgeEnds, GraphSchema, GraphType, Property};
use stratagraph::graph::value::{Scalar, ValueType};

/// Builds a schema type by type.
pub struct Builder(GraphSchema);

impl Builder {
    pub fn new() -> Self {
        Self(GraphSchema {
            format: 1,
            source: String::new(),
            types: Vec::new(),
            interfaces: Vec::new(),
            next_type: 1,
            next_property: 16,
        })
    }

    fn add(mut self, name: &str, edge: Option<EdgeEnds>, properties: &str) -> Self {
        let properties = properties.split_whitespace().map(|declared| {
            let (name, value_type) = declared.split_once(':').unwrap();
            let id = self.0.next_property;
            self.0.next_property += 1;
            Property {
                id,
                name: name.to_owned(),
                value_type: typed(value_type.trim_end_matches('?')),
                nullable: value_type.ends_with('?'),
                embed: None,
                annotations: Vec::new(),
            }
        });
        let properties = properties.collect();
        let id = self.0.next_type;
        self.0.next_type += 1;
        self.0.types.push(GraphType {
            id,
            name: name.to_owned(),
            edge,
            implements: Vec::new(),
            properties,
            key: Vec::new(),
            unique: Vec::new(),
            indexes: Vec::new(),
            ranges: Vec::new(),
            checks: Vec::new(),
            annotations: Vec::new(),
        });
        self
    }

    pub fn node(self, name: &str, properties: &str) -> Self {
        self.add(name, None, properties)
    }

    pub fn edge(self, name: &str, from: &str, to: &str, properties: &str) -> Self {
        let ends = EdgeEnds {
            from: self.0.node(from).unwrap().id,
            to: self.0.node(to).unwrap().id,
            min: 0,
            max: None,
        };
        self.add(name, Some(ends), properties)
    }

    pub fn build(self) -> GraphSchema {
        self.0
    }
}

fn typed(name: &str) -> ValueType {
    let inner = |close: char| name[..name.len() - 1].rsplit_once(close).unwrap().1;
    match name {
        "Blob" => ValueType::Blob,
        _ if name.starts_with('[') => ValueType::List(Scalar::parse(inner('[')).unwrap()),
        _ if name.starts_with("Vector") => ValueType::Vector(inner('(').parse().unwrap()),
        _ if name.starts_with("enum") => {
            ValueType::Enum(inner('(').split(',').map(str::to_owned).collect())
        }
        _ => ValueType::Scalar(Scalar::parse(name).unwrap()),
    }
}

/// Papers that cite each other, their authors and the authors' companies.
pub fn schema() -> GraphSchema {
    Builder::new()
        .node(
            "Paper",
            "doi:String title:String kind:enum(article,book,preprint) year:I32 tags:[String]? \
             abstract:String? emb:Vector(3)? pdf:Blob? day:Date? at:DateTime? open:Bool? score:F32? \
             ratio:F64? big:U64? pages:U32 counts:[I64]? weights:[F32]?",
        )
        .node("Person", "name:String age:I32?")
        .node("Company", "name:String")
        .edge("Cites", "Paper", "Paper", "weight:F32? note:String? scan:Blob? vec:Vector(3)?")
        .edge("WrittenBy", "Paper", "Person", "pos:U32")
        .edge("Knows", "Person", "Person", "since:Date?")
        .edge("WorksAt", "Person", "Company", "title:String?")
        .build()
}

/// `query t() { body }`, compiled.
pub fn check(body: &str) -> stratagraph::Result<Query> {
    compile(&format!("query t() {{ {body} }}"), None, &schema())
}

/// A whole text that has to compile.
pub fn whole(text: &str) -> Query {
    compile(text, None, &schema()).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// A query without parameters that has to compile.
pub fn good(body: &str) -> Query {
    check(body).unwrap_or_else(|error| panic!("{body}\n{error}"))
}

/// A pattern that has to compile, returning nothing of interest.
pub fn pattern(clauses: &str) -> Query {
    good(&format!("match {{ {clauses} }} return {{ count() }}"))
}

pub fn findings(error: Error) -> Vec<Diagnostic> {
    match error {
        Error::QueryInvalid { diagnostics } => diagnostics.0,
        other => panic!("{other}"),
    }
}

/// The findings of a whole text: code, the text that each is about, and the fix.
pub fn wrong(text: &str) -> Vec<(&'static str, String, String)> {
    let error = match compile(text, None, &schema()) {
        Ok(query) => panic!("{text}\n{}", query.explain(&schema())),
        Err(error) => error,
    };
    let all = findings(error).into_iter();
    all.map(|found| (found.code, text[found.span].to_owned(), found.fix))
        .collect()
}

/// That a whole text has exactly these findings: code and the text that each is about.
pub fn refused(text: &str, expected: &[(&str, &str)]) {
    let found = wrong(text);
    let seen: Vec<(&str, &str)> = found
        .iter()
        .map(|(code, at, _)| (*code, at.as_str()))
        .collect();
    assert_eq!(seen, expected, "{text}\n{found:#?}");
}

/// [`refused`] of a pattern.
pub fn refused_pattern(clauses: &str, expected: &[(&str, &str)]) {
    let text = format!("query t() {{ match {{ {clauses} }} return {{ count() }} }}");
    refused(&text, expected);
}

/// [`refused`] of what stands after a pattern of papers `$p`, `$c` and the edge `$e` between them.
pub fn refused_result(rest: &str, expected: &[(&str, &str)]) {
    let text = format!("query t() {{ match {{ $p: Paper $p $e:cites $c }} {rest} }}");
    refused(&text, expected);
}

/// The query with parameters of every type, a pattern and a result.
pub fn with_params(clauses: &str, rest: &str) -> String {
    format!(
        "query t($s: String, $i: I64, $f: F32, $b: Bool, $d: Date, $m: DateTime, $l: [String], \
         $v: Vector(3), $w: Vector(4), $n: U64?) {{ match {{ {clauses} }} {rest} }}"
    )
}

pub fn var(query: &Query, name: &str) -> Var {
    let all = &query.variables;
    let found: Vec<Var> = (0..all.len())
        .filter(|var| all[*var].name == name)
        .collect();
    match found.as_slice() {
        [only] => *only,
        other => panic!("{name}: {other:?}"),
    }
}

/// What `explain` shows between `match` and `return`, without indentation of the first level.
pub fn explained(query: &Query) -> String {
    let text = query.explain(&schema());
    let start = text.find("match\n").unwrap() + 6;
    let end = text.find("\nreturn").unwrap();
    let lines = text[start..end].lines().map(|line| &line[2..]);
    lines.collect::<Vec<_>>().join("\n")
}
