from types import SimpleNamespace

import pytest
import torch

from adafuse.engine.node import Evaluator
from adafuse.engine.scheduler import Advanced, Finished, Scheduler, TooManyRowsError


class RecordingEngine(Evaluator):
    """Notes which nodes each forward was asked for."""

    def __init__(self):
        self.requests = []

    def evaluate(self, nodes):
        self.requests.append([node.name for node in nodes])


def program(engine, name, turns, fails=False):
    """A program of `turns` requests."""
    for turn in range(turns):
        yield [SimpleNamespace(name=f"{name}{turn}", engine=engine)]
    if fails:
        raise RuntimeError(f"{name} broke")


def run(engine, batch_size, *jobs):
    """Run jobs (name, turns, fails) and return how they finished, in that order."""
    source = ((job[0], program(engine, *job)) for job in jobs)
    return [event for event in Scheduler(batch_size).run(source) if isinstance(event, Finished)]


def test_rows_share_forwards_and_finished_ones_are_replaced():
    engine = RecordingEngine()
    outcomes = run(engine, 2, ("a", 1), ("b", 3), ("c", 2))
    assert engine.requests == [["a0", "b0"], ["b1", "c0"], ["b2", "c1"]]
    assert [outcome.example for outcome in outcomes] == ["a", "b", "c"]


def test_an_example_that_raises_ends_alone_and_keeps_its_traceback():
    outcomes = run(RecordingEngine(), 2, ("a", 1, True), ("b", 2))
    assert (outcomes[0].example, outcomes[0].error) == ("a", "a broke")
    assert "RuntimeError" in outcomes[0].traceback
    assert (outcomes[1].example, outcomes[1].error) == ("b", None)


def test_examples_without_requests_end_at_once():
    assert [o.example for o in run(RecordingEngine(), 1, ("a", 0), ("b", 0))] == ["a", "b"]


class Card(RecordingEngine):
    """A recording engine on a device."""

    device = None

    def __init__(self, device, log):
        self.device, self.requests = device, log


def visiting(*engines, name):
    """A program that asks one engine after the other."""
    for turn, engine in enumerate(engines):
        yield [SimpleNamespace(name=f"{name}{turn}", engine=engine)]


def visits(batch_size, **routes):
    """Run programs by name, each with the engines it asks in turn."""
    source = ((name, visiting(*route, name=name)) for name, route in routes.items())
    list(Scheduler(batch_size).run(source))


def test_on_one_device_the_model_that_most_examples_wait_for_goes_first():
    log = []
    one, two = Card("cuda:0", log), Card("cuda:0", log)
    visits(3, a=[one, two], b=[two, two], c=[two, two])
    assert log == [["b0", "c0"], ["b1", "c1"], ["a0"], ["a1"]]


def test_a_device_stays_with_a_model_while_more_than_a_few_examples_wait_for_it():
    log = []
    one, two = Card("cpu", log), Card("cpu", log)
    visits(4, a=[one, one, one], b=[one, two], c=[one, two], d=[one, two])
    assert log == [["a0", "b0", "c0", "d0"], ["a1"], ["a2"], ["b1", "c1", "d1"]]


def test_models_on_two_devices_run_in_one_turn():
    log = []
    one, two = Card("cuda:0", log), Card("cuda:1", log)
    visits(2, a=[one, two], b=[two, one])
    assert log == [["a0"], ["b0"], ["a1"], ["b1"]] or log == [["a0"], ["b0"], ["b1"], ["a1"]]


def test_requests_to_two_models_at_once_are_waited_for_both():
    log = []
    one, two = Card("cpu", log), Card("cpu", log)

    def program():
        yield [SimpleNamespace(name="x", engine=one), SimpleNamespace(name="y", engine=two)]

    *turns, last = Scheduler(1).run(iter([("it", program())]))
    assert log == [["x"], ["y"]]
    assert turns == [Advanced("it")]
    assert (last.example, last.error) == ("it", None)


class Refusing(RecordingEngine):
    """A recording engine that raises where it is asked for a node of a name."""

    def __init__(self, refused, error):
        super().__init__()
        self.refused, self.error = refused, error

    def evaluate(self, nodes):
        if self.refused in [node.name for node in nodes]:
            raise self.error
        super().evaluate(nodes)


def test_an_engine_that_fails_for_one_example_goes_on_with_the_others():
    engine = Refusing("b0", ValueError("no b0"))
    outcomes = run(engine, 3, ("a", 2), ("b", 2), ("c", 1))
    assert {o.example: o.error for o in outcomes} == {"a": None, "b": "no b0", "c": None}
    assert engine.requests == [["a0"], ["c0"], ["a1"]]
    assert "ValueError" in next(o.traceback for o in outcomes if o.error)


def test_memory_that_runs_out_in_an_engine_is_no_matter_of_one_example():
    engine = Refusing("b0", torch.OutOfMemoryError("full"))
    with pytest.raises(TooManyRowsError):
        run(engine, 2, ("a", 2), ("b", 2))


def test_a_failure_is_kept_where_another_engine_of_the_turn_succeeds():
    log = []
    one, two = Refusing("x", ValueError("no x")), Card("cpu", log)

    def program():
        yield [SimpleNamespace(name="x", engine=one), SimpleNamespace(name="y", engine=two)]

    *_, last = Scheduler(1).run(iter([("it", program())]))
    assert last.error == "no x"
