//! Ratios against a bare DataFusion doing the same work, in one run: machines are noisy, ratios of
//! interleaved measurements are less so. `cargo bench --package stratagraph-benches`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod commits;
mod dense;
mod first_row;
mod life;
mod many;
mod masked;
mod memory;
mod models;
mod refresh;
mod searches;
mod timing;

use tokio::runtime::Builder;

fn main() {
    // `cargo test --benches` runs this too; there it only has to build.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let only = std::env::args().nth(1).filter(|a| !a.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if wanted("masked") {
            masked::run().await;
        }
        if wanted("refresh") {
            refresh::run().await;
        }
        if wanted("first_row") {
            first_row::run().await;
        }
        if wanted("commits") {
            commits::run().await;
        }
        if wanted("life") {
            life::run().await;
        }
        if wanted("many") {
            many::run().await;
        }
        if wanted("searches") {
            searches::run().await;
        }
        if wanted("models") {
            models::run().await;
        }
        if wanted("memory") {
            memory::run().await;
        }
    });
}
