//! What the files of a sentence-transformers directory say, apart from the weights.
//!
//! `modules.json` names the steps and their directories, `config.json` describes the transformer,
//! `1_Pooling/config.json` the pooling, `sentence_bert_config.json` the longest input,
//! `config_sentence_transformers.json` the prompts. What cannot be computed exactly as it is written
//! there is refused: a vector that is nearly right would be wrong in silence.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::files::ModelFiles;
use crate::{Error, Result, limits};

/// `config.json` of a BERT model. The names are those of the file.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct BertConfig {
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) intermediate_size: usize,
    pub(super) max_position_embeddings: usize,
    pub(super) type_vocab_size: usize,
    #[serde(default = "default_epsilon")]
    pub(super) layer_norm_eps: f64,
    #[serde(default = "default_activation")]
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
    #[serde(default)]
    is_decoder: bool,
    #[serde(default)]
    add_cross_attention: bool,
}

fn default_epsilon() -> f64 {
    1e-12
}

fn default_activation() -> String {
    "gelu".to_owned()
}

/// Attention scores of one input: 256 MiB of Float32.
const SCORES: usize = 64 * 1024 * 1024;

/// How token states become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooling {
    Mean,
    Cls,
    Max,
}

impl Pooling {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Max => "max",
        }
    }
}

/// The function behind a dense step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Identity,
    Tanh,
}

/// A step after the pooling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Normalise,
    Dense {
        /// Its directory.
        path: String,
        inputs: usize,
        outputs: usize,
        bias: bool,
        activation: Activation,
    },
}

/// Everything but the weights.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) bert: BertConfig,
    pub(super) pooling: Pooling,
    pub(super) steps: Vec<Step>,
    /// Tokens of an input, those of the frame included.
    pub(super) max_tokens: usize,
    /// Whether a text is lowercased before the tokenizer sees it.
    pub(super) lowercase: bool,
    pub(super) document_prompt: String,
    pub(super) query_prompt: String,
}

impl Layout {
    /// Reads the files, with the options of the spec put over them.
    pub(super) fn read(files: &mut ModelFiles, options: &BTreeMap<String, String>) -> Result<Self> {
        let (pooling_path, steps) = modules(files)?;
        let bert = bert_config(files)?;
        let (pooling, with_prompt) = match &pooling_path {
            Some(path) => pooling(files, path)?,
            None => (Pooling::Mean, true),
        };
        let (max_tokens, lowercase) = input_limits(files, &bert, options)?;
        let scores = bert
            .num_attention_heads
            .saturating_mul(max_tokens * max_tokens);
        if scores > SCORES {
            let reason = format!(
                "{} heads over {max_tokens} tokens take too much memory; add max_tokens= to the spec",
                bert.num_attention_heads
            );
            return Err(files.invalid("config.json", reason));
        }
        let (document_prompt, query_prompt) = prompts(files, options)?;
        let has_prompt = !document_prompt.is_empty() || !query_prompt.is_empty();
        if has_prompt && !with_prompt {
            let reason = "pooling that leaves the prompt out (include_prompt) is not supported";
            return Err(files.invalid(pooling_path.as_deref().unwrap_or_default(), reason));
        }
        Ok(Self {
            bert,
            pooling,
            steps,
            max_tokens,
            lowercase,
            document_prompt,
            query_prompt,
        })
    }
}

fn decode<T: DeserializeOwned>(files: &mut ModelFiles, name: &str) -> Result<Option<T>> {
    match files.json(name)? {
        None => Ok(None),
        Some(value) => serde_json::from_value(value)
            .map(Some)
            .map_err(|e| files.invalid(name, e.to_string())),
    }
}

