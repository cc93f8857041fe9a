//! Sentence transformers of the BERT family, computed in this process with candle:
//! `candle:/dir`, and names such as `sentence-transformers/all-MiniLM-L6-v2` from the local Hugging
//! Face cache.
//!
//! ```text
//! prompt + text ──Tokenizer──► ids ──inputs of one length──► Bert ──pool──► dense, normalise ──► f32
//! ```
//!
//! Inputs of one length go through the model together and none is ever padded, so a vector has the
//! same bits whatever else is embedded, in whatever order, on however many threads. Across kinds of
//! CPU the last bits may differ: matrix products use what the CPU has.

mod bert;
mod gelu;
mod layout;
mod pool;
mod workers;

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use serde_json::{Map, Value, json};

use self::bert::Bert;
use self::layout::{Layout, Step};
use self::pool::{Head, pool};
use self::workers::Workers;
use super::files::ModelFiles;
use super::tokenize::Tokenizer;
use super::{
    BatchLimits, Embedded, EmbeddedBuilder, Embedder, ModelDefinition, RejectReason, Role,
    SyncEmbedder,
};
use crate::{Error, Result, limits};

/// The version of the computation. Raise it whenever any text may get a vector that differs by more
/// than rounding.
const ALGORITHM: u32 = 1;

/// Texts of one call: enough to find inputs of one length, few enough to stop in seconds.
const BATCH_ROWS: usize = 256;
/// Tokens that go through the model together.
const BATCH_TOKENS: usize = 2_048;
/// Width from which inputs share a product. Products with fewer columns are summed in another order
/// when they have few rows (at most 256 results), so the company of an input would show in its bits.
const SHARED_WIDTH: usize = 128;

/// A model of a sentence-transformers directory.
#[derive(Debug)]
pub struct Transformer {
    spec: String,
    definition: ModelDefinition,
    dimensions: usize,
    layout: Layout,
    tokenizer: Tokenizer,
    /// Ids of `[CLS]` and `[SEP]`.
    frame: (u32, u32),
    bert: Bert,
    heads: Vec<Head>,
    /// Tokens that go through the model together, at most; a longer input goes alone.
    batch_tokens: usize,
    workers: Workers,
}

impl Transformer {
    /// The model of a directory, for tools; SQL and the verbs use [`super::ModelRegistry`].
    ///
    /// # Errors
    /// `ModelInvalid` names the file that cannot be used and says why.
    pub fn from_directory(directory: &std::path::Path) -> Result<Self> {
        let spec = format!("candle:{}", directory.display());
        let mut files = ModelFiles::new(&spec, directory)?;
        Self::open(&spec, &mut files, &BTreeMap::new())
    }

    /// Opens the model of `files`, with the options of its spec.
    pub(super) fn open(
        spec: &str,
        files: &mut ModelFiles,
        options: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let layout = Layout::read(files, options)?;
        let tokenizer = Tokenizer::of_directory(files)?;
        let frame = tokenizer.frame();
        let frame = frame.ok_or_else(|| files.invalid("tokenizer.json", "no [CLS] and [SEP]"))?;
        let tokens = tokenizer.size().max(frame.0.max(frame.1) as usize + 1);
        if tokens > layout.bert.vocab_size {
            let reason = format!(
                "it has {tokens} tokens, the model's table {} rows",
                layout.bert.vocab_size
            );
            return Err(files.invalid("tokenizer.json", reason));
        }
        let dtype = match options.get("dtype").map(String::as_str) {
            Some("f16") => DType::F16,
            Some("bf16") => DType::BF16,
            _ => DType::F32,
        };
        let bert = bert(files, &layout, dtype)?;
        let heads = heads(files, &layout)?;
        let width = |step: &Step| match step {
            Step::Dense { outputs, .. } => Some(*outputs),
            Step::Normalise => None,
        };
        let dimensions = layout.steps.iter().rev().find_map(width);
        let dimensions = dimensions.unwrap_or(layout.bert.hidden_size);
        let mut parameters = Map::new();
        for (name, value) in [
            ("files", Value::Object(files.digests())),
            ("pooling", json!(layout.pooling.as_str())),
            ("precision", json!(dtype.as_str())),
            ("max_tokens", json!(layout.max_tokens)),
            ("max_text_bytes", json!(limits::TEXT_BYTES)),
            ("document_prompt", json!(layout.document_prompt)),
            ("query_prompt", json!(layout.query_prompt)),
        ] {
            parameters.insert(name.to_owned(), value);
        }
        let narrowest = layout.bert.hidden_size.min(layout.bert.intermediate_size);
        let shared = dtype == DType::F32 && narrowest >= SHARED_WIDTH;
        let normalised = layout.steps.last() == Some(&Step::Normalise);
        let kind = "transformer";
        Ok(Self {
            spec: spec.to_owned(),
            definition: ModelDefinition::new(kind, ALGORITHM, dimensions, normalised, parameters)?,
            dimensions,
            layout,
            tokenizer,
            frame,
            bert,
            heads,
            batch_tokens: if shared { BATCH_TOKENS } else { 0 },
            workers: Workers::default(),
        })
    }

