//! A checked query as text: what EXPLAIN shows, one clause a line.

use std::collections::HashMap;
use std::fmt::Write;

use super::{
    Aggregate, Block, Compare, Count, Direction, End, Expr, Hop, Query, Rank, Search, Var,
};
use crate::graph::schema::GraphSchema;
use crate::graph::value::Value;

impl Query {
    /// The query as text. Names are those of `schema`; a variable whose name another one has too
    /// shows its number: `$c#3`.
    pub fn explain(&self, schema: &GraphSchema) -> String {
        let mut uses: HashMap<&str, usize> = HashMap::new();
        for variable in &self.variables {
            *uses.entry(&variable.name).or_default() += 1;
        }
        let mut out = Explained {
            query: self,
            schema,
            uses,
            text: String::new(),
        };
        out.query();
        out.text
    }
}

struct Explained<'q> {
    query: &'q Query,
    schema: &'q GraphSchema,
    /// How many variables have a name.
    uses: HashMap<&'q str, usize>,
    text: String,
}

impl Explained<'_> {
    fn line(&mut self, depth: usize, line: &str) {
        // A String takes all that is written to it.
        let _ = writeln!(self.text, "{:indent$}{line}", "", indent = depth * 2);
    }

    fn query(&mut self) {
        let query = self.query;
        let declared = query.params.iter().map(|param| {
            let mark = if param.nullable { "?" } else { "" };
            format!("${}: {}{mark}", param.name, param.value_type)
        });
        let declared = declared.collect::<Vec<_>>().join(", ");
        self.line(0, &format!("query {}({declared})", query.name));
        self.line(0, "match");
        self.block(1, &query.pattern);
        self.line(
            0,
            if query.distinct {
                "return distinct"
            } else {
                "return"
            },
        );
        for output in &query.outputs {
            let mark = if output.nullable { "?" } else { "" };
            let line = format!(
                "{} as {}: {}{mark}",
                self.expr(&output.expr),
                output.name,
                output.value_type
            );
            self.line(1, &line);
        }
        if !query.order.is_empty() {
            self.line(0, "order");
        }
        for key in &query.order {
            let direction = if key.descending { "desc" } else { "asc" };
            let line = format!("{} {direction}", self.expr(&key.expr));
            self.line(1, &line);
        }
        for (word, count) in [("skip", &query.skip), ("limit", &query.limit)] {
            if let Some(count) = count {
                let line = format!("{word} {}", self.count(count));
                self.line(0, &line);
            }
        }
    }

    fn block(&mut self, depth: usize, block: &Block) {
        for var in &block.nodes {
            let type_id = self.query.variables[*var].type_id;
            let line = format!("node {}: {}", self.var(*var), self.type_name(type_id));
            self.line(depth, &line);
        }
        for hop in &block.hops {
            let line = self.hop(hop);
            self.line(depth, &line);
        }
        for filter in &block.filters {
            let line = format!("filter {}", self.expr(filter));
            self.line(depth, &line);
        }
        for (word, blocks) in [("optional", &block.optionals), ("not", &block.negations)] {
            for block in blocks {
                self.line(depth, word);
                self.block(depth + 1, block);
            }
        }
    }

    fn hop(&self, hop: &Hop) -> String {
        let (before, after) = match hop.direction {
            Direction::Out => ("-", "->"),
            Direction::In => ("<-", "-"),
            Direction::Both => ("-", "-"),
        };
        let binding = hop.binding.map(|var| format!("{}: ", self.var(var)));
        let bounds = match hop.bounded {
            true => format!("{{{},{}}}", hop.min, hop.max),
            false => String::new(),
        };
        format!(
            "hop {} {before}[{}{}]{after}{bounds} {}",
            self.var(hop.left),
            binding.unwrap_or_default(),
            self.type_name(hop.edge),
            self.var(hop.right)
        )
    }

    fn type_name(&self, id: u64) -> &str {
        self.schema.by_id(id).map_or("?", |t| t.name.as_str())
    }

    fn var(&self, var: Var) -> String {
        let name = self.query.variables[var].name.as_str();
        match self.uses.get(name) {
            Some(1) if name != "_" => format!("${name}"),
            _ => format!("${name}#{var}"),
        }
    }

    fn count(&self, count: &Count) -> String {
        match count {
            Count::Literal(rows) => rows.to_string(),
            Count::Param(at) => format!("${}", self.query.params[*at].name),
        }
    }

    fn property(&self, (var, id): (Var, u64)) -> String {
        let owner = self.schema.by_id(self.query.variables[var].type_id);
        let property = owner.and_then(|owner| owner.property_by_id(id));
        let name = property.map_or("?", |property| property.name.as_str());
        format!("{}.{name}", self.var(var))
    }

    fn expr(&self, expr: &Expr) -> String {
        match expr {
            Expr::Literal(value) => literal(value),
            Expr::Param(at) => format!("${}", self.query.params[*at].name),
            Expr::Now => "now()".to_owned(),
            Expr::Id(var) => format!("{}.id", self.var(*var)),
            Expr::Property(var, id) => self.property((*var, *id)),
            Expr::End(var, End::From) => format!("{}.from", self.var(*var)),
            Expr::End(var, End::To) => format!("{}.to", self.var(*var)),
            Expr::Compare(compare, a, b) => self.binary(a, symbol(*compare), b),
            Expr::HasItem(a, b) => self.binary(a, "has item", b),
            Expr::HasText(a, b) => self.binary(a, "has text", b),
            Expr::StartsWith(a, b) => self.binary(a, "starts_with", b),
            Expr::And(all) => format!("({})", self.list(all, " and ")),
            Expr::Or(all) => format!("({})", self.list(all, " or ")),
            Expr::Not(inner) => format!("not ({})", self.expr(inner)),
            Expr::IsNull(inner) => format!("{} is null", self.expr(inner)),
            Expr::Aggregate {
                function,
                argument,
                distinct,
            } => {
                let distinct = if *distinct { "distinct " } else { "" };
                let argument = argument.as_ref().map(|argument| self.expr(argument));
                let argument = argument.unwrap_or_default();
                format!("{}({distinct}{argument})", function.name())
            }
            Expr::Output(at) => format!("output {}", self.query.outputs[*at].name),
            Expr::Search(search) => self.search(search),
            Expr::Rank(rank) => self.rank(rank),
        }
    }

    fn list(&self, all: &[Expr], between: &str) -> String {
        let parts: Vec<String> = all.iter().map(|part| self.expr(part)).collect();
        parts.join(between)
    }

    fn binary(&self, a: &Expr, operator: &str, b: &Expr) -> String {
        format!("{} {operator} {}", self.expr(a), self.expr(b))
    }

    fn search(&self, search: &Search) -> String {
        let edits = search.max_edits.as_ref();
        let edits = edits.map(|edits| format!(", {}", self.expr(edits)));
        format!(
            "{}({}, {}{})",
            search.name(),
            self.property(search.field),
            self.expr(&search.query),
            edits.unwrap_or_default()
        )
    }

    fn rank(&self, rank: &Rank) -> String {
        let name = rank.name();
        match rank {
            Rank::Nearest { field, query } | Rank::Bm25 { field, query } => {
                format!("{name}({}, {})", self.property(*field), self.expr(query))
            }
            Rank::Hops { from, to } => {
                format!("{name}({}, {})", self.var(*from), self.var(*to))
            }
            Rank::Rrf { arms, k } => {
                let k = k.as_ref().map(|k| format!(", {}", self.expr(k)));
                let arms: Vec<String> = arms.iter().map(|arm| self.rank(arm)).collect();
                format!("{name}({}{})", arms.join(", "), k.unwrap_or_default())
            }
        }
    }
}

impl Aggregate {
    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

fn symbol(compare: Compare) -> &'static str {
    match compare {
        Compare::Eq => "=",
        Compare::Ne => "!=",
        Compare::Lt => "<",
        Compare::Le => "<=",
        Compare::Gt => ">",
        Compare::Ge => ">=",
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        // Debug keeps the point of a whole float.
        Value::Float(value) => format!("{value:?}"),
        Value::String(text) => format!("{text:?}"),
        Value::Date(days) => format!("date {days}"),
        Value::DateTime(micros) => format!("datetime {micros}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
    }
}