fn bert_config(files: &mut ModelFiles) -> Result<BertConfig> {
    const NAME: &str = "config.json";
    let value = files.json(NAME)?;
    let value = value.ok_or_else(|| files.invalid(NAME, "it does not exist"))?;
    let kind = value.get("model_type").and_then(Value::as_str);
    if kind != Some("bert") {
        let shown: String = kind.unwrap_or("none").chars().take(64).collect();
        return Err(files.invalid(
            NAME,
            format!("the architecture {shown:?} is not supported; models of type \"bert\" are"),
        ));
    }
    let config: BertConfig =
        serde_json::from_value(value).map_err(|e| files.invalid(NAME, e.to_string()))?;
    let heads = config.num_attention_heads;
    let problem = if config.hidden_act != "gelu" {
        Some("only the activation \"gelu\" is supported")
    } else if config.is_decoder || config.add_cross_attention {
        Some("a decoder is not supported")
    } else if !matches!(
        config.position_embedding_type.as_deref(),
        None | Some("absolute")
    ) {
        Some("only absolute positions are supported")
    } else if heads == 0 || !config.hidden_size.is_multiple_of(heads) {
        Some("hidden_size must be a multiple of num_attention_heads")
    } else if !(config.layer_norm_eps.is_finite() && config.layer_norm_eps > 0.0) {
        Some("layer_norm_eps must be above zero")
    } else {
        None
    };
    let sizes = [
        ("layers of a model", config.num_hidden_layers, 1_024),
        ("width of a model", config.hidden_size, limits::DIMENSIONS),
        (
            "width of a model",
            config.intermediate_size,
            4 * limits::DIMENSIONS,
        ),
        (
            "tokens of an input",
            config.max_position_embeddings,
            limits::MODEL_TOKENS,
        ),
    ];
    for (what, value, limit) in sizes {
        if value == 0 || value > limit {
            return Err(Error::ResourceLimitExceeded {
                what,
                value: value as u64,
                limit: limit as u64,
            });
        }
    }
    match problem {
        Some(problem) => Err(files.invalid(NAME, problem)),
        None => Ok(config),
    }
}

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The directory of the pooling, if the model has one, and the steps after it. A directory without
/// `modules.json` is a bare transformer, of which sentence-transformers takes the mean.
fn modules(files: &mut ModelFiles) -> Result<(Option<String>, Vec<Step>)> {
    const NAME: &str = "modules.json";
    let Some(modules) = decode::<Vec<Module>>(files, NAME)? else {
        return Ok((None, Vec::new()));
    };
    let mut pooling = None;
    let mut steps = Vec::new();
    for (at, module) in modules.into_iter().enumerate() {
        let kind = module.kind.rsplit('.').next().unwrap_or_default();
        match (at, kind) {
            (0, "Transformer") if module.path.is_empty() => {}
            (1, "Pooling") => pooling = Some(module.path),
            (2.., "Normalize") => {
                check_wires(files, &module.path)?;
                steps.push(Step::Normalise);
            }
            (2.., "Dense") => steps.push(dense(files, module.path)?),
            _ => {
                let shown: String = module.kind.chars().take(96).collect();
                let reason = format!(
                    "the step {shown:?} at place {at} is not supported; \
                     Transformer, Pooling, then Dense and Normalize are"
                );
                return Err(files.invalid(NAME, reason));
            }
        }
    }
    match pooling {
        Some(path) => Ok((Some(path), steps)),
        None => Err(files.invalid(NAME, "a Transformer and a Pooling are expected")),
    }
}

/// Newer files name what a step reads and writes; ours work on the pooled vector.
fn check_wires(files: &mut ModelFiles, path: &str) -> Result<()> {
    const WIRES: [&str; 2] = ["module_input_name", "module_output_name"];
    let name = format!("{path}/config.json");
    let config = files.json(&name)?.unwrap_or(Value::Null);
    let wired = |key: &&str| config.get(*key).is_some_and(|v| v != "sentence_embedding");
    match WIRES.iter().find(|key| wired(key)) {
        None => Ok(()),
        Some(key) => Err(files.invalid(&name, format!("{key} must be sentence_embedding"))),
    }
}

#[derive(Deserialize)]
struct DenseConfig {
    in_features: usize,
    out_features: usize,
    #[serde(default = "yes")]
    bias: bool,
    activation_function: Option<String>,
}

fn yes() -> bool {
    true
}

