#!/usr/bin/env python3
"""torch_peer.py - bench_engine's measurements with PyTorch: the same options, lines and weights.

Kinds: decode, logp, train. The batch is padded, as PyTorch users have it, and cut into passes of at
most 2048 positions; everything PyTorch offers is taken: its fused attention and optimizer where the
version has them, head and log-softmax on response positions alone, bf16 weights in decode and logp,
autocast over fp32 weights in train. What tests/bench/peers sets around it: malloc keeps its pages.
"""
import json
import resource
import sys
import time

import torch
import torch.nn.functional as F

PASS = 2048


def options(argv):
    o = dict(r=8, p=1, g=127, l=0, n=1, c="bf16", t=1, i=0.0, s=3, m=None)
    for flag, value in zip(argv[2::2], argv[3::2]):
        name = flag[1:]
        if name not in o:
            sys.exit("torch_peer: unknown option " + flag)
        o[name] = value if name in "cm" else float(value) if name == "i" else int(value)
    o["l"] = o["l"] or o["g"]
    return o


def load(path):
    """The tensors of path/model.safetensors as fp32."""
    out = {}
    with open(path + "/model.safetensors", "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = bytearray(f.read())
    for name, t in head.items():
        if name != "__metadata__":
            if t["dtype"] != "F32":
                sys.exit("torch_peer: %s is %s, expected F32" % (name, t["dtype"]))
            lo, hi = t["data_offsets"]
            out[name] = torch.frombuffer(data, dtype=torch.float32, count=(hi - lo) // 4, offset=lo).reshape(t["shape"]).clone()
    return out


class Model:
    """A Llama or Qwen2 with a tied head, as functions of a dict of weights."""

    def __init__(self, path, dtype, train):
        c = json.load(open(path + "/config.json"))
        self.L, self.H, self.K = c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"]
        self.C, self.V = c["hidden_size"], c["vocab_size"]
        self.D, self.eps = c.get("head_dim") or self.C // self.H, c["rms_norm_eps"]
        self.w = {k[6:]: v.to(dtype) for k, v in load(path).items()}
        # as we do: q, k, v and gate, up in one product
        for l in range(self.L):
            p = "layers.%d." % l
            for to, parts in (("self_attn.qkv", ("q", "k", "v")), ("mlp.gu", ("gate", "up"))):
                for what in ("weight", "bias"):
                    names = [p + to.rsplit(".", 1)[0] + ".%s_proj.%s" % (x, what) for x in parts]
                    if names[0] in self.w:
                        self.w[p + to + "." + what] = torch.cat([self.w.pop(x) for x in names])
        if train:
            self.w = {k: v.requires_grad_() for k, v in self.w.items()}
        freq = c.get("rope_theta", 10000.0) ** (-torch.arange(0, self.D, 2).float() / self.D)
        angle = torch.arange(4096).float()[:, None] * freq
        self.cos, self.sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def norm(self, x, w):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * w

    def rope(self, x, at):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[at : at + x.shape[-2]], self.sin[at : at + x.shape[-2]]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, q, k, v, causal):
        B, H, T, D = q.shape
        if not causal:  # one query a row: its heads' groups become rows, so that k, v are not repeated
            a = torch.matmul(q.reshape(B, self.K, H // self.K, D), k.transpose(-1, -2)) * D**-0.5
            return torch.matmul(torch.softmax(a.float(), -1).to(v.dtype), v).reshape(B, H, 1, D)
        k, v = k.repeat_interleave(H // self.K, 1), v.repeat_interleave(H // self.K, 1)
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        a = torch.matmul(q, k.transpose(-1, -2)) * D**-0.5
        a = a + torch.full((T, T), float("-inf"), dtype=a.dtype).triu(1)
        return torch.matmul(torch.softmax(a.float(), -1).to(v.dtype), v)

    def layer(self, l, x, cache, at):
        w, p = self.w, "layers.%d." % l
        B, T, _ = x.shape
        h = self.norm(x, w[p + "input_layernorm.weight"])
        qkv = F.linear(h, w[p + "self_attn.qkv.weight"], w.get(p + "self_attn.qkv.bias"))
        q, k, v = qkv.view(B, T, self.H + 2 * self.K, self.D).transpose(1, 2).split((self.H, self.K, self.K), 1)
        q, k = self.rope(q, at), self.rope(k, at)
        if cache:
            ck, cv = cache[l]
            ck[:, :, at : at + T], cv[:, :, at : at + T] = k, v
            k, v = ck[:, :, : at + T], cv[:, :, : at + T]
        y = self.attend(q, k, v, T > 1 or not cache).transpose(1, 2).reshape(B, T, self.H * self.D)
        x = x + F.linear(y, w[p + "self_attn.o_proj.weight"])
        h = self.norm(x, w[p + "post_attention_layernorm.weight"])
        g, u = F.linear(h, w[p + "mlp.gu.weight"]).chunk(2, -1)
        return x + F.linear(F.silu(g) * u, w[p + "mlp.down_proj.weight"])

    def body(self, ids, cache=None, at=0):
        x = F.embedding(ids, self.w["embed_tokens.weight"])
        for l in range(self.L):
            x = self.layer(l, x, cache, at)
        return self.norm(x, self.w["norm.weight"])

    def logits(self, x):
        return F.linear(x, self.w["embed_tokens.weight"])


class Bench:
    def __init__(self, kind, o):
        self.o, self.kind, self.bf16 = o, kind, o["c"] == "bf16"
        self.half = torch.bfloat16 if self.bf16 and kind != "train" else torch.float32
        self.m = Model(o["m"], self.half, kind == "train")
        self.len = [o["l"] + (o["g"] - o["l"]) * (2 * (i % o["n"]) + 1) ** 2 // (4 * o["n"] ** 2) for i in range(o["r"])]
        self.ids = torch.tensor([[self.token(i, t) for t in range(o["p"] + o["g"])] for i in range(o["r"])])
        self.live = torch.tensor([[t < n for t in range(o["g"])] for n in self.len])
        self.valid, self.outputs = sum(self.len) + o["r"] * o["p"], sum(self.len)
        self.opt = None
        if kind == "train":
            args = dict(lr=1e-6, weight_decay=0.01)
            try:
                self.opt = torch.optim.AdamW(self.m.w.values(), fused=True, **args)
            except (TypeError, RuntimeError):
                self.opt = torch.optim.AdamW(self.m.w.values(), **args)

    def token(self, row, t):
        of = row // self.o["n"] if t < self.o["p"] else self.o["r"] + row
        h = (of * 65537 + t) * 2654435761 & 0xFFFFFFFF
        h = (h ^ h >> 15) * 2246822519 & 0xFFFFFFFF
        return (h ^ h >> 13) % self.m.V

    def passes(self):
        """The rows of each pass: of at most PASS positions, padding left out where no row needs it."""
        n = max(1, PASS // (self.o["p"] + self.o["g"]))
        for i in range(0, self.o["r"], n):
            width = self.o["p"] + max(self.len[i : i + n])
            yield self.ids[i : i + n, :width], self.live[i : i + n, : width - self.o["p"]]

    def logp_sum(self, ids, live):
        p = self.o["p"]
        z = self.m.logits(self.m.body(ids[:, :-1])[:, p - 1 :][live]).float()
        return (z.gather(-1, ids[:, p:][live][:, None])[:, 0] - z.logsumexp(-1)).sum()

    def autocast(self):
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16)

    def logp(self):
        t = time.perf_counter()
        with torch.no_grad():
            total = sum(float(self.logp_sum(*x)) for x in self.passes())
        self.check = total / self.outputs
        return time.perf_counter() - t, self.valid

    def train(self):
        t = time.perf_counter()
        total = 0.0
        self.opt.zero_grad(set_to_none=True)
        for ids, live in self.passes():
            with self.autocast():
                s = self.logp_sum(ids, live)
            (-s / self.outputs).backward()
            total += float(s)
        torch.nn.utils.clip_grad_norm_(list(self.m.w.values()), 1.0)
        self.opt.step()
        self.check = total / self.outputs
        return time.perf_counter() - t, self.valid

    def draw(self, x):
        return torch.multinomial(torch.softmax(self.m.logits(x[:, -1]).float(), -1), 1)

    def decode(self):
        o, m = self.o, self.m
        size = (o["r"], m.K, o["p"] + o["g"], m.D)
        with torch.no_grad():
            cache = [(torch.zeros(size, dtype=self.half), torch.zeros(size, dtype=self.half)) for _ in range(m.L)]
            ids = self.draw(m.body(self.ids[:, : o["p"]], cache))
            t = time.perf_counter()
            for i in range(1, o["g"]):
                ids = self.draw(m.body(ids, cache, o["p"] + i - 1))
        return time.perf_counter() - t, o["r"] * (o["g"] - 1)


def main():
    kind, o = sys.argv[1], options(sys.argv)
    torch.manual_seed(1)
    torch.set_num_threads(o["t"])
    b = Bench(kind, o)
    once = getattr(b, kind)
    once()
    print("ready check=%s torch %s" % ("%.6f" % b.check if hasattr(b, "check") else "-", torch.__version__), flush=True)
    for _ in range(o["s"]) if o["s"] else iter(sys.stdin.readline, ""):
        seconds, tokens, n = 0.0, 0, 0
        while not n or seconds < o["i"]:
            t, k = once()
            seconds, tokens, n = seconds + t, tokens + k, n + 1
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print("sample tok/s %.6g seconds %.6g iterations %d peak_mib %d" % (tokens / seconds, seconds, n, peak), flush=True)


main()
