"""Hashes of files, of texts and of values."""

import hashlib
import json
import os
import unicodedata
from collections.abc import Iterable, Sequence


def hash_file(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of a file's content in hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_texts(named_texts: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Returns the SHA-256, in hex digits, of named lists of texts in the order given."""
    digest = hashlib.sha256()
    for name, texts in named_texts:
        for item in (name, str(len(texts)), *texts):
            encoded = item.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(encoded) + encoded)
    return digest.hexdigest()


def content_hash(text: str) -> int:
    """64-bit hash of the case-folded letters and digits of a text; 0 if it has none.

    Letters include their combining marks, such as the vowel signs of Indic scripts. Characters
    that vocabularies do not tell apart, such as full-width letters, are equal (NFKC).
    """
    if text.isascii():
        content = "".join(filter(str.isalnum, text.lower()))
    else:
        text = unicodedata.normalize("NFKC", text).casefold()
        content = "".join(c for c in text if c.isalnum() or unicodedata.category(c)[0] == "M")
    if not content:
        return 0
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little")


def fingerprint(value: object) -> str:
    """Returns 16 hex digits that identify a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
