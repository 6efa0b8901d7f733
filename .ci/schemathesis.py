"""Starts the binary in a directory of its own, makes a key for every role and something to be found, and lets
schemathesis ask each part of the API with the key that may use it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).parent
binary, tool, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])


def start(folder):
    command = [binary, "serve", "--no-model", "--listen", "127.0.0.1:0", "--data-dir", f"{folder}/data"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True)
    keys = {}
    for line in service.stdout:
        words = line.split()
        if line.strip().startswith(("admin key", "tenant key", "app key")):
            keys[words[0]] = words[2]
        if line.startswith("merkwelt listens on"):
            return service, words[3], keys
    raise SystemExit(f"the service did not start:\n{open(f'{folder}/log').read()}")


def call(url, key, method, path, body=None, subject=None):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if subject:
        headers["Merkwelt-Subject"] = subject
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def prepare(url, keys):
    """Keys of the roles that the first start makes none of, and things whose ids lead somewhere."""
    tenant, app = keys["tenant"], keys["app"]
    wanted = {"label": "auditor", "role": "auditor"}
    keys["auditor"] = call(url, tenant, "POST", "/v1/keys", wanted)["key"]
    memory = call(url, app, "POST", "/v1/memories", {"kind": "user_fact", "text": "Likes tea"}, "anna")
    conversation = call(url, app, "POST", "/v1/conversations", {"keep_days": 3}, "anna")
    pack = call(url, app, "POST", "/v1/context", {"question": "What does she like?"}, "anna")
    call(url, tenant, "POST", "/v1/groups", {"name": "support"})
    return {
        "MERKWELT_URL": url,
        "MERKWELT_ADMIN": keys["admin"],
        "MERKWELT_TENANT": tenant,
        "MERKWELT_APP": app,
        "MERKWELT_AUDITOR": keys["auditor"],
        "MERKWELT_MEMORY": memory["id"],
        "MERKWELT_CONVERSATION": conversation["id"],
        "MERKWELT_PACK": pack["pack_id"],
    }


with tempfile.TemporaryDirectory() as folder:
    service, url, keys = start(folder)
    try:
        known = prepare(url, keys)
        command = [tool, "--config-file", str(HERE / "schemathesis.toml"), "run", f"{url}/openapi.json"]
        command += ["--max-time", str(seconds), *sys.argv[4:]]
        code = subprocess.run(command, env=os.environ | known, cwd=folder).returncode
        if service.poll() is not None:
            raise SystemExit("the service stopped while it was asked")
    finally:
        service.terminate()
        service.wait(30)
sys.exit(code)
