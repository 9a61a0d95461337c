"""kmeans.py - k-means over points that are spread over all ranks, with numpy.

    choir run -n 4 python kmeans.py

Every rank keeps its points. In a round it adds up those nearest to each centre; one all-reduce makes of these the
sums over all ranks, the same bits on each, so all ranks move their centres alike and stop in the same round.
"""
import sys

import choir
import numpy as np

TOWNS = np.array([[1, 1], [7, 2], [2, 6], [8, 7]])  # where the points come from, and what is to be found

with choir.init() as group:
    random = np.random.default_rng(group.rank)
    points = random.choice(TOWNS, 20_000) + random.normal(size=(20_000, 2))

    centres = points[:len(TOWNS)].copy()
    group.broadcast(centres)  # all ranks start from rank 0's
    for rounds in range(1, 101):
        nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
        sums = np.zeros((len(centres), 3))  # x, y and how many, for each centre
        np.add.at(sums, nearest, np.c_[points, np.ones(len(points))])
        group.all_reduce(sums)
        before, centres = centres, sums[:, :2] / sums[:, 2:]
        if np.abs(centres - before).max() < 1e-6:
            break

    everywhere = np.empty((group.size, *centres.shape))
    group.all_gather(everywhere, centres)
    if (everywhere != centres).any():
        sys.exit(f"rank {group.rank}: the centres differ between ranks")
    off = np.linalg.norm(TOWNS[:, None] - centres, axis=2).min(axis=1).max()
    if not off < 0.1:
        sys.exit(f"rank {group.rank}: a town is {off:.2f} from the nearest centre")
    if group.rank == 0:
        print(f"{group.size} x {len(points)} points, {rounds} rounds; all ranks have the same centres:")
        print(centres[np.lexsort(centres.T)].round(2))
