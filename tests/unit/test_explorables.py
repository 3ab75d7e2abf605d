"""Every explorable computes what the package, or the statement it cites, says: to six digits.

Node runs ``compute`` and its parts at random places of the sliders (tests/explore.py).
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import shutil
import subprocess

import numpy as np
import pytest
import torch
from explore import EXPLORE, ask, computed, near, settings
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtri
from scipy.stats import binom, norm

import privfl_lite as pf
from privfl_lite.attacks.malicious.imprint import Imprint, ImprintReadout, quantile_edges
from privfl_lite.defenses.entangle import adaptive_term
from privfl_lite.planning import Federation, neighbors
from privfl_lite.privacy import epsilon
from privfl_lite.privacy.accountants import _opacus_rdp
from privfl_lite.privacy.gaussian import analytic_gaussian_delta, analytic_gaussian_epsilon
from privfl_lite.studies.malicious_server.bins import alone
from privfl_lite.studies.reach.map import DENSE
from privfl_lite.studies.reach.spear import chance_of_a_hit, expected_proposals, units_off
from privfl_lite.teach.explorables import catalog
from privfl_lite.teach.plots import reach_cells as cells


def data(name: str) -> dict:
    (found,) = ask((f"data/{name}", "DATA", []))
    return found


def pixels(text: str, *shape: int) -> torch.Tensor:
    raw = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
    return torch.from_numpy(raw.astype(np.float64) / 255).view(*shape)


def test_the_catalog_names_every_module_and_its_settings():
    modules = {path.stem for path in EXPLORE.glob("*.js")}
    assert modules == set(catalog()) and len(modules) >= 9
    for name, entry in catalog().items():
        (found,) = ask((name, "explorable", []))
        assert [c["key"] for c in found["controls"]] == entry["settings"], name
        assert all(c["min"] <= c["value"] <= c["max"] for c in found["controls"]), name
        assert entry["title"] and not entry["about"].endswith(".")


def test_the_normal_distribution():
    x = [-38, -20.5, -8, -3, -2.9, -2.8, -1, -1e-9, 0, 0.3, 2.5, 2.9, 5, 9]
    assert near(ask(*(("kit/normal", "cdf", [v]) for v in x)), norm.cdf(x).tolist(), 1e-12)
    assert near(ask(*(("kit/normal", "logCdf", [v]) for v in x)), log_ndtr(x).tolist(), 1e-12)
    p = [1e-300, 1e-12, 1e-5, 0.02, 0.3, 0.5, 0.77, 1 - 1e-9]
    assert near(ask(*(("kit/normal", "quantile", [v]) for v in p)), ndtri(p).tolist(), 1e-9)


def test_drift_is_what_gradient_descent_does():
    places = settings("drift")
    for place, found in zip(places, computed("drift", places), strict=True):
        curvature = torch.tensor([1.0, 1 / place["ratio"]], dtype=torch.float64)
        theta, grads = torch.ones(2, dtype=torch.float64), []
        for _ in range(int(place["steps"])):
            theta = theta.detach().requires_grad_()
            (g,) = torch.autograd.grad((curvature * theta**2).sum() / 2, theta)
            grads.append(g)
            theta = theta - place["rate"] * g
        delta, g = theta.detach() - 1, grads[0]
        long = place["rate"] * place["steps"] * g
        assert near(found["delta"], delta.tolist())
        assert near(found["miss"], float((delta + long).norm() / long.norm()), 1e-5)
        assert near(found["cosine"], float(torch.cosine_similarity(-delta, g, 0)))
        most = max(float(v.norm()) for v in grads)  # G; L = 1
        rho = place["rate"] * most * (place["steps"] - 1) / (2 * float(g.norm()))
        assert near(found["rho"], rho) and found["miss"] <= rho + 1e-9
        assert found["cosine"] >= found["least"] - 1e-9
        assert near(found["least"], math.sqrt(1 - rho**2) if rho < 1 else -1)


def test_lone_units_are_counted_right():
    places = settings("lone-units")
    for place, found in zip(places, computed("lone-units", places), strict=True):
        b, q = int(place["batch"]), place["q"]
        alone_here = q * binom.pmf(0, b - 1, q)  # on for this one, off for the others
        assert near(found["share"], alone_here) and near(
            found["expected"], place["width"] * alone_here
        )
        grid = np.linspace(1e-4, 1, 20001)
        best = place["width"] * (grid * (1 - grid) ** (b - 1)).max()
        assert near(found["ceiling"], best, 1e-4) and found["expected"] <= found["ceiling"] * (
            1 + 1e-9
        )
    (units,) = ask(("lone-units", "sample", [{"batch": 8, "width": 256, "q": 0.2}]))
    assert len(units) == 48
    for unit in units:
        assert (unit["lone"] >= 0) == (sum(unit["on"]) == 1)
        assert unit["lone"] < 0 or unit["on"][unit["lone"]]


def test_two_gaussians_have_the_exact_epsilon():
    places, questions, tprs = settings("two-gaussians", 40), [], []
    for place, found in zip(places, computed("two-gaussians", places), strict=True):
        mu, delta, t = place["mu"], place["delta"], place["threshold"]
        assert near(found["eps"], analytic_gaussian_epsilon(1 / mu, delta), 1e-6)
        assert near([found["fpr"], found["tpr"]], [norm.sf(t), norm.sf(t - mu)])
        assert near(found["ratio"], norm.logpdf(t, mu) - norm.logpdf(t))
        assert near(found["auc"], norm.cdf(mu / math.sqrt(2)))
        assert near(found["advantage"], analytic_gaussian_delta(1 / mu, 0.0))
        assert near(norm.logpdf(found["edge"], mu) - norm.logpdf(found["edge"]), found["eps"])
        questions.append(("two-gaussians", "allowed", [found["eps"], delta, found["fpr"]]))
        tprs.append(found["tpr"])
    for tpr, most in zip(tprs, ask(*questions), strict=True):
        assert tpr <= most + 1e-9, "the best test breaks the bound"


def test_clip_and_noise_is_the_reconstruction_bound():
    places = settings("clip-and-noise")
    (longest,) = ask(("clip-and-noise", "LONGEST", []))
    for place, found in zip(places, computed("clip-and-noise", places), strict=True):
        shift = (
            min(place["clip"], longest) / (place["sigma"] * place["clip"]) * place["rounds"] ** 0.5
        )
        most = norm.cdf(norm.ppf(place["kappa"]) + shift)
        assert near([found["shift"], found["most"]], [shift, most])
        assert near(found["gain"], most / place["kappa"])
        eps = analytic_gaussian_epsilon(place["sigma"] / place["rounds"] ** 0.5, 1e-5)
        assert near(found["eps"], eps)
        assert found["most"] <= found["byEps"] + 1e-9
        by = 1.0 if eps > 700 else min(1.0, math.exp(eps) * place["kappa"] + 1e-5)
        assert near(found["byEps"], by, 1e-5)


def test_psnr_and_ssim_are_the_package_s():
    side = data("face")["side"]
    clean = pixels(data("face")["image"], 1, 3, side, side)
    for target, found in zip(
        (7, 15, 33.5), computed("psnr-eye", [{"psnr": p} for p in (7, 15, 33.5)]), strict=True
    ):
        reached = 0
        for one in found["found"]:
            image = torch.tensor(one["image"], dtype=torch.float64).view(1, 3, side, side)
            assert image.min() >= 0 and image.max() <= 1
            assert near(one["psnr"], pf.metrics.psnr(image, clean).item())
            assert near(one["ssim"], pf.metrics.ssim(image, clean).item(), 1e-6)
            reached += abs(one["psnr"] - target) < 0.01
            assert abs(one["psnr"] - target) < 0.01 or (
                one["strength"] == 1 and one["psnr"] > target
            )
        assert reached >= (7 if target > 10 else 4)


def test_epsilon_over_rounds_is_the_accountant_s():
    stored = data("epsilon")
    places = settings("epsilon-rounds", 40)
    for place, found in zip(places, computed("epsilon-rounds", places), strict=True):
        sigma, rounds = place["sigma"], int(place["rounds"])
        true = epsilon(sigma, place["rate"], rounds, stored["delta"])
        assert abs(found["sampled"] / true - 1) < 1.2 * stored["worst"], place
        exact = analytic_gaussian_epsilon(sigma / rounds**0.5, stored["delta"])
        each = analytic_gaussian_epsilon(sigma, stored["delta"] / rounds)
        assert near([found["everyone"], found["basic"]], [exact, rounds * each], 1e-5)


def test_loda_s_encoding_is_a_minimum_over_the_box():
    places = settings("loda-c", 30)
    (eigen,) = ask(("loda-c", "EIGENVALUES", []))
    for place, found in zip(places, computed("loda-c", places), strict=True):
        turn = math.radians(place["angle"])
        first = np.array([math.cos(turn), math.sin(turn)])
        second = np.array([-first[1], first[0]])
        m = eigen[0] * np.outer(first, first) + eigen[1] * np.outer(second, second)
        m -= place["c"] * np.eye(2)
        x = np.array([place["x1"], place["x2"]])

        def f(p, m=m, x=x):
            return float((np.asarray(p) - x) @ m @ (np.asarray(p) - x))

        walls = [
            minimize_scalar(
                lambda t, w=w, i=i, f=f: f((w, t) if i else (t, w)),
                (0, 1),
                (0, 1),
                method="bounded",
                options={"xatol": 1e-12},
            ).fun
            for w, i in itertools.product((0, 1), (0, 1))
        ]
        least = min(0.0, *walls, *(f(p) for p in itertools.product((0, 1), (0, 1))))
        assert math.isclose(found["least"], least, abs_tol=1e-6), place
        for p in found["points"]:
            assert math.isclose(f((p["x"], p["y"])), least, abs_tol=1e-6)
        if place["c"] > eigen[1]:  # prop-loda-unbounded, 3
            assert all(v in (0, 1) for p in found["points"] for v in (p["x"], p["y"]))


def test_loda_s_digit_ends_as_the_negative():
    image = pixels(data("signals")["image"], -1).numpy()
    start, between, end = (
        np.array(v) for v in ask(*(("loda-c", "encodeDigit", [c]) for c in (0.3, 1, 2)))
    )
    assert np.array_equal(start, image)
    assert np.array_equal(end, (image < 0.5).astype(float))
    (share,) = (
        r["share"] for r in computed("loda-c", [{"c": 1, "angle": 0, "x1": 0.2, "x2": 0.4}])
    )
    gone = (between != image).mean()  # black or white pixels move, in the share that has λ ≤ c
    assert abs(gone - share) < 1e-12 and 0.4 < share < 0.6


def test_guard_beta_is_eq_10():
    places = settings("guard-beta")
    for place, found in zip(places, computed("guard-beta", places), strict=True):
        h = adaptive_term(torch.tensor(place["size"], dtype=torch.float64)).item()
        share = min(1.0, max(0.0, 1 - place["beta"] + h))
        own = 1 / (place["clients"] + 1)
        assert near([found["h"], found["share"]], [h, share])
        assert near(found["omega"], own + (1 - own) * share)
    place = {"beta": 0.7, "size": 0.2, "clients": 9}
    (rows,) = ask(("guard-beta", "masks", [place, 0.25]))
    assert [sum(row) for row in rows] == [15] * 9  # of 60 units
    mean = np.array([[1] * 60, *rows]).mean()
    assert near(mean, 0.1 + 0.9 * 0.25)


def test_pruning_reads_what_a_pruned_upload_shows():
    stored = data("signals")
    image, delta = pixels(stored["image"], 1, 1, 28, 28), torch.tensor(stored["delta"]).double()
    weight = torch.outer(delta, image.flatten())[None]
    top = delta.abs().argmax()
    places = settings("pruning")
    for place, found in zip(places, computed("pruning", places), strict=True):
        if place["keep"] == 1:
            continue
        pruned = pf.defenses.prune.largest(weight, 1 - place["keep"]) * weight
        row = pruned[0, top] / delta[top]
        assert near(found["read"], row.tolist(), 1e-9), place
        assert near(found["mse"], float((row - image.flatten()).square().mean()))
        assert float((row - image.flatten()).abs().max()) < found["cut"] + 1e-12
        assert found["exact"] == int((row > 0).sum())


def test_the_signals_are_a_real_network_s():
    stored = data("signals")
    x = pixels(stored["image"], 1, 1, 28, 28).float()
    model = pf.models.build("mlp", pf.load("mnist"))
    bias = [
        next(
            t
            for n, t in pf.share(model, x, torch.tensor([y])).tensors.items()
            if n.endswith("bias")
        )
        for y in range(10)
    ]
    off = [float((b[0] - torch.tensor(stored["delta"])).abs().max()) for b in bias]
    assert min(off) < 1e-6


def test_cost_of_the_truth_is_that_of_vectors():
    rng = torch.Generator().manual_seed(0)
    places = settings("cost-of-the-truth")
    for place, found in zip(places, computed("cost-of-the-truth", places), strict=True):
        g, other = torch.randn(2, 30, dtype=torch.float64, generator=rng)
        g, c = g / g.norm(), place["cosine"]
        other -= (other @ g) * g
        concealed = c * g + math.sqrt(1 - c * c) * other / other.norm()
        u = g + place["kappa"] * concealed
        assert math.isclose(
            found["cost"], 1 - float(torch.cosine_similarity(u, g, 0)), abs_tol=1e-6
        )
        assert near(found["length"], float(u.norm()))


def staircase() -> tuple[torch.Tensor, torch.Tensor]:
    """The images of the staircase and their brightness."""
    stored = data("digits")
    x = torch.stack([pixels(t, 1, 14, 14) for t in stored["images"]])
    return x, x.flatten(1).mean(1)


def test_the_staircase_counts_lone_images():
    _, h = staircase()
    levels = np.array(data("digits")["brightness"])
    places = settings("imprint-staircase")
    for place, found in zip(places, computed("imprint-staircase", places), strict=True):
        batch, bins = int(place["batch"]), int(place["bins"])
        edges = torch.tensor(found["edges"], dtype=torch.float64)
        steps = levels[0] + np.arange(bins) / bins * (levels[-1] - levels[0])
        even = np.interp(np.arange(bins) / bins, np.linspace(0, 1, 101), levels)
        want = (1 - place["spread"]) * steps + place["spread"] * even
        assert near(found["edges"], want.tolist(), 1e-9)
        lone = alone(h[:batch], edges) & (h[:batch] > edges[0])
        assert found["lone"] == int(lone.sum())
        share = np.diff(np.interp(found["edges"], levels, np.linspace(0, 1, 101)), append=1.0)
        assert near(found["expected"], float((batch * share * (1 - share) ** (batch - 1)).sum()))
        assert near(found["equal"], batch * (1 - 1 / bins) ** (batch - 1))


def test_the_staircase_s_bins_are_what_an_imprint_shows():
    x, h = staircase()
    net = Imprint(
        pf.models.build("lenet5", pf.load("mnist", size=14)), quantile_edges(h, 6)
    ).double()
    edges = (-net.first.bias).tolist()
    (found,) = ask(
        ("imprint-staircase", "compute", [{"batch": 8, "bins": 6, "spread": 1, "edges": edges}])
    )
    read = ImprintReadout().run(pf.share(net, x[:8], torch.zeros(8, dtype=torch.long))).images
    lone = [who[0] for who in found["inside"] if len(who) == 1]
    assert lone and sorted(n for who in found["inside"] for n in who) == list(range(8))
    for n in lone:
        assert (read - x[n]).abs().flatten(1).max(1).values.min() < 1e-6, "a lone image is read"
    pair = next(who for who in found["inside"] if len(who) > 1)
    (mixed,) = ask(("imprint-staircase", "quotient", [pair]))
    inside = torch.stack([x[n].flatten() for n in pair])
    weights = torch.linalg.lstsq(
        inside.T, torch.tensor(mixed, dtype=torch.float64)[:, None]
    ).solution
    assert near(float(weights.sum()), 1.0, 1e-5) and (weights > 0).all()  # prop-bin-quotient


def reach_rows() -> list[tuple[dict, dict]]:
    """A random walk over the map: the setting and what the page computes; every network twice."""
    last = next(c["max"] for c in controls_of("reach-map") if c["key"] == "place")
    walk = settings("reach-map", 3 * (last + 1))
    for i, where in enumerate(walk):
        where["place"] = i % (last + 1)
    return [*zip(walk, computed("reach-map", walk), strict=True)]


def test_the_walk_shows_the_stored_map_and_nothing_in_between():
    """At every cell of the map what the study says; elsewhere "not measured"."""
    places = data("reach")["places"]
    known = {
        (i, *row[:3]): dict(zip(data("reach")["row"], row, strict=True))
        for i, place in enumerate(places)
        for row in place["cells"]
    }
    where = [dict(zip(("place", "batch", "steps", "age"), key, strict=True)) for key in known]
    assert len(where) >= 70
    for at, found in zip(where, computed("reach-map", where), strict=True):
        net, kind = places[at["place"]]["net"], places[at["place"]]["data"]
        move = {key: at[key] for key in ("batch", "steps", "age")}
        cell = cells.best(net=net, data=kind, **move)
        share, here = cells.named(cell), found["here"]
        assert near(
            [here["share"], here["low"], here["high"]], [share.value, share.low, share.high]
        )
        assert near(here["exact"], cells.exact(cell)) and here["level"] == cells.level(cell)
        assert here["attack"] == cells.short(cell) and found["moved"] == []
        assert here["images"] == sum(cells.hits(cell)[1])
    tried = 0
    for at, found in reach_rows():
        key = (at["place"], at["batch"], at["steps"], at["age"])
        assert (found["here"] is None) == (key not in known), at
        tried += found["here"] is None
        others = [dict(v) for k, v in known.items() if k[0] == at["place"]]
        axes = ("batch", "steps", "age")
        moved = [sum(v[axis] != at[axis] for axis in axes) for v in others]
        beside = found["near"]
        assert sum(beside[a] != at[a] for a in axes) == min(moved) == len(found["moved"])
        assert any(all(beside[key] == v[key] for key in (*axes, "share")) for v in others)
    assert tried > 10, "the walk never left the measured cells"


def test_the_walk_says_that_nothing_was_measured():
    (there, gone) = (
        {"place": 0, "batch": b, "steps": s, "age": a} for b, s, a in ((8, 1, 0), (12, 20, 5))
    )
    controls = {c["key"]: c for c in controls_of("reach-map")}
    assert controls["age"]["values"] == cells.result()["settings"]["ages"]
    assert controls["steps"]["values"] == cells.result()["settings"]["steps"]
    assert controls["batch"]["max"] == max(cells.result()["settings"]["batches"])
    said = [spoken("reach-map", at) for at in (there, gone)]
    assert "not measured" not in said[0] and "SPEAR, names 100 % of 48 images" in said[0]
    assert "12 images, 20 steps, 5 rounds: not measured" in said[1]
    assert "another batch and age (16 images, 20 steps, untrained)" in said[1]


def spoken(name: str, at: dict) -> str:
    """The sentence under the picture."""
    code = (
        f'const m = await import("{EXPLORE / name}.js");'
        f"console.log(m.explorable.say(m.compute({json.dumps(at)}), {json.dumps(at)}));"
    )
    node = shutil.which("node")  # ``ask`` has skipped the test if there is none
    run = [node, "--input-type=module", "-e", code]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_the_walk_counts_what_the_statements_count():
    """Equations by the rank of D X̃, zeros and proposals from the package's own networks."""
    stored = data("reach")["places"]
    for at, found in reach_rows():
        place, batch, count = stored[at["place"]], int(at["batch"]), found["count"]
        assert count["unknown"] == batch * place["pixels"]
        assert count["largest"] * place["pixels"] <= count["sent"]
        assert (count["largest"] + 1) * place["pixels"] > count["sent"]
        if "units" not in place:
            assert found["proposals"] is None and "short" not in count
            continue
        units, wide = place["units"], place["pixels"] + 1
        # matrices (units, wide) of rank B form a set of this dimension; D and X̃ have more numbers
        assert count["equations"] == units * batch + wide * batch - batch**2
        assert count["layer"] - count["equations"] == count["short"] == batch * (batch - 1)
        if "on" not in place:
            assert found["proposals"] is None and count["zeros"] == 0
            continue
        on = np.unpackbits(np.frombuffer(base64.b64decode(place["on"]), np.uint8))
        on = on.reshape(place["pictures"], units)[:batch].astype(bool)
        live = on.any(0)
        zeros = (~on[:, live]).sum(1)
        assert count["zeros"] == zeros.sum()
        chances = [chance_of_a_hit(int(live.sum()), int(z), batch) for z in zeros]
        assert near(found["proposals"], mean_of_the_last(chances)), at
        assert near(found["proposals"], expected_proposals(chances), 1e-4)
        assert 1 / min(chances) <= found["proposals"] * (1 + 1e-9)


