//! A schema as written, before any name means anything.

use std::ops::Range;

/// Text with its place.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub text: String,
    pub span: Range<usize>,
}

/// What is declared.
#[derive(Debug)]
pub(super) enum Form {
    Interface,
    Node { implements: Vec<Word> },
    Edge { from: Word, to: Word },
}

/// An interface, a node type or an edge type.
#[derive(Debug)]
pub(super) struct Declaration {
    pub form: Form,
    pub name: Word,
    pub annotations: Vec<Annotation>,
    pub body: Vec<Item>,
}

/// One thing in braces. Whether an annotation belongs to the property before it or to the type
/// depends on its arguments.
#[derive(Debug)]
pub(super) enum Item {
    Property(Property),
    Annotation(Annotation),
}

#[derive(Debug)]
pub(super) struct Property {
    pub name: Word,
    pub value_type: Type,
}

#[derive(Debug)]
pub(super) struct Type {
    pub shape: Shape,
    pub nullable: bool,
    pub span: Range<usize>,
}

#[derive(Debug)]
pub(super) enum Shape {
    Name(String),
    List(Box<Type>),
    /// The digits of the width.
    Vector(String),
    Enum(Vec<Word>),
}

#[derive(Debug)]
pub(super) struct Annotation {
    /// Without the `@`; its place is with it.
    pub name: Word,
    pub arguments: Vec<Argument>,
    pub span: Range<usize>,
}

#[derive(Debug)]
pub(super) enum Argument {
    Value(Value),
    Named(Word, Value),
    Range(Bounds),
}

#[derive(Debug)]
pub(super) struct Bounds {
    pub min: Option<Word>,
    pub max: Option<Word>,
    pub span: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    String,
    Number,
    Name,
}

#[derive(Debug)]
pub(super) struct Value {
    pub form: ValueForm,
    /// Decoded for a string, else as written.
    pub word: Word,
}

impl Annotation {
    /// Its positional arguments that are names, up to the first other one.
    pub fn members(&self) -> impl Iterator<Item = &Word> {
        self.arguments.iter().map_while(|argument| match argument {
            Argument::Value(value) if value.form == ValueForm::Name => Some(&value.word),
            _ => None,
        })
    }
}

impl Argument {
    pub fn span(&self) -> Range<usize> {
        match self {
            Self::Value(value) => value.word.span.clone(),
            Self::Named(name, value) => name.span.start..value.word.span.end,
            Self::Range(bounds) => bounds.span.clone(),
        }
    }
}
