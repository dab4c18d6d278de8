"""No fault of a server loses, doubles or changes a row."""

import random
import re
import threading

import pytest

from tests.support.results import assert_same
from tests.support.stand_in import FAULTS, ensemble, impatient, standing

pytestmark = pytest.mark.usefixtures("no_pauses")

PROMPTS = [
    f"Question: {start} {number} {things}?\nAnswer:"
    for start in ("Who has", "Where are", "How many are")
    for number in (3, 4, 7, 12)
    for things in ("apples", "red houses", "dogs", "towns")
][:40]
SETTINGS = {"method": "adafuse", "max_new_tokens": 5, "stop": ["\n"]}


@pytest.fixture(scope="module")
def plain(pair):
    """What both models decode here."""
    return pair.generate(PROMPTS, **SETTINGS)


@pytest.fixture(params=[True, False], ids=["processor", "plain"])
def servers(request, distributions):
    first, second = distributions
    with (
        standing(first, processor=request.param) as one,
        standing(second, processor=request.param) as other,
    ):
        yield one, other


def decoded(there, batch_size=8, **settings):
    """All results, by the order of their prompts; each must come once."""
    seen = {}
    for index, result in there.stream(PROMPTS, batch_size=batch_size, **SETTINGS, **settings):
        assert index not in seen
        seen[index] = result
    assert sorted(seen) == [*range(len(PROMPTS))]
    return [seen[index] for index in range(len(PROMPTS))]


class Faults:
    """Faults by chance, of a kind by chance, until there were so many."""

    def __init__(self, seed, most, share):
        self.random, self.most, self.share = random.Random(seed), most, share
        self.count, self.lock, self.kinds = 0, threading.Lock(), set()

    def __call__(self, body):
        with self.lock:
            if self.count == self.most or self.random.random() > self.share:
                return None
            self.count += 1
            self.kinds.add(kind := self.random.choice(FAULTS))
            return kind


@pytest.mark.soak
def test_a_hundred_faults_by_chance_change_no_row(servers, plain):
    there, faults = ensemble(*servers), Faults(seed=1, most=100, share=0.35)
    for server in servers:
        server.fault = faults
    while faults.count < faults.most:
        assert_same(decoded(there), plain)
    assert faults.kinds == set(FAULTS)


def test_where_attempts_do_not_suffice_only_those_rows_are_errors(servers, plain):
    there, marks = ensemble(*servers), {3, 17, 29}
    ids = {tuple(there.models[0].prompt_ids(PROMPTS[number])) for number in marks}

    def fault(body):
        prompt = tuple(body["prompt"])
        return "broken" if any(prompt[: len(each)] == each for each in ids) else None

    servers[0].fault = fault
    results = decoded(there)
    assert {n for n, result in enumerate(results) if result.error is not None} == marks
    for number in marks:
        assert results[number].error == (
            f"the server {servers[0].url} failed 9 times (HTTP status 500); see its log"
        )
        assert results[number].stop_reason == "error"
    others = [n for n in range(len(PROMPTS)) if n not in marks]
    assert_same([results[n] for n in others], [plain[n] for n in others])


def after(server, count, action):
    """Do something before a server answers request number `count`."""
    lock, seen = threading.Lock(), [0]

    def fault(body):
        with lock:
            seen[0] += 1
            if seen[0] == count:
                action()
        return None

    server.fault = fault


def restart(server, **changes):
    """Kill a server and start it again, perhaps as another one."""
    server.stop()
    for name, value in changes.items():
        setattr(server, name, value)
    server.start()


def test_a_run_goes_on_when_its_server_was_killed_and_started_again(servers, plain):
    there = ensemble(*servers)
    after(servers[1], 25, lambda: restart(servers[1]))
    with impatient(1.0):  # the server needs a moment
        assert_same(decoded(there), plain)


CHANGES = [
    lambda distributions: {"model": distributions[0]},
    lambda distributions: {"context": 300},
    lambda distributions: {"name": "another"},
    lambda distributions: {"key": "another"},
]


@pytest.mark.parametrize("change", CHANGES, ids=["model", "context", "name", "key"])
def test_rows_of_another_server_are_errors_and_no_text_is_mixed(
    servers, distributions, plain, change
):
    there = ensemble(*servers)
    after(servers[1], 60, lambda: restart(servers[1], **change(distributions)))
    with impatient(0.2):
        results = decoded(there, batch_size=2)
    failed = [n for n, result in enumerate(results) if result.error is not None]
    assert 0 < len(failed) < len(PROMPTS)
    assert there.server_failures  # so that a decode job ends
    for number, result in enumerate(results):
        if number in failed:
            assert servers[1].url in result.error
            assert re.search("another model|refuses .40|other ids|that model", result.error)
        else:
            assert_same([result], [plain[number]])


def test_a_server_that_lost_its_processor_is_noticed(distributions, plain):
    with standing(distributions[0]) as one, standing(distributions[1]) as other:
        there = ensemble(one, other)
        after(other, 25, lambda: restart(other, processor=False))
        results = decoded(there)
    failed = [result for result in results if result.error is not None]
    assert failed
    assert all(re.search("(other|fewer) ids than", result.error) for result in failed)
    right = [n for n, result in enumerate(results) if result.error is None]
    assert_same([results[n] for n in right], [plain[n] for n in right])
