// Made by scripts/explore_data.py; do not edit.
export const DATA = {
  "laws": {"add_number": 2.1273425754774675e-09, "add_tensor": 9.951271093383752e-06, "round": 9.483779864059758e-05, "agreement": 0.00026388670075926264, "mask_number": 1.6782556014821266e-08, "share_term": 1.5415088209703514e-06, "recover_share": 6.26565125593161e-07, "recover_number": 1.758777862296399e-08, "client": 0.001533, "largest": 10000, "sums": 1000},
  "defenses": [{"name": "nothing", "defense": "none", "summing": "none", "place": "", "unit": "", "against": "", "time": 1.0, "bytes": 1.0, "why": "nothing clips and adds noise"}, {"name": "Prune 0.9", "defense": "prune:rate=0.9", "summing": "none", "place": "", "unit": "", "against": "", "time": 1.04, "bytes": 0.312, "why": "nothing clips and adds noise"}, {"name": "FedKL", "defense": "fedkl", "summing": "none", "place": "", "unit": "", "against": "", "time": 1.56, "bytes": 1.0, "why": "nothing clips and adds noise"}, {"name": "DCS²", "defense": "dcs2", "summing": "none", "place": "", "unit": "", "against": "", "time": 74.44, "bytes": 1.0, "why": "nothing clips and adds noise"}, {"name": "masks only", "defense": "none", "summing": "pairs", "place": "", "unit": "", "against": "", "time": 1.0, "bytes": 1.0, "why": "nothing clips and adds noise"}, {"name": "DP-SGD at clients", "defense": "dp_sgd:clip=1.0,sigma={}", "summing": "none", "place": "step", "unit": "example", "against": "the server", "time": 2.15, "bytes": 1.0, "why": ""}, {"name": "noise at the server", "defense": "modelcloak:clip=1.0,sigma={},where=server", "summing": "none", "place": "mean", "unit": "client", "against": "outsiders", "time": 1.13, "bytes": 1.0, "why": ""}, {"name": "noise, masks in pairs", "defense": "modelcloak:clip=1.0,sigma={}", "summing": "pairs", "place": "sums", "unit": "client", "against": "a server that sees sums only", "time": 1.13, "bytes": 1.0, "why": ""}, {"name": "noise, graph of masks", "defense": "modelcloak:clip=1.0,sigma={}", "summing": "graph", "place": "sums", "unit": "client", "against": "a server that sees sums only", "time": 1.13, "bytes": 1.0, "why": ""}],
  "key": 66,
  "bits": 48,
  "float": 4,
  "tensors": 8,
  "sure": 40,
  "corrupt": 0.2,
  "lost": 0.2,
};
