"""Push a trained model to a hub, with the user's own token from the environment (HF_TOKEN).

Reads:  a model folder with its card; pushed are weights in safetensors, tokenizer, settings and card, and nothing else
Writes: a commit to a repository, which is created if there is none; HF_ENDPOINT names another hub
Usage:  python -m cort.publish --model results/nfcorpus/encoders/small/best --repo name/small
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Literal

from cort.models.card import CARD
from cort.runtime import cli
from cort.runtime.errors import input_error, reason_of
from cort.runtime.interruption import Interrupted
from cort.runtime.sections import FolderPath, Section, Text

log = logging.getLogger(__name__)

TOKEN = "HF_TOKEN"  # noqa: S105 - the name of a variable
#: weights, settings and tokenizers
PUSHED = [CARD, "*.safetensors", "*.json", "*.txt", "*.jinja", "*.model"]


class Options(Section):
    """Options of this command."""

    model: FolderPath
    """A model folder with its card."""
    repo: Text
    """Name of the repository, USER/NAME."""
    visibility: Literal["private", "public"] = "private"
    """Of a new repository."""


def stage(options: Options) -> None:
    """Check the folder, create the repository, and push.

    :raises InputError: no model, no token, a hub that refuses or cannot be reached.
    """
    folder, token = Path(options.model), os.environ.get(TOKEN)
    if not (folder / CARD).is_file() or not any(folder.rglob("*.safetensors")):
        expected = f"a model with {CARD} and safetensors weights"
        raise input_error(folder, "no complete model", expected, "name the folder best or last of a training")
    if not token:
        raise input_error(TOKEN, "no token in the environment", "one that may write", f"`export {TOKEN}=...`")
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    # The hub's client would log each of its requests.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    api = HfApi(os.environ.get("HF_ENDPOINT"), token)
    try:
        name = api.create_repo(options.repo, private=options.visibility == "private", exist_ok=True).repo_id
        message = f"Upload {folder.name} with the CoRT workflow"
        found = api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=PUSHED, commit_message=message)
    except Interrupted:
        raise
    except Exception as error:  # the client's transport layer raises errors of its own
        fix = f"check name, network and the rights of {TOKEN}"
        raise input_error(
            options.repo, f"a failed push ({reason_of(error)})", "a repository to write to", fix
        ) from error
    log.info("pushed %s to %s", folder, found)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
