//! A model whose vectors look like those of trained models: every component is some number. Those of
//! `hash:N` are mostly zero, and Parquet's dictionaries shrink them as they never shrink real ones.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use stratagraph::Result;
use stratagraph::embed::{
    BatchLimits, Embedded, EmbeddedBuilder, Embedder, ModelDefinition, Role, SyncEmbedder,
};

const SPEC: &str = "dense";
const WIDTH: usize = 128;

#[derive(Debug)]
pub struct Dense(ModelDefinition);

impl Dense {
    pub fn new() -> Self {
        Self(ModelDefinition::new(SPEC, 1, WIDTH, true, Default::default()).unwrap())
    }
}

#[async_trait::async_trait]
impl Embedder for Dense {
    fn spec(&self) -> &str {
        SPEC
    }

    fn dimensions(&self) -> usize {
        WIDTH
    }

    fn definition(&self) -> &ModelDefinition {
        &self.0
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            rows: 1024,
            bytes: 1 << 20,
        }
    }

    fn sync(&self) -> Option<&dyn SyncEmbedder> {
        Some(self)
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        self.embed_now(role, texts)
    }
}

impl SyncEmbedder for Dense {
    fn embed_now(&self, _: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        let mut builder = EmbeddedBuilder::new(SPEC, WIDTH, texts.len())?;
        for text in texts {
            let mut state = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
            let mut vector = [0f32; WIDTH];
            for component in &mut vector {
                // Knuth's MMIX generator; the upper half is the better one.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *component = (state >> 33) as f32 / (1u64 << 30) as f32 - 1.0;
            }
            let norm = vector.iter().map(|c| c * c).sum::<f32>().sqrt();
            builder.push(&vector.map(|c| c / norm))?;
        }
        builder.finish()
    }
}
