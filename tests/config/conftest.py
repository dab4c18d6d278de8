"""A configuration with all its files."""

from tests.support.configuration import values

__all__ = ["values"]
