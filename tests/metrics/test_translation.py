"""Corpus BLEU and chrF2++ against sacrebleu, with a stand-in for the SentencePiece model."""

import hashlib
from contextlib import nullcontext
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.tokenizers import tokenizer_spm

from adafuse.errors import UserError
from adafuse.metrics.scorer import Prediction
from adafuse.metrics.translation import (
    SCORERS,
    model_file,
    require_model,
    translations_published,
    translations_strict,
)

HYPOTHESES = ["The young girl carries a cow.", "An old king sings on Monday.", "", "Hello, you!"]
REFERENCES = [
    ("The young girl carries a white cow.",),
    ("An old king sings on Monday.", "On Monday an old king sings."),
    ("Nobody is here today.",),
    ("Hello to you all!",),
]
STREAMS = [[refs[0] for refs in REFERENCES], [(refs[1:] or (None,))[0] for refs in REFERENCES]]


def examples(texts: list[str]) -> list[Prediction]:
    pairs = enumerate(zip(texts, REFERENCES, strict=True))
    return [Prediction(str(number), text, refs) for number, (text, refs) in pairs]


def strict(texts: list[str], tokenize: str = "13a"):
    return translations_strict(examples(texts), tokenize=tokenize, name="bleu")


def published(texts: list[str]):
    return translations_published(examples(texts), tokenize="13a", name="bleu")


def values(metrics) -> tuple[float, float, float]:
    return (metrics.value, metrics.low, metrics.high)


def test_the_values_are_those_of_sacrebleu() -> None:
    judged = strict(HYPOTHESES)
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, STREAMS, tokenize="13a")
    chrf = CHRF(word_order=2).corpus_score(HYPOTHESES, STREAMS)
    assert judged.metrics["bleu"].value == pytest.approx(bleu.score, abs=1e-9)
    assert judged.metrics["chrf2++"].value == pytest.approx(chrf.score, abs=1e-9)
    for estimate in judged.metrics.values():
        assert estimate.low <= estimate.value <= estimate.high


def test_the_interval_is_that_of_retokenised_resamples() -> None:
    """Summed counts give what sacrebleu gives for the resampled texts themselves."""
    import numpy as np

    draw = np.random.default_rng(20240601)
    scores = []
    for _ in range(1000):
        chosen = draw.integers(0, 4, 4)
        streams = [[stream[index] for index in chosen] for stream in STREAMS]
        texts = [HYPOTHESES[index] for index in chosen]
        scores.append(sacrebleu.corpus_bleu(texts, streams, tokenize="13a").score)
    low, high = np.quantile(scores, [0.025, 0.975])
    assert values(strict(HYPOTHESES).metrics["bleu"])[1:] == pytest.approx((low, high), abs=1e-6)


def test_the_signatures_are_stored() -> None:
    details = strict(HYPOTHESES).details
    assert "tok:13a" in details["signature"] and "version:" in details["signature"]
    assert "nw:2" in details["chrf_signature"]


def test_outcomes_hold_the_scored_text_and_the_sentence_s_bleu() -> None:
    decomposed = "  Scho\u0308n.\n"
    one = translations_strict(
        [Prediction("a", decomposed, ("Sch\u00f6n.",))], tokenize="13a", name="bleu"
    ).outcomes[0]
    assert (one.text, one.value) == ("Sch\u00f6n.", pytest.approx(100))
    expected = sacrebleu.sentence_bleu(HYPOTHESES[0], list(REFERENCES[0]), tokenize="13a").score
    assert strict(HYPOTHESES).outcomes[0].value == pytest.approx(expected)


def test_a_perfect_corpus_scores_100_and_an_empty_one_0() -> None:
    texts = [refs[0] for refs in REFERENCES]
    assert strict(texts).metrics["bleu"].value == pytest.approx(100)
    for score in (strict, published):
        assert values(score([""] * 4).metrics["bleu"]) == (0, None, None)


