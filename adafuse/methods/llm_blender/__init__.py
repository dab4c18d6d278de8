"""LLM-Blender: rank the models' own answers, then fuse the best (arXiv 2306.02561)."""
