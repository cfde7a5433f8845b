"""The dress rehearsal: its switch, its small files and models, the server that gives them, and all of it at work."""

import hashlib
import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cort.downloads import rehearsal
from cort.downloads.catalog import CATALOG, load_catalog, problem_with
from cort.downloads.fetch import Sources
from cort.formats.predictions import iter_predictions
from cort.formats.raw import iter_passages, iter_queries
from cort.import_expansions import fit
from cort.system.errors import InputError
from scripts.dress import files, mirror, models, rehearse
from scripts.drill import FINISHED, parse_log
from scripts.sandbox import snakemake

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
CONFIGS = sorted(path for path in (ROOT / "config").glob("*.yaml"))
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="no samples of real data here")
HERE = {"urls": ["http://127.0.0.1:1/a"], "size": 3, "md5": "0" * 32}


# The switch.


def switch_on(folder, **entry):
    (folder / rehearsal.FILE).write_text(yaml.safe_dump({"files": {"a/b": HERE | entry}}), "utf-8")


def test_a_catalogue_in_the_working_folder_is_the_one_in_use(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (rehearsal.is_on(), "msmarco/collection.tsv" in load_catalog().files) == (False, True)
    switch_on(tmp_path)
    assert (rehearsal.is_on(), list(load_catalog().files)) == (True, ["a/b"])
    # One that is asked for is the one meant.
    assert "msmarco/collection.tsv" in load_catalog(CATALOG).files


@pytest.mark.parametrize("url", ["http://example.org/a", "https://127.0.0.1:1/a", "http://127.0.0.1.example.org:1/a"])
def test_a_rehearsal_with_files_of_the_world_is_refused(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    switch_on(tmp_path, urls=[HERE["urls"][0], url])
    with pytest.raises(InputError) as error:
        load_catalog()
    [line] = str(error.value).splitlines()
    assert f"a/b: found {url!r}, expected http://127.0.0.1:PORT/ in a rehearsal; remove the file" in line


def test_downloads_of_a_rehearsal_are_kept_apart(tmp_path):
    code = "from workflow import paths; print(paths.KEPT)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    for kept in ("results/.downloads", "results/.rehearsal"):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == kept
        switch_on(tmp_path)


def test_no_rehearsal_is_shipped():
    assert not (ROOT / rehearsal.FILE).exists()


# Files.


@pytest.fixture(scope="module")
def small():
    return files.contents_of(load_catalog(CATALOG), DATA)


@with_data
def test_every_file_of_the_catalogue_has_a_small_one_with_the_same_facts(small, tmp_path):
    catalog = load_catalog(CATALOG)
    written = files.small_catalog(catalog, small, "http://127.0.0.1:1", "http://127.0.0.1:1/broken")
    (tmp_path / rehearsal.FILE).write_text(yaml.safe_dump(written), "utf-8")
    found = load_catalog(tmp_path / rehearsal.FILE)
    assert found.files.keys() == catalog.files.keys()
    for name, file in found.files.items():
        before = catalog.files[name]
        assert (file.archive, file.member) == (before.archive, before.member)
        stated = {"bytes", "size", "md5", "sha256", "lines"}
        assert {key for key in stated if getattr(file, key)} == {key for key in stated if getattr(before, key)}
        (tmp_path / "copy").write_bytes(small[name])
        assert problem_with(tmp_path / "copy", file) is None, name


@with_data
def test_small_files_fit_together(small):
    ids = {line.split("\t")[0] for line in small["msmarco/collection.tsv"].decode().splitlines()}
    assert len(ids) == 2_000
    dev = {line.split("\t")[0] for line in small["msmarco/queries.dev.tsv"].decode().splitlines()}
    first = {line.split("\t")[0] for line in small["msmarco/queries.dev.small.tsv"].decode().splitlines()}
    # As many as config/msmarco.yaml draws.
    assert first <= dev
    assert len(dev - first) >= 1_000
    for name in (
        "msmarco/qrels.dev.tsv",
        "msmarco/qrels.train.tsv",
        "trec-dl/qrels.2019.txt",
        "trec-dl/qrels.2020.txt",
    ):
        assert {line.split()[2] for line in small[name].decode().splitlines()} <= ids
    assert [len(line.split("\t")) for line in small["msmarco/top1000.dev.tsv"].decode().splitlines()[:2]] == [4, 4]


@with_data
@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("doctttttquery/predicted_queries_topk_sampling.zip", 40),
        ("doc2query/msmarco-passage-pred-test_topk10.tar.gz", None),
        ("doc2query/trec-car-pred-test_topk10.tar.gz", None),
    ],
)
def test_predicted_queries_are_of_the_passages_in_their_order(small, tmp_path, name, samples):
    path = tmp_path / Path(name).name
    path.write_bytes(small[name])
    predicted = list(iter_predictions(path, samples))
    texts = [line.split("\t")[1] for line in small["msmarco/collection.tsv"].decode().splitlines()]
    assert len(predicted) == len(texts) == 2_000
    assert {len(queries) for queries in predicted} == {samples or 1}
    assert fit(texts, predicted)


