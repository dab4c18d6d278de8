"""An OpenAI-compatible server over an ensemble (docs/serve.md)."""
