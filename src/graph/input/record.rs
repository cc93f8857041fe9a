//! One record: its shape, its type and what its `data` holds.

use std::borrow::Cow;
use std::collections::HashMap;

use super::nearest::hint;
use super::scan::{Kind, Tape, Token};
use super::{Grammar, shown};
use crate::graph::schema::{GraphSchema, GraphType};
use crate::graph::value::ValueType;

/// What is wrong with a record.
#[derive(Debug)]
pub(super) struct Fault {
    pub rule: &'static str,
    pub type_name: String,
    pub id: String,
    pub message: String,
}

impl Fault {
    pub fn new(rule: &'static str, message: String) -> Self {
        Self {
            rule,
            type_name: String::new(),
            id: String::new(),
            message,
        }
    }

    fn syntax(message: String) -> Self {
        Self::new("syntax", message)
    }
}

/// Names of a schema, for finding them in records.
#[derive(Debug)]
pub(super) struct Names {
    nodes: HashMap<String, usize>,
    edges: HashMap<String, usize>,
    folded: HashMap<String, usize>,
    properties: Vec<HashMap<String, usize>>,
    /// For edges: whether the ends are nodes with one integer as their key.
    integer_ends: Vec<[bool; 2]>,
}

impl Names {
    pub fn new(schema: &GraphSchema) -> Self {
        let mut names = Self {
            nodes: HashMap::new(),
            edges: HashMap::new(),
            folded: HashMap::new(),
            properties: Vec::new(),
            integer_ends: Vec::new(),
        };
        let integer_key = |id: u64| {
            let node = schema.by_id(id);
            let key = node.filter(|node| node.key.len() == 1);
            let property = key.and_then(|node| node.property_by_id(node.key[0]));
            let scalar = property.and_then(|property| property.value_type.scalar());
            scalar.is_some_and(crate::graph::value::Scalar::is_integer)
        };
        for (at, graph_type) in schema.types.iter().enumerate() {
            let name = graph_type.name.clone();
            if graph_type.is_edge() {
                // The first of several, as in the schema's own look-up.
                names.folded.entry(name.to_lowercase()).or_insert(at);
                names.edges.insert(name, at);
            } else {
                names.nodes.insert(name, at);
            }
            let properties = graph_type.properties.iter().enumerate();
            names
                .properties
                .push(properties.map(|(at, p)| (p.name.clone(), at)).collect());
            let ends = graph_type.edge.as_ref();
            let ends = ends.map(|ends| [integer_key(ends.from), integer_key(ends.to)]);
            names.integer_ends.push(ends.unwrap_or_default());
        }
        names
    }

    fn edge(&self, name: &str) -> Option<usize> {
        let exact = self.edges.get(name).copied();
        exact.or_else(|| self.folded.get(&name.to_lowercase()).copied())
    }
}

/// A record whose shape and type are known.
#[derive(Debug)]
pub(super) struct Envelope<'a> {
    /// The type's place in the schema.
    pub at: usize,
    pub ends: Option<[Cow<'a, str>; 2]>,
    /// The token of `data`.
    pub data: Option<usize>,
}

/// Places of the tokens of known members.
#[derive(Debug, Default)]
struct Known {
    node: Option<usize>,
    edge: Option<usize>,
    from: Option<usize>,
    to: Option<usize>,
    data: Option<usize>,
    /// The first other member.
    other: Option<Token>,
}

/// Reads one text with the names and the grammar of its load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    pub schema: &'a GraphSchema,
    pub names: &'a Names,
    pub tape: &'a Tape,
    pub text: &'a str,
    pub grammar: Grammar,
    /// Whether a value of a wrong type is taken as null.
    pub null_on_error: bool,
}

const SHAPES: &str = "a record is {\"type\": ..., \"data\": {...}} or {\"edge\": ..., \"from\": \
                      ..., \"to\": ..., \"data\": {...}}";

