from hashlib import sha256

from cort.runtime.checksums import describe_inputs


def test_inputs_are_described_once_each_in_their_order(tmp_path):
    paths = [str(tmp_path / name) for name in ("b", "a")]
    for path, content in zip(paths, (b"", b"some bytes"), strict=True):
        (tmp_path / path).write_bytes(content)
    first, second = describe_inputs([*paths, paths[0]])
    assert first == {"path": paths[0], "bytes": 0, "sha256": sha256(b"").hexdigest()}
    assert second == {"path": paths[1], "bytes": 10, "sha256": sha256(b"some bytes").hexdigest()}
