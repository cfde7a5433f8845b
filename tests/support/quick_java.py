"""Java that starts in a third of the time: Anserini's classes come from an archive, and the second compiler rests.

Usage: python tests/support/quick_java.py ARCHIVE   makes the archive, with the classes that indexing and search load
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: what every Java reads, also one that Python starts in its own process
OPTIONS = "JAVA_TOOL_OPTIONS"
CALLS = [
    "index.IndexCollection -collection JsonCollection -generator DefaultLuceneDocumentGenerator -threads 1 "
    "-input texts -index index -storePositions -storeDocvectors -storeRaw",
    "search.SearchCollection -index index -topics topics.tsv -topicReader TsvString -output run.txt -bm25 -hits 10",
]


def begin():
    """Have all Javas below this process use the archive, and make it beside the tests if there is none."""
    archive = ROOT / ".pytest_cache" / "anserini.jsa"
    if OPTIONS not in os.environ:
        # Without the archive, or with that of another Java or jar, Java loads classes as usual.
        os.environ[OPTIONS] = f"-XX:TieredStopAtLevel=1 -XX:SharedArchiveFile={archive}"
        if not archive.exists():
            command = [sys.executable, "-m", "tests.support.quick_java", str(archive)]
            pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.Popen(command, cwd=ROOT, env={**os.environ, OPTIONS: ""}, **pipes)


def make(archive):
    """Index and search three texts, list the classes that were loaded, and archive them."""
    from cort.retrieval.anserini import fat_jar
    from cort.runtime.machine import java_home

    java = [str(java_home().absolute() / "bin" / "java"), "-XX:+UseParallelGC", "-cp", str(fat_jar().absolute())]
    with tempfile.TemporaryDirectory() as name:
        folder, classes = Path(name), []
        (folder / "texts").mkdir()
        texts = [json.dumps({"id": f"d{number}", "contents": "a text of words"}) for number in range(3)]
        (folder / "texts" / "a.jsonl").write_text("\n".join(texts), "utf-8")
        (folder / "topics.tsv").write_text("1\twords\n", "utf-8")
        for call in CALLS:
            options = ["-XX:DumpLoadedClassList=classes", *java[1:], *f"io.anserini.{call}".split()]
            subprocess.run([java[0], *options], cwd=folder, check=True, capture_output=True)
            lines = (folder / "classes").read_text("utf-8").splitlines()
            classes += [line.split()[0] for line in lines if line and line[0] not in "#@"]
        (folder / "classes").write_text("\n".join(dict.fromkeys(classes)), "utf-8")
        archive.parent.mkdir(exist_ok=True)
        made = archive.with_suffix(f".{os.getpid()}")
        options = ["-Xshare:dump", "-XX:SharedClassListFile=classes", f"-XX:SharedArchiveFile={made}", *java[1:]]
        subprocess.run([java[0], *options], cwd=folder, check=True, capture_output=True)
        made.rename(archive)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
