"""A language model of GPT-2's shape with random weights: the device's tokens and logits against tinygrad's CPU device.

    DEV=SIM+ORIN python gpt2.py --layers 2 --dim 128 --heads 4 --vocab 1000

Without options it has the shape of GPT-2 124M: some seconds a token on the software Orin. A prompt is read at once,
then tokens are generated one by one through a recorded graph whose position is a variable. The exit code is 1 if the
logits differ by more than the rounding of float32 explains.
"""

import argparse
import sys
import time

import numpy as np
from tinygrad import Device, Tensor, TinyJit, Variable, nn


class Attention:
    """Causal attention of all heads, with a cache of the keys and values of earlier positions."""

    def __init__(self, dim: int, heads: int, context: int):
        self.heads, self.context = heads, context
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.cache: Tensor | None = None

    def __call__(self, x: Tensor, start, mask: Tensor | None) -> Tensor:
        count, dim = x.shape
        q, k, v = self.qkv(x).reshape(count, 3, self.heads, dim // self.heads).permute(1, 2, 0, 3).chunk(3)
        if self.cache is None:
            shape = (2, self.heads, self.context, dim // self.heads)
            self.cache = Tensor.zeros(*shape, device=x.device).contiguous().realize()
        self.cache[:, :, start : start + count].assign(Tensor.cat(k, v)).realize()
        keys, values = (self.cache[i, :, : start + count] for i in range(2))
        mixed = q[0].scaled_dot_product_attention(keys, values, mask)
        return self.out(mixed.transpose(0, 1).reshape(count, dim))


class Block:
    """One layer."""

    def __init__(self, dim: int, heads: int, context: int):
        self.attention = Attention(dim, heads, context)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def __call__(self, x: Tensor, start, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), start, mask)
        return (x + self.down(self.up(self.norm2(x)).gelu())).contiguous()


class Model:
    """Token and position embeddings, layers, and logits by the token embedding."""

    def __init__(self, args):
        self.tokens, self.positions = nn.Embedding(args.vocab, args.dim), nn.Embedding(args.context, args.dim)
        self.blocks = [Block(args.dim, args.heads, args.context) for _ in range(args.layers)]
        self.norm = nn.LayerNorm(args.dim)
        self.step = TinyJit(self.logits)

    def logits(self, tokens: Tensor, start) -> Tensor:
        """Logits of the last of some tokens, which begin at position `start`."""
        count = tokens.shape[0]
        x = self.tokens(tokens) + self.positions.weight[start : start + count]
        mask = None
        if count > 1:
            mask = Tensor.full((count, count), float("-inf"), device=x.device).triu(1)
        for block in self.blocks:
            x = block(x, start, mask)
        return (self.norm(x)[-1:] @ self.tokens.weight.T).flatten().realize()


def load(device: str, args) -> Model:
    """Makes the model on a device, with the same weights on each."""
    model, random = Model(args), np.random.default_rng(1)
    for name, tensor in nn.state.get_state_dict(model).items():
        if "norm" not in name:
            values = random.standard_normal(tensor.shape, dtype=np.float32) * 0.02
            tensor.replace(Tensor(values, device=device).realize())
        else:
            tensor.replace(tensor.to(device).contiguous().realize())
    return model


def generate(device: str, args) -> tuple[list[int], list[np.ndarray], list[float]]:
    """Returns the tokens, the logits that they were chosen from, and the seconds of each."""
    model = load(device, args)
    found, logits, seconds = [], [], []
    tokens = Tensor(np.arange(1, args.prompt + 1, dtype=np.int32), device=device)
    position = 0
    for step in range(args.tokens):
        begin = time.perf_counter()
        if step == 0:
            last = model.logits(tokens, 0)
            position += args.prompt
        else:
            start = Variable("start", 1, args.context - 1).bind(position)
            last = model.step(Tensor([found[-1]], dtype="int32", device=device).realize(), start)
            position += 1
        logits.append(last.numpy())
        found.append(int(logits[-1].argmax()))
        seconds.append(time.perf_counter() - begin)
    return found, logits, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in dict(layers=12, dim=768, heads=12, vocab=50257, context=1024, prompt=8, tokens=6).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    found, logits, seconds = generate(Device.DEFAULT, args)
    expected, reference, _ = generate("CPU", args)
    worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(logits, reference, strict=True))
    print(f"device {Device.DEFAULT} ({Device[Device.DEFAULT].renderer.target.arch}), seconds per token:", end=" ")
    print(" ".join(f"{s:.3f}" for s in seconds))
    print(f"tokens {found}, CPU device {expected}; largest difference of logits: {worst:.1e} of the largest logit")
    return 0 if found == expected and worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
