"""Models that agree cost little, and reading ahead changes no proposal."""

from adafuse.decoding.candidates import Pool, Span
from adafuse.engine.node import evaluated
from adafuse.ensemble import Ensemble
from tests.methods.test_engines_agree import PROMPTS
from tests.support.results import assert_same

LIMITS = {"max_new_tokens": 24, "stop": ["\n\n"]}


def test_a_second_model_that_agrees_takes_one_forward_a_round(pair):
    for model in pair.models:
        twice = Ensemble((model, model), (1.0, 1.0))
        for result in twice.generate(PROMPTS, **LIMITS):
            assert result.forwards[1] <= len(result.rounds) + 1
            assert result.forwards[0] > result.forwards[1] or len(result.rounds) <= 1


def blind(self, sequence):
    """Read nothing of what the earlier models proposed."""
    yield from evaluated([sequence.root])


def forwards(ensemble, **options):
    """The forwards of all models on all prompts."""
    results = ensemble.generate(PROMPTS, **options, **LIMITS)
    return sum(sum(result.forwards) for result in results)


def test_reading_ahead_saves_forwards(pair, monkeypatch):
    ahead = forwards(pair)
    monkeypatch.setattr(Pool, "read_by", blind)
    assert ahead < forwards(pair)


def test_what_earlier_models_wrote_makes_no_difference_to_a_proposal(random_pair, monkeypatch):
    ahead = random_pair.generate(PROMPTS, branching=3, **LIMITS)
    monkeypatch.setattr(Pool, "read_by", blind)
    assert_same(ahead, random_pair.generate(PROMPTS, branching=3, **LIMITS))


def test_a_text_that_a_model_cannot_read_is_left_out(pair, monkeypatch):
    from adafuse.engine.reference import ReferenceEngine

    engine = ReferenceEngine(pair.models[0], top=2)
    sequence = engine.open([5, 6, 7])
    pool = Pool([sequence])
    pool.add(0, [Span(" one two"), Span(" one three")])
    assert len(next(pool.read_by(sequence))) > 3
    sequence.root.children.clear()
    monkeypatch.setattr(engine, "context", 3)  # no position is left
    assert next(pool.read_by(sequence)) == [sequence.root]
