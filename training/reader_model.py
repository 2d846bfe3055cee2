"""The reader's network for training: the `qwen3_vl` arithmetic for batches of pictures of one size.

Parameter names equal the checkpoint's tensor names, so `state_dict()` is the exported file. Source of the arithmetic:
the architecture as published with transformers' Qwen3VLForConditionalGeneration. The forward is our own because batches
here share one picture grid and one prompt length, which removes most of the general code's overhead on a small network.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import reader_config as rc

AUX_SLOTS = 4  # characters named for a picture token (32 pixels)
PATCH_SLOTS = 3  # characters named for a patch (16 pixels)
AUX_CLASSES = 128  # 0: no character; otherwise the ASCII code


def block_order(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of every patch in the processor's order: 2x2 blocks, row by row inside."""
    r = torch.arange(rows).view(rows // 2, 1, 2, 1).expand(-1, columns // 2, -1, 2)
    c = torch.arange(columns).view(1, columns // 2, 1, 2).expand(rows // 2, -1, 2, -1)
    return r.reshape(-1), c.reshape(-1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class _HalfProduct(torch.autograd.Function):
    """x @ weight.T with operands rounded to bfloat16; activations, gradients and weights stay float32 outside."""

    @staticmethod
    def forward(ctx, x, weight):
        flat, w = x.reshape(-1, x.shape[-1]).bfloat16(), weight.bfloat16()
        ctx.save_for_backward(flat, w)
        return (flat @ w.T).float().view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, grad):
        flat, w = ctx.saved_tensors
        g = grad.reshape(-1, grad.shape[-1]).bfloat16()
        return (g @ w).float().view(*grad.shape[:-1], -1), (g.T @ flat).float()


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """F.linear, through bfloat16 where `Linear.half` is set (about 2.5 times as fast on cores with such products)."""
    if not Linear.half or not torch.is_grad_enabled():
        return F.linear(x, weight, bias)
    y = _HalfProduct.apply(x, weight)
    return y if bias is None else y + bias


class Linear(nn.Linear):
    half = False

    def forward(self, x):
        return product(x, self.weight, self.bias)


class VisionBlock(nn.Module):
    def __init__(self, width: int, inner: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.Module()
        self.attn.qkv, self.attn.proj = Linear(width, 3 * width), Linear(width, width)
        self.mlp = nn.Module()
        self.mlp.linear_fc1, self.mlp.linear_fc2 = Linear(width, inner), Linear(inner, width)

    def forward(self, x, cos, sin):
        n, t, width = x.shape
        q, k, v = self.attn.qkv(self.norm1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.attn.proj(mixed.transpose(1, 2).reshape(n, t, width))
        inner = F.gelu(self.mlp.linear_fc1(self.norm2(x)), approximate="tanh")
        return x + self.mlp.linear_fc2(inner)


class Merger(nn.Module):
    """Joins 2x2 patches; the norm comes before joining, or after it in the deepstack mergers."""

    def __init__(self, width: int, out: int, join_first: bool):
        super().__init__()
        self.join_first = join_first
        self.wide = 4 * width
        self.norm = nn.LayerNorm(self.wide if join_first else width, eps=1e-6)
        self.linear_fc1, self.linear_fc2 = Linear(self.wide, self.wide), Linear(self.wide, out)

    def forward(self, x):
        if self.join_first:
            x = self.norm(x.reshape(x.shape[0], -1, self.wide))
        else:
            x = self.norm(x).reshape(x.shape[0], -1, self.wide)
        return self.linear_fc2(F.gelu(self.linear_fc1(x)))


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        v, width, out = rc.VISION, rc.VISION["hidden_size"], rc.TEXT["hidden_size"]
        self.head_dim = width // v["num_heads"]
        self.deep = list(v["deepstack_visual_indexes"])
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv3d(3, width, (2, rc.PATCH, rc.PATCH), stride=(2, rc.PATCH, rc.PATCH))
        self.pos_embed = nn.Embedding(v["num_position_embeddings"], width)
        self.blocks = nn.ModuleList(
            VisionBlock(width, v["intermediate_size"], v["num_heads"]) for _ in range(v["depth"]))
        self.merger = Merger(width, out, join_first=False)
        self.deepstack_merger_list = nn.ModuleList(Merger(width, out, join_first=True) for _ in self.deep)
        self._grids: dict[tuple[int, int], tuple[torch.Tensor, ...]] = {}

    def _grid(self, rows: int, columns: int) -> tuple[torch.Tensor, ...]:
        """(position blend [patches, table rows], cos, sin [patches, head_dim]) of a patch grid."""
        if (rows, columns) not in self._grids:
            r, c = block_order(rows, columns)
            side = math.isqrt(self.pos_embed.num_embeddings)
            blend = (_taps(r, rows, side)[:, :, None] * _taps(c, columns, side)[:, None, :]).flatten(1)
            inv = 10000.0 ** (-torch.arange(self.head_dim // 4, dtype=torch.float32) * 4 / self.head_dim)
            angle = torch.cat((r[:, None] * inv, c[:, None] * inv), dim=1).repeat(1, 2)
            self._grids[rows, columns] = (blend, angle.cos(), angle.sin())
        return self._grids[rows, columns]

    def forward(self, patches: torch.Tensor, rows: int, columns: int):
        """patches [pictures, rows*columns, 3*16*16] (one frame) -> (tokens [pictures, cells, text width], deepstack,
        last block's output [pictures, patches, width])."""
        blend, cos, sin = self._grid(rows, columns)
        # A still picture fills both temporal slots with the same pixels: one product with the summed kernel.
        kernel = self.patch_embed.proj.weight.sum(2).flatten(1)
        x = product(patches, kernel, self.patch_embed.proj.bias) + blend @ self.pos_embed.weight
        deep = []
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin)
            if i in self.deep:
                deep.append(self.deepstack_merger_list[self.deep.index(i)](x))
        return self.merger(x), deep, x


def _taps(index: torch.Tensor, count: int, side: int) -> torch.Tensor:
    """Bilinear weights [len(index), side] of positions 0..count-1 stretched over the table, corners aligned."""
    at = index.float() * (side - 1) / max(count - 1, 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=side - 1)
    part = (at - low)[:, None]
    return F.one_hot(low, side) * (1 - part) + F.one_hot(high, side) * part


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, rc.TEXT["rms_norm_eps"])


class TextBlock(nn.Module):
    def __init__(self):
        super().__init__()
        t = rc.TEXT
        width, inner, d = t["hidden_size"], t["intermediate_size"], t["head_dim"]
        self.heads, self.kv, self.d = t["num_attention_heads"], t["num_key_value_heads"], d
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width), RMSNorm(width)
        a = self.self_attn = nn.Module()
        a.q_proj = Linear(width, self.heads * d, bias=False)
        a.k_proj = Linear(width, self.kv * d, bias=False)
        a.v_proj = Linear(width, self.kv * d, bias=False)
        a.o_proj = Linear(self.heads * d, width, bias=False)
        a.q_norm, a.k_norm = RMSNorm(d), RMSNorm(d)
        self.mlp = nn.Module()
        self.mlp.gate_proj = Linear(width, inner, bias=False)
        self.mlp.up_proj = Linear(width, inner, bias=False)
        self.mlp.down_proj = Linear(inner, width, bias=False)

    def forward(self, x, cos, sin, cache=None):
        """cache: None, or a list [k, v] that this block extends (greedy decoding)."""
        n, t, _ = x.shape
        a, h = self.self_attn, self.input_layernorm(x)
        q = rotate(a.q_norm(a.q_proj(h).view(n, t, self.heads, self.d)).transpose(1, 2), cos, sin)
        k = rotate(a.k_norm(a.k_proj(h).view(n, t, self.kv, self.d)).transpose(1, 2), cos, sin)
        v = a.v_proj(h).view(n, t, self.kv, self.d).transpose(1, 2)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
            cache[:] = [k, v]
        group = self.heads // self.kv
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + a.o_proj(mixed.transpose(1, 2).reshape(n, t, -1))
        h = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(h)) * self.mlp.up_proj(h))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        t = rc.TEXT
        self.embed_tokens = nn.Embedding(rc.VOCAB, t["hidden_size"])
        self.layers = nn.ModuleList(TextBlock() for _ in range(t["num_hidden_layers"]))
        self.norm = RMSNorm(t["hidden_size"])
        half = t["head_dim"] // 2
        pair = torch.arange(half)
        axis = torch.zeros(half, dtype=torch.long)
        for which in (1, 2):
            axis[(pair % 3 == which) & (pair < 3 * t["mrope_section"][which])] = which
        self.axis, self.inv = axis, float(t["rope_theta"]) ** (-pair.float() / half)

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """positions [3, tokens] -> cos, sin [tokens, head_dim]."""
        angle = (positions.float()[self.axis].T * self.inv).repeat(1, 2)
        return angle.cos(), angle.sin()

    def forward(self, x, positions, pictures=None, deep=(), caches=None):
        """x [samples, tokens, width]; pictures: slice of the picture tokens; -> logits [samples, tokens, vocab]."""
        cos, sin = self.angles(positions)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, None if caches is None else caches[i])
            if i < len(deep):
                x = torch.cat((x[:, :pictures.start], x[:, pictures] + deep[i], x[:, pictures.stop:]), dim=1)
        return product(self.norm(x), self.embed_tokens.weight)


