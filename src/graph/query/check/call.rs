//! Calls: the clock, aggregates, searches and ranks.

use super::Checker;
use super::typed::{Place, Ty, Typed};
use crate::graph::query::ast::{Expr as Ast, ExprKind, Name};
use crate::graph::query::findings::{instead, shown};
use crate::graph::query::{Aggregate, Expr, Hop, Rank, Search, SearchMode, Var};
use crate::graph::value::{Scalar, Value, ValueType};

const FUNCTIONS: [&str; 14] = [
    "now",
    "date",
    "datetime",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "search",
    "match_text",
    "fuzzy",
    "nearest",
    "bm25",
    "rrf",
];

/// Ranks that one fusion takes.
const ARMS: std::ops::RangeInclusive<usize> = 2..=4;

/// A message and a fix.
type Refusal = (String, String);

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        function: &Name,
        distinct: bool,
        arguments: &[Ast],
        place: Place,
    ) -> Typed {
        let name = function.text.as_str();
        if distinct && name != "count" {
            let message = format!("{} takes no `distinct`", shown(name));
            self.add("T8", &function.span, message, "leave out `distinct`");
            return Typed::broken();
        }
        let aggregate = match name {
            "count" => Some(Aggregate::Count),
            "sum" => Some(Aggregate::Sum),
            "avg" => Some(Aggregate::Avg),
            "min" => Some(Aggregate::Min),
            "max" => Some(Aggregate::Max),
            _ => None,
        };
        if let Some(aggregate) = aggregate {
            return self.aggregate(aggregate, function, distinct, arguments, place);
        }
        match (name, arguments) {
            ("now", []) => Typed::scalar(Expr::Now, Scalar::DateTime, false),
            ("search" | "match_text", [field, query]) => {
                self.search(function, field, query, None, place)
            }
            ("fuzzy", [field, query]) => self.search(function, field, query, None, place),
            ("fuzzy", [field, query, edits]) => {
                self.search(function, field, query, Some(edits), place)
            }
            ("nearest" | "bm25" | "rrf", _) => self.ranked(function, arguments, place),
            _ => {
                let (message, fix) = match usage(name) {
                    Some(usage) => (
                        format!("{} does not take these arguments", shown(name)),
                        format!("write {usage}"),
                    ),
                    None => (
                        format!("no function is named {}", shown(name)),
                        instead(name, FUNCTIONS.into_iter()),
                    ),
                };
                self.add("T32", &function.span, message, fix);
                Typed::broken()
            }
        }
    }

    fn aggregate(
        &mut self,
        aggregate: Aggregate,
        function: &Name,
        distinct: bool,
        arguments: &[Ast],
        place: Place,
    ) -> Typed {
        if !matches!(place, Place::Return | Place::Order) {
            let message = format!("{} has no place here", shown(&function.text));
            let fix = "aggregate in `return` or `order`, and not within another aggregate";
            self.add("T8", &function.span, message, fix);
            return Typed::broken();
        }
        let argument = match arguments {
            [] if aggregate == Aggregate::Count && !distinct => None,
            [argument] => Some(argument),
            _ => {
                let message = format!("{} takes one argument", shown(&function.text));
                let fix = "write one argument; `count()` without any counts rows";
                self.add("T8", &function.span, message, fix);
                return Typed::broken();
            }
        };
        let Some(argument) = argument else {
            let expr = Expr::Aggregate {
                function: aggregate,
                argument: None,
                distinct,
            };
            return Typed::scalar(expr, Scalar::I64, false);
        };
        let typed = self.expr(argument, Place::Aggregate);
        if typed.ty == Ty::Broken {
            return Typed::broken();
        }
        let Some(ty) = aggregated(aggregate, distinct, &typed.ty) else {
            let message = format!("{} does not take {}", shown(&function.text), typed.ty);
            let fix = match aggregate {
                Aggregate::Sum | Aggregate::Avg => "aggregate a number",
                _ => "aggregate a single value",
            };
            self.add("T8", &argument.span, message, fix);
            return Typed::broken();
        };
        // No row, or none with a value, leaves all but the count without one.
        let nullable = aggregate != Aggregate::Count;
        let expr = Expr::Aggregate {
            function: aggregate,
            argument: Some(Box::new(typed.expr)),
            distinct,
        };
        Typed::new(expr, ty, nullable)
    }

    fn search(
        &mut self,
        function: &Name,
        field: &Ast,
        query: &Ast,
        edits: Option<&Ast>,
        place: Place,
    ) -> Typed {
        let (mode, code) = match function.text.as_str() {
            "search" => (SearchMode::Any, "T19"),
            "fuzzy" => (SearchMode::Fuzzy, "T19"),
            _ => (SearchMode::MatchText, "T20"),
        };
        if place != Place::Match {
            let message = format!("{} is a condition of the pattern", shown(&function.text));
            self.add(
                "T34",
                &function.span,
                message,
                "write it as a clause of `match`",
            );
            return Typed::broken();
        }
        let field = self.field_of(field, code, "a text", is_text);
        let query = self.operand(query, code, "a text", |ty| {
            ty.as_scalar() == Some(Scalar::String)
        });
        let edits = match edits {
            Some(edits) => match self.operand(edits, code, "an integer from 0", is_integer) {
                Some(Expr::Literal(Value::Int(..0))) => {
                    let message = "an edit distance is not negative";
                    self.add(code, &function.span, message, "write an integer from 0");
                    None
                }
                Some(edits) => Some(Some(edits)),
                None => None,
            },
            None => Some(None),
        };
        let (Some(field), Some(query), Some(max_edits)) = (field, query, edits) else {
            return Typed::broken();
        };
        let search = Search {
            mode,
            field,
            query,
            max_edits,
        };
        Typed::scalar(Expr::Search(Box::new(search)), Scalar::Bool, true)
    }

    fn ranked(&mut self, function: &Name, arguments: &[Ast], place: Place) -> Typed {
        if !matches!(place, Place::Return | Place::Order) {
            let message = format!("{} is a rank and no condition", shown(&function.text));
            let fix = "write it in `order` or `return`";
            self.add("T34", &function.span, message, fix);
            return Typed::broken();
        }
        match self.rank(function, arguments) {
            Some(rank) => Typed::new(Expr::Rank(Box::new(rank)), Ty::Rank, true),
            None => Typed::broken(),
        }
    }

    fn rank(&mut self, function: &Name, arguments: &[Ast]) -> Option<Rank> {
        match (function.text.as_str(), arguments) {
            ("nearest", [field, query]) => self.nearest(field, query),
            ("bm25", [field, query]) => {
                let field = self.field_of(field, "T20", "a text", is_text);
                let is_text = |ty: &Ty| ty.as_scalar() == Some(Scalar::String);
                let query = self.operand(query, "T20", "a text", is_text);
                let (field, query) = field.zip(query)?;
                Some(Rank::Bm25 { field, query })
            }
            ("rrf", [arms @ .., k])
                if !matches!(k.kind, ExprKind::Call { .. }) && ARMS.contains(&arms.len()) =>
            {
                let arms = self.arms(arms);
                let k = Some(self.constant(k)?);
                Some(Rank::Rrf { arms: arms?, k })
            }
            ("rrf", arms) if ARMS.contains(&arms.len()) => {
                let (arms, k) = (self.arms(arms)?, None);
                Some(Rank::Rrf { arms, k })
            }
            (name, _) => {
                let message = format!("{} does not take these arguments", shown(name));
                let fix = format!("write {}", usage(name).unwrap_or_default());
                self.add("T32", &function.span, message, fix);
                None
            }
        }
    }

    /// Ranks that `rrf` fuses; all of them are checked.
    fn arms(&mut self, arms: &[Ast]) -> Option<Vec<Rank>> {
        let checked: Vec<Option<Rank>> = arms.iter().map(|arm| self.arm(arm)).collect();
        checked.into_iter().collect()
    }

    fn arm(&mut self, ast: &Ast) -> Option<Rank> {
        if let ExprKind::Call {
            function,
            distinct: false,
            arguments,
        } = &ast.kind
        {
            match (function.text.as_str(), arguments.as_slice()) {
                ("nearest" | "bm25", _) => return self.rank(function, arguments),
                ("hops", [from, to]) => return self.traversal(ast, from, to),
                _ => {}
            }
        }
        let message = "`rrf` fuses ranks";
        let fix = "write `nearest(...)`, `bm25(...)` or `hops($a, $b)`";
        self.add("T21", &ast.span, message, fix);
        None
    }

    /// The distance of a traversal that the pattern has.
    fn traversal(&mut self, ast: &Ast, from: &Ast, to: &Ast) -> Option<Rank> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let joins = |hop: &Hop| {
            let ends = (hop.left, hop.right);
            hop.binding.is_none() && (ends == (from, to) || ends == (to, from))
        };
        if !self.traversals.iter().any(joins) {
            let message =
                "no traversal of the pattern joins these two, without a binding of its edge";
            let fix = "write the variables of a traversal of `match`";
            self.add("T21", &ast.span, message, fix);
            return None;
        }
        Some(Rank::Hops { from, to })
    }

    /// A variable of a node.
    fn node(&mut self, ast: &Ast) -> Option<Var> {
        let typed = self.expr(ast, Place::Match);
        match typed.expr {
            _ if typed.ty == Ty::Broken => None,
            Expr::Id(var) if matches!(ast.kind, ExprKind::Variable(_)) => Some(var),
            _ => {
                let message = "`hops` takes two variables";
                self.add("T21", &ast.span, message, "write `hops($a, $b)`");
                None
            }
        }
    }

    /// The constant of `rrf`.
    fn constant(&mut self, ast: &Ast) -> Option<Expr> {
        let k = self.operand(ast, "T21", "an integer from 1", is_integer)?;
        if let Expr::Literal(Value::Int(..1)) = k {
            let message = "the constant of `rrf` is at least 1";
            self.add("T21", &ast.span, message, "write an integer from 1");
            return None;
        }
        Some(k)
    }

    fn nearest(&mut self, field: &Ast, query: &Ast) -> Option<Rank> {
        let is_vector = |ty: &ValueType| matches!(ty, ValueType::Vector(_));
        let found = self.field_of(field, "T15", "a vector", is_vector);
        let width = found.and_then(|found| self.width(found));
        let fits = |ty: &Ty| match ty {
            Ty::Value(ValueType::Scalar(Scalar::String)) => true,
            Ty::Value(ValueType::Vector(_)) => true,
            Ty::Value(ValueType::List(item)) => item.is_numeric(),
            _ => false,
        };
        let typed = match &query.kind {
            ExprKind::List(_) => self.expr(query, Place::Match),
            _ => self.operand_typed(query, "T15", "a vector or a text", fits)?,
        };
        let given = match (&typed.ty, &typed.expr) {
            (Ty::Broken, _) => return None,
            (Ty::Value(ValueType::Vector(given)), _) => Some(*given as usize),
            (ty, Expr::Literal(Value::List(items))) if fits(ty) || *ty == Ty::EmptyList => {
                Some(items.len())
            }
            (Ty::Value(ValueType::Scalar(Scalar::String)), _) => None,
            (ty, _) => {
                let message = format!("{ty} is no vector of a known width");
                self.add("T15", &query.span, message, "declare it as `Vector(n)`");
                return None;
            }
        };
        let (field, width) = found.zip(width)?;
        if let Some(given) = given
            && given != width as usize
        {
            let message = format!("the property has {width} components, this vector {given}");
            let fix = format!("give a vector of {width} components");
            self.add("T15", &query.span, message, fix);
            return None;
        }
        let query = typed.expr;
        Some(Rank::Nearest { field, query })
    }

    fn width(&self, (var, id): (Var, u64)) -> Option<u32> {
        let property = self.variables[var].known()?.property_by_id(id)?;
        match property.value_type {
            ValueType::Vector(width) => Some(width),
            _ => None,
        }
    }

    /// The property that a search or a rank is about.
    fn field_of(
        &mut self,
        ast: &Ast,
        code: &'static str,
        what: &str,
        fits: impl Fn(&ValueType) -> bool,
    ) -> Option<(Var, u64)> {
        let ExprKind::Access(variable, _) = &ast.kind else {
            let message = format!("this is no property of a node that holds {what}");
            let fix = format!("write `$variable.property` of {what}");
            self.add(code, &ast.span, message, fix);
            return None;
        };
        let var = self.read(variable)?;
        if self.variables[var].is_edge {
            let message = format!(
                "{} is an edge; searches are of nodes",
                shown(&variable.text)
            );
            self.add(
                "T23",
                &variable.span,
                message,
                "search a property of a node",
            );
            return None;
        }
        let typed = self.expr(ast, Place::Match);
        match (&typed.ty, &typed.expr) {
            (Ty::Broken, _) => None,
            (Ty::Value(ty), Expr::Property(var, id)) if fits(ty) => Some((*var, *id)),
            (ty, _) => {
                let message = format!("this property is {ty}, not {what}");
                let fix = format!("write a property that holds {what}");
                self.add(code, &ast.span, message, fix);
                None
            }
        }
    }

    /// A literal or a parameter.
    fn operand(
        &mut self,
        ast: &Ast,
        code: &'static str,
        what: &str,
        fits: impl Fn(&Ty) -> bool,
    ) -> Option<Expr> {
        let typed = self.operand_typed(ast, code, what, fits)?;
        Some(typed.expr)
    }

    fn operand_typed(
        &mut self,
        ast: &Ast,
        code: &'static str,
        what: &str,
        fits: impl Fn(&Ty) -> bool,
    ) -> Option<Typed> {
        let refusal: Refusal = match &ast.kind {
            ExprKind::Literal(_) | ExprKind::Variable(_) => {
                let typed = self.expr(ast, Place::Match);
                match typed.expr {
                    _ if typed.ty == Ty::Broken => return None,
                    Expr::Literal(_) | Expr::Param(_) if fits(&typed.ty) => return Some(typed),
                    Expr::Literal(_) | Expr::Param(_) => (
                        format!("this is {}, not {what}", typed.ty),
                        format!("write {what}"),
                    ),
                    _ => (
                        "this is neither a literal nor a parameter".to_owned(),
                        format!("write {what} or a parameter"),
                    ),
                }
            }
            _ => (
                "this is neither a literal nor a parameter".to_owned(),
                format!("write {what} or a parameter"),
            ),
        };
        self.add(code, &ast.span, refusal.0, refusal.1);
        None
    }
}

