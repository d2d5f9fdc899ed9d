"""JSON of unknown origin: whatever is wrong with it is one line that names the file."""

import json
import re
from typing import Any

_MAYBE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


def parse_json(text: str | bytes, where: str, *, allow_surrogates: bool = False) -> Any:
    r"""Returns the value of a JSON text.

    Args:
        text: the text.
        where: what it is called in errors.
        allow_surrogates: accept strings with lone surrogates (`"\ud800"`). They cannot be encoded
            in UTF-8, so only what cleans its strings before they are used may ask for them.

    Raises:
        ValueError: if it is not JSON, not UTF-8, nested too deeply, or has a number of thousands of
            digits; `where` names it.
    """
    try:
        value = json.loads(text)
        if not allow_surrogates:
            _refuse_surrogates(text, value)
        return value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from error


def _refuse_surrogates(text: str | bytes, value: Any) -> None:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if not _MAYBE_SURROGATE.search(raw):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start]
        raise ValueError(
            f"a string holds the lone surrogate {found!r}, which is not text"
        ) from None
