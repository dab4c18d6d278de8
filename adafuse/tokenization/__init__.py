"""Ids, text and bytes: how tokenizers write text, their own and that of other models."""