def test_an_empty_hypothesis_costs_under_strict_and_is_dropped_under_published() -> None:
    texts = [*(refs[0] for refs in REFERENCES[:3]), " "]
    assert strict(texts).metrics["bleu"].value < 95
    lenient = published(texts)
    assert lenient.metrics["bleu"].value == pytest.approx(100)
    assert lenient.details["dropped"] == 1
    assert [outcome.value for outcome in lenient.outcomes] == pytest.approx([100, 100, 100, 0])


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SACREBLEU folder with a small SentencePiece model in the place of the real one."""
    return write_stand_in(tmp_path_factory.mktemp("sacrebleu"), vocabulary=60)


def write_stand_in(folder: Path, vocabulary: int) -> Path:
    import sentencepiece

    (folder / "models").mkdir()
    lines = [text for refs in REFERENCES for text in refs] * 20
    prefix = folder / "models" / "sacrebleu_tokenizer_spm"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(prefix), vocab_size=vocabulary,
        minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    return folder


def test_spbleu_goes_through_sacrebleu_s_tokenizer_and_names_the_model_s_bytes(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(stand_in))
    judged = strict(HYPOTHESES, "flores101")
    expected = sacrebleu.corpus_bleu(HYPOTHESES, STREAMS, tokenize="flores101").score
    assert judged.metrics["bleu"].value == pytest.approx(expected, abs=1e-9)
    data = (stand_in / "models/sacrebleu_tokenizer_spm.model").read_bytes()
    assert judged.details["spm_sha256"] == hashlib.sha256(data).hexdigest()
    assert "tok:flores101" in judged.details["signature"]


def test_changed_bytes_are_refused_where_a_checksum_is_named(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(stand_in))
    assert require_model(require_model()) == require_model()
    with pytest.raises(UserError, match=r"has sha256 [0-9a-f]{64}, not abc; put back"):
        require_model("abc")


def test_an_absent_model_is_one_sentence_that_says_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(url: str, path: str) -> None:
        raise OSError("no network")

    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", no_network)
    with pytest.raises(UserError) as error:
        strict(HYPOTHESES, "flores101")
    assert str(tmp_path / "models/sacrebleu_tokenizer_spm.model") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "sentence"), [(b"", "is empty"), (b"x", "is not a SentencePiece")]
)
def test_a_torn_model_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, sentence: str
) -> None:
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    model_file().parent.mkdir()
    model_file().write_bytes(data)
    with pytest.raises(UserError, match=sentence):
        strict(HYPOTHESES, "flores101")


@pytest.mark.parametrize("before", ["\n", "\r\n\n", "\ufeff", "\u200b\n", "\u2028"])
def test_a_hypothesis_is_one_line_whatever_its_line_breaks(before: str) -> None:
    def changed(text: str) -> str:
        return before + text.replace(" ", "\n\n", 1)

    lines = [changed(text) for text in HYPOTHESES]
    for score in (strict, published):
        plain, broken = score(HYPOTHESES), score(lines)
        assert broken.metrics == plain.metrics
        assert [o.text for o in broken.outcomes] == [o.text for o in plain.outcomes]


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ("\u6211\u4eca\u5929\u53bb\u4e86\u5546\u5e97\u3002", True),
        ("\u0e09\u0e31\u0e19\u0e23\u0e31\u0e01\u0e40\u0e18\u0e2d", True),
        ("\uc624\ub298 \ub0a0\uc528\uac00 \uc88b\ub2e4.", False),
        ("The sign for water is \u6c34.", False),
        ("1984", False),
    ],
)
def test_bleu_of_tokenizer_13a_is_refused_for_text_without_spaces(
    answer: str, refused: bool
) -> None:
    scorers = {scorer.name: scorer for scorer in SCORERS}
    scorers["translation"].check_answers("row 'a'", [answer])
    with pytest.raises(UserError, match="of row 'a' has no spaces") if refused else nullcontext():
        scorers["translation_13a"].check_answers("row 'a'", [answer])
