"""Comparing the vocabularies of several models token by token."""
