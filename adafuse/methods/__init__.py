"""Decoding methods, each a coroutine over one example in the order of its paper's algorithm."""

from adafuse.methods.registry import METHODS, resolve

__all__ = ["METHODS", "resolve"]
