"""Certificates from development rows: what is decoded for them, and what they refuse."""

from dataclasses import replace

import pytest

from adafuse import Ensemble, UserError
from adafuse.development.advice import advise
from adafuse.development.certification import certify_methods
from adafuse.development.gate_file import write_gate
from adafuse.development.gate_fitting import Development, Kept, fit
from adafuse.storage.journal import journal_rows
from tests.development.test_advice import SETTINGS, outcomes, rows
from tests.support.stand_in import ensemble, standing

__all__ = ["rows"]


def some(rows, first, last, name):
    return Development(name, rows.prompts[first:last], rows.answers[first:last], "nq", SETTINGS)


def test_a_method_is_tested_against_each_model_on_its_own(pair, rows):
    method = {"fused": ("adafuse", {"branching": 2})}
    found, failed = certify_methods(pair, rows, method, margin=20.0)
    assert (found.chosen, found.certified, found.n, failed) == ("fused", True, 24, [])
    assert found.members == tuple(model.name for model in pair.models)
    alone = [
        sum(outcomes(rows, Ensemble([model]).generate(rows.prompts, method="single", **SETTINGS)))
        for model in pair.models
    ]
    fused = sum(outcomes(rows, pair.generate(rows.prompts, branching=2, **SETTINGS)))
    against = found.candidates[0]
    best = alone[found.members.index(against.against)]
    assert against.difference == pytest.approx(100 * (fused - best) / 24)


def test_without_a_certificate_it_is_a_model_and_its_sentence_says_so(pair, rows):
    few = some(rows, 0, 3, "few")
    found, _ = certify_methods(pair, few, {"fused": ("adafuse", {})}, order="preference")
    assert not found.certified and found.chosen in found.members
    assert [each.run for each in found.candidates] == ["fused", *found.members]
    assert "not certified (3 rows, alpha 0.05)" in found.sentence


def test_rows_that_a_gate_was_fitted_on_are_refused_whatever_their_name(pair, rows, tmp_path):
    gate, fitted = tmp_path / "gate.json", fit(pair, [some(rows, 0, 2, "few")])
    write_gate(gate, fitted)
    learned = {"learned": ("adafuse", {"fusion": "learned", "gate": str(gate)})}
    for first, shared in ((0, 2), (1, 1)):
        says = f"learned: gate .* was fitted on {shared} of the 2 rows 'copy', whose scores"
        with pytest.raises(UserError, match=says):
            certify_methods(pair, some(rows, first, first + 2, "copy"), learned)
    assert certify_methods(pair, some(rows, 2, 4, "few"), learned)[0].n == 2
    other = replace(some(rows, 0, 2, "other"), prompts=["?", "!"], questions=rows.prompts[:2])
    with pytest.raises(UserError, match="on 2 of the 2 rows 'other', whose scores"):
        certify_methods(pair, other, learned)
    old = fitted.fitted.model_copy(update={"prompts": ""})
    write_gate(gate, fitted.model_copy(update={"fitted": old}))
    with pytest.raises(UserError, match=r"gate .* was fitted on rows 'few', whose scores"):
        certify_methods(pair, some(rows, 2, 4, "few"), learned)


@pytest.mark.usefixtures("no_pauses")
def test_a_server_that_fails_ends_it_and_what_is_decoded_is_kept(distributions, rows, tmp_path):
    few, method = some(rows, 0, 3, "few"), {"fused": ("adafuse", {})}
    kept = Kept(tmp_path / "certificate.json.journal", "these models")
    with standing(distributions[0]) as one, standing(distributions[1]) as other:
        both = ensemble(one, other)
        # It lives until each model has written its texts.
        other.fault = lambda body: "broken" if len(journal_rows(kept.file)) == 6 else None
        failed = pytest.raises(UserError, match=rf"^the server {other.url} failed 9 .* run again")
        with failed:
            certify_methods(both, few, method, kept=kept)
        assert len(journal_rows(kept.file)) == 6
        with failed:
            advise(both, few)
        other.fault = lambda body: None
        found = certify_methods(both, few, method, kept=kept)
        assert len(journal_rows(kept.file)) == 9
        assert found == certify_methods(both, few, method)


def test_one_name_twice_and_no_rows_are_refused(pair, rows):
    few = some(rows, 0, 2, "few")
    name = pair.models[0].name
    with pytest.raises(UserError, match=f"candidate '{name}' has the name of a model"):
        certify_methods(pair, few, {name: ("adafuse", {})})
    with pytest.raises(UserError, match="twice; give different models"):
        certify_methods(Ensemble([pair.models[0]] * 2), few, {"fused": ("adafuse", {})})
    with pytest.raises(UserError, match="no development rows"):
        certify_methods(pair, Development("none", [], [], "nq", SETTINGS), {})
