"""What prompts have in common is computed once; forwards on several devices overlap."""

import pytest

from adafuse.engine.node import Evaluator
from adafuse.engine.reference import ReferenceEngine
from adafuse.engine.scheduler import Scheduler
from adafuse.engine.tree import TreeEngine
from adafuse.tokenization.prompts import WORTH_SHARING, shared_prefix

SHARED = list(range(20, 60))
PROMPTS = [[*SHARED, 7, 8], [*SHARED, 9], SHARED, [5, 6, 7], SHARED[:10]]


def vectors(engine, prompts):
    """The distributions behind the prompts, fed together."""
    sequences = [engine.open(prompt) for prompt in prompts]
    engine.evaluate([sequence.root for sequence in sequences])
    found = [sequence.root.next.logprobs for sequence in sequences]
    for sequence in sequences:
        engine.close(sequence)
    return found


def test_shared_keys_and_values_change_no_result(pair):
    model = pair.models[1]
    engine = TreeEngine(model, top=2, rows=len(PROMPTS))
    engine.share(SHARED)
    plain = vectors(ReferenceEngine(model, top=2), PROMPTS)
    for _ in range(2):  # rows are used again
        for one, other in zip(vectors(engine, PROMPTS), plain, strict=True):
            assert one.tolist() == pytest.approx(other.tolist(), abs=1e-4)


@pytest.fixture
def fed(pair, monkeypatch):
    """How many tokens each forward of the second model was given in a row."""
    network, fed = pair.models[1].network, []
    forward = network.forward

    def counted(**given):
        fed.append(given["input_ids"].shape[1])
        return forward(**given)

    monkeypatch.setattr(network, "forward", counted)
    return fed


def test_what_is_shared_is_not_fed_again(pair, fed):
    engine = TreeEngine(pair.models[1], top=2, rows=2)
    engine.share(SHARED)
    vectors(engine, PROMPTS[:2])
    assert fed == [len(SHARED), 2]


def test_what_is_shared_may_change_while_others_are_read(pair, fed):
    engine = TreeEngine(pair.models[1], top=2, rows=len(PROMPTS) + 1)
    plain = vectors(ReferenceEngine(pair.models[1], top=2), PROMPTS)
    held = engine.open(PROMPTS[0])
    longer = [*SHARED, *range(80, 100)]
    for prefix, tokens in (
        (SHARED, [40]),
        (longer, [20]),
        (longer[:-3], []),
        (longer[::-1], [60]),
        (SHARED, [40]),
    ):
        fed.clear()
        engine.share(prefix)
        assert fed == tokens
        for one, other in zip(vectors(engine, PROMPTS), plain, strict=True):
            assert one.tolist() == pytest.approx(other.tolist(), abs=1e-4)
    engine.evaluate([held.root])
    assert held.root.next.logprobs.tolist() == pytest.approx(plain[0].tolist(), abs=1e-4)


def test_prompts_share_the_ids_that_all_of_them_begin_with(pair):
    model = pair.models[0]
    head = "Question: who founded the town of Orrin?\nAnswer: Maimoor\n\n" * 3
    prompts = [head + f"Question: {name}?\n" for name in ("who", "what", "where")]
    shared = shared_prefix(model.prompt_ids, prompts)
    assert len(shared) >= WORTH_SHARING
    assert all(model.prompt_ids(prompt)[: len(shared)] == shared for prompt in prompts)
    assert shared_prefix(model.prompt_ids, [*prompts, "Something else"]) == []
    assert shared_prefix(model.prompt_ids, prompts[:1]) == []
    same = shared_prefix(model.prompt_ids, [head, head])
    assert same == model.prompt_ids(head)[:-1]


def test_texts_are_the_same_with_worked_examples_shared(pair):
    head = "Question: who founded the town of Orrin?\nAnswer: Maimoor\n\n" * 3
    prompts = [head + f"Question: {name}?\nAnswer:" for name in ("who", "what", "where")]
    together = pair.generate(prompts, max_new_tokens=8)
    alone = [pair.generate([prompt], max_new_tokens=8)[0] for prompt in prompts]
    assert [r.text for r in together] == [r.text for r in alone]


class Device(Evaluator):
    """An evaluator that notes when it is started and waited for."""

    def __init__(self, name, log):
        self.name, self.log, self.engine = name, log, self

    def start(self, requests):
        self.log.append(f"start {self.name}")
        return lambda: self.log.append(f"finish {self.name}")


def test_all_devices_are_started_before_one_is_waited_for():
    log = []
    devices = [Device("one", log), Device("two", log)]

    def program():
        yield devices

    list(Scheduler(1).run(iter([(0, program())])))
    assert log == ["start one", "start two", "finish one", "finish two"]