def mean_of_the_last(p: list[float]) -> float:
    """The largest of exponential times with these rates, by quadrature in units of the slowest."""
    rates = np.array(p) / min(p)

    def missing(u: float) -> float:
        """P that some picture is missing at t = eᵘ, times dt/du."""
        return -math.expm1(np.log(-np.expm1(-rates * math.exp(u))).sum()) * math.exp(u)

    return quad(missing, -45, 7, limit=500, epsrel=1e-11)[0] / min(p)


def test_the_units_of_the_walk_are_a_network_s():
    """Which units are on, against the hooks of the chapter's study on the same network."""
    (place,) = (p for p in data("reach")["places"] if (p["net"], p["data"]) == (DENSE, "mnist"))
    digits = pf.load("mnist")
    net = pf.models.build("mlp", digits, seed=0, hidden=(place["units"],))
    x, _ = digits.sample(place["pictures"], split="test", seed=1000)
    for batch in (2, 9, 32):
        live, off = units_off(net, x[:batch])
        assert ask(("reach-map", "off", [0, batch])) == [{"live": live, "off": off}]
    assert place["sent"] == sum(p.numel() for p in net.parameters())
    assert ask(("reach-map", "off", [0, 33])) == [None]  # no more pictures are stored


def test_patience_is_subtract_average_uncover():
    places = settings("patience", 40)
    for at, found in zip(places, computed("patience", places), strict=True):
        rounds, fresh = int(at["rounds"]), bool(at["fresh"])
        maps = torch.eye(2, dtype=torch.float64).expand(rounds if fresh else 1, 2, 2)
        covariance = at["sigma"] ** 2 * torch.linalg.inv((maps.mT @ maps).sum(0))  # 3
        assert near(found["noise"] ** 2, float(covariance[0, 0]))
        if found["noise"] < 1:  # an error of this size in each pixel
            blank = torch.zeros(1, 1, 14, 14, dtype=torch.float64)
            assert near(found["psnr"], pf.metrics.psnr(blank + found["noise"], blank).item())
        assert near(10 ** (-found["psnr"] / 20), found["noise"])
        unseen = binom.pmf(0, rounds if fresh else 1, at["share"])  # 4
        assert near(found["unseen"], unseen)
        a = torch.tensor([2.0, 5.0][:rounds])
        apart = torch.linalg.matrix_rank((a - a[0])[:, None])
        assert found["exact"] == (not fresh and int(apart) == 1)  # 1 and 2