/// The type of an aggregate, if it takes such an argument.
fn aggregated(aggregate: Aggregate, distinct: bool, argument: &Ty) -> Option<Ty> {
    let scalar = argument.as_scalar().filter(|_| *argument != Ty::Rank);
    match aggregate {
        Aggregate::Count if !distinct => Some(Ty::scalar(Scalar::I64)),
        Aggregate::Count => scalar.map(|_| Ty::scalar(Scalar::I64)),
        Aggregate::Sum => match scalar? {
            Scalar::I32 | Scalar::I64 => Some(Ty::scalar(Scalar::I64)),
            Scalar::U32 | Scalar::U64 => Some(Ty::scalar(Scalar::U64)),
            Scalar::F32 | Scalar::F64 => Some(Ty::scalar(Scalar::F64)),
            _ => None,
        },
        Aggregate::Avg => {
            let numeric = scalar?.is_numeric();
            numeric.then_some(Ty::scalar(Scalar::F64))
        }
        Aggregate::Min | Aggregate::Max => match argument {
            Ty::Node(_) => Some(Ty::scalar(Scalar::String)),
            other => scalar.map(|_| other.clone()),
        },
    }
}

fn is_text(ty: &ValueType) -> bool {
    *ty == ValueType::Scalar(Scalar::String)
}

fn is_integer(ty: &Ty) -> bool {
    ty.as_scalar().is_some_and(Scalar::is_integer)
}

/// How a function is called, for those whose arguments are counted.
fn usage(name: &str) -> Option<&'static str> {
    match name {
        "now" => Some("`now()`"),
        "date" => Some("`date(\"2024-02-29\")`"),
        "datetime" => Some("`datetime(\"2024-02-29T12:00:00Z\")`"),
        "search" => Some("`search($v.text, \"words\")`"),
        "match_text" => Some("`match_text($v.text, \"words\")`"),
        "fuzzy" => Some("`fuzzy($v.text, \"words\", 2)`"),
        "nearest" => Some("`nearest($v.vector, $q)`"),
        "bm25" => Some("`bm25($v.text, \"words\")`"),
        "rrf" => Some("`rrf(nearest($v.vector, $q), bm25($v.text, \"words\"), 60)`"),
        _ => None,
    }
}
