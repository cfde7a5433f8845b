import re
import subprocess

import pytest
import yaml

from cort.config import paths
from cort.config.downloads import file_pattern, named_files, resolve
from cort.config.experiment import Experiment
from cort.config.load import complete
from cort.downloads.catalog import load_catalog
from tests.support.archives import tar_of
from tests.support.common import md5_of, wait_until
from tests.support.configs import mistakes_in
from tests.support.forking import snakemake, succeed
from tests.support.misbehaving_server import Step, serving
from tests.support.processes import Python
from tests.support.sandbox import TINY, copy_with_tiny, digests
from workflow import preflight


def experiment(**changes):
    """An experiment on public files."""
    files = {"queries": "download:msmarco/queries.dev.small.tsv", "qrels": "download:msmarco/qrels.dev.small.tsv"}
    config = {
        "dataset": "public",
        "collection": {"passages": "download:msmarco/collection.tsv"},
        "splits": {"dev": files, "dl19": {"queries": "mine.tsv", "qrels": "download:trec-dl/qrels.2019.txt"}},
        "systems": {"bm25": {"retrieve": "bm25"}},
    }
    return config | changes


def mistakes(**changes):
    return mistakes_in(experiment(**changes))


def test_public_files_may_stand_wherever_raw_files_do():
    runs = {"one": {"run": {"dev": "download:msmarco/top1000.dev.tsv"}}}
    complete(experiment(systems=runs, evaluation={"baseline": "one"}), "public")


def test_an_unknown_name_is_a_mistake_with_the_nearest_one():
    [line] = mistakes(collection={"passages": "download:msmarco/colection.tsv"})
    assert line == (
        "collection.passages: found download:msmarco/colection.tsv, expected a name in cort/downloads/catalog.yaml; "
        "did you mean download:msmarco/collection.tsv?"
    )


def test_names_are_looked_for_split_by_split():
    runs = {"bm25": {"retrieve": "bm25"}, "given": {"run": "download:msmarco/top1000.{split}.tsv"}}
    [line] = mistakes(systems=runs)
    assert line.startswith("systems.given.run: found download:msmarco/top1000.dl19.tsv, expected a name")


def test_an_archive_is_no_raw_file():
    [line] = mistakes(collection={"passages": "download:msmarco/queries.tar.gz"})
    assert "found the archive msmarco/queries.tar.gz, expected a file in it" in line


def test_names_become_paths_and_nothing_else_changes():
    written = complete(experiment(title="download: a title"), "test")
    resolved = resolve(written.root)
    config, found = written.config, Experiment(resolved).config
    assert found["collection"]["passages"] == "results/public/raw/msmarco/collection.tsv"
    assert found["splits"]["dl19"] == config["splits"]["dl19"] | {"qrels": "results/public/raw/trec-dl/qrels.2019.txt"}
    assert {key for key in config if config[key] != found[key]} == {"collection", "splits"}
    assert resolve(resolved) == resolved
    assert len(list(named_files(written))) == 4


def test_each_file_is_made_by_the_rule():
    paths = [f"results/public/raw/{name}" for name in load_catalog().files]
    assert all(re.search(f"/({file_pattern()})$", path) for path in paths)
    assert not re.search(f"/({file_pattern()})$", "results/public/raw/msmarco/other.tsv")


def test_a_file_to_come_is_no_missing_input(tmp_path):
    found = preflight.check_inputs(complete(experiment(), "test"), tmp_path)
    assert [line.split(":")[0] for line in found] == ["splits.dl19.queries"]


PLAIN = {"queries": 503, "qrels": 429}


