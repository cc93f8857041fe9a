//! Benchmarks live in `benches/`; `benches/README.md` holds measured ratios.
