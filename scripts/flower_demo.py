"""A real deployment of examples/flower on this machine: ``make flower-demo``.

    python scripts/flower_demo.py [--json FILE]

A SuperLink and two SuperNodes as processes on loopback, with TLS (certificates made on the spot)
and node authentication. Two runs: one to its end; one in which the second node is killed in its
round, which ends without it. Nothing is installed at run time, nothing is told to anybody, and
every process that was started is ended by its number. About three minutes.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PEM, PRIVATE = serialization.Encoding.PEM, serialization.PrivateFormat
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "UV_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "PRIVFL_PROGRESS": "0",
}
PATIENCE = 90  # seconds that a round waits; a dead node is told after two missed heartbeats, 60 s


def certificates(folder: Path) -> None:
    """ca.crt, server.crt and server.key, good for a day and for this machine only."""
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca = _signed("privfl demo CA", ca_key, ca_key, "privfl demo CA", None)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = _signed("localhost", key, ca_key, "privfl demo CA", names)
    (folder / "ca.crt").write_bytes(ca.public_bytes(PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(PEM))
    plain = serialization.NoEncryption()
    _private(folder / "server.key", key.private_bytes(PEM, PRIVATE.PKCS8, plain))


def _signed(name: str, key, by, issuer: str, names: list | None) -> x509.Certificate:
    def called(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now, is_ca = datetime.datetime.now(datetime.UTC), names is None
    made = (
        x509.CertificateBuilder()
        .subject_name(called(name))
        .issuer_name(called(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if is_ca:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, critical=True)
    else:
        serving = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
        made = made.add_extension(serving, critical=False)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(by, hashes.SHA256())


def node_key(path: Path) -> None:
    """The key by which a node proves who it is: on a NIST curve, in OpenSSH's form."""
    key = ec.generate_private_key(ec.SECP384R1())
    plain = serialization.NoEncryption()
    _private(path, key.private_bytes(PEM, PRIVATE.OpenSSH, plain))
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(*form))


def _private(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Deployment:
    """The processes, their folder and their log; leaving it ends all of them."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self.env = os.environ | QUIET | {"FLWR_HOME": str(folder), "PYTHONPATH": str(ROOT)}
        self.env |= {"PRIVFL_MEMORY": str(folder / "memory"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.running: dict[str, subprocess.Popen] = {}
        self.said: list[str] = []

    def __enter__(self) -> Deployment:
        certificates(self.folder)
        (self.folder / "config.toml").write_text(
            f'[superlink]\ndefault = "lab"\n\n[superlink.lab]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.folder / "ca.crt"}"\n'
        )
        tls = [f"--ssl-{a}={self.folder / b}" for a, b in (("ca-certfile", "ca.crt"),)]
        tls += [f"--ssl-certfile={self.folder / 'server.crt'}"]
        tls += [f"--ssl-keyfile={self.folder / 'server.key'}"]
        here = ["--host", "127.0.0.1", "--port", str(self.port)]
        quiet = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        self.start("superlink", "flower-superlink", *tls, *quiet, *here)
        self.wait_for(lambda: self._listens(), "the SuperLink")
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.running)):
            self.end(name)

    def say(self, text: str) -> None:
        self.said.append(text)
        print(text, flush=True)

    def start(self, name: str, program: str, *arguments: str, **more: str) -> None:
        log = open(self.folder / f"{name}.log", "ab")  # noqa: SIM115  (the process writes on)
        self.running[name] = subprocess.Popen(
            [BIN / program, *arguments], env=self.env | more, stdout=log, stderr=log
        )
        log.close()
        self.say(f"started {name}")

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(name)
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.say(f"ended {name} by {how.name}")

    def node(self, i: int, **more: str) -> None:
        """Make its key, tell the SuperLink, start it; ``more``: its environment."""
        key = self.folder / f"node{i}"
        node_key(key)
        self.flwr("supernode", "register", str(key.with_suffix(".pub")), "lab")
        where = ["--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1"]
        where += ["--port", str(free_port()), "--auth-supernode-private-key", str(key)]
        where += ["--root-certificates", str(self.folder / "ca.crt")]
        config = ["--node-config", f"partition-id={min(i, 1)} num-partitions=2"]
        self.start(f"node{i}", "flower-supernode", *where, *config, **more)

    def flwr(self, *words: str) -> str:
        done = subprocess.run(
            [BIN / "flwr", *words], env=self.env, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise SystemExit(f"flwr {' '.join(words)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run(self, **config: object) -> str:
        """Begin a run of the example; its number."""
        words = " ".join(f"{k.replace('_', '-')}={v}" for k, v in config.items())
        app = str(ROOT / "examples" / "flower")
        told = self.flwr("run", app, "lab", "--run-config", words, "--format", "json")
        self.say(f"flwr run examples/flower lab --run-config {words!r}")
        answer = json.loads(told)
        if "run-id" not in answer:
            raise SystemExit(f"the run was refused: {told}")
        return str(answer["run-id"])

    def status(self, run: str) -> str:
        found = json.loads(self.flwr("list", "lab", "--format", "json"))["runs"]
        return next(r["status"] for r in found if str(r["run-id"]) == run)

    def ended(self, run: str, seconds: float = 300) -> str:
        """How the run ended: by Flower's list, because its exit code is 0 in any case."""
        self.wait_for(lambda: self.status(run).startswith("finished"), "the run", seconds, 3)
        status = self.status(run)
        for line in self.seen(run):
            self.say(line)
        self.say(f"the run is {status}")
        return status

    def seen(self, run: str) -> list[str]:
        """What the tap printed, a line for each round."""
        text = self.flwr("log", run, "lab", "--show")
        return [m[0].strip() for m in re.finditer(r"round \d+: asked .*", text)]

    def wait_for(self, true, what: str, seconds: float = 60, step: float = 0.5) -> None:
        until = time.monotonic() + seconds
        while not true():
            if time.monotonic() > until:
                raise SystemExit(f"{what} did not come within {seconds:g} s; see {self.folder}")
            time.sleep(step)

    def _listens(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0


def play(lab: Deployment, kill: bool = True) -> dict:
    """Both runs; what the server saw of each."""
    lab.node(0)
    lab.node(1)
    time.sleep(5)  # until both have said that they are there
    run = lab.run(num_rounds=2, defense="'modelcloak'", wait=2)
    whole = {"status": lab.ended(run), "rounds": lab.seen(run)}
    if not kill:
        return {"whole": whole}
    lab.end("node1")
    lab.node(2, PRIVFL_SECONDS="15")  # the same client, on a node that takes its time
    lab.say("node2 is slow; it will be killed in the middle of a round")
    time.sleep(5)
    run = lab.run(num_rounds=2, defense="'modelcloak'", timeout=PATIENCE)

    log = lab.folder / "node2.log"
    lab.wait_for(lambda: "train" in log.read_text(errors="ignore").lower(), "the round", 60, 0.3)
    time.sleep(4)
    lab.end("node2", signal.SIGKILL)
    killed = {"status": lab.ended(run, 400), "rounds": lab.seen(run)}
    return {"whole": whole, "killed": killed}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--json", help="write what the server saw into this file")
    p.add_argument("--no-kill", action="store_true", help="the first run only (a minute)")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        with Deployment(Path(name)) as lab:
            found = play(lab, kill=not args.no_kill)
        found["log"] = [line.replace(name, "…") for line in lab.said]
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
