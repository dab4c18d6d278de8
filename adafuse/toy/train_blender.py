"""Train the toy ranker and fuser: ``python -m adafuse.toy.train_blender --out DIR``."""

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

import torch

from adafuse.toy import gen_fuser, pair_ranker

TRAINERS: dict[str, Callable[[Path], None]] = {
    "pair_ranker": pair_ranker.train,
    "gen_fuser": gen_fuser.train,
}


def main() -> None:
    """Train one of them or both, one after the other, on one thread."""
    parser = argparse.ArgumentParser(description="Train the toy ranker and fuser.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", choices=TRAINERS, help="only this one")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    for name in (options.model,) if options.model else TRAINERS:
        TRAINERS[name](options.out / name)


if __name__ == "__main__":
    main()
