// How near a rebuilt image is to the private one. Only the client can say: the server lacks x.

/** PSNR in dB of each image of x (B, pixels), found images clamped to [0, 1] and in the order that
 *  fits best: in a batch the search cannot know which is which. Also that order. */
export function score(found, x, count) {
  const n = x.length / count, cost = [];
  for (let a = 0; a < count; a++)
    for (let b = 0; b < count; b++) cost.push(mse(found.subarray(a * n, (a + 1) * n), x.subarray(b * n, (b + 1) * n)));
  const order = assign(cost, count); // order[b]: the found image that is taken for x[b]
  return { order, psnr: order.map((a, b) => -10 * Math.log10(cost[a * count + b])) };
}

/** Mean squared error of a clamped image; what is not a number counts as gray. */
export function mse(found, x) {
  let sum = 0;
  for (let i = 0; i < x.length; i++) {
    const v = Number.isNaN(found[i]) ? 0.5 : Math.min(1, Math.max(0, found[i]));
    sum += (v - x[i]) ** 2;
  }
  return sum / x.length;
}

/** The assignment of least total cost[a·n + b], by going through all sets of a (n ≤ 8: 256). */
export function assign(cost, n) {
  const best = new Map([[0, { total: 0, order: [] }]]);
  for (let set = 0; set < 1 << n; set++) {
    const { total, order } = best.get(set), b = order.length;
    for (let a = 0; a < n; a++) {
      const next = set | (1 << a), sum = total + cost[a * n + b];
      if (set & (1 << a) || best.get(next)?.total <= sum) continue;
      best.set(next, { total: sum, order: [...order, a] });
    }
  }
  return best.get((1 << n) - 1).order;
}
