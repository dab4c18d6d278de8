"""How the toy world of adafuse/toy is made: benchmarks, tokenizers and models."""