def test_patience_shows_what_the_server_computes():
    """The four pictures, from the same draws, by least squares."""
    image = pixels(data("digits")["images"][1], -1).numpy()
    n, (most,) = len(image), (c["max"] for c in controls_of("patience") if c["key"] == "rounds")
    secrets, noise, sent = (
        np.array(v).reshape(-1, n)
        for v in ask(
            ("kit/random", "normals", [2 * n, 31]),
            ("kit/random", "normals", [most * n, 32]),
            ("kit/random", "uniforms", [most * n, 33]),
        )
    )
    scale, maps = ask(("patience", "SCALE", []), ("patience", "MAPS", []))
    places = settings("patience", 12, seed=3)
    pictures = ("subtracted", "averaged", "seen")
    answers = iter(ask(*(("patience", f, [at]) for at in places for f in pictures)))
    for at in places:
        rounds, fresh = int(at["rounds"]), bool(at["fresh"])
        turn = [t if fresh else 0 for t in range(rounds)]
        shown = [next(answers) for _ in pictures]
        heard = [maps[t] * image + scale * secrets[turn[t]] for t in range(min(2, rounds))]
        rise = [maps[t] - maps[0] for t in range(1, len(heard))] or [maps[0]]
        step = heard[-1] - heard[0] if rounds > 1 else heard[0]
        assert np.allclose(shown[0], step / rise[0], rtol=1e-9, atol=1e-9)
        if not fresh and rounds > 1:
            assert np.allclose(shown[0], image, atol=1e-9), "a secret that stays is subtracted"
        mean = np.mean([image + at["sigma"] * noise[t] for t in turn], axis=0)
        assert np.allclose(shown[1], mean, rtol=1e-6, atol=1e-9)
        spread = np.std(np.array(shown[1]) - image) * math.sqrt(rounds if fresh else 1)
        assert abs(spread / at["sigma"] - 1) < 0.25, "the draws are not of size σ"
        assert shown[2] == (sent[turn] < at["share"]).any(0).tolist()


