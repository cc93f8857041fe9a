//! Model specs: `scheme:rest`, parsed once and kept in one canonical spelling, never with a secret.

use std::collections::BTreeMap;
use std::fmt;

use url::{Url, form_urlencoded};

use super::embedded::check_dimensions;
use super::redact::{names_location, redact};
use crate::{Error, Result, limits};

/// Bytes of a spec.
const SPEC_BYTES: usize = 4096;
const CANDLE_OPTIONS: [&str; 4] = ["dtype", "max_tokens", "document_prompt", "query_prompt"];
const OPENAI_OPTIONS: [&str; 4] = ["dimensions", "key_env", "probe", "allow_http"];
const TEI_OPTIONS: [&str; 3] = ["key_env", "probe", "allow_http"];
const HINT: &str = "use static:minilm-l6-128, hash:<dimensions> such as hash:384, the name of a model \
    that this host registered or that its Hugging Face cache holds, or a directory or server as \
    docs/models.md says";

/// Where a static table comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticSource {
    /// A table that is part of the program.
    BuiltIn(String),
    /// A local directory.
    Directory(String),
}

/// A parsed model spec. `Display` is the canonical text; it holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelSpec {
    /// `hash:<dimensions>`.
    Hash {
        /// Components of a vector.
        dimensions: usize,
    },
    /// `static:<name>` or `static:<directory>`.
    Static(StaticSource),
    /// `candle:<directory>[?dtype=..&max_tokens=..&document_prompt=..&query_prompt=..]`.
    Candle {
        /// A sentence-transformers directory.
        directory: String,
        /// Options by name.
        options: BTreeMap<String, String>,
    },
    /// `openai:<model>@<url>[?dimensions=..&key_env=..&probe=true&allow_http=true]`.
    OpenAi {
        /// The server's name of the model.
        model: String,
        /// The base URL, which usually ends in `/v1`.
        base_url: Url,
        /// Options by name.
        options: BTreeMap<String, String>,
    },
    /// `tei:<url>[?key_env=..&probe=true&allow_http=true]`.
    Tei {
        /// The base URL.
        base_url: Url,
        /// Options by name.
        options: BTreeMap<String, String>,
    },
    /// A registered name, or one of the Hugging Face cache.
    Name(String),
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        match self {
            Self::Hash { dimensions } => write!(f, "hash:{dimensions}"),
            Self::Static(StaticSource::BuiltIn(rest) | StaticSource::Directory(rest)) => {
                write!(f, "static:{rest}")
            }
            Self::Candle { directory, options } => {
                write!(f, "candle:{directory}{}", query(options))
            }
            Self::OpenAi {
                model,
                base_url,
                options,
            } => write!(f, "openai:{model}@{}{}", base(base_url), query(options)),
            Self::Tei { base_url, options } => {
                write!(f, "tei:{}{}", base(base_url), query(options))
            }
            Self::Name(name) => f.write_str(name),
        }
    }
}

fn query(options: &BTreeMap<String, String>) -> String {
    if options.is_empty() {
        return String::new();
    }
    let mut out = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
    out.extend_pairs(options);
    out.finish()
}

/// Parses a spec; white space around it and the case of the scheme do not count.
///
/// A malformed spec, or one that holds a secret, is [`Error::InvalidArgument`]; an unknown scheme is
/// [`Error::ModelNotFound`]. Neither repeats what could be a secret.
pub fn parse_spec(text: &str) -> Result<ModelSpec> {
    let text = text.trim();
    // URL parsers drop tabs and newlines: `ht\ntp:` must not become another text later.
    if text.len() > SPEC_BYTES || text.chars().any(char::is_control) {
        return Err(invalid(
            "a spec of at most 4096 bytes without control characters is expected",
        ));
    }
    refuse_secrets(text)?;
    let Some((scheme, rest)) = text.split_once(':') else {
        return parse_name(text);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "hash" => parse_hash(rest),
        "static" => parse_static(rest),
        "candle" => parse_candle(rest),
        "openai" => parse_openai(rest),
        "tei" => {
            let (base_url, options) = parse_url(rest, &TEI_OPTIONS)?;
            Ok(ModelSpec::Tei { base_url, options })
        }
        _ => Err(not_found(text)),
    }
}

/// Whether a host may register a model under `name`.
pub(super) fn is_model_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    let part = |p: &str| !p.is_empty() && p != "." && p != ".." && p.bytes().all(plain);
    name.len() <= limits::NAME_BYTES && name.split('/').all(part)
}

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: "embedding".to_owned(),
        argument: "model".to_owned(),
        reason: reason.into(),
    }
}

pub(super) fn not_found(text: &str) -> Error {
    Error::ModelNotFound {
        model: redact(text),
        hint: HINT,
    }
}

