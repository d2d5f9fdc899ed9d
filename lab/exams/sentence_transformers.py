"""Vectors of a sentence-transformers directory here and in sentence-transformers.

    python lab/exams/sentence_transformers.py DIRECTORY [--backend jax] [--most 1e-6]

Prints the largest difference over texts of many scripts and odd texts, and the text; exits with 1
if it is above `--most`. Vectors are compared after scaling to length 1, one text at a time, since
the last bits of a batch depend on its shape.
"""

import argparse
import os
import sys

sys.path = [path for path in sys.path if not path.endswith("exams")]  # this file has its name
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402

import xling_jax  # noqa: E402

SCRIPTS = """\
The quick brown fox jumps over the lazy dog.
Die Vögel zwitschern früh am Morgen; größere Sorgen hat niemand.
L’été dernier, nous étions déjà à Besançon.
El niño comió paella en Málaga.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Thủ đô của Việt Nam là Hà Nội.
Быстрая коричневая лиса перепрыгивает через ленивую собаку.
Η γρήγορη αλεπού πηδάει πάνω από το σκυλί.
הכלב ישן על הספה
الكلب ينام على الأريكة.
یہ ایک جملہ ہے
यह एक वाक्य है।
আমি বাংলায় গান গাই।
இது ஒரு வாக்கியம்.
ఇది ఒక వాక్యం.
ഇത് ഒരു വാക്യമാണ്.
สวัสดีครับ ผมชื่อสมชาย
ຂ້ອຍຮັກເຈົ້າ
ကျွန်တော် မြန်မာ လူမျိုး ပါ
ខ្ញុំស្រឡាញ់អ្នក
我爱北京天安门。
東京は日本の首都です。
나는 한국어를 공부합니다.
ეს არის წინადადება.
Սա նախադասություն է։
ይህ ዓረፍተ ነገር ነው።
""".splitlines()
ODD = [
    *["", " ", "\n", "\t \n", ".", "a", "A", "?!", "0", "…", "\u200b", "\ufeff", "\x00", "\x07a"],
    *["[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]", "<pad>", "<mask>", "<s>", "</s>", "<unk>"],
    "The [MASK] sat on the [PAD] mat.",
    "a[PAD]b [PAD] [PAD] c",
    "[CLS] quoted [SEP] text [SEP]",
    "the <mask> of <pad> and </s> then <s> more <unk>",
    "<pad> <pad> x <pad>",
    *["[mask]", "[ MASK ]", "<MASK>", "< mask >", "[PAD", "PAD]"],
    *[
        "e\u0301 \u00e9",
        "ﬁ ﬂ ½ Å K",
        "ＦＵＬＬ ｗｉｄｔｈ",
        "Straße STRASSE ẞ",
        "İstanbul ıI",
        "Σίσυφος ΟΔΟΣ",
    ],
    *["👩‍👩‍👧‍👦 🇩🇪 👍🏽", "😀" * 50, "x" * 300, "word " * 600, "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "\u202eabc\u202c"],
    *[
        "https://example.org/a?b=c&d=%20#e",
        "<b>bold</b> &amp; more",
        "C:\\path\\file.txt",
        "a_b-c.d",
    ],
    "tabs\tand\u00a0spaces\u3000of  many\u2003kinds",
    "line\nbreaks\r\nin\rit",
    "mixed 中文 and русский and العربية in one",
    "1,234.56 € 12:30 3rd № ™",
]


def main() -> int:
    """Prints the comparison; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--most", type=float, default=1e-6)
    args = parser.parse_args()
    theirs = SentenceTransformer(args.directory, device="cpu")
    ours = xling_jax.load(args.directory, backend=args.backend)
    texts = [*SCRIPTS, *ODD]
    expected = np.stack([theirs.encode(text, normalize_embeddings=True) for text in texts])
    found = np.stack([ours.encode(text, normalize=True) for text in texts])
    together = ours.encode(texts, normalize=True)
    differences = np.abs(found - expected).max(axis=1)
    worst = int(differences.argmax())
    above = int((differences > args.most).sum())
    print(
        f"{args.directory}: {len(texts)} texts, {expected.shape[1]} dimensions; largest difference "
        f"{differences[worst]:.2e} ({texts[worst]!r:.60}), {above} above {args.most:g}; in one "
        f"batch {np.abs(together - expected).max():.2e}"
    )
    for index in np.argsort(-differences)[: min(above, 10)]:
        print(f"  {differences[index]:.2e}  {texts[index]!r:.80}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