def publish(tree, server):
    """Put the tiny experiment's files onto a server that misbehaves, and into the catalogue of a copy; its config."""
    data = tree / "tiny" / "data"
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    packed = ("queries.train.tsv", "collection.tsv", "run.test.trec")
    content = tar_of(*((name, (data / name).read_bytes()) for name in packed))
    urls = [server.url + "/nowhere", server.serve("/tiny.tar.gz", content, Step(cut=1_000), Step())]
    files = {"tiny/all.tar.gz": {"urls": urls, "bytes": len(content), "md5": md5_of(content)}}
    for name in packed:
        lines = len((data / name).read_bytes().splitlines())
        files[f"tiny/{name}"] = {"archive": "tiny/all.tar.gz", "member": name, "lines": lines}
    for name in ("qrels.train.tsv", "queries.test.tsv", "qrels.test.tsv"):
        content = (data / name).read_bytes()
        steps = [Step(status=PLAIN[name.split(".")[0]], headers={"Retry-After": "0"}), Step()]
        files[f"tiny/{name}"] = {"urls": [server.serve(f"/{name}", content, *steps)], "size": 1, "md5": md5_of(content)}
        files[f"tiny/{name}"]["size"] = len(content)
    (tree / "cort" / "downloads" / "catalog.yaml").write_text(yaml.safe_dump({"files": files}), "utf-8")
    # These stay files of this machine.
    config["papers"] = ["mine/paper.csv"]
    config["expanders"]["doc2query"]["file"] = "mine/predictions.zip"
    text = yaml.safe_dump(config).replace("tiny/data/", "download:tiny/")
    (tree / "public.yaml").write_text(text, "utf-8")
    # Nothing is taken from there.
    data.rename(tree / "mine")
    return "public.yaml"


RESULTS = ("results/tiny/runs/**/*", "results/tiny/measures/**/*", "results/tiny/encoders/**/*.safetensors")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_workflow_on_public_files_gives_the_bytes_of_one_on_local_files(built, tmp_path):
    tree = copy_with_tiny(tmp_path / "tree")
    with serving() as server:
        config = publish(tree, server)
        succeed(tree, "snakemake", "--cores", 2, "--configfile", config)
        # Each once, in spite of all.
        assert sum(server.sent["/tiny.tar.gz"]) == (tree / paths.KEPT / "tiny" / "all.tar.gz").stat().st_size
        assert len(server.asked["/queries.test.tsv"]) == 2
    assert digests(tree, *RESULTS) == digests(built, *RESULTS)
    assert len(digests(tree, *RESULTS)) > 10
    status, output = snakemake(tree, "--dry-run", "--configfile", config)
    assert (status, "Nothing to be done" in output) == (0, True), output
    # Where files come from decides nothing: not another folder, not other mirrors, not what is deleted.
    changed = yaml.safe_load((tree / config).read_text("utf-8")) | {"downloads": {"folder": "mine"}}
    (tree / config).write_text(yaml.safe_dump(changed), "utf-8")
    (tree / paths.KEPT / "tiny" / "all.tar.gz").unlink()
    catalog = tree / "cort" / "downloads" / "catalog.yaml"
    catalog.write_text(catalog.read_text("utf-8").replace("127.0.0.1", "127.0.0.2"), "utf-8")
    status, output = snakemake(tree, "--dry-run", "--configfile", config)
    assert (status, "Nothing to be done" in output) == (0, True), output
    # The folder has all, the archive's files one by one.
    (tree / "results" / "tiny" / "raw").rename(tree / "raw")
    succeed(tree, "snakemake", "--cores", 2, "--configfile", config, "--until", "download")
    target = "results/tiny/raw/tiny/collection.tsv"
    succeed(tree, "snakemake", "--cores", 2, "--configfile", config, "--force", target)
    assert (tree / target).read_bytes() == (tree / "raw" / "tiny" / "collection.tsv").read_bytes()
    assert not (tree / paths.KEPT / "tiny" / "all.tar.gz").exists()


@pytest.mark.slow
def test_a_workflow_that_was_killed_goes_on_where_the_transfer_was(tmp_path, real_starts):
    tree = copy_with_tiny(tmp_path / "tree")
    with serving() as server:
        config = publish(tree, server)
        size = len(server.files["/tiny.tar.gz"])
        server.steps["/tiny.tar.gz"] = [Step(stall=2_000), Step()]
        target = "results/tiny/raw/tiny/collection.tsv"
        arguments = (target, "--cores", "1", "--configfile", config)
        words = ("-m", "workflow.build", "--configfile", config, "--", target)
        with Python(*words, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT):
            wait_until(lambda: server.sent["/tiny.tar.gz"] == [2_000])
            wait_until(lambda: any(path.stat().st_size == 2_000 for path in (tree / paths.KEPT).rglob("*.part")))
        assert snakemake(tree, "--unlock", "--configfile", config)[0] == 0
        succeed(tree, "snakemake", *arguments)
        assert server.sent["/tiny.tar.gz"] == [2_000, size - 2_000]
    assert (tree / target).read_bytes() == (tree / "mine" / "collection.tsv").read_bytes()
