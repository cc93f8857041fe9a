//! Random patterns, each in the query language and in SQL over the tables of the graph.

use std::fmt::Write;

/// A small generator with a fixed sequence (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    A,
    B,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

#[derive(Clone)]
enum Step {
    /// left, right, undirected, bounds
    K(usize, usize, bool, Option<(usize, usize)>),
    /// left, right, edge variable
    BoundK(usize, usize, usize, bool),
    /// A to B; written from B where the flag is set
    L(usize, usize, bool),
}

#[derive(Clone, Default)]
struct Block {
    vars: Vec<usize>,
    steps: Vec<Step>,
    /// variable, comparison, constant
    filters: Vec<(usize, &'static str, i32)>,
    /// variable, number of the node that it is
    keys: Vec<(usize, usize)>,
    /// variable, variable: equal x
    across: Vec<(usize, usize)>,
    nots: Vec<Block>,
}

/// A question in both languages.
pub struct Question {
    pub gq: String,
    pub sql: String,
}

struct Generator<'a> {
    random: &'a mut Random,
    kinds: Vec<Kind>,
    edges: usize,
}

/// The next question.
pub fn question(random: &mut Random) -> Question {
    let mut generator = Generator {
        random,
        kinds: Vec::new(),
        edges: 0,
    };
    let block = generator.block(&[], 0);
    let kinds = generator.kinds.clone();
    let all: Vec<usize> = block.vars.clone();
    let edges: Vec<usize> = block.steps.iter().filter_map(bound).collect();
    if random.one_in(2) {
        return summary(random, &block, &kinds, &edges);
    }
    // Not every variable is shown.
    let some = all.iter().copied();
    let some: Vec<usize> = some.filter(|_| !random.one_in(3)).collect();
    let shown = if some.is_empty() { all } else { some };
    Question {
        gq: gq(&block, &kinds, &shown, &edges),
        sql: sql(&block, &kinds, &shown, &edges),
    }
}

