"""Causal language models from Hugging Face folders or the hub, and what decoding asks of them."""
