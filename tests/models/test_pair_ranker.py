import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from adafuse.errors import ExampleError, UserError
from adafuse.methods.llm_blender.networks import (
    PREFIXES,
    NetworkRequest,
    PairNetwork,
    PairRanker,
    collate,
    load_pair_ranker,
)
from adafuse.models.spec import ModelEntry
from tests.conftest import toy_path

CPU = torch.device("cpu")
RANKER = load_pair_ranker(ModelEntry(path=toy_path("pair_ranker")), CPU)
TEXTS = st.text(alphabet="ab <|candidate1|>[SEP]\n漢", max_size=60)
PAIRS = [
    ("Question: Who founded the town of Orrin?\nAnswer:", "Selka Torin", "nobody " * 30),
    ("a", "", "b"),
    ("Translate English to German.\nQuestion: The dog sleeps.\nAnswer:", "Der Hund", "Ein Hund"),
    ("a " * 500, "b " * 300, "c"),
]


@pytest.fixture
def copy(tmp_path):
    """A copy of the toy ranker that a test may break."""
    return shutil.copytree(toy_path("pair_ranker"), tmp_path / "ranker")


def change_config(folder, **changes):
    """Set fields of a config.json; None removes one."""
    values = json.loads((folder / "config.json").read_text()) | changes
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def part(prefix, text):
    """What the tokenizer makes of one part by itself."""
    return RANKER.tokenizer(prefix + text)["input_ids"]


def test_parameters_are_named_and_shaped_as_in_the_published_checkpoint():
    config = AutoConfig.from_pretrained(toy_path("pair_ranker"), n_tasks=3)
    shapes = {name: tuple(p.shape) for name, p in PairNetwork(config).named_parameters()}
    head = {name: shape for name, shape in shapes.items() if name.startswith("head_layer.")}
    hidden = config.hidden_size
    assert head == {
        "head_layer.1.weight": (hidden, 2 * hidden),
        "head_layer.1.bias": (hidden,),
        "head_layer.4.weight": (3, hidden),
        "head_layer.4.bias": (3,),
    }
    assert all(name.startswith("pretrained_model.") for name in set(shapes) - set(head))


def test_a_pair_is_three_parts_each_with_its_special_tokens():
    pair = RANKER.encode("who?", "me", "you")
    parts = [part(*text) for text in zip(PREFIXES.values(), ("who?", "me", "you"), strict=True)]
    assert pair.ids == [*parts[0], *parts[1], *parts[2]]
    config = RANKER.network.config
    assert [pair.ids[place] for place in pair.places] == [getattr(config, f) for f in PREFIXES]
    assert [ids[0] for ids in parts] == [RANKER.tokenizer.cls_token_id] * 3
    assert [ids[-1] for ids in parts] == [RANKER.tokenizer.sep_token_id] * 3


@given(source=TEXTS, one=TEXTS, two=TEXTS)
@settings(deadline=None)
def test_pairs_keep_the_budget_and_their_prefixes_whatever_the_texts_hold(source, one, two):
    ranker = PairRanker(RANKER.network, RANKER.tokenizer, source_tokens=12, candidate_tokens=8)
    pair = ranker.encode(source, one, two)
    first = min(12, len(part("<|source|>", source)))
    room = (12 + 2 * 8 - first) // 2
    lengths = [first, *(min(room, len(part("<|candidate1|>", text))) for text in (one, two))]
    assert len(pair.ids) == sum(lengths) <= 28
    assert pair.places == [1, lengths[0] + 1, lengths[0] + lengths[1] + 1]


def test_the_logit_is_the_mean_over_the_tasks_of_left_minus_right():
    torch.manual_seed(0)
    network = PairNetwork(AutoConfig.from_pretrained(toy_path("pair_ranker"), n_tasks=2)).eval()
    pair = RANKER.encode(*PAIRS[0])
    ids, mask, places = collate([pair], RANKER.tokenizer, CPU)
    with torch.inference_mode():
        states = network.pretrained_model(ids).last_hidden_state[0, places[0]]
        left, right = (network.head_layer(torch.cat([states[0], states[k]])) for k in (1, 2))
        expected = ((left[0] - right[0]) + (left[1] - right[1])) / 2
        assert network(ids, mask, places).item() == pytest.approx(expected.item(), abs=1e-5)


def test_a_logit_does_not_depend_on_the_pairs_beside_it():
    together = RANKER.logits(PAIRS * 3)
    alone = [RANKER.logits([pair])[0] for pair in PAIRS]
    assert together == pytest.approx(alone * 3, abs=1e-4)


def test_a_pair_that_occurs_twice_is_compared_once(monkeypatch):
    seen = []
    monkeypatch.setattr(
        PairRanker, "logits", lambda self, pairs: seen.extend(pairs) or [1.0] * len(pairs)
    )
    requests = [
        NetworkRequest(RANKER, "q", ("a", "b", "a")),
        NetworkRequest(RANKER, "q", ("b", "a")),
    ]
    RANKER.evaluate(requests)
    assert seen == [("q", "a", "b"), ("q", "b", "a")]
    assert requests[0].result == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert requests[1].result == [[0, 1], [1, 0]]


def test_a_single_candidate_needs_no_forward():
    ranker = PairRanker(RANKER.network, SimpleNamespace())
    request = NetworkRequest(ranker, "q", ("a",))
    ranker.evaluate([request])
    assert request.result == [[0.0]]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/nowhere/ranker", "'/nowhere/ranker' is not a folder"),
        (toy_path("gen_fuser"), "is of type t5, not deberta-v2; name a PairRM checkpoint"),
        (toy_path("llama"), "is of type llama, not deberta-v2; name a PairRM checkpoint"),
    ],
)
def test_what_is_no_ranker_is_named(path, sentence):
    with pytest.raises(UserError, match=sentence):
        load_pair_ranker(ModelEntry(path=path), CPU)


@pytest.mark.parametrize("field", ["n_tasks", *PREFIXES])
def test_a_plain_deberta_lacks_the_fields_of_a_ranker(copy, field):
    change_config(copy, **{field: None})
    with pytest.raises(UserError, match=f"has no {field} in its config.json"):
        load_pair_ranker(ModelEntry(path=str(copy)), CPU)


def test_prefix_ids_must_be_those_of_the_tokenizer(copy):
    change_config(copy, cand2_prefix_id=100_000)
    with pytest.raises(UserError, match=r"does not read <\|candidate2\|> as id 100000"):
        load_pair_ranker(ModelEntry(path=str(copy)), CPU)


def test_a_ranker_without_tokenizer_is_refused_before_its_weights_are_read(copy):
    for path in [*copy.glob("*token*"), copy / "model.safetensors"]:
        path.unlink()
    with pytest.raises(UserError, match=r"has no tokenizer; put its tokenizer.json"):
        load_pair_ranker(ModelEntry(path=str(copy)), CPU)


def test_a_missing_head_is_named(copy):
    weights = load_file(copy / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("head_layer.4")}
    save_file(kept, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"has no weights for head_layer\.4\.bias"):
        load_pair_ranker(ModelEntry(path=str(copy)), CPU)


def test_logits_that_are_not_numbers_rank_nothing(monkeypatch):
    monkeypatch.setattr(PairRanker, "logits", lambda ranker, pairs: [float("nan")] * len(pairs))
    program = RANKER.compare("Who?", ["a", "b"])
    RANKER.evaluate(next(program))
    with pytest.raises(ExampleError, match=r"pair_ranker gives logits that are not finite"):
        next(program)
