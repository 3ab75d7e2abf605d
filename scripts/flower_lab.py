"""Flower as processes on this machine, for ``flower_demo.py``: started, asked, and ended by number.

A ``Lab`` is either a deployment (a SuperLink, to which SuperNodes come, with TLS by certificates
made on the spot and node authentication) or a simulation (a SuperLink that has Ray play the nodes).
All listen on loopback only; nothing is installed at run time, nothing is told to anybody.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
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
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray listens on the machine's network address
    "UV_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "PRIVFL_PROGRESS": "0",
}
SAID = re.compile(
    r"(?:round \d+: (?:asked|\d+ of)|kept|the final model is) .*"
)  # of the example's server


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


class Lab:
    """The processes, their folder and their log; leaving it ends all of them.

    ``more``: environment of the SuperLink and, in a simulation, of the clients.
    """

    def __init__(self, folder: Path, simulation: bool = False, **more: str):
        self.folder, self.port, self.simulation = folder, free_port(), simulation
        self.env = os.environ | QUIET | {"FLWR_HOME": str(folder), "PYTHONPATH": str(ROOT)}
        self.env |= {"PRIVFL_MEMORY": str(folder / "memory"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.env |= more
        self.running: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> Lab:
        trust = "insecure = true"
        here = ["--host", "127.0.0.1", "--port", str(self.port)]
        here += ["--disable-runtime-dependency-installation"]
        if self.simulation:
            here += ["--simulation", "--insecure"]
        else:
            certificates(self.folder)
            trust = f'root-certificates = "{self.folder / "ca.crt"}"'
            here += ["--enable-supernode-auth", f"--ssl-ca-certfile={self.folder / 'ca.crt'}"]
            here += [f"--ssl-certfile={self.folder / 'server.crt'}"]
            here += [f"--ssl-keyfile={self.folder / 'server.key'}"]
        (self.folder / "config.toml").write_text(
            f'[superlink]\ndefault = "lab"\n\n'
            f'[superlink.lab]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        self.start("superlink", "flower-superlink", *here)
        self.wait_for(self._listens, "the SuperLink")
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.running)):
            self.end(name)

    def start(self, name: str, program: str, *arguments: str, **more: str) -> None:
        log = open(self.folder / f"{name}.log", "ab")  # noqa: SIM115  (the process writes on)
        self.running[name] = subprocess.Popen(
            [BIN / program, *arguments], env=self.env | more, stdout=log, stderr=log
        )
        log.close()
        _say(f"started {name}")

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(name)
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _say(f"ended {name} by {how.name}")

    def node(self, i: int, **more: str) -> None:
        """Make its key, tell the SuperLink, start it; ``more``: its environment."""
        key = self.folder / f"node{i}"
        node_key(key)
        self.flwr("supernode", "register", str(key.with_suffix(".pub")), "lab")
        where = ["--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1"]
        where += ["--port", str(free_port()), "--auth-supernode-private-key", str(key)]
        where += ["--root-certificates", str(self.folder / "ca.crt")]
        config = ["--node-config", f"partition-id={min(i, 1)} num-partitions=2"]
        before = self._online()
        self.start(f"node{i}", "flower-supernode", *where, *config, **more)
        self.wait_for(lambda: self._online() > before, f"node{i}", step=2)

    def flwr(self, *words: str) -> str:
        done = subprocess.run(
            [BIN / "flwr", *words], env=self.env, capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise SystemExit(f"flwr {' '.join(words)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run(self, nodes: int = 2, **config: object) -> str:
        """Begin a run of the example; its number. ``nodes``: how many a simulation plays."""
        words = ["--run-config", " ".join(f"{k.replace('_', '-')}={v}" for k, v in config.items())]
        if self.simulation:
            cores = "client-resources-num-cpus=1 init-args-num-cpus=2"
            words += ["--federation-config", f"num-supernodes={nodes} {cores}"]
        self.command = " ".join(["flwr run examples/flower lab", *map(_quoted, words)])
        _say(self.command)
        app = str(ROOT / "examples" / "flower")
        told = self.flwr("run", app, "lab", *words, "--format", "json")
        answer = json.loads(told)
        if "run-id" not in answer:
            raise SystemExit(f"the run was refused: {told}")
        return str(answer["run-id"])

    def ended(self, run: str, seconds: float = 600) -> dict:
        """How the run ended: by Flower's list, because its exit code is 0 in any case."""
        over = lambda: self._listed(run)["status"].startswith("finished")  # noqa: E731
        self.wait_for(over, "the run", seconds, 3)
        listed = self._listed(run)
        text = self.flwr("log", run, "lab", "--show") + "\n" + listed["status-details"]
        printed = list(dict.fromkeys(m[0].strip() for m in SAID.finditer(text)))
        for line in [*printed, f"the run is {listed['status']}"]:
            _say(line)
        found = {"command": self.command, "printed": printed, "status": listed["status"]}
        return found | {"seconds": round(listed["elapsed"], 1)}

    def _online(self) -> int:
        """How many nodes the SuperLink takes to be there."""
        return self.flwr("supernode", "list", "lab", "--format", "json").count('"online"')

    def _listed(self, run: str) -> dict:
        found = json.loads(self.flwr("list", "lab", "--format", "json"))["runs"]
        return next(r for r in found if str(r["run-id"]) == run)

    def wait_for(self, true, what: str, seconds: float = 300, step: float = 1) -> None:
        until = time.monotonic() + seconds
        while not true():
            if time.monotonic() > until:
                raise SystemExit(f"{what} did not come within {seconds:g} s; see {self.folder}")
            time.sleep(step)

    def _listens(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


def _say(text: str) -> None:
    print(text, flush=True)