fn refuse_secrets(text: &str) -> Result<()> {
    const REASON: &str =
        "a spec never holds a secret; name the environment variable that does with key_env=";
    let lower = text.to_ascii_lowercase();
    let squeezed: String = lower.chars().filter(|c| !matches!(c, '_' | '-')).collect();
    let spelled = [
        "apikey=",
        "accesskey=",
        "token=",
        "password=",
        "secret=",
        "authorization=",
    ];
    // `max_tokens=` is an option; its `s` keeps it apart from `token=`.
    let userinfo = lower.split("://").skip(1).any(|part| {
        let authority = part.split(['/', '\\', '?', '#']).next();
        authority.is_some_and(|authority| authority.contains('@'))
    });
    if userinfo || spelled.iter().any(|name| squeezed.contains(name)) {
        return Err(invalid(REASON));
    }
    Ok(())
}

fn parse_name(text: &str) -> Result<ModelSpec> {
    if is_model_name(text) {
        Ok(ModelSpec::Name(text.to_owned()))
    } else {
        Err(not_found(text))
    }
}

fn parse_hash(rest: &str) -> Result<ModelSpec> {
    if rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid("hash:<dimensions> is expected, such as hash:384"));
    }
    // Digits only, so a failure means too many of them.
    let dimensions = rest.parse().unwrap_or(usize::MAX);
    check_dimensions(dimensions)?;
    Ok(ModelSpec::Hash { dimensions })
}

fn parse_static(rest: &str) -> Result<ModelSpec> {
    if names_location(&format!("static:{rest}")) {
        return Ok(ModelSpec::Static(StaticSource::Directory(rest.to_owned())));
    }
    if !is_model_name(rest) {
        return Err(invalid("static:<name> or static:/<directory> is expected"));
    }
    Ok(ModelSpec::Static(StaticSource::BuiltIn(rest.to_owned())))
}

fn parse_candle(rest: &str) -> Result<ModelSpec> {
    let (directory, query) = rest.split_once('?').unwrap_or((rest, ""));
    let directory = directory.trim();
    if directory.is_empty() || directory.contains("://") {
        return Err(invalid("candle:/<directory> is expected"));
    }
    Ok(ModelSpec::Candle {
        directory: directory.to_owned(),
        options: parse_options(query, &CANDLE_OPTIONS)?,
    })
}

/// A server's model name may hold `:` and `@`, so the URL begins at the first `@http`.
fn parse_openai(rest: &str) -> Result<ModelSpec> {
    let lower = rest.to_ascii_lowercase();
    let at = [lower.find("@http://"), lower.find("@https://")];
    let at = at.into_iter().flatten().min().filter(|at| *at > 0);
    let Some(at) = at else {
        return Err(invalid("openai:<model>@<http or https URL> is expected"));
    };
    let (base_url, options) = parse_url(&rest[at + 1..], &OPENAI_OPTIONS)?;
    Ok(ModelSpec::OpenAi {
        model: rest[..at].to_owned(),
        base_url,
        options,
    })
}

fn parse_url(text: &str, known: &[&str]) -> Result<(Url, BTreeMap<String, String>)> {
    const EXPECTED: &str = "an http or https URL without user and fragment is expected";
    // The parser's own message is left out: it may repeat the text.
    let mut url = Url::parse(text).map_err(|_| invalid(EXPECTED))?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.host_str().is_some_and(|host| !host.is_empty())
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none();
    if !plain {
        return Err(invalid(EXPECTED));
    }
    let options = parse_options(url.query().unwrap_or_default(), known)?;
    url.set_query(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok((url, options))
}

/// Unknown options are refused without repeating them: they may be misspelled secrets.
fn parse_options(query: &str, known: &[&str]) -> Result<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !known.contains(&name.as_ref()) {
            return Err(invalid(format!("the options are {}", known.join(", "))));
        }
        let number = || {
            let digits = value.bytes().all(|b| b.is_ascii_digit());
            value.parse().ok().filter(|_| digits).unwrap_or(0)
        };
        let good = match name.as_ref() {
            "dtype" => matches!(value.as_ref(), "f32" | "f16" | "bf16"),
            "dimensions" => (1..=limits::DIMENSIONS).contains(&number()),
            "max_tokens" => number() > 0,
            "key_env" => is_variable(&value),
            "probe" | "allow_http" => matches!(value.as_ref(), "true" | "false"),
            _ => true,
        };
        if !good {
            return Err(invalid(format!("the value of option {name} is not valid")));
        }
        if options
            .insert(name.to_string(), value.into_owned())
            .is_some()
        {
            return Err(invalid(format!("option {name} is given twice")));
        }
    }
    Ok(options)
}

fn is_variable(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.len() <= limits::NAME_BYTES
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|b| letter(b) || b.is_ascii_digit())
}
