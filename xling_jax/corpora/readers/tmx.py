"""Translation memories (TMX 1.4): units with a variant for each language."""

from xling_jax.corpora.readers.xml_units import UnitCollector, UnitReader


class _TmxCollector(UnitCollector):
    """Of several variants in one language the first with text counts; "hi" holds text."""

    root, holder = "tmx", "<seg>"
    native = frozenset({"bpt", "ept", "it", "ph", "ut"})
    alone = frozenset({"it", "ph"})
    _language: str | None = None
    _in_variant = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self.begin_unit()
        elif name == "tuv":
            if self._in_variant:
                self.refuse("a variant is inside another")
            self._in_variant = True
            self._language = self.match(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self.begin_text(self._language)

    def end(self, name: str) -> None:
        if name == "seg":
            self.end_text(self._language)
        elif name == "tu":
            self.end_unit()
        elif name == "tuv":
            self._language, self._in_variant = None, False


class TmxReader(UnitReader):
    """`tmx:GLOB`, translation memories."""

    collector = _TmxCollector