@with_data
def test_trec_car_has_as_many_topics_as_its_experiment_draws(small, tmp_path):
    for name in ("paragraphs.cbor", "fold-0.qrels", "fold-4.qrels", "test.qrels"):
        (tmp_path / name).write_bytes(small[f"trec-car/{name}"])
    passages = {passage.id: passage.text for _, passage in iter_passages(tmp_path / "paragraphs.cbor")}
    assert next(iter(passages.values())) == small["msmarco/collection.tsv"].decode().splitlines()[0].split("\t")[1]
    asked = {
        name: {query.id: query.text for _, query in iter_queries(tmp_path / f"{name}.qrels")}
        for name in ("fold-0", "fold-4", "test")
    }
    assert {name: len(queries) for name, queries in asked.items()} == {"fold-0": 30, "fold-4": 1_000, "test": 20}
    for line in small["trec-car/test.qrels"].decode().splitlines():
        topic, _, passage, _ = line.split()
        assert set(asked["test"][topic].split()) <= set(re.findall(r"[A-Za-z]+", passages[passage]))


@with_data
def test_a_file_that_nobody_made_small_is_named():
    catalog = load_catalog(CATALOG)
    more = catalog.files | {"new/file": next(iter(catalog.files.values()))}
    more["new/file"] = type(more["new/file"])("new/file", ("https://example.org/a",), size=1, md5="0" * 32)
    with pytest.raises(InputError, match=r"new/file: found a file without a small one"):
        files.contents_of(type(catalog)(more, {}), DATA)


# The server.


@pytest.mark.parametrize("kind", ["md5", "no_checksum"])
@pytest.mark.parametrize("fault", mirror.FAULTS, ids=lambda fault: fault.__name__)
def test_a_mirror_that_fails_is_followed_by_one_that_does_not(tmp_path, fault, kind, monkeypatch):
    name, content = "a/b.xz", lzma.compress(bytes(range(256)) * 8)
    facts = {"size": len(content), "no_checksum": "none is published"}
    if kind == "md5":
        facts = {"size": len(content), "md5": hashlib.md5(content, usedforsecurity=False).hexdigest()}
    monkeypatch.setattr(mirror, "FAULTS", (fault,))
    with mirror.serving() as server:
        server.named, server.files = {name: content}, {"example.org/b": content}
        urls = [f"{server.address}/broken/{name}", f"{server.address}/example.org/b"]
        (tmp_path / "catalog.yaml").write_text(yaml.safe_dump({"files": {name: {"urls": urls, **facts}}}), "utf-8")
        catalog = load_catalog(tmp_path / "catalog.yaml")
        assert Sources(catalog, tmp_path).obtain(catalog.find(name)).read_bytes() == content
        assert server.asked[f"/broken/{name}"] >= 1
        # What was cut is asked for where it ended.
        assert server.asked["/example.org/b"] == (fault is not mirror.cut)


