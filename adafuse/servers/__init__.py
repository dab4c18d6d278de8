"""Servers that hold models, such as vLLM and llama.cpp: what is asked of them, and how."""
