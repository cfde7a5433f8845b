"""Two experiments that are built at the same time share what is downloaded and what is asked."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from cort.models.prompts import QUERY_PROMPT
from tests.support.common import md5_of, wait_until
from tests.support.forking import snakemake
from tests.support.misbehaving_server import Step, serving
from tests.support.model_server import model_server
from tests.support.sandbox import copy_tree

NAMES = ("one", "two")
# Four pieces of the server, which pauses between them.
TEXTS = [f"passage {number} about word{number % 7}" for number in range(2_000)]
SAMPLE = 40


@pytest.mark.slow
def test_each_file_is_transferred_once_and_each_text_asked_once(tmp_path, monkeypatch):
    tree = copy_tree(tmp_path / "tree")
    passages = "".join(f"{number}\t{text}\n" for number, text in enumerate(TEXTS)).encode()
    config = {"collection": {"passages": "download:shared/collection.tsv"}, "systems": {"bm25": {"retrieve": "bm25"}}}
    config |= {"splits": {"test": {"generate": {"from": "endpoint"}, "sample": SAMPLE}}}
    config |= {"endpoint": {"model": "org/small", "max_requests": SAMPLE}}
    for name in NAMES:
        (tree / f"{name}.yaml").write_text(yaml.safe_dump(config | {"dataset": name}), "utf-8")
    logs = [tree / "logs" / name / "passage_queries.log" for name in NAMES]

    def answer(prompt):
        """Answer when both have begun to ask."""
        wait_until(lambda: all(log.exists() and "waiting for other" in log.read_text("utf-8") for log in logs))
        return prompt.removeprefix(QUERY_PROMPT)

    with serving() as files, model_server() as model, ThreadPoolExecutor() as pool:
        url = files.serve("/collection.tsv", passages, Step(pause=1))
        facts = {"urls": [url], "size": len(passages), "md5": md5_of(passages)}
        catalog = {"files": {"shared/collection.tsv": facts}}
        (tree / "cort" / "downloads" / "catalog.yaml").write_text(yaml.safe_dump(catalog), "utf-8")
        model.answer = answer
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        words = ("--cores", 1, "--until", "generate", "--configfile")
        builds = [pool.submit(snakemake, tree, *words, f"{name}.yaml") for name in NAMES]
        for status, output in (build.result() for build in builds):
            assert status == 0, output[-5000:]
    assert files.sent["/collection.tsv"] == [len(passages)]
    assert [*model.answered.values()] == [1] * SAMPLE
    one, other = (tree / "results" / name / "raw/imported/queries.test.jsonl" for name in NAMES)
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_text("utf-8").splitlines()) == SAMPLE
