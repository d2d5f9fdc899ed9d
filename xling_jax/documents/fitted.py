"""LAWDR fitted once, for many batches of documents: a file with the estimators of both sides."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence

from safetensors.numpy import save

from xling_jax.documents.lawdr import Lawdr, reading_tensors
from xling_jax.files.whole import write_whole

_FORMAT = "xling_jax.lawdr_pair/1"


@dataclasses.dataclass(frozen=True, eq=False)
class FittedPair:
    """The estimators of two languages, and what they were fitted to.

        FittedPair(("de", "en"), tuple(aligner.fit(sides, vectors)), encoder.fingerprint).save(path)
        estimators = FittedPair.load(path).estimators_for(("de", "en"), encoder.fingerprint)

    Attributes:
        languages: of the two sides.
        estimators: fitted, one each.
        model: fingerprint of the encoder of the sentences; "" if unknown.
        document_mode: what was encoded at once, see `encode.documents`.
    """

    languages: tuple[str, str]
    estimators: tuple[Lawdr, Lawdr]
    model: str = ""
    document_mode: str = "sentences"

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self.estimators[0].dim

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one safetensors file; for its size see `Lawdr.save`."""
        tensors, facts = {}, []
        for number, lawdr in enumerate(self.estimators):
            arrays, numbers = lawdr.state()
            tensors |= {f"{number}.{name}": array for name, array in arrays.items()}
            facts.append(numbers)
        about = {name: getattr(self, name) for name in ("languages", "model", "document_mode")}
        header = {"format": _FORMAT, "about": json.dumps(about), "lawdr": json.dumps(facts)}
        write_whole(path, save(tensors, header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedPair:
        """Reads a file written by `save`; executes nothing, and gives the same bits as saved.

        Raises:
            ValueError, OSError: if the file is damaged, holds something else, or cannot be read.
        """
        what = "file of xling align --save-debias"
        with reading_tensors(path, _FORMAT, what) as (tensors, metadata):
            about, facts = json.loads(metadata["about"]), json.loads(metadata["lawdr"])
            estimators = []
            for number, numbers in enumerate(facts):
                begin = f"{number}."
                arrays = {k.removeprefix(begin): v for k, v in tensors.items() if k[:2] == begin}
                estimators.append(Lawdr.from_state(arrays, numbers))
            first, second = map(str, about["languages"])
            if len(estimators) != 2 or estimators[0].dim != estimators[1].dim:
                raise ValueError("it must hold two estimators of one dim")
            mode = str(about["document_mode"])
            return cls((first, second), tuple(estimators), str(about["model"]), mode)

    def estimators_for(
        self, languages: Sequence[str], model: str, dim: int, document_mode: str = "sentences"
    ) -> list[Lawdr]:
        """The estimators for documents in these languages, in this order.

        Args:
            languages: of the two sides.
            model: fingerprint of the encoder; "" if unknown, which fits any.
            dim: of the vectors.
            document_mode: what is encoded at once.

        Raises:
            ValueError: if they were fitted to other languages or to vectors of another kind.
        """
        known = dict(zip(self.languages, self.estimators))
        if sorted(languages) != sorted(self.languages):
            names = " and ".join(name or "no language" for name in self.languages)
            found = " and ".join(name or "no language" for name in languages)
            raise ValueError(f"fitted to {names}; found documents in {found}; fit them again")
        for name, fitted, found in (
            ("dim", self.dim, dim),
            ("document mode", self.document_mode, document_mode),
        ):
            if fitted != found:
                raise ValueError(f"fitted to vectors of {name} {fitted}; found {found}")
        if model and self.model and model != self.model:
            raise ValueError(
                f"fitted to vectors of another model, {self.model[:12]}; found {model[:12]}; fit "
                "again with this model"
            )
        if languages[0] == languages[1]:
            return list(self.estimators)
        return [known[language] for language in languages]
