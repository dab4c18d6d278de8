"""Benchmarks: rows read from a source, framed as prompts, dealt to shards."""
