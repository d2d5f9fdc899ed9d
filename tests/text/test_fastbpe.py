import pytest

from xling_jax.text.laser_vocab import FastBPE

CODES = "l o 90\nlo w 80\nlo w</w> 70\ne r</w> 60\nn e 50\nw er</w> 40\nlow er</w> 30\n"
VOCABULARY = "low 9\nlo@@ 8\nw 7\nne@@ 6\nwer 5\ne@@ 4\nr 3\nk@@ 2\na@@ 2\na 1\n"
WORDS = "low lower newer lowlow er ♥ a aa kéé lololow x"


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        ("", "low lower ne@@ wer low@@ low er ♥ a a@@ a k@@ é@@ é lo@@ lo@@ low x"),
        (
            VOCABULARY,
            "low lo@@ w@@ e@@ r ne@@ wer lo@@ w@@ low e@@ r ♥ a a@@ a k@@ é@@ é lo@@ lo@@ low x",
        ),
    ],
)
def test_words_are_split_as_by_fastbpe(vocabulary, expected):
    """The expected text is what `fast applybpe` of glample/fastBPE writes for these files."""
    bpe = FastBPE(CODES, vocabulary)
    assert " ".join(piece for word in WORDS.split() for piece in bpe.split(word)) == expected


def test_the_last_part_of_a_word_stays_whole_if_it_is_known_as_a_last_one():
    bpe = FastBPE("b c</w> 9\na bc</w> 8\n", "bc 9\na@@ 9\nb@@ 9\nc 9\n")
    assert bpe.split("abc") == ("a@@", "bc")


def test_a_broken_line_is_named():
    with pytest.raises(ValueError, match="fastBPE codes, line 2: must hold 3 fields.* 'lo w'"):
        FastBPE("l o 90\nlo w\n")
    with pytest.raises(ValueError, match="fastBPE vocabulary, line 1: must hold 2 fields"):
        FastBPE(CODES, "low nine\n")
