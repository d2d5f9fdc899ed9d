"""The URL rule of WMT16 on cases worked out from its description and by hand."""

import pytest

from xling_jax.align.urls import match_urls, normalize_url, strip_url


@pytest.mark.parametrize(
    ("url", "stripped"),
    [
        # A token of its own, in any case, one or more of them.
        ("http://a.org/fr/x", "http://a.org/x"),
        ("http://a.org/fr_CA/x/francais.html", "http://a.org/x/html"),
        ("http://a.org/fr-FR/fr", "http://a.org"),
        # Inside a part of the path, with the hyphen before it; gaps are closed.
        ("http://a.org/page-fr/x", "http://a.org/page/x"),
        ("http://a.org/page-fr-2/x", "http://a.org/page-2/x"),
        ("http://a.org/fr-page/x", "http://a.org/page/x"),
        ("http://a.org/page_fr.html", "http://a.org/page.html"),
        # A slash at the end stays, none is made.
        ("http://a.org/x/fr/", "http://a.org/x/"),
        ("http://a.org/x/fr", "http://a.org/x"),
        # Queries: a variable goes when its name or value is nothing but the language.
        ("http://a.org?lang=fr", "http://a.org"),
        ("http://a.org/x?id=3&lang=fr", "http://a.org/x?id=3"),
        # Only if that changes nothing: variables that tell a language, any language's tokens.
        ("http://a.org/?clang=1", "http://a.org/"),
        ("http://a.org/x?id=3&selectedLocale=7", "http://a.org/x?id=3"),
        ("http://a.org/x/en/", "http://a.org/x/"),
        # Without a scheme, with an empty query.
        ("a.org/fr/x?", "http://a.org/x"),
        ("https://a.org/fr/x", "http://a.org/x"),
        # Nothing to strip: letters around it, the host, no host.
        ("http://a.org/from/africa", None),
        ("http://fr.a.org/x", None),
        ("http://a.org/", None),
        ("http:///fr/x", None),
        ("http://[fr/x", None),
    ],
)
def test_what_is_stripped_of_a_french_page(url, stripped):
    assert strip_url(url, "fr") == stripped


def test_a_language_outside_the_table_is_its_own_token():
    assert strip_url("http://a.org/pt/x", "pt") == "http://a.org/x"
    assert strip_url("http://a.org/x-pt", "pt") == "http://a.org/x"
    assert strip_url("http://a.org/pt/x", "fr") is None


def test_normal_form():
    assert normalize_url(" a.org/x?? ") == "http://a.org/x"
    assert normalize_url("HTTPS://a.org/x") == "http://a.org/x"


def matched(source, target, languages=("fr", "en")):
    rows, columns = match_urls(source, target, *languages)
    return [*zip(rows.tolist(), columns.tolist())]


def test_pages_are_paired_by_what_is_left():
    source = ["http://a.org/x?lang=fr", "http://a.org/bonjour", "http://a.org/fr/y", "http://b.org"]
    target = ["http://a.org/en/y", "http://a.org/en/bonjour", "http://a.org/x", "http://c.org"]
    # Stripped source and target, source and stripped target, both stripped.
    assert matched(source, target) == [(0, 2), (1, 1), (2, 0)]


def test_each_page_is_paired_once_the_unstripped_first():
    source = ["http://a.org/fr/x", "http://a.org/x/f", "http://a.org/x-fra"]
    target = ["http://a.org/eng/x", "http://a.org/x", "http://a.org/en/x"]
    # All are "/x" stripped. The first source takes the bare target, the rest go in order.
    assert matched(source, target) == [(0, 1), (1, 0), (2, 2)]


def test_hosts_are_never_mixed():
    assert matched(["http://a.org/fr/x"], ["http://b.org/en/x"]) == []
    assert matched(["http://fr.a.org/x"], ["http://en.a.org/x"]) == []


def test_pages_without_a_url_and_repeated_urls():
    source = [None, "", " ", "http://a.org/fr/x", "http://a.org/fr/x"]
    assert matched(source, [None, "http://a.org/en/x"]) == [(3, 1)]
    assert matched([], []) == []
