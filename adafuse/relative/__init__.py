"""Relative representations of tokens: what models without common ids are compared by."""
