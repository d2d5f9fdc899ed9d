"""Model directories on the Hugging Face hub."""

from __future__ import annotations

import os

from xling_jax.encode.model_directory import load_model
from xling_jax.registry import import_extra


def push_directory(
    directory: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload sentence encoder",
) -> str:
    """Uploads a model directory to the Hugging Face hub, in one commit.

    The repository is made if there is none. What was downloaded from it (`hf download REPO_ID
    --local-dir DIR`) is a model directory again, which `xling_jax.load` reads.

    Args:
        directory: a model directory; it is checked first.
        repo_id: `NAME` or `ORGANIZATION/NAME`.
        private: of a new repository; None for the default of its owner.
        token: of the hub; None for the one of `hf auth login`.
        revision: branch to commit to; None for the main one.
        commit_message: of the commit.

    Returns:
        The URL of the commit.

    Raises:
        ImportError: without huggingface_hub.
        ValueError: if the directory is not intact.
    """
    hub = import_extra("huggingface_hub", "hub", "uploading to the Hugging Face hub")
    api = hub.HfApi(token=token)
    load_model(directory)
    api.create_repo(repo_id, private=private, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repo_id,
        folder_path=os.fspath(directory),
        commit_message=commit_message,
        revision=revision,
    )
    return str(commit.commit_url)