def controls_of(name: str) -> list[dict]:
    return ask((name, "explorable", []))[0]["controls"]


@pytest.mark.parametrize(
    "control",
    [
        {"min": 1e-8, "max": 0.1, "scale": "log"},
        {"min": 1, "max": 64, "whole": True, "scale": "log"},
        {"min": -3, "max": 7, "step": 0.05},
        {"min": 0, "max": 100, "values": [0, 1, 5, 20, 100]},
    ],
)
def test_a_slider_finds_its_way_back(control):
    (count,) = ask(("kit/controls", "ticks", [control]))
    values = ask(*(("kit/controls", "valueAt", [control, t]) for t in range(count + 1)))
    assert values[0] == control["min"] and near(values[-1], control["max"], 1e-9)
    assert values == sorted(values)
    back = ask(*(("kit/controls", "tickOf", [control, v]) for v in values))
    again = ask(*(("kit/controls", "valueAt", [control, t]) for t in back))
    assert again == values


def least_over_whole_orders(sigma: float, rate: float, made: Federation) -> float:
    """The accountant's ε with the orders 2 to 63 alone."""
    orders = np.arange(2, 64)
    one = _opacus_rdp().compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=orders)
    top = (-np.log(0.1 / made.population) - np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)
    return max(0.0, float((made.rounds * np.array(one) + top).min()))


