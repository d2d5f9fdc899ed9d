"""Errors of other libraries, as part of a message of ours."""


def one_line(error: BaseException, most: int | None = None) -> str:
    """The message of an error in one line, without what follows `most` characters."""
    # str() of a KeyError is the repr of its message.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(text).split())[:most]
