"""What a server has done, in the text format of Prometheus."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Mapping

from xling_jax.serve.batching import Batcher

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper bounds of the histogram of response times.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts of responses and their times, by path."""

    def __init__(self):
        self._responses: collections.Counter[tuple[str, int]] = collections.Counter()
        self._below: dict[str, list[int]] = {}
        self._seconds: collections.Counter[str] = collections.Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Counts a response."""
        self._responses[path, status] += 1
        self._seconds[path] += seconds
        below = self._below.setdefault(path, [0] * (len(_SECONDS) + 1))
        below[bisect.bisect_left(_SECONDS, seconds)] += 1

    def text(self, batchers: Mapping[str, Batcher]) -> str:
        """All metrics, with those of each model."""
        lines = ["# TYPE xling_requests_total counter"]
        for (path, status), count in sorted(self._responses.items()):
            lines.append(f'xling_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE xling_request_seconds histogram")
        for path, counts in sorted(self._below.items()):
            total = 0
            for bound, count in zip((*_SECONDS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'xling_request_seconds_bucket{{path="{path}",le="{bound}"}} {total}')
            lines.append(f'xling_request_seconds_sum{{path="{path}"}} {self._seconds[path]:.6f}')
            lines.append(f'xling_request_seconds_count{{path="{path}"}} {total}')
        for name, kind, attribute in (
            ("xling_texts_total", "counter", "num_texts"),
            ("xling_tokens_total", "counter", "num_tokens"),
            ("xling_batches_total", "counter", "num_batches"),
            ("xling_waiting_texts", "gauge", "num_waiting"),
        ):
            lines.append(f"# TYPE {name} {kind}")
            for model, batcher in batchers.items():
                label = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                lines.append(f'{name}{{model="{label}"}} {getattr(batcher, attribute)}')
        return "\n".join(lines) + "\n"
