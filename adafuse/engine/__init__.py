"""Executing decoding programs: a tree of uncommitted tokens per model and example."""