fn dense(files: &mut ModelFiles, path: String) -> Result<Step> {
    check_wires(files, &path)?;
    let name = format!("{path}/config.json");
    let config: Option<DenseConfig> = decode(files, &name)?;
    let config = config.ok_or_else(|| files.invalid(&name, "it does not exist"))?;
    let function = config.activation_function.as_deref().unwrap_or("Tanh");
    let activation = match function.rsplit('.').next().unwrap_or_default() {
        "Identity" => Activation::Identity,
        "Tanh" => Activation::Tanh,
        _ => return Err(files.invalid(&name, "the activations Identity and Tanh are supported")),
    };
    Ok(Step::Dense {
        path,
        inputs: config.in_features,
        outputs: config.out_features,
        bias: config.bias,
        activation,
    })
}

/// The pooling, and whether the tokens of a prompt take part in it.
fn pooling(files: &mut ModelFiles, path: &str) -> Result<(Pooling, bool)> {
    let name = format!("{path}/config.json");
    let Some(config) = decode::<BTreeMap<String, Value>>(files, &name)? else {
        return Err(files.invalid(&name, "it does not exist"));
    };
    let with_prompt = config.get("include_prompt").and_then(Value::as_bool);
    let mut modes: Vec<&str> = config
        .iter()
        .filter(|(_, value)| value.as_bool() == Some(true))
        .filter_map(|(key, _)| key.strip_prefix("pooling_mode_"))
        .collect();
    // Newer files spell the mode out.
    modes.extend(config.get("pooling_mode").and_then(Value::as_str));
    let mode = match modes[..] {
        ["mean_tokens" | "mean"] => Pooling::Mean,
        ["cls_token" | "cls"] => Pooling::Cls,
        ["max_tokens" | "max"] => Pooling::Max,
        _ => {
            let reason = "exactly one of the poolings mean, cls and max is supported";
            return Err(files.invalid(&name, reason));
        }
    };
    Ok((mode, with_prompt.unwrap_or(true)))
}

#[derive(Default, Deserialize)]
struct InputConfig {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

fn input_limits(
    files: &mut ModelFiles,
    bert: &BertConfig,
    options: &BTreeMap<String, String>,
) -> Result<(usize, bool)> {
    const NAME: &str = "sentence_bert_config.json";
    let input: InputConfig = decode(files, NAME)?.unwrap_or_default();
    // The table of positions bounds whatever the files say, as sentence-transformers has it.
    let written = match input.max_seq_length {
        Some(length) => length,
        None => {
            let config: Option<Value> = files.json("tokenizer_config.json")?;
            let length = config.and_then(|c| c.get("model_max_length")?.as_f64());
            length.map_or(usize::MAX, |length| length as usize)
        }
    };
    let most = written.min(bert.max_position_embeddings);
    let asked = options
        .get("max_tokens")
        .and_then(|n| n.parse::<usize>().ok());
    match asked {
        Some(asked) if asked > bert.max_position_embeddings => Err(Error::ResourceLimitExceeded {
            what: "max_tokens of the model",
            value: asked as u64,
            limit: bert.max_position_embeddings as u64,
        }),
        asked => match asked.unwrap_or(most) {
            // The frame alone has two.
            0..3 => Err(files.invalid(NAME, "an input of at least 3 tokens is expected")),
            tokens => Ok((tokens, input.do_lower_case)),
        },
    }
}

#[derive(Default, Deserialize)]
struct PromptConfig {
    #[serde(default)]
    prompts: BTreeMap<String, Option<String>>,
    default_prompt_name: Option<String>,
}

/// What is put before documents and before queries.
fn prompts(files: &mut ModelFiles, options: &BTreeMap<String, String>) -> Result<(String, String)> {
    const NAME: &str = "config_sentence_transformers.json";
    let config: PromptConfig = decode(files, NAME)?.unwrap_or_default();
    let named = |name: &str| config.prompts.get(name).cloned().flatten();
    let default = match &config.default_prompt_name {
        None => String::new(),
        Some(name) => {
            named(name).ok_or_else(|| files.invalid(NAME, "default_prompt_name names no prompt"))?
        }
    };
    let choose = |option: &str, names: &[&str]| {
        let asked = options.get(option).cloned();
        let asked = asked.or_else(|| names.iter().find_map(|name| named(name)));
        asked.unwrap_or_else(|| default.clone())
    };
    Ok((
        choose("document_prompt", &["document", "passage", "corpus"]),
        choose("query_prompt", &["query"]),
    ))
}
