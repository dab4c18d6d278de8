"""Algorithm 1: words, candidates, fusion rules, the round, and the run over many prompts."""
