//! Models behind a server, through the verbs and the scalars. The server computes what `hash:16`
//! computes.

mod cancel;
mod drift;
mod faults;
mod plans;
mod secrets;
mod verbs;

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Float32Type;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::embed::testing::server::{Fault, FaultServer};
use stratagraph::env::Env;
use stratagraph_udfs::{GenerateEmbeddings, Stratagraph};

use crate::world::World;

/// A language that servers speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OpenAi,
    Tei,
}

const KINDS: [Kind; 2] = [Kind::OpenAi, Kind::Tei];

impl Kind {
    fn spec(self, server: &FaultServer) -> String {
        match self {
            Self::OpenAi => format!("openai:m@{}/v1", server.url()),
            Self::Tei => format!("tei:{}", server.url()),
        }
    }

    /// Requests by which a server is asked who it is.
    fn handshake(self) -> usize {
        match self {
            Self::OpenAi => 1,
            Self::Tei => 2,
        }
    }

    /// Texts of one request.
    fn rows(self) -> usize {
        match self {
            Self::OpenAi => 64,
            Self::Tei => 32,
        }
    }
}

/// What a handshake sends.
const GREETING: &str = "hello";

/// A session whose models are behind a server.
struct Served {
    world: World,
    store: Arc<InMemory>,
    server: Arc<FaultServer>,
    kind: Kind,
}

impl Served {
    async fn new(kind: Kind) -> Self {
        let server = Arc::new(FaultServer::start().await);
        Self::over(kind, server, Arc::default(), Env::fixed(1)).await
    }

    /// A session of its own over a store and a server that others may share.
    async fn over(kind: Kind, server: Arc<FaultServer>, store: Arc<InMemory>, env: Env) -> Self {
        let world = World::trusting_in(Arc::clone(&store), env).await;
        Self {
            world,
            store,
            server,
            kind,
        }
    }

    fn spec(&self) -> String {
        self.kind.spec(&self.server)
    }

    /// The call that makes the table `t` of titles.
    fn table(&self) -> GenerateEmbeddings {
        let table = GenerateEmbeddings::new("docs", ["title"], "id");
        table.model(self.spec()).name("t")
    }

    async fn generate(&self) {
        self.world
            .sg
            .generate_embeddings(self.table())
            .await
            .unwrap();
        self.server.reset();
    }

    /// Lets the requests of a handshake pass before the next fault.
    fn spare_handshake(&self) {
        for _ in 0..self.kind.handshake() {
            self.server.push(Fault::Chunked);
        }
    }

    /// Number of requests and the texts, sorted, since the last time.
    fn sent(&self) -> (usize, Vec<String>) {
        let (requests, mut texts) = (self.server.requests().len(), self.server.texts());
        self.server.reset();
        texts.sort();
        (requests, texts)
    }

    /// Asserts that since the last time the server was asked who it is, and nothing else.
    fn only_handshake(&self, what: &str) {
        let expected = (self.kind.handshake(), vec![GREETING.to_owned()]);
        assert_eq!(self.sent(), expected, "{:?}: {what}", self.kind);
    }

    /// Names and sizes of all objects of the store.
    async fn objects(&self) -> Vec<(String, u64)> {
        let metas: Vec<_> = self.store.list(None).try_collect().await.unwrap();
        let named = metas.into_iter().map(|m| (m.location.to_string(), m.size));
        named.collect()
    }

    /// Rows of `t` whose vector is that of their title by `hash:16`, and all rows.
    async fn right_rows(&self) -> Vec<String> {
        let sql = "SELECT count(*) FILTER (WHERE e.vector = embed(d.title, 'hash:16')), count(*) \
                   FROM sg.embeddings.t e LEFT JOIN docs d ON d.id = e._row_id";
        self.world.row(sql).await
    }
}

/// Keys and vectors of a table.
async fn vectors(sg: &Stratagraph, table: &str) -> Vec<(String, Vec<f32>)> {
    let batches = sg.read_vectors(table).await.unwrap();
    batches.iter().flat_map(rows).collect()
}

fn rows(batch: &RecordBatch) -> Vec<(String, Vec<f32>)> {
    let keys = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8).unwrap();
    let keys = keys.as_string::<i32>();
    let vectors = batch.column(1).as_fixed_size_list();
    let row = |at: usize| {
        let vector = vectors.value(at);
        let vector = vector.as_primitive::<Float32Type>().values().to_vec();
        (keys.value(at).to_owned(), vector)
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Waits until `what` holds.
async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let long = std::time::Duration::from_secs(60);
    tokio::time::timeout(long, wait).await.unwrap();
}
