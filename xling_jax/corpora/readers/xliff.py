"""Files of translators (XLIFF 1.2 and 2): a source and a target language, unit by unit."""

from xling_jax.corpora.readers.xml_units import UnitCollector, UnitReader

# Inside of which are other sources and targets: matches of a memory, alternatives, binary data.
_ASIDE = frozenset({"alt-trans", "matches", "bin-unit", "glossary", "changeTrack"})
# Of targets that nobody has translated.
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})


class _XliffCollector(UnitCollector):
    """A row for each <trans-unit> of version 1, or <segment> of version 2.

    Targets in a state that says they are not translated are left out.
    """

    root, holder = "xliff", "<source> and <target>"
    native = frozenset({"bpt", "ept", "it", "ph", "x", "bx", "ex", "sc", "ec", "cp"})
    alone = frozenset({"it", "ph", "x", "cp"})

    def __init__(self, *args):
        super().__init__(*args)
        self._tags = {"source": "", "target": ""}
        self._state = ""
        self._aside = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name in ("xliff", "file"):
            for side, short in (("source", "srcLang"), ("target", "trgLang")):
                tag = attributes.get(short) or attributes.get(f"{side}-language")
                self._tags[side] = tag or self._tags[side]
                if tag:
                    self.match(tag)
        elif name in _ASIDE:
            self._aside += 1
        elif self._aside:
            return
        elif name in ("trans-unit", "segment"):
            self.begin_unit()
            self._state = attributes.get("state", "")
        elif name in self._tags:
            state = attributes.get("state", self._state)
            self.begin_text(self._language(name, state))

    def end(self, name: str) -> None:
        if name in _ASIDE:
            self._aside -= 1
        elif self._aside:
            return
        elif name in ("trans-unit", "segment"):
            self.end_unit()
        elif name in self._tags:
            self.end_text(self._language(name))

    def _language(self, side: str, state: str = "") -> str | None:
        is_missing = side == "target" and state in _UNTRANSLATED
        tag = self._tags[side]
        return self.match(tag) if tag and not is_missing else None


class XliffReader(UnitReader):
    """`xlf:GLOB`, files of XLIFF 1.2 or 2."""

    collector = _XliffCollector
