"""Models on real servers against the same models in this process: `make served`.

ADAFUSE_SERVED names two servers and the folders of their models, "FOLDER=URL FOLDER=URL"; without a
URL ("FOLDER="), a model is loaded here. Servers of vLLM run in float32 with the logits processor,
`--enable-prompt-tokens-details` and `--block-size 32`, Gemma also with
`--prefix-cache-retention-interval 32`; those of llama.cpp have a GGUF file in float32, 16 slots and
`-ctk f32 -ctv f32 -fa off`. Costs and times (`-k "asks or busy"`) need two servers of vLLM.
ADAFUSE_SERVED_ROWS is the number of rows of each benchmark (20). The files of the benchmarks are
those of tests/real.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from adafuse.ensemble import Ensemble
from adafuse.servers.http import Http
from adafuse.servers.server import PROBE, Ask
from tests.conftest import SHARED
from tests.engine.test_served import METHODS
from tests.real.test_real_models import BENCHMARKS, prompts, small
from tests.support.results import assert_same, assert_same_up_to_near_ties

PAIR = dict(each.split("=", 1) for each in os.environ.get("ADAFUSE_SERVED", "").split())
ROWS = int(os.environ.get("ADAFUSE_SERVED_ROWS", "20"))
BLOCK = 32
TOGETHER = 16
"""Examples that are decoded at a time."""
SHORT = {"max_new_tokens": 12}
COSTS = {"triviaqa": (32, 32, 0.9, 2.3), "gsm8k": (16, 64, 0.6, 2.0)}
"""Rows, new tokens, and at most: requests per round and model, written per committed token."""

pytestmark = [
    pytest.mark.served,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(
        len(PAIR) != 2 or not (SHARED / "benchmarks").is_dir(),
        reason="needs two servers in ADAFUSE_SERVED and the benchmarks' files",
    ),
]


@dataclass
class Recorded:
    """What a server is asked and answers.

    `again` counts ids that are read although an earlier answer had read them, `at_once` those that
    another request was reading when this one was sent.
    """

    http: Http
    requests: int = 0
    written: int = 0
    again: int = 0
    at_once: int = 0
    _read: dict[int, dict] = field(default_factory=dict)
    _sent: dict[int, dict] = field(default_factory=dict)

    def __enter__(self) -> "Recorded":
        self.http.post = self._post
        return self

    def __exit__(self, *error: object) -> None:
        del self.http.post

    def _post(self, path, body, read):
        ids = body["prompt"]
        known, sent = _known(self._read, ids), _known(self._sent, ids)
        _add(self._sent, ids)

        def noted(answer):
            steps, usage = read(answer), answer["usage"]
            if tuple(ids) != PROBE.prefix:
                written = [step.written for step in steps]
                for tree in (self._read, self._sent):
                    _add(tree, [*ids, *written[:-1]])  # the last one is not read
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                self.requests += 1
                self.written += len(written)
                self.again += max(0, known - cached)
                self.at_once += max(0, sent - max(known, cached))
            return steps

        return Http.post(self.http, path, body, noted)


def _known(tree: dict[int, dict], ids: Sequence[int]) -> int:
    """How many of the ids, from the first on, are in the tree."""
    for number, index in enumerate(ids):
        if index not in tree:
            return number
        tree = tree[index]
    return len(ids)


def _add(tree: dict[int, dict], ids: Sequence[int]) -> None:
    for index in ids:
        tree = tree.setdefault(index, {})


@pytest.fixture(scope="module")
def here() -> Ensemble:
    return Ensemble.from_pretrained([*PAIR], device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def there() -> Ensemble:
    urls = [url or None for url in PAIR.values()]
    with Ensemble.from_pretrained([*PAIR], server=urls, device="cpu", dtype="float32") as served:
        yield served


def recorded(ensemble, asked, **settings):
    """What is decoded, what each server was asked for it, and the seconds."""
    with (
        Recorded(ensemble.models[0].server.http) as one,
        Recorded(ensemble.models[1].server.http) as other,
    ):
        start = time.perf_counter()
        results = ensemble.generate(asked, batch_size=TOGETHER, **settings)
        return results, (one, other), time.perf_counter() - start


def figures(results, servers) -> dict[str, float]:
    """The counts per round and model, per committed token, and per request."""
    requests = sum(each.requests for each in servers)
    return {
        "requests per round and model": requests / sum(2 * len(each.rounds) for each in results),
        "written per committed token": sum(each.written for each in servers)
        / sum(sum(each.tokens) for each in results),
        "read again per request": sum(each.again for each in servers) / requests,
        "read at once per request": sum(each.at_once for each in servers) / requests,
    }


@pytest.mark.parametrize("processor", [True, False], ids=["processor", "plain"])
@pytest.mark.parametrize("benchmark", COSTS)
def test_adafuse_asks_little(
    here, there, benchmark, processor, monkeypatch, record_testsuite_property
) -> None:
    rows, tokens, requests, written = COSTS[benchmark]
    for model in there.models:
        assert model.server.writes
        monkeypatch.setattr(model.server, "writes", processor)
    asked = prompts(benchmark, rows, few_shots=False)
    settings = {"stop": small().benchmarks[benchmark].stop, "max_new_tokens": tokens}
    results, servers, _ = recorded(there, asked, **settings)
    found = figures(results, servers)
    record_testsuite_property(f"{benchmark}, processor: {processor}", found)
    assert_same(results, here.generate(asked, batch_size=TOGETHER, **settings), nll=1e-3)
    if processor:
        assert found["requests per round and model"] <= requests
        assert found["written per committed token"] <= written
        assert found["read again per request"] <= BLOCK / 2


@pytest.mark.parametrize("benchmark", COSTS)
def test_two_busy_servers_against_the_same_servers_alone(
    here, there, benchmark, record_testsuite_property
) -> None:
    """All prompts are read before; both servers are busy at once in both cases."""
    rows, tokens, *_ = COSTS[benchmark]
    asked = prompts(benchmark, 2 * rows, few_shots=False)[rows:]
    settings = {"stop": small().benchmarks[benchmark].stop, "max_new_tokens": tokens}
    alone(there, asked, [(1, 1)] * rows)
    results, _, fused = recorded(there, asked, **settings)
    apart = alone(there, asked, [each.tokens for each in results])
    start = time.perf_counter()
    assert_same(results, here.generate(asked, batch_size=TOGETHER, **settings), nll=1e-3)
    ratios = {"alone": fused / apart, "in process": fused / (time.perf_counter() - start)}
    record_testsuite_property(f"{benchmark}, time over that of", ratios)


def alone(ensemble, asked, tokens) -> float:
    """The seconds in which each server writes so many tokens after each prompt by itself."""

    def write(model, prompt, count):
        ask = Ask(tuple(model.prompt_ids(prompt)), (), count - 1)
        assert len(model.server.write(ask, 2)) == count

    start = time.perf_counter()
    with ThreadPoolExecutor(TOGETHER) as one, ThreadPoolExecutor(TOGETHER) as other:
        jobs = [
            pool.submit(write, model, prompt, counts[number])
            for prompt, counts in zip(asked, tokens, strict=True)
            for number, (pool, model) in enumerate(zip((one, other), ensemble.models, strict=True))
            if counts[number]
        ]
    for job in jobs:
        job.result()
    return time.perf_counter() - start


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_texts_are_those_in_process(
    here, there, benchmark, method, options, record_testsuite_property
) -> None:
    """One text of 20 may differ from a near tie on."""
    asked = prompts(benchmark, ROWS)
    settings = {"method": method, "stop": small().benchmarks[benchmark].stop, **options, **SHORT}
    plain = here.generate(asked, batch_size=8, **settings)
    for together in (1, TOGETHER):
        results = there.generate(asked, batch_size=together, **settings)
        tied = assert_same_up_to_near_ties(results, plain, nll=1e-3)
        name = f"{benchmark}, {method} {options}, {together} at a time: near ties"
        record_testsuite_property(name, tied)
        assert tied <= ROWS / 20


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_model_alone_writes_what_it_writes_in_process(here, there, benchmark, number) -> None:
    asked = prompts(benchmark, ROWS)
    settings = {"method": "single", "stop": small().benchmarks[benchmark].stop, **SHORT}
    if there.models[number].server is None:
        pytest.skip("no server has this model")
    one, other = (Ensemble((each.models[number],), (1.0,)) for each in (here, there))
    plain = one.generate(asked, batch_size=8, **settings)
    for together in (1, TOGETHER):
        assert_same(other.generate(asked, batch_size=together, **settings), plain, nll=1e-3)
