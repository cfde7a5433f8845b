"""What the tests of plans share: a machine, benchmark files."""

from workflow.planning.speed import Machine

REFERENCE = Machine(cores=8, flops={"fp32": 7.0e10})


def write_benchmark(path, seconds, memory):
    """Write what Snakemake measures of a job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:01\t{memory}\t1\n", "utf-8")