class Reader(nn.Module):
    """The whole network; `aux` and `patch_aux` are throw-away heads that are not exported."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.visual, self.model.language_model = Vision(), Language()
        self.aux = Linear(rc.TEXT["hidden_size"], AUX_SLOTS * AUX_CLASSES)
        self.patch_aux = Linear(rc.VISION["hidden_size"], PATCH_SLOTS * AUX_CLASSES)
        self._initialise()

    def _initialise(self) -> None:
        for name, p in self.named_parameters():
            if "embed" in name and p.dim() == 2:
                nn.init.normal_(p, std=0.05)
            elif p.dim() >= 2:
                nn.init.normal_(p, std=0.8 / math.sqrt(p[0].numel()))
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        with torch.no_grad():  # a quiet residual stream at the start
            for name, p in self.named_parameters():
                if name.endswith(("attn.proj.weight", "mlp.linear_fc2.weight", "o_proj.weight", "down_proj.weight")):
                    p.mul_(0.35)
            self.model.visual.patch_embed.proj.weight.mul_(0.5)

    @torch.no_grad()
    def level_filters(self) -> None:
        """Takes the mean out of every filter of the patch embedding, so that an even patch of any colour gives the bias.

        Called after every step: strokes then weigh more than the paper's colour, which the tower learns late by itself.
        """
        weight = self.model.visual.patch_embed.proj.weight
        weight.sub_(weight.mean(dim=(3, 4), keepdim=True))

    def encode(self, patches, rows: int, columns: int):
        return self.model.visual(patches, rows, columns)

    def head_logits(self, tokens: torch.Tensor, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Picture tokens and last patch states -> [all slots of cells, classes], [all slots of patches, classes]."""
        return self.aux(tokens).reshape(-1, AUX_CLASSES), self.patch_aux(patches).reshape(-1, AUX_CLASSES)

    def forward(self, batch):
        """(logits of all positions, picture tokens, last patch states) of a `reader_data.Batch`."""
        tokens, deep, last = self.encode(batch.patches, *batch.grid)
        embeds = self.model.language_model.embed_tokens(batch.ids)
        at = batch.pictures
        x = torch.cat((embeds[:, :at.start], tokens, embeds[:, at.stop:]), dim=1)
        return self.model.language_model(x, batch.positions, at, deep), tokens, last

    def export_state(self) -> dict[str, torch.Tensor]:
        """The tensors of the checkpoint (the head is tied to the embedding)."""
        return {k: v for k, v in self.state_dict().items() if k.startswith("model.")}