impl<'a> Reader<'a> {
    /// The shape of the record whose token is the first one.
    pub fn envelope(&self) -> Result<Envelope<'a>, Fault> {
        let root = self.tape.token(0);
        if root.kind != Kind::Object {
            let found = root.describe(self.text);
            return Err(Fault::syntax(format!("found {found}; {SHAPES}")));
        }
        let known = self.known();
        let strict = self.grammar == Grammar::Strict;
        let node = match (known.node, known.edge) {
            (Some(_), Some(_)) if strict => {
                let message = format!("found both \"type\" and \"edge\"; {SHAPES}");
                return Err(Fault::syntax(message));
            }
            (None, None) => {
                let message = format!("found neither \"type\" nor \"edge\"; {SHAPES}");
                return Err(Fault::syntax(message));
            }
            // A type that is no text leaves the record an edge in the compatible grammar.
            (Some(node), Some(_)) => self.tape.token(node).kind == Kind::String,
            (node, _) => node.is_some(),
        };
        if strict {
            self.refuse_others(&known, node)?;
        }
        let data = self.data(known.data)?;
        if node {
            let name = self.string("type", known.node)?;
            let at = self.names.nodes.get(name.as_ref()).copied();
            let at = at.ok_or_else(|| self.unknown_type("node", &name))?;
            return Ok(Envelope {
                at,
                ends: None,
                data,
            });
        }
        let name = self.string("edge", known.edge)?;
        let at = self.names.edge(&name);
        let at = at.ok_or_else(|| self.unknown_type("edge", &name))?;
        let [from, to] = self.names.integer_ends[at];
        let ends = [
            self.end("from", known.from, from)?,
            self.end("to", known.to, to)?,
        ];
        Ok(Envelope {
            at,
            ends: Some(ends),
            data,
        })
    }

    fn known(&self) -> Known {
        let mut known = Known::default();
        for (key, value) in self.tape.members(0) {
            match key.text(self.text).as_ref() {
                "type" => known.node = Some(value),
                "edge" => known.edge = Some(value),
                "from" => known.from = Some(value),
                "to" => known.to = Some(value),
                "data" => known.data = Some(value),
                _ => known.other = known.other.or(Some(key)),
            }
        }
        known
    }

    fn refuse_others(&self, known: &Known, node: bool) -> Result<(), Fault> {
        if let Some(other) = &known.other {
            let name = other.text(self.text);
            let message = if name.starts_with('_') {
                format!(
                    "member {:?} is reserved: names that begin with _ are the engine's own",
                    shown(&name)
                )
            } else {
                let all = ["type", "edge", "from", "to", "data"];
                let hint = hint(&name, all.into_iter());
                format!("unknown member {:?}{hint}; {SHAPES}", shown(&name))
            };
            return Err(Fault::syntax(message));
        }
        if node && (known.from.is_some() || known.to.is_some()) {
            let message = "found \"from\" or \"to\" in a node record; only edges have ends";
            return Err(Fault::syntax(message.to_owned()));
        }
        Ok(())
    }

    fn data(&self, data: Option<usize>) -> Result<Option<usize>, Fault> {
        let Some(at) = data else { return Ok(None) };
        let token = self.tape.token(at);
        match token.kind {
            Kind::Object => Ok(Some(at)),
            Kind::Null if self.grammar == Grammar::Compatible => Ok(None),
            _ if self.null_on_error => Ok(None),
            _ => {
                let found = token.describe(self.text);
                let message = format!("member \"data\": found {found}, expected an object");
                Err(Fault::syntax(message))
            }
        }
    }

    fn string(&self, member: &str, at: Option<usize>) -> Result<Cow<'a, str>, Fault> {
        let Some(at) = at else {
            let message = format!("member {member:?} is missing; {SHAPES}");
            return Err(Fault::syntax(message));
        };
        let token = self.tape.token(at);
        if token.kind != Kind::String {
            let found = token.describe(self.text);
            let message = format!("member {member:?}: found {found}, expected a string");
            return Err(Fault::syntax(message));
        }
        Ok(token.text(self.text))
    }

    /// The id of a node; the compatible grammar takes the number that its key is.
    fn end(
        &self,
        member: &str,
        at: Option<usize>,
        integer_key: bool,
    ) -> Result<Cow<'a, str>, Fault> {
        let number = at.map(|at| self.tape.token(at));
        let number = number.filter(|token| token.kind == Kind::Number);
        if let Some(number) = number.filter(|_| integer_key && self.grammar == Grammar::Compatible)
        {
            let raw = number.raw(self.text);
            let Ok(integer) = raw.parse::<i128>() else {
                let message = format!(
                    "member {member:?}: found the number {}, expected an id: a string or an integer",
                    shown(raw)
                );
                return Err(Fault::syntax(message));
            };
            return Ok(Cow::Owned(integer.to_string()));
        }
        self.string(member, at)
    }

    fn unknown_type(&self, kind: &'static str, name: &str) -> Fault {
        let all = self.schema.types.iter();
        let all = all.filter(|t| t.is_edge() == (kind == "edge"));
        let hint = hint(name, all.map(|t| t.name.as_str()));
        Fault {
            rule: "type",
            type_name: shown(name),
            id: String::new(),
            message: format!(
                "unknown {kind} type {:?}{hint}; the schema of the graph names its types",
                shown(name)
            ),
        }
    }

    /// Places of the values of properties, `None` where there is none, and that of a given id.
    pub fn members(
        &self,
        envelope: &Envelope<'_>,
        values: &mut Vec<Option<usize>>,
        faults: &mut Vec<Fault>,
    ) -> Option<usize> {
        let graph_type = &self.schema.types[envelope.at];
        let names = &self.names.properties[envelope.at];
        values.clear();
        values.resize(graph_type.properties.len(), None);
        let mut id = None;
        let mut next = 0;
        for (key, value) in self.tape.members(envelope.data?) {
            let name = key.text(self.text);
            // Records mostly name properties in the order of the schema.
            let expected = graph_type.properties.get(next);
            let at = match expected.filter(|property| property.name == name) {
                Some(_) => Some(next),
                None => names.get(name.as_ref()).copied(),
            };
            match at {
                Some(at) => {
                    values[at] = Some(value);
                    next = at + 1;
                }
                None if name == "id" => id = Some(value),
                None if self.grammar == Grammar::Compatible => {}
                None => faults.push(unknown_property(graph_type, &name)),
            }
        }
        id
    }

    /// A given id; an empty one is found with the ids of its batch.
    pub fn given_id(&self, at: Option<usize>) -> Result<Option<Cow<'a, str>>, String> {
        let Some(at) = at else { return Ok(None) };
        let token = self.tape.token(at);
        match token.kind {
            Kind::Null => Ok(None),
            Kind::String => Ok(Some(token.text(self.text))),
            _ if self.null_on_error => Ok(None),
            _ => Err(format!(
                "member \"id\" of data: found {}, expected a string or null",
                token.describe(self.text)
            )),
        }
    }

    /// What a message about a record calls it: the given id, or a key that is one text.
    pub fn probable_id(
        &self,
        graph_type: &GraphType,
        values: &[Option<usize>],
        id: Option<usize>,
    ) -> String {
        let key = match graph_type.key.as_slice() {
            [key] => graph_type.properties.iter().position(|p| p.id == *key),
            _ => None,
        };
        let key = key.and_then(|at| values[at]);
        let token = key.or(id).map(|at| self.tape.token(at));
        match token {
            Some(token) if token.kind == Kind::String => shown(&token.text(self.text)),
            _ => String::new(),
        }
    }

    /// The message about a value of a wrong type.
    pub fn mismatch(
        &self,
        name: &str,
        value_type: &ValueType,
        token: &Token,
        expected: &str,
    ) -> String {
        format!(
            "property {name}: found {}, expected {expected} (the type is {value_type})",
            token.describe(self.text)
        )
    }
}

fn unknown_property(graph_type: &GraphType, name: &str) -> Fault {
    let reserved = match name {
        _ if name.starts_with('_') => Some("names that begin with _ are the engine's own"),
        "src" | "dst" | "from" | "to" if graph_type.is_edge() => {
            Some("the ends of an edge are \"from\" and \"to\" beside \"data\"")
        }
        _ => None,
    };
    let message = match reserved {
        Some(why) => format!("member {:?} of data is reserved: {why}", shown(name)),
        None => {
            let all = graph_type.properties.iter();
            let hint = hint(name, all.map(|p| p.name.as_str()));
            format!(
                "type {} has no property {:?}{hint}",
                graph_type.name,
                shown(name)
            )
        }
    };
    Fault::new("type", message)
}