def test_the_plan_is_the_package_s():
    """Bytes and seconds to six digits; ε too, but for whole Rényi orders, which bound it."""
    keys = ("up", "down", "link", "client", "server", "server_in", "memory", "kept")
    choices = data("plan")["defenses"]
    places = settings("million-plan", 60)
    for place, found in zip(places, computed("million-plan", places), strict=True):
        choice = choices[int(place["choice"])]
        n, population = min(place["cohort"], place["population"]), place["population"]
        mean = choice["place"] == "mean"
        text = choice["defense"].format(place["sigma"])
        how = {"defense": text, "summing": choice["summing"], "mbit": place["mbit"]}
        how["sampling"] = "poisson" if mean else "fixed"
        made = Federation(n, population, place["rounds"], place["numbers"], **how)
        ours = (made.bytes_up, made.bytes_down, made.seconds_link, made.seconds_client,
                made.seconds_server, n * made.bytes_up, made.memory, made.memory_kept)  # fmt: skip
        assert near([found[key] for key in keys], list(ours)), place
        assert near(found["total"], made.rounds * n * (made.bytes_up + made.bytes_down))
        assert found["others"] == (made.masks.others if made.masks else 0)
        spent = made.epsilon
        shown = next((e for e in spent.also if e.against == "sums"), spent)
        if not choice["place"]:
            assert math.isnan(found["epsilon"]) and spent.value is None
        elif mean and n < population:
            assert spent.value is not None
            whole = least_over_whole_orders(place["sigma"], n / population, made)
            assert near(found["epsilon"], whole, 1e-5), place
            assert spent.value - 1e-6 <= whole < 1.4 * spent.value + 0.02, place
        else:
            assert near(found["epsilon"], shown.value, 1e-5), place


def test_a_graph_has_as_many_neighbors_on_the_page():
    sizes = [3, 50, 196, 200, 201, 1000, 12_345, 10**6, 10**8]
    assert ask(*(("million-plan", "neighbors", [n]) for n in sizes)) == [*map(neighbors, sizes)]
