"""Models are pushed to a local server with the protocol of a hub: repository, preupload, commit; not its Xet store."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.common import ROOT
from tests.support.processes import Python

RIGHT = "right"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Keeps what is pushed; all files come in the commit, as a hub takes small ones."""

    def answer(self, content=None, status=200, **headers):
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def do_GET(self):
        self.server.asked.append(self.path)
        if "/revision/" in self.path or self.path.rstrip("/").endswith("api/models/me/small"):
            self.answer({"id": "me/small", "sha": COMMIT, "siblings": []})
        else:
            self.answer({}, 404)

    def do_HEAD(self):
        self.answer({}, 404)

    def do_POST(self):
        server, body = self.server, self.body()
        server.asked.append(self.path)
        if self.headers["Authorization"] != f"Bearer {RIGHT}":
            self.answer({"error": "no rights"}, 403)
        elif self.path == "/api/repos/create":
            server.created = json.loads(body)
            self.answer({"url": f"{server.address}/me/small", "id": "me/small"})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            names = [one["path"] for one in json.loads(body)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self.answer({"files": files, "commitOid": COMMIT})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    server.files[value["path"]] = base64.b64decode(value["content"])
            self.answer(
                {"commitUrl": f"{server.address}/me/small/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
            )
        else:
            self.answer({}, 404)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.files, server.asked, server.created = {}, [], None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def model(make_encoder):
    folder = make_encoder()
    (folder / "README.md").write_text("---\ntags:\n- cort\n---\n")
    for name in ("optimizer.bin", "notes.md", "pickle.pkl", ".env", "script.py"):
        (folder / name).write_text("secret")
    return folder


@pytest.fixture
def publish(tmp_path):
    """Push in a process of its own, without the user's token; status and log."""

    def run(folder, hub, token=RIGHT, **environment):
        log = tmp_path / "push.log"
        named = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": token}
        argv = ["--model", folder, "--repo", "me/small", "--log", log]
        process = Python("-m", "cort.publish", *argv, environment=named | environment, cwd=ROOT)
        return process.wait(300), log.read_text()

    return run


def test_weights_tokenizer_settings_and_card_are_pushed_and_nothing_else(publish, model, hub):
    status, log = publish(model, hub.address)
    assert status == 0, log
    assert hub.created["name"] == "small"
    assert hub.created["visibility"] == "private"
    left_out = {"optimizer.bin", "notes.md", "pickle.pkl", ".env", "script.py"}
    files = {path.relative_to(model).as_posix(): path for path in model.rglob("*") if path.is_file()}
    assert hub.files.keys() == files.keys() - left_out
    assert {"README.md", "modules.json"} < hub.files.keys()
    for name, content in hub.files.items():
        assert content == files[name].read_bytes()
    assert f"pushed {model} to {hub.address}/me/small" in log


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"token": ""},
            "HF_TOKEN: found no token in the environment, expected one that may write; `export HF_TOKEN=...`",
        ),
        ({"token": "wrong"}, "me/small: found a failed push ("),
        ({"hub": "http://127.0.0.1:9"}, "me/small: found a failed push ("),
        ({"HF_HUB_OFFLINE": "1"}, "me/small: found a failed push ("),
        ({"folder": "results"}, "results: found no complete model, expected a model with README.md and safetensors"),
    ],
    ids=["no token", "refused", "no server", "offline", "no model"],
)
def test_what_prevents_a_push_is_one_line(publish, model, hub, change, line):
    status, log = publish(**{"folder": model, "hub": hub.address, **change})
    errors = [row for row in log.splitlines() if " ERROR " in row]
    assert status == 1
    assert len(errors) == 1
    assert line in errors[0]
    assert "right" not in log.replace("rights", "")
    assert not hub.files