    /// Tokens of the vocabulary; ids are below this.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.size()
    }

    /// Width of a token's state.
    pub fn width(&self) -> usize {
        self.layout.bert.hidden_size
    }

    /// The last states of inputs that have one length each, `[CLS] ids [SEP]`: `(length + 2) x width`
    /// numbers an input, one input after the other. `ids` holds all inputs, each of `length` tokens.
    ///
    /// # Errors
    /// `ModelFailed`, also for an id that is not in the vocabulary.
    pub fn states(&self, ids: &[u32], length: usize) -> Result<Vec<f32>> {
        let mut framed = Vec::with_capacity(ids.len() / length.max(1) * (length + 2));
        for input in ids.chunks_exact(length.max(1)) {
            framed.push(self.frame.0);
            framed.extend_from_slice(input);
            framed.push(self.frame.1);
        }
        let rows = framed.len() / (length + 2);
        self.workers
            .run(|| self.bert.states(&framed, rows))
            .map_err(|e| self.failed(&e))
    }

    fn failed(&self, error: &candle_core::Error) -> Error {
        Error::ModelFailed {
            model: self.spec.clone(),
            reason: first_line(error),
        }
    }

    /// The ids of a text with its prompt and frame, and whether its end was cut off.
    fn ids(&self, role: Role, text: &str) -> Result<(Vec<u32>, bool)> {
        let prompt = match role {
            Role::Document => &self.layout.document_prompt,
            Role::Query => &self.layout.query_prompt,
        };
        let mut ids = vec![self.frame.0];
        let limit = self.layout.max_tokens - 2;
        let cut = match (prompt.as_str(), self.layout.lowercase) {
            ("", false) => self.tokenizer.encode(text, limit, &mut ids)?,
            (prompt, lowercase) => {
                let mut whole = format!("{prompt}{text}");
                if lowercase {
                    whole = whole.to_lowercase();
                }
                self.tokenizer.encode(&whole, limit, &mut ids)?
            }
        };
        ids.push(self.frame.1);
        Ok((ids, cut))
    }

    /// The vectors of inputs of one length.
    fn vectors(&self, inputs: &[&[u32]]) -> candle_core::Result<Vec<Vec<f32>>> {
        let width = self.layout.bert.hidden_size;
        let length = inputs.first().map_or(0, |ids| ids.len());
        let states = self.bert.states(&inputs.concat(), inputs.len())?;
        let rows = states.chunks_exact(length * width).map(|states| {
            let pooled = pool(self.layout.pooling, states, width);
            let vector = self.heads.iter().fold(pooled, |v, head| head.apply(v));
            vector.into_iter().map(|x| x as f32).collect()
        });
        Ok(rows.collect())
    }

    fn embed_rows(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        let mut rows = texts
            .iter()
            .map(|text| match text.unwrap_or_default() {
                "" => Ok(Err(RejectReason::Empty)),
                text if text.len() > limits::TEXT_BYTES => Ok(Err(RejectReason::TooLong)),
                text => self.ids(role, text).map(Ok),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut truncated = 0;
        for (row, ids) in rows.iter().enumerate() {
            if let Ok((ids, cut)) = ids {
                by_length.entry(ids.len()).or_default().push(row);
                truncated += u64::from(*cut);
            }
        }
        let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); texts.len()];
        for (length, members) in by_length {
            for group in members.chunks((self.batch_tokens / length).max(1)) {
                let inputs: Vec<&[u32]> = group
                    .iter()
                    .filter_map(|row| Some(rows.get(*row)?.as_ref().ok()?.0.as_slice()))
                    .collect();
                let answers = self.vectors(&inputs).map_err(|e| self.failed(&e))?;
                for (row, vector) in group.iter().zip(answers) {
                    vectors[*row] = vector;
                }
            }
        }
        let mut out = EmbeddedBuilder::new(&self.spec, self.dimensions, texts.len())?;
        out.truncated(truncated);
        for (ids, vector) in rows.drain(..).zip(&vectors) {
            match ids {
                Err(reason) => out.reject(reason),
                Ok(_) if !vector.iter().all(|x| x.is_finite()) => {
                    out.reject(RejectReason::NonFinite);
                }
                Ok(_) if vector.iter().all(|x| *x == 0.0) => out.reject(RejectReason::ZeroNorm),
                Ok(_) => out.push(vector)?,
            }
        }
        out.finish()
    }
}

