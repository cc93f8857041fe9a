"""Texts per CPU-second of sentence-transformers on one thread, for `cargo bench -- models`.

Arguments: the model's directory, a file with one text a line, the rounds. A line is printed a round, after
a line was read from standard input, so that the caller can interleave its own rounds.
"""

import sys
import time

import torch
from sentence_transformers import SentenceTransformer

torch.set_num_threads(1)
directory, texts, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(texts, encoding="utf-8") as file:
    lines = [line.rstrip("\n") for line in file]
model = SentenceTransformer(directory, device="cpu")
model.encode(lines[:32])
print("ready", flush=True)
for _ in range(rounds):
    sys.stdin.readline()
    start = time.process_time()
    model.encode(lines, show_progress_bar=False)
    print(len(lines) / (time.process_time() - start), flush=True)
