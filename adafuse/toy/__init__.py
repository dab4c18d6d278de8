"""The toy world: four tiny language models, their tokenizers and four benchmarks, all invented."""
