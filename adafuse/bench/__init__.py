"""The cost of fused decoding, measured."""
