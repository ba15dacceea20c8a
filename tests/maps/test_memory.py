"""A long run's memory stays flat, whatever the sizes of its batches."""

import random

import psutil
import torch

import embspace
from embspace.live.capture import States
from embspace.maps.decoding import Comparison, identity
from embspace.memory import give_back


def test_decoding_batch_after_batch_keeps_the_process_small(save_model):
    from transformers import GPT2Config

    config = GPT2Config(
        vocab_size=50304, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = embspace.load(save_model(config))
    comparison = Comparison(model, {"id": identity}, [0, 1])
    comparison.head.n_tokens = 50304  # as many as the head has, though the tokenizer names fewer
    sizes = [random.Random(n).randrange(20, 150) for n in range(30)]
    held = []
    for n in sizes:
        layers = {l: torch.randn(n, model.d) for l in range(3)}
        rows = torch.zeros(n, dtype=torch.long)
        comparison.add(States(rows, rows, rows, layers))
        give_back()
        held.append(psutil.Process().memory_info().rss)
    assert max(held[10:]) - min(held[5:10]) < 150e6
