"""A language that the vocabulary does not know: refused, or added without changing the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xling_jax
from xling_jax.config import load
from xling_jax.corpora.options import VocabOptions
from xling_jax.corpora.shards import PairTokens, write_shard
from xling_jax.corpora.vocabulary import check_unknown
from xling_jax.encode.model_directory import load_model, save_model
from xling_jax.models.registry import build_encoder
from xling_jax.runs.train import train_experiment
from xling_jax.text.vocab import Vocab, extended, split_pieces, train_vocab
from xling_jax.train.warm_start import add_rows, put_encoder

RUSSIAN = ("дом", "дерево", "улица", "вода", "хлеб", "небо", "свет", "птица", "камень")
LATIN = ("house", "tree", "street", "water", "bread", "sky", "light", "bird", "stone", "Straße")


def sentences(words, number=300):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, 6)) for _ in range(number)]


@pytest.fixture(scope="module")
def latin() -> Vocab:
    return train_vocab(sentences(LATIN), size=50, layout="dual")


@pytest.mark.parametrize("kind, size, added", [("unigram", 30, 34), ("bpe", 50, 55)])
def test_an_extended_vocabulary_keeps_ids_and_splits_of_the_old_text(kind, size, added):
    old = train_vocab(sentences(LATIN), size=size, layout="dual", model_type=kind)
    new = extended(old, sentences((*RUSSIAN, "s")), size=added)
    assert new.pieces()[: old.size] == old.pieces() and new.size > old.size
    assert len({*new.pieces()}) == new.size  # "s" is there already
    text = sentences(LATIN, 20)
    for before, after in zip(old.encode(text), new.encode(text), strict=True):
        np.testing.assert_array_equal(before, after)
    (ids,) = new.encode(["хлеб и вода"])
    assert (ids >= old.size).sum() > 2 and (new.unk_id in old.encode(["хлеб"])[0])


def test_new_rows_are_means_of_what_spelled_them_or_of_their_translations(latin, tmp_path):
    new = extended(latin, sentences((*RUSSIAN, "housestone")), size=75)
    first = latin.size
    known = next(i for i in range(first, new.size) if new.pieces()[i].strip("\u2581").isascii())
    unknown = next(i for i in range(first, new.size) if new.pieces()[i].strip("\u2581") == "хлеб")
    rows = [np.array([unknown, 4]), np.array([unknown, unknown])]
    others = [np.array([5, 6]), np.array([7, 8, 9, known])]
    columns = {
        code: (np.concatenate(side).astype(np.uint16), np.cumsum([0, *map(len, side)]))
        for code, side in (("en", others), ("ru", rows))
    }
    write_shard(tmp_path / "en-ru" / "00000", columns)
    table = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)  # padded
    given = {"a": {"embedding": table}, "token_weight": table[:, 0], "kernel": table}
    found = add_rows(given, latin, new, [PairTokens(tmp_path / "en-ru")])
    added = found["a"]["embedding"]
    assert added.shape == (new.size, 3) and found["kernel"] is table
    np.testing.assert_array_equal(added[:first], table[:first])
    (spelled,) = split_pieces(latin, [new.pieces()[known]])
    np.testing.assert_allclose(added[known], table[spelled].mean(0), rtol=1e-5)
    # Half of the first translation each; a quarter of the second, of which one piece is new.
    weights = np.array([0.5, 0.5, 0.25, 0.25, 0.25])
    expected = weights @ table[[5, 6, 7, 8, 9]] / weights.sum()
    np.testing.assert_allclose(added[unknown], expected, rtol=1e-5)
    never = next(i for i in range(first, new.size) if new.pieces()[i].strip("\u2581") == "небо")
    np.testing.assert_allclose(added[never], table[:first].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["token_weight"], added[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["dual", "tlaser", "laser"])
def test_encoders_with_layers_get_rows_and_encode_the_old_text_as_before(latin, family):
    extended_vocab = extended(latin, sentences(RUSSIAN), size=55)
    sizes = {"width": 16, "layers": 1, "vocab_multiple": 8, "pad_id": 0}
    sizes |= {} if family == "laser" else {"heads": 2, "ffn_width": 16}
    before = build_encoder(family, vocab_size=latin.size, **sizes)
    after = build_encoder(family, vocab_size=extended_vocab.size, **sizes)
    tokens = jnp.asarray([[4, 9, 11, 12], [7, 5, 12, 0]])
    old, new = (m.init(jax.random.key(i), tokens) for i, m in enumerate((before, after)))
    given = add_rows(jax.device_get(old["params"]), latin, extended_vocab, [])
    params, taken = put_encoder({"encoder": new["params"]}, given, extended_vocab.size)
    assert taken == len(jax.tree.leaves(params))
    found = after.apply({"params": params["encoder"]}, tokens)
    np.testing.assert_array_equal(found, before.apply(old, tokens))


def test_shares_of_unknown_pieces_are_of_all_pairs(caplog, tmp_path):
    pairs = [
        {"tokens": {"en": 900, "ru": 100}, "unknown": {"en": 0, "ru": 9}},
        {"tokens": {"cs": 1000, "en": 900}, "unknown": {"cs": 8, "en": 1}},
        {"tokens": {"en": 9}},  # made by an earlier version
    ]
    check_unknown(VocabOptions(model="m"), pairs)
    assert "m: of the pieces are unknown ru 9.0%, cs 0.8%; see vocab.extend" in caplog.text
    with pytest.raises(ValueError, match=r"are unknown ru 9.0% \(vocab.max_unknown_share=0.05\)"):
        check_unknown(VocabOptions(model="m", max_unknown_share=0.05), pairs)
    with pytest.raises(ValueError, match="distill the model .--config distill., or take the lang"):
        check_unknown(VocabOptions(model=str(tmp_path), max_unknown_share=0.05), pairs)


def test_a_language_is_refused_and_then_added_without_changing_the_vectors_of_others(
    tmp_path, latin, caplog
):
    rng = np.random.default_rng(2)
    params = {
        "embedding": rng.normal(size=(128, 32)).astype(np.float32),
        "token_weight": np.ones(128, np.float32),
    }
    model = {"family": "static", "encoder_args": {"width": 32, "vocab_size": latin.size}}
    model |= {"languages": ["de", "en"], "max_length_tokens": 64, "training": {}}
    save_model(tmp_path / "m", params=params, vocab=latin, **model)
    ids = rng.integers(0, 9, (200, 6))
    lines = [
        " ".join(RUSSIAN[i] for i in row) + "\t" + " ".join(LATIN[i] for i in row) for row in ids
    ]
    (tmp_path / "corpus.tsv").write_text("\n".join(["ru\ten", *lines]) + "\n", "utf-8")
    words = {
        "train.model_init": tmp_path / "m",
        "data.corpora": (f"tsv:{tmp_path / 'corpus.tsv'}",),
        "data.batch_size": 16,
        "train.total_epochs": 0.0,
        "train.total_steps": 60,
        "schedule.peak_value": 0.1,
    }
    overrides = [f"--config.{name}={value}" for name, value in words.items()]
    config = "finetune:pairs=en-ru"
    with pytest.raises(ValueError, match=r"unknown ru \d\d.\d%.*--config.vocab.extend=8000"):
        train_experiment(load(config, overrides), str(tmp_path / "w"))
    experiment = load(config, [*overrides, "--config.vocab.extend=55"])
    assert experiment.preparation.vocab.extend_languages == ("ru",)
    assert train_experiment(experiment, str(tmp_path / "w")) == 0
    old, new = xling_jax.load(tmp_path / "m"), xling_jax.load(tmp_path / "w")
    text = sentences(LATIN, 50)
    np.testing.assert_array_equal(old.encode(text), new.encode(text))
    russian = [line.split("\t")[0] for line in lines[:40]]
    english = [line.split("\t")[1] for line in lines[:40]]
    found = (new.encode(russian, normalize=True) @ new.encode(english, normalize=True).T).argmax(1)
    assert (found == np.arange(40)).mean() > 0.9
    assert load_model(tmp_path / "w/encoder").vocab.size > latin.size
    # The same command finds nothing left to do, and one without the pieces is another run.
    assert train_experiment(experiment, str(tmp_path / "w")) == 0
    with pytest.raises(ValueError, match="vocab.extend was 55, now 0"):
        train_experiment(load(config, overrides), str(tmp_path / "w"))


def test_only_a_sentencepiece_vocabulary_can_be_extended(tmp_path):
    with pytest.raises(ValueError, match="vocab.extend=60 adds pieces to a given vocabulary"):
        VocabOptions(extend=60)
    with pytest.raises(ValueError, match="vocab.extend=60 needs a SentencePiece model"):
        extended(object(), [], size=60)
    with pytest.raises(ValueError, match="vocab.extend=9000 is more than 5 training sentences"):
        extended(train_vocab(sentences(LATIN), size=40), sentences(RUSSIAN, 5), size=9000)
