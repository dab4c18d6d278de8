"""What models need of memory, by their configs, and where they fit: here, or on other GPUs."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from adafuse.errors import UserError
from adafuse.models.files import LAYER, is_linear, item_bytes, weight_bytes
from adafuse.models.hub import explaining_failure
from adafuse.models.language_model import context_length, load_config
from adafuse.models.memory import SHARE, TREE_NODES, cache_bytes, free_memory
from adafuse.models.placement import WEIGHTS_SHARE, dtype_of
from adafuse.models.quantization import dequantized_bytes, kind_of, without_weights
from adafuse.models.spec import AUTO, QUANTIZATIONS, DeviceName, ModelSpec

_GPU = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)(GiB|GB)")
_UNITS = {"GiB": 1 << 30, "GB": 10**9}

Rooms = Mapping[str, int]
"""Bytes that models and a batch may take of each device."""
Where = tuple[tuple[str, ...], ...]
"""The devices of each model."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a model takes: `weights` by what is in them, its `dtype` first.

    `row` is what one example of `tokens` takes besides, the most that its config allows; without
    attention its keys and values are not counted, as `cached` says. `block` is the largest part
    that is not split over devices.
    """

    model: str
    dtype: str
    weights: dict[str, int]
    tokens: int
    row: int
    cached: bool
    block: int

    def bytes(self, form: str | None, rows: int) -> int:
        """Return the bytes with weights in a form, as far as the model has it, and some rows."""
        weights = self.weights.get(form or self.dtype, self.weights[self.dtype])
        return weights + int(rows * self.row / SHARE)


@dataclass(frozen=True, slots=True)
class Fit:
    """What models need, the room on each device, and the first way in which they fit.

    Each has the quantization of `forms` (None: as it is), `rows` examples are decoded at a time,
    and the models are on the devices `where`, which is None if they do not fit.
    """

    needs: tuple[Need, ...]
    rooms: dict[str, int]
    forms: tuple[str | None, ...]
    rows: int
    where: Where | None
    sentence: str


def gpus_named(text: str) -> list[int]:
    """Return the bytes of each of some GPUs, written as "4x80GiB" or "2x24GiB+80GiB"."""
    found = [_GPU.fullmatch(part.strip()) for part in text.split("+")]
    sizes = [
        int(float(each[2]) * _UNITS[each[3]])
        for each in found
        if each
        for _ in range(int(each[1] or 1))
    ]
    if not sizes or None in found:
        raise UserError(
            f"--gpus {text!r} is not a list of GPUs; write one such as 4x80GiB or 2x24GiB+80GiB"
        )
    return sizes


def machine(specs: Sequence[ModelSpec], gpus: Sequence[int] | None) -> dict[str, int]:
    """Return the room on each device: of `gpus`, or of what is free here on GPUs or else the CPU.

    Raises:
        UserError: a model names a device that is not there.
    """
    if gpus is None:
        count = torch.cuda.device_count()
        gpus = [free_memory(torch.device("cuda", index)) for index in range(count)]
    named = {name for spec in specs for name in DeviceName.parse(spec.device).devices}
    sizes = {f"cuda:{index}": size for index, size in enumerate(gpus)}
    if not sizes or any(not name.startswith("cuda") for name in named):
        sizes["cpu"] = free_memory(torch.device("cpu"))
    if absent := sorted(named - sizes.keys()):
        raise UserError(f"no device {absent[0]!r}; there are: {', '.join(sizes)}")
    return {name: int(WEIGHTS_SHARE * size) for name, size in sizes.items()}


def need_of(spec: ModelSpec, device: str, longest: int) -> Need:
    """Return what a model takes, by its config, with examples of at most `longest` tokens.

    Raises:
        UserError: its checkpoint is quantized, and its weights are not here.
    """
    first = (*DeviceName.parse(spec.device).devices, device)[0]
    dtype = str(dtype_of(spec.dtype, torch.device(first))).removeprefix("torch.")
    plain = spec.model_copy(update={"dtype": dtype})
    config = load_config(plain)
    text, kind = config.get_text_config(), kind_of(config)
    layers = int(text.num_hidden_layers)
    if kind is not None:
        size = dequantized_bytes(plain, config) or weight_bytes(spec.path, spec.revision, dtype)
        if size is None:
            raise UserError(
                f"the weights of model {spec.path!r} are quantized ({kind}), so that its config"
                " does not say what they take; download them first"
            )
        weights, block = {kind: size}, size // layers
    else:
        counts, parts = Counter[bool](), Counter[str]()
        with explaining_failure(plain):
            network = without_weights(plain, config)
        for name, weight in network.named_parameters():
            counts[is_linear(name, weight.shape)] += weight.numel()
            layer = LAYER.search(name)
            parts[name[: layer.end()] if layer else name] += weight.numel()
        whole, forms = item_bytes(dtype, None), () if spec.source[1] else QUANTIZATIONS
        weights = {
            form or dtype: int(counts[True] * item_bytes(dtype, form) + counts[False] * whole)
            for form in (None, *forms)
        }
        block = int(max(parts.values()) * whole)
    try:
        cache = cache_bytes(config, getattr(torch, dtype)) * layers
    except AttributeError:  # no attention
        cache = 0
    tokens = min(longest, context_length(config))
    row = (tokens + TREE_NODES) * cache + TREE_NODES * 4 * int(text.vocab_size)
    return Need(spec.path, next(iter(weights)), weights, tokens, row, bool(cache), block)


def fit(
    specs: Sequence[ModelSpec], gpus: Sequence[int] | None, rows: int | None, longest: int
) -> Fit:
    """Return how models fit on GPUs of so many bytes, or here; only their configs are read.

    `rows` examples of at most `longest` tokens are decoded at a time (None: as many as there is
    room for). Models on servers take nothing.

    Raises:
        UserError: what cannot be read, or a device that is not there.
    """
    loaded = [spec for spec in specs if spec.server is None]
    rooms = machine(loaded, gpus)
    cards = [name for name in rooms if name != "cpu"] or ["cpu"]
    needs = [need_of(spec, cards[0], longest) for spec in loaded]
    named, asked = [DeviceName.parse(spec.device) for spec in loaded], rows or 1
    given = [spec.quantization for spec in loaded]
    for forms, count in product(_forms(needs, given), dict.fromkeys((asked, 1))):
        sizes = [
            (need.bytes(form, count), need.block) for need, form in zip(needs, forms, strict=True)
        ]
        for where in ways(sizes, named, cards, rooms):
            if all(taken(sizes, where)[name] <= room for name, room in rooms.items()):
                options = [] if forms == given else _one_for_all("quantization", forms)
                options += ["--batch-size auto"] * (count < asked)
                if where != _in_turn(cards, len(where)):
                    options += _one_for_all("device", list(map("+".join, where)))
                said = f"fits with {' '.join(options)}" if options else "fits as it is"
                return Fit((*needs,), rooms, (*forms,), count, where, said)
    chosen = any(name.kind != AUTO for name in named)
    return Fit((*needs,), rooms, (), asked, None, _too_large(needs, given, rooms, chosen))


def _forms(needs: Sequence[Need], given: Sequence[str | None]) -> Iterator[list[str | None]]:
    """Yield the quantization of each model to try: what is given, then fewer bits, largest first.

    What users give stays, and so does a checkpoint that is quantized already.
    """
    yield [*given]
    open_ = [n for n, need in enumerate(needs) if given[n] is None and len(need.weights) > 1]
    order = sorted(open_, key=lambda n: needs[n].weights[needs[n].dtype], reverse=True)
    for form, count in product(QUANTIZATIONS, range(1, len(order) + 1)):
        yield [form if n in order[:count] else own for n, own in enumerate(given)]


def taken(sizes: Sequence[tuple[int, int]], where: Where) -> Counter[str]:
    """Return the bytes taken of each device, by those of each model and of its largest block.

    A model that is spread takes the same of each of its devices, and up to a block more of one.
    """
    found = Counter[str]()
    for (size, block), names in zip(sizes, where, strict=True):
        more = block if len(names) > 1 else 0
        found.update(dict.fromkeys(names, size // len(names) + more))
    return found


def ways(
    sizes: Sequence[tuple[int, int]],
    devices: Sequence[DeviceName],
    cards: Sequence[str],
    rooms: Rooms,
) -> Iterator[Where]:
    """Yield placements to try, the best ones first; only that one which users ask for, if they do.

    All on one GPU leaves the others to other prompts. Then come `--device auto`, the largest models
    first where they leave least room, and models on several GPUs where one is too small.
    """
    free = all(name.kind == AUTO for name in devices)
    if free and len(cards) > 1:
        yield ((max(cards, key=lambda name: rooms[name]),),) * len(sizes)
    in_turn = zip(devices, _in_turn(cards, len(devices)), strict=True)
    yield tuple(name.devices or ((*cards,) if name.strategy else card) for name, card in in_turn)
    if not free:
        return
    left, where = dict(rooms), dict[int, tuple[str, ...]]()
    for number in sorted(range(len(sizes)), key=lambda n: sizes[n], reverse=True):
        order = sorted(cards, key=lambda name: left[name], reverse=True)
        tried: list[tuple[str, ...]] = [(name,) for name in reversed(order)]
        tried += [(*sorted(order[:count]),) for count in range(2, len(cards) + 1)]
        for names in tried:
            took = taken([sizes[number]], (names,))
            if all(took[name] <= left[name] for name in names):
                where[number] = names
                left |= {name: left[name] - took[name] for name in names}
                break
    if len(where) == len(sizes):
        yield tuple(where[number] for number in range(len(sizes)))


def _in_turn(cards: Sequence[str], count: int) -> Where:
    """Return where `--device auto` puts models."""
    return tuple((cards[number % len(cards)],) for number in range(count))


def _one_for_all(option: str, values: Sequence[str | None]) -> list[str]:
    named = [f"--{option} {value or 'none'}" for value in values]
    return named[:1] if len({*named}) == 1 else named


def _too_large(
    needs: Sequence[Need], given: Sequence[str | None], rooms: Rooms, chosen: bool
) -> str:
    fewest = QUANTIZATIONS[-1]
    least = sum(need.bytes(own or fewest, 1) for need, own in zip(needs, given, strict=True))
    gib = 1 << 30
    fix = "leave out --device, or name others" if chosen else "use more or larger GPUs"
    if any(need.dtype == "float32" for need in needs):
        fix = f"try --dtype bfloat16, {fix}"
    return (
        f"does not fit: with the fewest bits and one example at a time it takes {least / gib:.1f}"
        f" GiB, and {sum(rooms.values()) / gib:.1f} GiB may be taken; {fix}, or run models on"
        " servers (docs/served.md)"
    )
