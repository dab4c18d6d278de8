"""Many clients for minutes: no error, nothing left behind, nothing lost for others."""

import asyncio
import json
import os
import random
import statistics
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.serve.conftest import in_a_thread, started

httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.soak

TOY_MATH = Path(__file__).parents[2] / "adafuse/toy/benchmarks/toy_math.jsonl"
CLIENTS, BATCH, MINUTES = 64, 32, float(os.environ.get("ADAFUSE_SERVE_MINUTES", "1"))
QUESTIONS = [json.loads(line)["question"] for line in TOY_MATH.read_text().splitlines()]
PROMPTS = [f"Question: {question}\nLet's think step by step\n" for question in QUESTIONS]
STOP = ["Question:"]
PHASES = 3
"""The machine may have others: what is compared is measured in turn."""


async def asking(url, rng, end, texts, answered):
    """Ask for single prompts, streamed or not, and for a few at a time."""
    async with httpx.AsyncClient(timeout=120) as client:
        while time.monotonic() < end:
            kind = rng.choice(["streamed", "whole", "several"])
            prompts = rng.choices(PROMPTS, k=4 if kind == "several" else 1)
            body = {"prompt": prompts, "max_tokens": 64, "stop": STOP, "stream": kind == "streamed"}
            async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
                content = (await answer.aread()).decode()
            assert answer.status_code == 200, content
            if kind == "streamed":
                *lines, done = content.strip().split("\n\n")
                assert done == "data: [DONE]"
                pieces = [json.loads(line.removeprefix("data: ")) for line in lines]
                found = ["".join(piece["choices"][0]["text"] for piece in pieces)]
            else:
                found = [choice["text"] for choice in json.loads(content)["choices"]]
            assert found == [texts[prompt] for prompt in prompts]
            answered += [time.monotonic()] * len(prompts)


def test_64_clients_for_minutes_get_the_texts_of_generate(
    pair, tmp_path, record_testsuite_property
):
    def generated():
        return pair.generate(PROMPTS, max_new_tokens=64, stop=STOP, batch_size=BATCH)

    texts = dict(zip(PROMPTS, [result.text for result in generated()], strict=True))
    sizes, together, throughputs, costs = [], [], [], []

    async def ask(server, process):
        """Ask for a phase; return how many prompts were answered, and in how many seconds."""
        end, answered = time.monotonic() + 60 * MINUTES / PHASES, []

        async def watch():
            while time.monotonic() < end:
                sizes.append(process.memory_info().rss)
                together.append(await asyncio.to_thread(server.gauge, "adafuse_running"))
                await asyncio.sleep(1)

        rngs = [random.Random(n) for n in range(CLIENTS)]
        clients = [asking(server.url, rng, end, texts, answered) for rng in rngs]
        await asyncio.gather(watch(), *clients)
        return len(answered), answered[-1] - answered[0]

    with started(tmp_path, "--batch-size", str(BATCH), "--max-waiting", "500") as server:
        process, own = psutil.Process(server.process.pid), psutil.Process()
        for _ in range(PHASES):
            generating = time.perf_counter(), cpu_seconds(own)
            generated()
            generating = time.perf_counter() - generating[0], cpu_seconds(own) - generating[1]
            before = cpu_seconds(process)
            count, seconds = in_a_thread(asyncio.run, ask(server, process))
            serving = seconds, cpu_seconds(process) - before
            more = len(PROMPTS) / count
            throughputs.append(generating[0] / serving[0] / more)
            costs.append(serving[1] / generating[1] * more)
        assert server.gauge("adafuse_running") == server.gauge("adafuse_waiting") == 0
        assert server.stop() == 0
    middle = len(sizes) // 3
    assert max(sizes[middle:]) < 1.1 * max(sizes[: middle or 1])
    record_testsuite_property("served / generated, in prompts per second", sorted(throughputs))
    # Other tests run beside this one, so that a core does more or less in a second: costs are only
    # compared coarsely.
    assert statistics.median(together) > BATCH / 2, together
    assert statistics.median(costs) < 2, (costs, throughputs)


def cpu_seconds(process):
    times = process.cpu_times()
    return times.user + times.system


def broken_bodies():
    """500 kinds of bodies that are no request."""
    rng = random.Random(0)
    whole = json.dumps({"prompt": PROMPTS[0], "max_tokens": 4}).encode()
    for number in range(500):
        kind = number % 5
        if kind == 0:
            yield whole[: rng.randrange(len(whole))]
        elif kind == 1:
            at = rng.randrange(len(whole))
            yield whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :]
        elif kind == 2:
            yield rng.randbytes(rng.randrange(1, 2000))
        elif kind == 3:
            odd = rng.choice([None, [], {}, -1, 1e308, "x" * 9000, True, [[[]]], {"a": {}}])
            name = rng.choice(["prompt", "max_tokens", "stop", "stream", "method", "options", "n"])
            yield json.dumps({"prompt": PROMPTS[0], "max_tokens": 4, name: odd}).encode()
        else:
            yield whole + b" " * rng.randrange(1 << 16, 1 << 17)


def test_broken_bodies_and_killed_clients_harm_nobody(random_pair, tmp_path):
    (expected,) = random_pair.generate(PROMPTS[:1], max_new_tokens=16)
    models = [model.name for model in random_pair.models]
    with started(tmp_path, "--max-body", str(1 << 16), models=models) as server:
        body = {"prompt": PROMPTS[0], "max_tokens": 16}
        done = in_a_thread(httpx.post, f"{server.url}/v1/completions", json=body, timeout=60)
        alone = done.json()["choices"][0]["text"]
        assert alone
        assert expected.text.startswith(alone)  # its last span may go beyond max_tokens

        async def good(client):
            for _ in range(30):
                done = await client.post(f"{server.url}/v1/completions", json=body)
                assert (done.status_code, done.json()["choices"][0]["text"]) == (200, alone)

        async def bad(client, bodies):
            for body in bodies:
                done = await client.post(f"{server.url}/v1/completions", content=body)
                assert done.status_code in (200, 400, 413), (done.status_code, body[:200])

        async def killed():
            rng = random.Random(1)
            for number in range(100):
                body = {"prompt": PROMPTS[number % 50], "max_tokens": 400, "stream": True}
                with suppress(TimeoutError):
                    async with (
                        asyncio.timeout(rng.uniform(0.01, 0.5)),
                        httpx.AsyncClient() as client,
                    ):
                        await client.post(f"{server.url}/v1/completions", json=body)

        async def all_of_them():
            bodies = list(broken_bodies())
            async with httpx.AsyncClient(timeout=120) as one, httpx.AsyncClient(timeout=120) as two:
                broken = [bad(two, bodies[start::10]) for start in range(10)]
                await asyncio.gather(good(one), *broken, killed())

        in_a_thread(asyncio.run, all_of_them())
        end = time.monotonic() + 60
        while server.gauge("adafuse_running") or server.gauge("adafuse_waiting"):
            assert time.monotonic() < end
            time.sleep(0.2)
        assert server.stop() == 0
