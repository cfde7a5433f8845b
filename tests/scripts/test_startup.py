"""The table of the benchmark of starts, from records of processes."""

from scripts.bench.startup import shares, stage_of


def test_a_process_of_a_stage_counts_in_the_time_of_the_stage_alone():
    def record(pid, parent, command, cpu, imports):
        return {"pid": pid, "parent": parent, "command": command.split(), "cpu": cpu, "imports": imports}

    records = [
        record(1, 0, "/bin/snakemake --cores 2", 100.0, 50.0),
        record(4, 3, "-m cort.online.lucene 7", 2.0, 0.25),
        record(3, 2, "-m cort.latency --depth 5", 8.0, 1.75),
        record(6, 5, "-m cort.split", 2.0, 0.5),
        record(7, 5, "-m cort.split", 2.0, 0.5),
    ]
    assert list(shares(records)) == [
        ("split", "2", "4.0", "1.0", "0.25"),
        ("latency", "1", "8.0", "2.0", "0.25"),
        ("all", "3", "12.0", "3.0", "0.25"),
    ]


def test_a_stage_is_known_by_its_module():
    assert stage_of(["-m", "cort.encode", "--model", "x"]) == "encode"
    assert [stage_of(["-c", "pass"]), stage_of(["-m"]), stage_of(["-m", "pip"])] == [None, None, None]
