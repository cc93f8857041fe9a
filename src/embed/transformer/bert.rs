//! The forward pass of BERT (Devlin et al., 2019) on inputs of one length.
//!
//! Inputs are never padded, so there is no attention mask, and a row's numbers do not depend on the
//! rows beside it: every product is a sum over the same terms in the same order, however many rows
//! there are (of narrow models see [`super::SHARED_WIDTH`]).

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, Module, VarBuilder, ops};

use super::gelu::BiasGelu;
use super::layout::BertConfig;

/// A BERT encoder.
#[derive(Debug)]
pub(super) struct Bert {
    words: Embedding,
    /// Positions with the embedding of the one segment added, one row per position.
    positions: Tensor,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

impl Bert {
    /// Takes the weights, which must have the shapes that `config` says.
    pub(super) fn new(config: &BertConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        // Checkpoints with a head have the encoder below `bert`.
        let weights = match weights.contains_tensor("embeddings.word_embeddings.weight") {
            true => weights.clone(),
            false => weights.pp("bert"),
        };
        let width = config.hidden_size;
        let embeddings = weights.pp("embeddings");
        let words =
            candle_nn::embedding(config.vocab_size, width, embeddings.pp("word_embeddings"))?;
        let shape = (config.max_position_embeddings, width);
        let positions = embeddings.pp("position_embeddings").get(shape, "weight")?;
        let shape = (config.type_vocab_size, width);
        let segments = embeddings
            .pp("token_type_embeddings")
            .get(shape, "weight")?;
        let layers = (0..config.num_hidden_layers)
            .map(|at| Layer::new(config, &weights.pp(format!("encoder.layer.{at}"))))
            .collect::<Result<_>>()?;
        Ok(Self {
            words,
            positions: positions.broadcast_add(&segments.narrow(0, 0, 1)?)?,
            norm: norm(config, &embeddings)?,
            layers,
        })
    }

    /// The last states of `rows` inputs of one length each, as `rows x length x width` numbers.
    pub(super) fn states(&self, ids: &[u32], rows: usize) -> Result<Vec<f32>> {
        let length = ids.len() / rows.max(1);
        let ids = Tensor::from_slice(ids, (rows, length), &Device::Cpu)?;
        let positions = self.positions.narrow(0, 0, length)?;
        let states = self.words.forward(&ids)?.broadcast_add(&positions)?;
        let mut states = self.norm.forward(&states)?;
        for layer in &self.layers {
            states = layer.forward(&states)?;
        }
        states.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    }
}

fn norm(config: &BertConfig, weights: &VarBuilder<'_>) -> Result<LayerNorm> {
    candle_nn::layer_norm(
        config.hidden_size,
        config.layer_norm_eps,
        weights.pp("LayerNorm"),
    )
}

#[derive(Debug)]
struct Layer {
    attention: Attention,
    attention_out: Linear,
    attention_norm: LayerNorm,
    inner: Linear,
    /// The bias of `inner` and the activation, where they are computed together.
    activation: Option<BiasGelu>,
    out: Linear,
    norm: LayerNorm,
}

impl Layer {
    fn new(config: &BertConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let attention = weights.pp("attention");
        let mut expand = candle_nn::linear(width, inner, weights.pp("intermediate.dense"))?;
        let activation = match expand.bias() {
            Some(bias) => BiasGelu::new(bias)?,
            None => None,
        };
        if activation.is_some() {
            expand = Linear::new(expand.weight().clone(), None);
        }
        Ok(Self {
            attention: Attention::new(config, &attention.pp("self"))?,
            attention_out: candle_nn::linear(width, width, attention.pp("output.dense"))?,
            attention_norm: norm(config, &attention.pp("output"))?,
            inner: expand,
            activation,
            out: candle_nn::linear(inner, width, weights.pp("output.dense"))?,
            norm: norm(config, &weights.pp("output"))?,
        })
    }

    fn forward(&self, states: &Tensor) -> Result<Tensor> {
        let attended = self
            .attention_out
            .forward(&self.attention.forward(states)?)?;
        let states = self.attention_norm.forward(&(attended + states)?)?;
        let inner = self.inner.forward(&states)?;
        let inner = match &self.activation {
            None => inner.gelu_erf()?,
            Some(activation) => {
                inner.inplace_op1(activation)?;
                inner
            }
        };
        self.norm.forward(&(self.out.forward(&inner)? + states)?)
    }
}

#[derive(Debug)]
struct Attention {
    /// Queries, keys and values side by side: one product in the place of three.
    joined: Linear,
    heads: usize,
}

impl Attention {
    fn new(config: &BertConfig, weights: &VarBuilder<'_>) -> Result<Self> {
        let width = config.hidden_size;
        let parts =
            ["query", "key", "value"].map(|name| candle_nn::linear(width, width, weights.pp(name)));
        let [query, key, value] = parts;
        let parts = [query?, key?, value?];
        let matrices: Vec<&Tensor> = parts.iter().map(Linear::weight).collect();
        let biases: Vec<&Tensor> = parts.iter().filter_map(Linear::bias).collect();
        Ok(Self {
            joined: Linear::new(Tensor::cat(&matrices, 0)?, Some(Tensor::cat(&biases, 0)?)),
            heads: config.num_attention_heads,
        })
    }

    fn forward(&self, states: &Tensor) -> Result<Tensor> {
        let (rows, length, width) = states.dims3()?;
        let head = width / self.heads;
        // rows x 3 x heads x length x head
        let joined = self
            .joined
            .forward(states)?
            .reshape((rows, length, 3, self.heads, head))?
            .permute((2, 0, 3, 1, 4))?
            .contiguous()?;
        let [query, key, value] = [joined.get(0)?, joined.get(1)?, joined.get(2)?];
        let scale = 1.0 / (head as f64).sqrt();
        let scores = (query.matmul(&key.transpose(D::Minus2, D::Minus1)?)? * scale)?;
        let attended = ops::softmax_last_dim(&scores)?.matmul(&value)?;
        attended
            .transpose(1, 2)?
            .contiguous()?
            .reshape((rows, length, width))
    }
}
