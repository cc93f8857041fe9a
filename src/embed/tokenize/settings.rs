//! What the files of a tokenizer say, as far as BERT's tokenizer can do it.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::normal::Rules;
use super::trie::NO_ID;
use super::word_piece::{Parts, WordPiece};

/// Why a tokenizer is not ours.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is one of another kind.
    Foreign(String),
    /// It is one of no kind.
    Invalid(String),
}

type Known<T> = Result<T, Refused>;

fn foreign<T>(reason: impl Into<String>) -> Known<T> {
    Err(Refused::Foreign(reason.into()))
}

/// What BERT's tokenizers have where a file says nothing.
const PREFIX: &str = "##";
const UNKNOWN: &str = "[UNK]";
const LONGEST_WORD: usize = 100;

/// The tokenizer that a `tokenizer.json` describes.
pub(super) fn of_tokenizer(file: &Value) -> Known<WordPiece> {
    let model = &file["model"];
    if model["type"] != "WordPiece" {
        return foreign("its model is not a WordPiece");
    }
    if file["pre_tokenizer"]["type"] != "BertPreTokenizer" {
        return foreign("its pre_tokenizer is not a BertPreTokenizer");
    }
    let rules = rules_of(&file["normalizer"])?;
    let (Some(prefix), Some(unknown), Some(longest_word), Some(vocabulary)) = (
        model["continuing_subword_prefix"].as_str(),
        model["unk_token"].as_str(),
        model["max_input_chars_per_word"].as_u64(),
        model["vocab"].as_object(),
    ) else {
        return foreign("its WordPiece lacks a member");
    };
    let vocabulary = vocabulary_of(vocabulary)?;
    if !vocabulary.contains_key(unknown) {
        let reason = format!("its vocabulary lacks the token {unknown:?} of unknown words");
        return Err(Refused::Invalid(reason));
    }
    let added = match &file["added_tokens"] {
        Value::Null => Vec::new(),
        Value::Array(added) => added_tokens(added, &vocabulary)?,
        _ => return foreign("its added_tokens are not a list"),
    };
    Ok(WordPiece::new(Parts {
        rules,
        prefix,
        unknown,
        longest_word: usize::try_from(longest_word).unwrap_or(usize::MAX),
        frame: frame_of(&file["post_processor"]),
        vocabulary,
        added,
    }))
}

fn rules_of(normalizer: &Value) -> Known<Rules> {
    let flag = |name: &str| normalizer[name].as_bool();
    let strip_accents = match &normalizer["strip_accents"] {
        Value::Null => flag("lowercase"),
        value => value.as_bool(),
    };
    let rules = (
        flag("clean_text"),
        flag("handle_chinese_chars"),
        strip_accents,
        flag("lowercase"),
    );
    match rules {
        (Some(clean), Some(space_ideographs), Some(strip_accents), Some(lowercase))
            if normalizer["type"] == "BertNormalizer" =>
        {
            Ok(Rules {
                clean,
                space_ideographs,
                strip_accents,
                lowercase,
            })
        }
        _ => foreign("its normalizer is not a BertNormalizer"),
    }
}

fn vocabulary_of(members: &Map<String, Value>) -> Known<HashMap<&str, u32>> {
    let mut vocabulary = HashMap::with_capacity(members.len());
    for (token, id) in members {
        let Some(id) = id_of(id) else {
            let reason = format!("the id of {token:?} is not a number below {NO_ID}");
            return Err(Refused::Invalid(reason));
        };
        vocabulary.insert(token.as_str(), id);
    }
    Ok(vocabulary)
}

fn id_of(value: &Value) -> Option<u32> {
    let id = u32::try_from(value.as_u64()?).ok()?;
    (id != NO_ID).then_some(id)
}

/// The tokens that are found in texts. White space beside one goes with it or not (`lstrip`,
/// `rstrip`): it makes no token either way.
///
/// A token that the vocabulary lacks has the next id after as many as the vocabulary has tokens.
fn added_tokens<'a>(
    list: &'a [Value],
    vocabulary: &HashMap<&'a str, u32>,
) -> Known<Vec<(&'a str, u32)>> {
    let mut added: HashMap<&str, u32> = HashMap::new();
    let mut next = vocabulary.len() as u64;
    for token in list {
        let (Some(content), Some(id)) = (token["content"].as_str(), id_of(&token["id"])) else {
            return foreign("an added token lacks its content or its id");
        };
        let flag = |name: &str| token[name].as_bool();
        let plain = flag("normalized") == Some(false)
            && flag("single_word") == Some(false)
            && ["lstrip", "rstrip", "special"]
                .iter()
                .all(|name| flag(name).is_some())
            && content.trim() == content;
        if !plain {
            return foreign(format!(
                "its added token {content:?} is not found as it is written"
            ));
        }
        if content.is_empty() {
            continue;
        }
        let known = added.get(content).or_else(|| vocabulary.get(content));
        let expected = known.map_or(next, |id| u64::from(*id));
        if u64::from(id) != expected {
            return foreign(format!("its added token {content:?} has not the id {id}"));
        }
        next += u64::from(known.is_none());
        added.insert(content, id);
    }
    Ok(added.into_iter().collect())
}

