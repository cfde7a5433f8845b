"""What Snakemake itself does at the size of MS MARCO."""

import re

from tests.support.workflow import plan_jobs

GB = 1e9
PASSAGES = 8.84e6
# GB of the files that are large there; all others have less than .001.
SIZES = {
    r"raw/msmarco/collection\.tsv": 3.06,
    r"raw/(msmarco/top1000|msmarco/qidpid|doc2query|doctttttquery)": 5.0,
    r"/passages\.parquet": 1.7,
    r"tokens/.*/passages\.arrow": 2.7,
    r"expansions/|term_weights/": 2.0,
    r"runs/train/": 2.5,
    r"runs/": 0.35,
    r"(triples|pairs)/.*\.parquet": 0.3,
    r"scores/.*\.parquet": 0.1,
}


def size(path, shards):
    """GB of a file of MS MARCO."""
    if vectors := re.search(r"embeddings/[\w-]+-e(\d+)/passages|onng/[\w-]+-e(\d+)/", path):
        return PASSAGES * 4 * int(vectors[1] or vectors[2]) / GB / (shards if "embeddings" in path else 1)
    return next((gigabytes for pattern, gigabytes in SIZES.items() if re.search(pattern, path)), 0.001)


def test_no_job_makes_snakemake_read_more_than_100_gb_for_checksums():
    jobs, _ = plan_jobs(["--cores", "8", "--configfile", "config/msmarco.yaml"])
    # When a job ends, Snakemake reads all its inputs for each of its outputs.
    read = {job.name: sum(size(path, 8) for path in job.inputs) * len(job.outputs) for job in jobs}
    assert len(read) > 700
    assert {name: round(amount) for name, amount in read.items() if amount > 100} == {}
