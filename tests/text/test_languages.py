import pytest

from xling_jax.text import languages


def test_codes_come_back_as_written_and_in_order():
    assert languages.check_languages(["en", "ceb", "pt_BR", "pt"]) == ("en", "ceb", "pt_BR", "pt")


@pytest.mark.parametrize("code", ["", "e", "EN", "german", "deut", "de-DE", "de ", "d3", 7])
def test_malformed_code_is_an_error(code):
    with pytest.raises(ValueError, match="is not a language code"):
        languages.check_languages(["en", code])


@pytest.mark.parametrize(
    ("code", "hint"), [("deu", "'de'"), ("ger", "'de'"), ("German", "'de'"), ("en_GB", "'en'")]
)
def test_unknown_code_names_place_known_codes_and_what_was_meant(code, hint):
    with pytest.raises(ValueError) as error:
        languages.check_known(code, ("de", "en", "fr"), "data.pairs")
    assert str(error.value).startswith(f"data.pairs: unknown language {code!r}; known: de, en, fr.")
    assert f"Did you mean {hint}?" in str(error.value)
    languages.check_known("de", ("de", "en"), "--languages")
    with pytest.raises(ValueError, match=r"known: de, en\.$"):  # none is near
        languages.check_known("zh", ("de", "en"), "here")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("deu", "de"),
        ("ger", "de"),
        ("cmn", "zh"),
        ("pes", "fa"),
        ("swh", "sw"),
        ("lvs", "lv"),
        ("en", "en"),
        ("pt-BR", "pt"),
        ("deu_Latn", "de"),
        ("French", "fr"),
        ("ceb", "ceb"),
    ],
)
def test_aliases_give_iso_639_1(code, expected):
    assert languages.to_iso639_1(code) == expected


def test_codes_of_iso_639_are_known_by_their_form_too():
    assert all(map(languages.is_iso639, ("de", "deu", "de_AT", "zh_Hans")))
    assert not any(map(languages.is_iso639, ("src", "German", "DE", "de-AT", "")))


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (["en", "German"], "Did you mean 'de'"),
        (["en", "de", "en"], "'en' is given twice"),
        (["de", "deu"], "'deu' means the same language as 'de'"),
        ("en,de", "must be a list"),
    ],
)
def test_lists_of_codes_that_are_wrong_are_explained(codes, message):
    with pytest.raises(ValueError, match=message):
        languages.check_languages(codes)


def test_pair_is_source_then_target():
    assert languages.parse_pair("de-en") == ("de", "en")
    assert languages.parse_pair("pt_BR-en") == ("pt_BR", "en")
    assert languages.parse_pair("de-de", allow_same=True) == ("de", "de")


@pytest.mark.parametrize("pair", ["de", "de-en-fr", "de_en", "de-", "DE-EN", "", "de-de"])
def test_malformed_pair_is_an_error(pair):
    with pytest.raises(ValueError, match="must"):
        languages.parse_pair(pair)
