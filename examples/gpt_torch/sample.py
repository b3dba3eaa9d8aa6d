"""Write text with a trained model:  python sample.py FOLDER --prompt "Return the"

FOLDER is a version of the model: the folder `model/1` of a run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from model import GPT, imported


def main() -> None:
    parser = argparse.ArgumentParser(description="Write text with a trained model")
    parser.add_argument("folder", help="where the model is: the folder `model/1` of a run")
    parser.add_argument("--prompt", default="\n", help="how the text begins")
    parser.add_argument("--length", type=int, default=600, help="bytes to write")
    parser.add_argument("--temperature", type=float, default=0.7, help="0: always the likeliest byte")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = load(args.folder)
    if model.config.vocabulary > 256:  # trained with --tokens
        known = f"{args.folder} knows {model.config.vocabulary:,} tokens"
        raise SystemExit(f"{known}, and only the tokenizer that made them knows their text")
    sys.stdout.write(args.prompt)
    print(write(model, args.prompt, args.length, args.temperature, args.seed))


def load(folder: str | Path) -> GPT:
    return imported(torch.load(Path(folder) / "model.pt", map_location="cpu", weights_only=True))


@torch.no_grad()
def write(model: GPT, prompt: str = "\n", length: int = 600, temperature: float = 0.7, seed: int = 0) -> str:
    """What the model writes after `prompt`: the same text for the same seed."""
    generator, device = torch.Generator().manual_seed(seed), next(model.parameters()).device
    written = list(prompt.encode()) or [10]
    for _ in range(length):
        scores = model(torch.tensor([written[-model.config.context :]], device=device))[0, -1].cpu()
        if temperature:
            chances = torch.softmax(scores / temperature, dim=0)
            written.append(int(torch.multinomial(chances, 1, generator=generator)))
        else:
            written.append(int(scores.argmax()))
    return bytes(written[-length:]).decode(errors="replace")


if __name__ == "__main__":
    main()
