"""The paired bootstrap through sacrebleu's SentencePiece path, with a stand-in model."""

import io
from pathlib import Path

import pytest
import sentencepiece
from sacrebleu.tokenizers import tokenizer_spm

from adafuse.metrics.translation import pooled_bleu

from .conftest import counts
from .test_bootstrap import bootstrap, corpus, theirs


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny SentencePiece model where sacrebleu looks for its own."""
    text = [line for seed in range(5) for line in corpus(seed)[0]]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, vocab_size=30, minloglevel=2
    )
    folder = tmp_path / "models"
    folder.mkdir()
    name = Path(tokenizer_spm.SPM_MODELS["flores101"]["url"]).name
    (folder / name).write_bytes(model.getvalue())
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))


@pytest.mark.usefixtures("stand_in")
def test_flores101_gives_what_sacrebleu_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    first, second, references = corpus(11)
    base, system = theirs(first, second, references, "flores101")
    one, two = (counts(texts, references, "flores101") for texts in (first, second))
    assert pooled_bleu(one) == pytest.approx(system.score, abs=1e-6)
    assert pooled_bleu(two) == pytest.approx(base.score, abs=1e-6)
    assert bootstrap(one, two).p == pytest.approx(system.p_value, abs=1e-6)
    assert pooled_bleu(counts(first, references)) != pytest.approx(system.score, abs=1e-3)
