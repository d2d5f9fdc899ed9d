"""JSON of unknown origin: whatever is wrong with it is one line that names the file."""

import json
from typing import Any


def parse_json(text: str | bytes, where: str) -> Any:
    """Returns the value of a JSON text.

    Raises:
        ValueError: if it is not JSON, not UTF-8, nested too deeply, or has a number of thousands of
            digits; `where` names it.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from error
