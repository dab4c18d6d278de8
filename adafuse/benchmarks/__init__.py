"""Benchmarks: rows read from a source, put into prompts, dealt to shards."""
