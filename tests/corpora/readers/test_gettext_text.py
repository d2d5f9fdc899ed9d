import pytest

from xling_jax.corpora.readers.gettext import clean_message, is_symbolic


def clean(text):
    return clean_message({"en": text}).get("en", "")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("Delete %(name)s?", "Delete X?"),
        ("Delete %s?", "Delete X?"),
        ("%1$s of %2$d", "X of X"),
        ("Total: %.2f or %-5d", "Total: X or X"),
        ("Hello {name}, {0} and {}", "Hello X, X and X"),
        ("Width {width!r:>10}", "Width X"),
        ("{{ count }} rows in {% tag %}", "X rows in X"),
        ("Hello ${name}, %{other}", "Hello X, X"),
        ("Page %1 of %n", "Page X of X"),
        ("At {day}{month}", "At X"),
        ("100% sure, 50 % off, 5%", "100% sure, 50 % off, 5%"),
        ("%d%% done", "X% done"),
        ("It costs $5 or US$ 6", "It costs $5 or US$ 6"),
    ],
)
def test_placeholders_become_one_word_and_percentages_stay(message, sentence):
    assert clean(message) == sentence


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ('See <a href="%(url)s">the <b>manual</b></a>.', "See the manual."),
        ("One<br/>two<br>three", "One two three"),
        ("<p>First.</p><p>Second.</p>", "First. Second."),
        ("Press <0>Save</0> now", "Press Save now"),
        ("Copy <source> to <target name>", "Copy <source> to <target name>"),
        ("Terms &amp; conditions&nbsp;apply", "Terms & conditions apply"),
        ("Write &lt;b&gt; for bold", "Write <b> for bold"),
        ("a < b and c > d", "a < b and c > d"),
        ("A <!-- hidden --> word", "A word"),
        ("Two\n   lines\t here", "Two lines here"),
    ],
)
def test_markup_goes_and_words_stay(message, sentence):
    assert clean(message) == sentence


@pytest.mark.parametrize(
    ("texts", "cleaned"),
    [
        ({"en": "_File", "de": "_Datei"}, {"en": "File", "de": "Datei"}),
        ({"en": "_Zoom", "de": "_Zoom"}, {"en": "Zoom", "de": "Zoom"}),
        ({"en": "E_xit", "de": "Be_enden"}, {"en": "Exit", "de": "Beenden"}),
        ({"en": "E&xit", "de": "Beenden"}, {"en": "E&xit", "de": "Beenden"}),
        ({"en": "&Save", "ja": "保存(&S)"}, {"en": "Save", "ja": "保存"}),
        ({"en": "Set file_name", "de": "Setze file_name"}, None),
        ({"en": "AT&T phone", "de": "Telefon von AT&T"}, None),
        ({"en": "Cats & dogs", "de": "Katzen & Hunde"}, None),
        ({"en": "a_b and c_d", "de": "_a und _b"}, None),
        ({"en": "Save && go", "de": "Sichern && los"}, {"en": "Save & go", "de": "Sichern & los"}),
    ],
)
def test_accelerator_marks_go_and_identifiers_stay(texts, cleaned):
    assert clean_message(texts) == (cleaned or texts)


def test_messages_without_words_are_left_out():
    texts = {"en": "%s: {count}", "de": "{n, plural, one {eins} other {viele}}", "fr": "<br>"}
    assert clean_message(texts) == {}


def test_symbolic_ids_are_told_from_text():
    for key in ("label_add", "error.not_found", "DATE_FORMAT", "a:b:c"):
        assert is_symbolic(key)
    for text in ("Add", "Add label", "e.g.", "Sign-in", "3.5", "Added label_add"):
        assert not is_symbolic(text)
