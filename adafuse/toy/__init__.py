"""The toy world: four tiny language models and four benchmarks, all invented; data only."""