/// A question for less than all assignments: aggregates, with a group or without, or distinct rows.
fn summary(random: &mut Random, block: &Block, kinds: &[Kind], edges: &[usize]) -> Question {
    let vars = &block.vars;
    let any = |random: &mut Random| vars[random.below(vars.len())];
    let (group, other) = (any(random), any(random));
    let numbers: Vec<usize> = vars
        .iter()
        .filter(|v| kinds[**v] == Kind::A)
        .copied()
        .collect();
    let number = numbers[random.below(numbers.len())];
    let mut columns: Vec<(String, String)> = Vec::new();
    let mut add = |gq: String, sql: String| columns.push((gq, sql));
    let name = |v: usize| (format!("$v{v}.name"), format!("v{v}"));
    let (distinct, grouped) = match random.below(5) {
        0 => (false, false),
        1 => {
            add(name(group).0, name(group).1);
            if random.one_in(2) && other != group {
                add(name(other).0, name(other).1);
            }
            (true, false)
        }
        _ => {
            add(name(group).0, name(group).1);
            (false, true)
        }
    };
    let keys = columns.len();
    if !distinct {
        let x = (format!("$v{number}.x"), format!("x{number}"));
        let all = [
            ("count()".to_owned(), "count(*)".to_owned()),
            (format!("count($v{other})"), format!("count(v{other})")),
            (
                format!("count(distinct $v{other})"),
                format!("count(DISTINCT v{other})"),
            ),
            (format!("count({})", x.0), format!("count({})", x.1)),
            (format!("sum({})", x.0), format!("sum({})", x.1)),
            (format!("avg({})", x.0), format!("avg({})", x.1)),
            (format!("min({})", x.0), format!("min({})", x.1)),
            (format!("max({})", x.0), format!("max({})", x.1)),
        ];
        let first = random.below(all.len());
        columns.push(all[first].clone());
        for aggregate in all.iter().filter(|a| **a != all[first]) {
            if random.one_in(3) {
                columns.push(aggregate.clone());
            }
        }
        if let Some(edge) = edges.first() {
            columns.push((format!("count($e{edge}.id)"), "count(*)".to_owned()));
        }
    }
    let mut text = String::from("query q() { match { ");
    gq_block(block, kinds, &mut text);
    text.push_str(if distinct {
        "} return distinct { "
    } else {
        "} return { "
    });
    for (at, (gq, _)) in columns.iter().enumerate() {
        write!(text, "{gq} as c{at} ").unwrap();
    }
    text.push_str("} }");
    let shown = columns.iter().enumerate();
    let shown = shown.map(|(at, (_, sql))| format!("{sql} AS c{at}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let mut sql = format!("FROM ({}) r", relation(block, kinds));
    let distinct = if distinct { "DISTINCT " } else { "" };
    if grouped {
        let keys = columns[..keys].iter().map(|(_, sql)| sql.as_str());
        write!(sql, " GROUP BY {}", keys.collect::<Vec<_>>().join(", ")).unwrap();
    }
    Question {
        gq: text,
        sql: format!("SELECT {distinct}{shown} {sql}"),
    }
}

fn bound(step: &Step) -> Option<usize> {
    match step {
        Step::BoundK(_, _, edge, _) => Some(*edge),
        _ => None,
    }
}

impl Generator<'_> {
    fn var(&mut self, kind: Kind) -> usize {
        self.kinds.push(kind);
        self.kinds.len() - 1
    }

    fn block(&mut self, outer: &[usize], depth: usize) -> Block {
        let mut block = Block::default();
        let is_a = |kinds: &[Kind], v: &usize| kinds[*v] == Kind::A;
        let mut known: Vec<usize> = outer.to_vec();
        if outer.is_empty() {
            let first = self.var(Kind::A);
            block.vars.push(first);
            known.push(first);
        }
        for _ in 0..=self.random.below(if depth == 0 { 3 } else { 2 }) {
            let all: Vec<usize> = known
                .iter()
                .filter(|v| is_a(&self.kinds, v))
                .copied()
                .collect();
            let from = all[self.random.below(all.len())];
            if self.random.one_in(4) {
                let same: Vec<usize> = known
                    .iter()
                    .filter(|v| !is_a(&self.kinds, v))
                    .copied()
                    .collect();
                let to = match same.is_empty() || !self.random.one_in(3) {
                    true => self.fresh(Kind::B, &mut block, &mut known),
                    false => same[self.random.below(same.len())],
                };
                let flipped = self.random.one_in(2);
                block.steps.push(Step::L(from, to, flipped));
                continue;
            }
            // A new node, or one that is known: a cycle, or a loop.
            let to = match self.random.one_in(3) {
                true => all[self.random.below(all.len())],
                false => self.fresh(Kind::A, &mut block, &mut known),
            };
            let (left, right) = match self.random.one_in(2) {
                true => (from, to),
                false => (to, from),
            };
            let both = self.random.one_in(3);
            block.steps.push(match self.random.below(4) {
                0 => {
                    self.edges += 1;
                    Step::BoundK(left, right, self.edges, both)
                }
                1 => {
                    let min = 1 + self.random.below(2);
                    let max = min + self.random.below(3);
                    Step::K(left, right, both, Some((min, max)))
                }
                _ => Step::K(left, right, both, None),
            });
        }
        self.conditions(&mut block, &known);
        if depth < 2 && self.random.one_in(if depth == 0 { 2 } else { 3 }) {
            let inner = self.block(&known, depth + 1);
            block.nots.push(inner);
        }
        block
    }

    fn fresh(&mut self, kind: Kind, block: &mut Block, known: &mut Vec<usize>) -> usize {
        let var = self.var(kind);
        block.vars.push(var);
        known.push(var);
        var
    }

    fn conditions(&mut self, block: &mut Block, known: &[usize]) {
        let all: Vec<usize> = known
            .iter()
            .filter(|v| self.kinds[**v] == Kind::A)
            .copied()
            .collect();
        if self.random.one_in(2) {
            let var = all[self.random.below(all.len())];
            let op = ["=", "!=", "<", ">="][self.random.below(4)];
            block.filters.push((var, op, self.random.below(5) as i32));
        }
        if self.random.one_in(3) {
            let var = all[self.random.below(all.len())];
            block.keys.push((var, self.random.below(5)));
        }
        if self.random.one_in(4) && all.len() > 1 {
            let (a, b) = (
                all[self.random.below(all.len())],
                all[self.random.below(all.len())],
            );
            block.across.push((a, b));
        }
    }
}

fn gq(block: &Block, kinds: &[Kind], shown: &[usize], edges: &[usize]) -> String {
    let mut text = String::from("query q() { match { ");
    gq_block(block, kinds, &mut text);
    text.push_str("} return { ");
    for var in shown {
        write!(text, "$v{var}.name as v{var} ").unwrap();
    }
    for edge in edges {
        write!(text, "$e{edge}.w as e{edge} ").unwrap();
    }
    text.push_str("} }");
    text
}

fn gq_block(block: &Block, kinds: &[Kind], text: &mut String) {
    for var in &block.vars {
        write!(text, "$v{var}: {} ", kinds[*var].name()).unwrap();
    }
    for step in &block.steps {
        match step {
            Step::K(a, b, both, bounds) => {
                let word = if *both { "<k>" } else { "k" };
                let bounds = bounds.map_or(String::new(), |(m, n)| format!("{{{m},{n}}}"));
                write!(text, "$v{a} {word}{bounds} $v{b} ").unwrap();
            }
            Step::BoundK(a, b, edge, both) => {
                let word = if *both { "<k>" } else { "k" };
                write!(text, "$v{a} $e{edge}:{word} $v{b} ").unwrap();
            }
            Step::L(a, b, false) => write!(text, "$v{a} l $v{b} ").unwrap(),
            Step::L(a, b, true) => write!(text, "$v{b} l $v{a} ").unwrap(),
        }
    }
    for (var, op, value) in &block.filters {
        write!(text, "$v{var}.x {op} {value} ").unwrap();
    }
    for (var, number) in &block.keys {
        write!(text, "$v{var}.name = \"a{number}\" ").unwrap();
    }
    for (a, b) in &block.across {
        write!(text, "$v{a}.x = $v{b}.x ").unwrap();
    }
    for inner in &block.nots {
        text.push_str("not { ");
        gq_block(inner, kinds, text);
        text.push_str("} ");
    }
}

fn sql(block: &Block, kinds: &[Kind], shown: &[usize], edges: &[usize]) -> String {
    let vars = shown.iter().map(|v| format!("v{v}"));
    let weights = edges.iter().map(|e| format!("e{e}"));
    let columns: Vec<String> = vars.chain(weights).collect();
    format!(
        "SELECT {} FROM ({}) r",
        columns.join(", "),
        relation(block, kinds)
    )
}

/// Variables of a block, and those of outer scopes that it or a block within it mentions.
fn mentioned(block: &Block) -> Vec<usize> {
    let mut vars = block.vars.clone();
    for step in &block.steps {
        let (Step::K(a, b, ..) | Step::BoundK(a, b, ..) | Step::L(a, b, _)) = step;
        vars.extend([*a, *b]);
    }
    vars.extend(block.filters.iter().map(|(var, ..)| *var));
    vars.extend(block.keys.iter().map(|(var, _)| *var));
    vars.extend(block.across.iter().flat_map(|(a, b)| [*a, *b]));
    for inner in &block.nots {
        let outer = mentioned(inner).into_iter();
        vars.extend(outer.filter(|var| !inner.vars.contains(var)));
    }
    vars.sort_unstable();
    vars.dedup();
    vars
}

/// The assignments of a block to all variables that it mentions, those of outer blocks too: each block
/// is a relation of its own, and a negation an anti join of two. (DataFusion's own NOT EXISTS is no
/// oracle: 55.2 gives wrong rows for some of them.)
fn relation(block: &Block, kinds: &[Kind]) -> String {
    let vars = mentioned(block);
    let mut from: Vec<String> = vars
        .iter()
        .map(|v| format!("sg.g.\"{}\" v{v}", kinds[*v].name()))
        .collect();
    let mut columns: Vec<String> = vars.iter().map(|v| format!("v{v}.id AS v{v}")).collect();
    let numbers = vars.iter().filter(|v| kinds[**v] == Kind::A);
    columns.extend(numbers.map(|v| format!("v{v}.x AS x{v}")));
    let mut conditions: Vec<String> = vec!["true".to_owned()];
    for (number, step) in block.steps.iter().enumerate() {
        let (a, b, relation, name) = match step {
            Step::K(a, b, both, bounds) => (*a, *b, pairs(*both, *bounds), format!("h{number}")),
            Step::BoundK(a, b, edge, both) => {
                columns.push(format!("b{edge}.w AS e{edge}"));
                (*a, *b, raw(*both), format!("b{edge}"))
            }
            Step::L(a, b, _) => {
                let pairs = "(SELECT DISTINCT src, dst FROM sg.g.\"L\")".to_owned();
                (*a, *b, pairs, format!("h{number}"))
            }
        };
        from.push(format!("{relation} {name}"));
        conditions.push(format!("{name}.src = v{a}.id"));
        conditions.push(format!("{name}.dst = v{b}.id"));
    }
    for (var, op, value) in &block.filters {
        conditions.push(format!("v{var}.x {op} {value}"));
    }
    for (var, number) in &block.keys {
        conditions.push(format!("v{var}.id = 'a{number}'"));
    }
    for (a, b) in &block.across {
        conditions.push(format!("v{a}.x = v{b}.x"));
    }
    let (columns, from) = (columns.join(", "), from.join(", "));
    let mut sql = format!(
        "SELECT {columns} FROM {from} WHERE {}",
        conditions.join(" AND ")
    );
    for inner in &block.nots {
        let shared = mentioned(inner);
        let shared = shared
            .iter()
            .filter(|v| vars.contains(v) && !inner.vars.contains(v));
        let on: Vec<String> = shared.map(|v| format!("n.v{v} = o.v{v}")).collect();
        let (inner, on) = (relation(inner, kinds), on.join(" AND "));
        sql = format!("SELECT o.* FROM ({sql}) o LEFT ANTI JOIN ({inner}) n ON {on}");
    }
    sql
}

/// Edges with their weights, each once seen from either end.
fn raw(both: bool) -> String {
    match both {
        false => "(SELECT src, dst, w FROM sg.g.\"K\")".to_owned(),
        true => "(SELECT src, dst, w FROM sg.g.\"K\" UNION ALL \
                 SELECT dst, src, w FROM sg.g.\"K\" WHERE src <> dst)"
            .to_owned(),
    }
}

/// Pairs at a shortest distance within bounds; a node is at distance 1 of itself if it has a loop.
fn pairs(both: bool, bounds: Option<(usize, usize)>) -> String {
    let one = match both {
        false => "SELECT src, dst FROM sg.g.\"K\"",
        true => "SELECT src, dst FROM sg.g.\"K\" UNION SELECT dst, src FROM sg.g.\"K\"",
    };
    let Some((min, max)) = bounds else {
        return format!("(SELECT DISTINCT src, dst FROM ({one}))");
    };
    let mut walks = vec![format!("(SELECT src, dst, 1 AS d FROM ({one}))")];
    for length in 2..=max {
        let shorter = &walks[length - 2];
        walks.push(format!(
            "(SELECT DISTINCT p.src, q.dst, {length} AS d FROM {shorter} p JOIN ({one}) q ON p.dst = q.src)"
        ));
    }
    let all: Vec<String> = walks
        .iter()
        .map(|w| format!("SELECT src, dst, d FROM {w}"))
        .collect();
    format!(
        "(SELECT src, dst FROM ({}) WHERE src <> dst OR d = 1 GROUP BY src, dst \
         HAVING min(d) BETWEEN {min} AND {max})",
        all.join(" UNION ALL ")
    )
}
