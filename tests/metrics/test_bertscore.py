"""BERTScore as an extra: a stand-in for the package, and the sentence when it is missing."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from adafuse.errors import UserError
from adafuse.metrics.scorer import Outcome
from adafuse.metrics.translation import bertscore_f1

OUTCOMES = [Outcome("a", "x", ("x", "y"), 1.0), Outcome("b", " ", ("x",), 0.0)]


def test_empty_texts_count_as_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def score(texts, answers, lang):
        assert (texts, answers, lang) == (["x"], [["x", "y"]], "de")
        return None, None, np.array([0.8])

    monkeypatch.setitem(sys.modules, "bert_score", SimpleNamespace(score=score))
    assert bertscore_f1(OUTCOMES, "de").value == pytest.approx(40)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bert_score", None)
    with pytest.raises(UserError, match=r"run pip install '\.\[bertscore\]' in"):
        bertscore_f1(OUTCOMES, "en")
