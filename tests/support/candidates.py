"""Candidates with scores that a test wrote down."""

from adafuse.decoding.candidates import Span


def candidate(*scores, words=1, ends=False, proposers=()):
    """A candidate of so many words; each model's score is (NLL per token, tokens)."""
    nll, tokens = zip(*scores, strict=True)
    written = dict.fromkeys(proposers, ())
    return Span(" word" * words, ends=ends, margins=written, nll=nll, tokens=tokens)
