"""Versions that identify a result."""

__version__ = "0.1.0"

ENGINE_VERSION = 1
"""Part of every decode job's digest: raise it whenever the text that a method decodes, or what
its trace says of it, may change."""

SCORING_VERSION = 1
"""A parameter of every scoring job: raise it whenever a score of the same texts may change."""

REPORT_VERSION = 1
"""A parameter of the report's jobs: raise it whenever its pages or their data change."""
