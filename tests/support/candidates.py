"""Candidates with scores that a test wrote down."""

from adafuse.decoding.candidates import Candidate


def candidate(*scores, words=1, ends=False, proposers=()):
    """A candidate of so many words; each model's score is (NLL per token, tokens)."""
    nll, tokens = zip(*scores, strict=True)
    return Candidate(" word" * words, ends=ends, proposers=list(proposers), nll=nll, tokens=tokens)
