"""Pairs web pages whose URLs differ only in the name of a language.

The baseline of the WMT16 bilingual document alignment task (Buck and Koehn 2016), whose systems
accept its pairs before they score the other documents. Language names are stripped from URLs; two
pages are a pair if the stripped URL of one is the URL of the other, or if both stripped URLs are
equal.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode, urlparse

import numpy as np

# Tokens that name a language in a URL, in any case, and with "_" for "-". As published, including
# "f", "e", "us" and "gb".
_TOKENS = {
    "ar": "arabic ara ar",
    "bg": "bulgarian bul bg",
    "cs": "czech cze cz cs",
    "de": "deutsch german ger deu de tedesco de-de de-ch de-at de-li de-lu allemand",
    "en": "english eng en en-en en-us en-uk en-ca en-bz en-ab en-in en-ie en-jm en-nz en-ph en-za "
    "en-tt gb en-gb inglese englisch us e",
    "es": "espanol spanish spa esp es",
    "fi": "finnish finnisch fin suomi suomeksi suominen suomija fi-fi fi",
    "fr": "french francais fran fra fre fr fr-be fr-ca fr-fr fr-lu fr-ch f",
    "it": "italian italiano ital ita it-it it-ch it",
    "ro": "romanian romana romlang rom ro-ro ro",
    "so": "soma som so somal somali so-so af-soomaali soomaali",
    "tr": "turkish tur turkic tr-tr tr",
    "zh": "chinese chi zh",
}
# Query variables that begin or end with one of these name the language, whatever their value.
_QUERY_VARIABLES = ("lang", "clang", "language", "locale", "selectedlocale")
# Close the gaps that a stripped token leaves in a path, in this order.
_REPAIRS = (("//+", "/"), ("__+", "_"), ("/_+", "/"), ("_/", "/"), ("--+", "-"))


def match_urls(
    source_urls: Sequence[str | None],
    target_urls: Sequence[str | None],
    source_language: str,
    target_language: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs documents whose URLs (None or "" for none) differ only in the name of their language.

    Each document is in one pair at most. The rules apply in this order, within each rule the first
    documents first: a stripped source URL equals a target URL (`site/page?lang=fr`, `site/page`); a
    stripped target URL equals a source URL; both stripped URLs are equal (`site/fr/page`,
    `site/en/page`).
    Choice: the published script visits the pairs of a rule in no particular order, and compares
    https URLs with "http://" prepended; here https counts as http.

    Returns:
        Source rows and target rows of the pairs, [p] int64 each.
    """
    source, target = _first_rows(source_urls), _first_rows(target_urls)
    source_stripped = _strip_all(source, source_language)
    target_stripped = _strip_all(target, target_language)
    kept: dict[int, int] = {}
    used: set[int] = set()

    def pair(rows: Iterable[int], others: Iterable[int]) -> None:
        free = [j for j in others if j not in used]
        for i, j in zip([i for i in rows if i not in kept], free):
            kept[i] = j
            used.add(j)

    for stripped, rows in source_stripped.items():
        if stripped in target:
            pair(rows, [target[stripped]])
    for stripped, rows in target_stripped.items():
        if stripped in source:
            pair([source[stripped]], rows)
    for stripped, rows in source_stripped.items():
        pair(rows, target_stripped.get(stripped, ()))
    return np.array([*kept], np.int64), np.array([*kept.values()], np.int64)


def strip_url(url: str, language: str) -> str | None:
    """Strips the name of a language, an ISO 639-1 code, from a URL, with or without "http://".

    Applies the first of these that changes the URL: remove tokens of the language that stand
    between characters other than letters and digits, from the path and from query values; remove
    query variables that name a language (`clang=1`) as well; do both with the tokens of all
    languages (`/en-en/fr-fr`). A query variable is dropped if nothing is left of its name or value,
    and otherwise unchanged. Parameters and fragments are dropped, the host is kept. The only token
    of a code outside the published table is itself.

    Returns the stripped URL in the form of `normalize_url`; None if there is nothing to strip or no
    host.
    """
    url = normalize_url(url)
    own, every = (language,), tuple(sorted({*_TOKENS, language}))
    for languages, variables in ((own, ()), (own, _QUERY_VARIABLES), (every, _QUERY_VARIABLES)):
        stripped = _strip(url, languages, variables)
        if stripped not in (url, None):
            return stripped
    return None


def normalize_url(url: str) -> str:
    """Returns a URL with "http://" prepended and without the "?" of an empty query."""
    url = url.strip().rstrip("?")
    scheme = re.match("https?://", url, re.IGNORECASE)
    return f"http://{url[scheme.end() if scheme else 0 :]}"


def _first_rows(urls: Sequence[str | None]) -> dict[str, int]:
    """Maps each distinct normalized URL to its first row, in the order of rows."""
    rows: dict[str, int] = {}
    for row, url in enumerate(urls):
        if url and url.strip():
            rows.setdefault(normalize_url(url), row)
    return rows


def _strip_all(rows: dict[str, int], language: str) -> dict[str, list[int]]:
    """Maps stripped URLs to their rows, leaving out URLs with nothing to strip."""
    stripped: dict[str, list[int]] = {}
    for url, row in rows.items():
        remainder = strip_url(url, language)
        if remainder is not None:
            stripped.setdefault(remainder, []).append(row)
    return stripped


def _strip(url: str, languages: tuple[str, ...], variables: tuple[str, ...]) -> str | None:
    """Strips language tokens and query variables from a normalized URL; None without a host."""
    try:
        parts = urlparse(url)
    except ValueError:  # such as a broken IPv6 address
        return None
    if not parts.netloc:
        return None
    path = "/".join(filter(None, (_strip_word(word, languages) for word in parts.path.split("/"))))
    for gap, closed in _REPAIRS:
        path = re.sub(gap, closed, path)
    path = path.removesuffix("/") + ("/" if parts.path.endswith("/") else "")
    token, _ = _patterns(languages)
    query = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        names = any(name.lower().startswith(v) or name.lower().endswith(v) for v in variables)
        emptied = not token.sub("", name) or (value and not token.sub("", value))
        if not names and not emptied:
            query.append((name, value))
    return parts._replace(path=path, params="", query=urlencode(query), fragment="").geturl()


def _strip_word(word: str, languages: tuple[str, ...]) -> str:
    """Strips tokens from a part of a path, and punctuation that they leave at its ends."""
    token, suffix = _patterns(languages)
    stripped = token.sub("", suffix.sub("", word))
    for punctuation in (r"^[^a-zA-Z0-9]+", r"[^a-zA-Z0-9]+$"):
        if not re.search(punctuation, word):
            stripped = re.sub(punctuation, "", stripped)
    return stripped


@lru_cache
def _patterns(languages: tuple[str, ...]) -> tuple[re.Pattern, re.Pattern]:
    """Patterns of a token of the languages on its own, and of one with a hyphen before it."""
    tokens = {token for code in languages for token in _TOKENS.get(code, code.lower()).split()}
    longest_first = sorted(
        tokens | {t.replace("-", "_") for t in tokens}, key=lambda t: (-len(t), t)
    )
    plain = [re.escape(token) for token in longest_first if not re.search("[-_]", token)]
    alone = "|".join(map(re.escape, longest_first))
    return (
        re.compile(f"(?<![a-zA-Z0-9])(?:{alone})(?![a-zA-Z0-9])", re.IGNORECASE),
        re.compile(f"[-_](?:{'|'.join(plain) or '(?!)'})(?![a-zA-Z0-9])", re.IGNORECASE),
    )