/// One token on each side of a text.
fn frame_of(processor: &Value) -> Option<(u32, u32)> {
    match processor["type"].as_str()? {
        "BertProcessing" | "RobertaProcessing" => {
            let id = |side: &str| id_of(&processor[side][1]);
            Some((id("cls")?, id("sep")?))
        }
        "TemplateProcessing" => {
            let [first, text, last] = processor["single"].as_array()?.as_slice() else {
                return None;
            };
            let id = |part: &Value| {
                let name = part["SpecialToken"]["id"].as_str()?;
                match processor["special_tokens"][name]["ids"]
                    .as_array()?
                    .as_slice()
                {
                    [id] => id_of(id),
                    _ => None,
                }
            };
            text.get("Sequence")?;
            Some((id(first)?, id(last)?))
        }
        _ => None,
    }
}

/// The tokenizer of a `vocab.txt`, which has a token a line, and of a `tokenizer_config.json`, which
/// may be null; or what of it cannot be done.
pub(super) fn of_vocabulary(lines: &str, config: &Value) -> Result<WordPiece, String> {
    let class = config["tokenizer_class"]
        .as_str()
        .unwrap_or("BertTokenizer");
    let class = class.trim_end_matches("Fast");
    if !["BertTokenizer", "DistilBertTokenizer", "MPNetTokenizer"].contains(&class) {
        return Err(format!("its tokenizer_class {class:?} is not BERT's"));
    }
    let flag = |name: &str, default: Option<bool>| match &config[name] {
        Value::Null => Ok(default),
        Value::Bool(value) => Ok(Some(*value)),
        _ => Err(format!("its {name} is not true or false")),
    };
    let lowercase = flag("do_lower_case", Some(true))? == Some(true);
    if flag("do_basic_tokenize", Some(true))? != Some(true) {
        return Err("its do_basic_tokenize is false".to_owned());
    }
    let kept = config["never_split"]
        .as_array()
        .is_some_and(|l| !l.is_empty());
    if kept
        || config
            .get("added_tokens_decoder")
            .is_some_and(Value::is_object)
    {
        return Err("it has tokens beside those of vocab.txt".to_owned());
    }
    let token = |name: &str, default: &'static str| match &config[name] {
        Value::Null => Ok(default),
        Value::String(token) => Ok(token.as_str()),
        Value::Object(token) => {
            let content = token.get("content").and_then(Value::as_str);
            content.ok_or_else(|| format!("its {name} has no content"))
        }
        _ => Err(format!("its {name} is not a token")),
    };
    let unknown = token("unk_token", UNKNOWN)?;
    let (first, last) = (token("cls_token", "[CLS]")?, token("sep_token", "[SEP]")?);
    let (padding, mask) = (token("pad_token", "[PAD]")?, token("mask_token", "[MASK]")?);
    let vocabulary = vocabulary_of_lines(lines);
    let id = |token: &str| vocabulary.get(token).copied();
    if id(unknown).is_none() {
        return Err(format!(
            "vocab.txt lacks the token {unknown:?} of unknown words"
        ));
    }
    let special: HashMap<&str, u32> = [unknown, first, last, padding, mask]
        .iter()
        .filter_map(|token| Some((*token, id(token)?)))
        .collect();
    Ok(WordPiece::new(Parts {
        rules: Rules {
            clean: true,
            space_ideographs: flag("tokenize_chinese_chars", Some(true))? == Some(true),
            strip_accents: flag("strip_accents", None)?.unwrap_or(lowercase),
            lowercase,
        },
        prefix: PREFIX,
        unknown,
        longest_word: LONGEST_WORD,
        frame: id(first).zip(id(last)),
        added: special.into_iter().collect(),
        vocabulary,
    }))
}

/// BERT's tokenizer without case and without added tokens.
#[cfg(any(test, feature = "minilm"))]
pub(super) fn uncased(lines: &str) -> WordPiece {
    let vocabulary = vocabulary_of_lines(lines);
    let id = |token: &str| vocabulary.get(token).copied();
    WordPiece::new(Parts {
        rules: Rules::UNCASED,
        prefix: PREFIX,
        unknown: UNKNOWN,
        longest_word: LONGEST_WORD,
        frame: id("[CLS]").zip(id("[SEP]")),
        added: Vec::new(),
        vocabulary,
    })
}

/// A token a line; of equal ones the last. A file has less than 2^32 lines.
fn vocabulary_of_lines(lines: &str) -> HashMap<&str, u32> {
    lines.lines().zip(0..).collect()
}