def test_the_hub_knows_its_models_alone(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with mirror.serving() as server:
        server.models = {"some/model": ("refs/pr/2@a61ef14", tmp_path)}
        commit = mirror.commit_of("refs/pr/2@a61ef14")
        assert commit.startswith("a61ef14")
        about = server.answer("/api/models/some/model/revision/refs%2Fpr%2F2")
        assert json.loads(about.body)["sha"] == commit
        [listed] = json.loads(server.answer(f"/api/models/some/model/tree/{commit}").body)
        assert listed["path"] == "config.json"
        assert server.answer(f"/some/model/resolve/{commit}/config.json").headers["X-Repo-Commit"] == commit
        for path in ("/api/models/some/other/revision/main", "/api/models/some/model/revision/main"):
            assert server.answer(path).status == 404
        assert server.answer(f"/some/model/resolve/{commit}/../secret").status == 404


# Models.


def test_every_model_of_the_configs_has_a_small_one():
    named = models.named_models(CONFIGS)
    assert named.keys() == models.MAKERS.keys()
    with pytest.raises(InputError, match="some/model: found a model without a small one"):
        models.write_models(["some/model"], [], Path("nowhere"))


# All of it.


def test_what_runs_again_is_found_in_the_words_of_snakemake():
    said = "[..]\nJob 2: Index it\n[..]\nFinished jobid: 2 (Rule: bm25_index)\n"
    assert len(FINISHED.findall(said)) == 1
    assert parse_log(said) == (["Index it"], {"Index it": "bm25_index"})


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match="found files, expected an empty or a new folder"):
        rehearse.stage(rehearse.Options(data="data", folder=str(tmp_path)))


@pytest.mark.slow
@pytest.mark.exhaustive
@with_data
def test_msmarco_runs_from_downloads_to_pages_in_spite_of_kills(tmp_path, capsys):
    assert rehearse.main(["--data", str(DATA), "--folder", str(tmp_path / "work")]) == 0
    # All that can be with fewer than four GPUs (docs/papers.md) but three latencies: the queries are no batch of 32.
    assert "269 of 302" in capsys.readouterr().out
    tree = tmp_path / "work" / "project"
    results = tree / "results" / "msmarco"
    for page in ("index.html", "reproduction/index.html"):
        assert f">{rehearsal.NOTICE}: CoRT" in (results / "report" / page).read_text("utf-8")
    provenance = json.loads((results / "provenance.json").read_text("utf-8"))
    assert str(rehearsal.FILE) in {one["path"] for one in provenance["inputs"]}
    assert provenance["config"]["title"].startswith(rehearsal.NOTICE)
    # Nothing of it passes for more than it is: without the switch, all begins with the downloads.
    (tree / rehearsal.FILE).unlink()
    status, said = snakemake(tree, "--dry-run", "--configfile", "config/msmarco.yaml")
    assert (status, re.findall(r"^(download|extract) +(\d+)$", said, re.MULTILINE)[:2]) == (
        0,
        [("download", "7"), ("extract", "8")],
    )


@pytest.mark.slow
@pytest.mark.exhaustive
@with_data
@pytest.mark.parametrize("slurm", [False, True], ids=["here", "slurm"])
def test_other_configs(tmp_path, slurm, capsys):
    configs = ["config/nfcorpus.yaml", "config/scifact.yaml", "config/trec-car.yaml"][: 1 if slurm else 3]
    # SLURM takes 80 letters at most.
    folder = ["--folder", str(tmp_path / "w")]
    status = rehearse.main(["--data", str(DATA), *folder, "--configs", *configs, "--kills", "1", "--slurm", str(slurm)])
    assert status == 0
    # Of TREC-CAR; the other numbers of its papers are of MS MARCO or of other groups' systems.
    assert slurm or "8 of 21" in capsys.readouterr().out