/// The message of an error without the backtrace that candle may add.
fn first_line(error: &candle_core::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The tensors of `model.safetensors`, or of the files that its index names.
fn tensors(files: &mut ModelFiles, directory: &str) -> Result<HashMap<String, Tensor>> {
    let single = format!("{directory}model.safetensors");
    let load = |files: &ModelFiles, name: &str, bytes: &[u8]| {
        candle_core::safetensors::load_buffer(bytes, &Device::Cpu)
            .map_err(|e| files.invalid(name, first_line(&e)))
    };
    if let Some(bytes) = files.read(&single)? {
        return load(files, &single, &bytes);
    }
    let index_name = format!("{directory}model.safetensors.index.json");
    let Some(index) = files.json(&index_name)? else {
        let reason = "it does not exist; weights in another format must be converted to it";
        return Err(files.invalid(&single, reason));
    };
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| files.invalid(&index_name, "a weight_map is expected"))?;
    let shards: std::collections::BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
    let mut all = HashMap::new();
    for shard in shards {
        let name = format!("{directory}{shard}");
        let bytes = files.require(&name)?;
        all.extend(load(files, &name, &bytes)?);
    }
    Ok(all)
}

fn bert(files: &mut ModelFiles, layout: &Layout, dtype: DType) -> Result<Bert> {
    let weights = VarBuilder::from_tensors(tensors(files, "")?, dtype, &Device::Cpu);
    let bert = Bert::new(&layout.bert, &weights);
    bert.map_err(|e| files.invalid("model.safetensors", first_line(&e)))
}

fn heads(files: &mut ModelFiles, layout: &Layout) -> Result<Vec<Head>> {
    let mut width = layout.bert.hidden_size;
    let mut heads = Vec::new();
    for step in &layout.steps {
        heads.push(match step {
            Step::Normalise => Head::Normalise,
            Step::Dense {
                path,
                inputs,
                outputs,
                bias,
                activation,
            } => {
                if *inputs != width {
                    let reason = format!("{inputs} inputs follow {width} numbers");
                    return Err(files.invalid(&format!("{path}/config.json"), reason));
                }
                width = *outputs;
                let tensors = tensors(files, &format!("{path}/"))?;
                let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
                let take = || -> candle_core::Result<(Vec<f32>, Vec<f32>)> {
                    let matrix = weights.get((*outputs, *inputs), "linear.weight")?;
                    let bias = match bias {
                        true => weights.get(*outputs, "linear.bias")?.to_vec1()?,
                        false => Vec::new(),
                    };
                    Ok((matrix.flatten_all()?.to_vec1()?, bias))
                };
                let name = format!("{path}/model.safetensors");
                let (weights, bias) = take().map_err(|e| files.invalid(&name, first_line(&e)))?;
                Head::Dense {
                    weights,
                    bias,
                    inputs: *inputs,
                    activation: *activation,
                }
            }
        });
    }
    Ok(heads)
}

#[async_trait]
impl Embedder for Transformer {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn definition(&self) -> &ModelDefinition {
        &self.definition
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            rows: BATCH_ROWS,
            bytes: limits::TEXT_BYTES,
        }
    }

    fn sync(&self) -> Option<&dyn SyncEmbedder> {
        Some(self)
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        self.embed_now(role, texts)
    }
}

impl SyncEmbedder for Transformer {
    fn embed_now(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        self.workers.run(|| self.embed_rows(role, texts))
    }
}
