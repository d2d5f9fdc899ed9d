"""Words are counted as the Moses tokenizer splits text, in any script."""

import pytest

from xling_jax.text.words import count_words


@pytest.mark.parametrize(
    "text, num_words",
    [
        ("Good morning, Mr. Smith.", 7),
        ("l'homme qui n'est pas là", 7),
        ("a well-known 1,000.50", 3),
        ("(yes)", 3),
        ("हिन्दी में", 2),
        ("日本語です", 3),
        ("สวัสดีครับ", 2),
        ("I use 日本 daily", 4),
        ("", 0),
    ],
)
def test_count_words(text, num_words):
    assert count_words(text) == num_words
