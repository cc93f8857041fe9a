//! Which columns of which variables a query reads, so that nothing else is.

use std::collections::{BTreeMap, BTreeSet};

use stratagraph::graph::query::{Aggregate, Block, Expr, Query, Var};
use stratagraph::graph::schema::GraphSchema;

use super::ranks::{ranked, searches};
use super::row::Field;

/// The columns that are read, by variable; row ids are always there.
pub(super) type Needs = BTreeMap<Var, BTreeSet<Field>>;

/// Calls `each` with every column of a variable that an expression reads.
pub(super) fn fields(expr: &Expr, each: &mut dyn FnMut(Var, Field)) {
    match expr {
        Expr::Id(var) => each(*var, Field::Id),
        Expr::Property(var, property) => each(*var, Field::Property(*property)),
        Expr::Compare(_, a, b)
        | Expr::HasItem(a, b)
        | Expr::HasText(a, b)
        | Expr::StartsWith(a, b) => {
            fields(a, each);
            fields(b, each);
        }
        Expr::And(all) | Expr::Or(all) => all.iter().for_each(|e| fields(e, each)),
        Expr::Not(a) | Expr::IsNull(a) => fields(a, each),
        Expr::Aggregate {
            function, argument, ..
        } => match (function, argument.as_deref()) {
            // What is counted is whether there is one; its row id tells.
            (Aggregate::Count, Some(Expr::Id(_))) | (_, None) => {}
            (_, Some(argument)) => fields(argument, each),
        },
        // Searches are of row ids.
        Expr::Search(_) | Expr::Rank(_) => {
            for var in ranked(expr) {
                each(var, Field::Rid);
            }
        }
        _ => {}
    }
}

/// Variables that an expression mentions.
pub(super) fn variables(expr: &Expr) -> BTreeSet<Var> {
    let mut found = BTreeSet::new();
    fields(expr, &mut |var, _| {
        found.insert(var);
    });
    found
}

/// Variables that a block introduces, its optional blocks included.
pub(super) fn introduced(block: &Block) -> BTreeSet<Var> {
    let mut found: BTreeSet<Var> = block.nodes.iter().copied().collect();
    found.extend(block.hops.iter().filter_map(|hop| hop.binding));
    found.extend(block.optionals.iter().flat_map(introduced));
    found
}

/// Variables that a block or a block within it mentions.
pub(super) fn mentioned(block: &Block) -> BTreeSet<Var> {
    let mut found: BTreeSet<Var> = block.nodes.iter().copied().collect();
    for hop in &block.hops {
        found.extend([hop.left, hop.right]);
        found.extend(hop.binding);
    }
    found.extend(block.filters.iter().flat_map(variables));
    let inner = block.optionals.iter().chain(&block.negations);
    found.extend(inner.flat_map(mentioned));
    found
}

/// All columns that a query reads.
pub(super) fn needs(query: &Query) -> Needs {
    let mut needs = Needs::new();
    of_block(&query.pattern, &mut needs);
    let mut add = |var, field| {
        needs.entry(var).or_default().insert(field);
    };
    for output in &query.outputs {
        fields(&output.expr, &mut add);
    }
    for key in &query.order {
        fields(&key.expr, &mut add);
    }
    if orders_by_ids(query) {
        for var in introduced(&query.pattern) {
            add(var, Field::Id);
        }
    }
    needs
}

/// Whether the ids of all variables break ties of the order: where rows are assignments.
pub(super) fn orders_by_ids(query: &Query) -> bool {
    !query.order.is_empty() && !query.aggregates() && !query.distinct
}

fn of_block(block: &Block, needs: &mut Needs) {
    let mut add = |var, field| {
        needs.entry(var).or_default().insert(field);
    };
    for filter in &block.filters {
        fields(filter, &mut add);
    }
    for inner in block.optionals.iter().chain(&block.negations) {
        of_block(inner, needs);
    }
}

/// Whether a block, or one within it, searches a variable that it does not introduce.
pub(super) fn searches_outer(block: &Block, own: &BTreeSet<Var>) -> bool {
    let mut found = false;
    for filter in &block.filters {
        searches(filter, &mut |search| {
            found |= ranked(search).iter().any(|var| !own.contains(var));
        });
    }
    let mut inner = block.optionals.iter().chain(&block.negations);
    found
        || inner.any(|block| {
            let own = own.union(&introduced(block)).copied().collect();
            searches_outer(block, &own)
        })
}

/// Variables whose columns are read for nothing but the answer, where the best rows of it are chosen by a
/// rank first.
pub(super) fn late(query: &Query) -> BTreeSet<Var> {
    let first = query.order.first().map(|key| &key.expr);
    let ranked = match first {
        Some(Expr::Output(at)) => query.outputs.get(*at).map(|o| &o.expr),
        other => other,
    };
    if !matches!(ranked, Some(Expr::Rank(_))) || query.aggregates() || query.distinct {
        return BTreeSet::new();
    }
    let mut read = Needs::new();
    of_block(&query.pattern, &mut read);
    let inside = |var: &Var| {
        let fields = read.get(var).into_iter().flatten();
        fields.into_iter().any(|field| *field != Field::Rid)
    };
    query
        .pattern
        .nodes
        .iter()
        .copied()
        .filter(|var| !inside(var))
        .collect()
}

/// The variable that the groups of a query are one for one with, if its columns are read for nothing
/// but the groups: then its row id is the key, and its columns can be joined to the groups.
pub(super) fn deferred(query: &Query, schema: &GraphSchema) -> Option<Var> {
    let keys: Vec<&Expr> = query
        .outputs
        .iter()
        .map(|output| &output.expr)
        .filter(|expr| !expr.aggregates())
        .collect();
    let of = |expr: &&Expr| match expr {
        Expr::Id(var) | Expr::Property(var, _) => Some(*var),
        _ => None,
    };
    let var = of(keys.first()?)?;
    let variable = query.variables.get(var)?;
    let one_variable = keys.iter().all(|key| of(key) == Some(var));
    let node = !variable.is_edge && !variable.optional && query.pattern.nodes.contains(&var);
    let key = &schema.by_id(variable.type_id)?.key;
    let shown = |id: &u64| keys.contains(&&Expr::Property(var, *id));
    let unique = keys.contains(&&Expr::Id(var)) || (!key.is_empty() && key.iter().all(shown));
    let mut elsewhere = Needs::new();
    of_block(&query.pattern, &mut elsewhere);
    let mut add = |var, field| {
        elsewhere.entry(var).or_default().insert(field);
    };
    let aggregates = query.outputs.iter().map(|output| &output.expr);
    for expr in aggregates.filter(|expr| expr.aggregates()) {
        fields(expr, &mut add);
    }
    query
        .order
        .iter()
        .for_each(|key| fields(&key.expr, &mut add));
    let alone = query.aggregates() && one_variable && node && unique;
    (alone && !elsewhere.contains_key(&var)).then_some(var)
}
