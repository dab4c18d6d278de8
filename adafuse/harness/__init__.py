"""AdaFuse as a model of lm-evaluation-harness (docs/lm-eval.md); needs `adafuse[lm-eval]`."""
