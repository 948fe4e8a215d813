"""What the kernels of filters leave, and what is drawn of it; in Triton's interpreter where there is no GPU."""

import numpy as np
import pytest
import torch

from sgl_runtime.device.kernels.sampling import draw
from sgl_runtime.device.kernels.token_filters import TokenFilters, find_filters
from sgl_runtime.model_runner.sampler import filter_sorted

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.bfloat16]


def find(logits: torch.Tensor, settings: list[dict[str, float]], masks: torch.Tensor | None = None) -> TokenFilters:
    def column(name: str, default: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row.get(name, default) for row in settings], dtype=dtype, device=DEVICE)

    return find_filters(
        logits.to(DEVICE),
        temperatures=column("temperature", 1.0, torch.float32),
        top_ks=column("top_k", -1, torch.int32),
        top_ps=column("top_p", 1.0, torch.float32),
        min_ps=column("min_p", 0.0, torch.float32),
        masks=None if masks is None else masks.to(DEVICE),
    )


def kept(logits: torch.Tensor, filters: TokenFilters) -> torch.Tensor:
    """(R, V) bool."""
    values, least = logits.float(), filters.least.cpu().unsqueeze(1)
    ids = torch.arange(logits.shape[1])
    return (values > least) | ((values == least) & (ids <= filters.last_ties.cpu().unsqueeze(1)))


def plainly_kept(logits: torch.Tensor, *, temperature=1.0, top_k=-1, top_p=1.0, min_p=0.0) -> torch.Tensor:
    """(V,) bool, by sorting in float64; of equal logits the smallest id comes first."""
    probs = (logits.double() / temperature).softmax(dim=-1)
    order = torch.sort(logits.float(), descending=True, stable=True).indices
    values = probs[order].unsqueeze(0)
    limit = top_k if top_k > 0 else len(order)
    column = lambda value: torch.tensor([[value]], dtype=torch.float64)  # noqa: E731 - used four times below
    left = filter_sorted(
        values,
        column(float(values[0, :limit].sum())),
        top_ks=column(limit),
        top_ps=column(top_p),
        min_ps=column(min_p),
    )
    out = torch.zeros(len(order), dtype=torch.bool)
    out[order] = left[0] > 0
    return out


SETTINGS = [
    {"top_k": 1},
    {"top_k": 40},
    {"top_p": 0.9},
    {"top_p": 0.3, "temperature": 0.6},
    {"min_p": 0.05},
    {"min_p": 0.3, "temperature": 1.7},
    {"top_k": 64, "top_p": 0.8, "min_p": 0.02, "temperature": 1.3},
    {"top_k": 4999, "top_p": 0.995},
    {"top_p": 0.05},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab_size", [17, 5000])
@pytest.mark.parametrize("spread", [0.01, 2.0, 12.0])
def test_the_same_tokens_stay_as_by_sorting(dtype, vocab_size, spread):
    generator = torch.Generator().manual_seed(int(spread * 100) + vocab_size)
    logits = (torch.randn(len(SETTINGS), vocab_size, generator=generator) * spread).to(dtype)
    out = kept(logits, find(logits, SETTINGS))
    for row, options in enumerate(SETTINGS):
        expected = plainly_kept(logits[row], **options)
        # Sums in float32 may fall on the other side of top-p by a token or, of equal ones, a few.
        allowed = 0 if options.keys() <= {"top_k"} else max(1, round(2e-5 * vocab_size))
        assert int((out[row] != expected).sum()) <= allowed, options


def test_of_equal_logits_as_many_stay_as_the_filter_leaves():
    logits = torch.zeros(4, 1000)
    logits[1, ::2] = 3.0
    logits[3, 10:14] = 5.0
    out = kept(logits, find(logits, [{"top_k": 7}, {"top_k": 501}, {"top_p": 0.25}, {"top_k": 3}]))
    assert out[0].nonzero().flatten().tolist() == list(range(7))
    assert out[1].nonzero().flatten().tolist() == sorted([1, *range(0, 1000, 2)])
    assert abs(int(out[2].sum()) - 250) <= 1
    assert out[2, : int(out[2].sum())].all()
    assert out[3].nonzero().flatten().tolist() == [10, 11, 12]


def test_rows_without_filters_keep_everything():
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(3))
    filters = find(logits, [{}, {"top_k": 5, "temperature": 0.0}, {"top_k": 5000}])
    assert kept(logits, filters).all()


def test_masked_tokens_do_not_count():
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(4))
    allowed = torch.rand(3, 5024, generator=torch.Generator().manual_seed(5)) < 0.02
    masks = torch.from_numpy(np.packbits(allowed.numpy(), axis=1, bitorder="little").view(np.int32))
    allowed = allowed[:, :5000]
    settings = [{"top_k": 20}, {"top_p": 0.7}, {"top_k": 1000, "top_p": 0.9}]
    out = kept(logits, find(logits, settings, masks)) & allowed
    forbidden = logits.masked_fill(~allowed, float("-inf"))
    for row, options in enumerate(settings):
        assert int((out[row] != plainly_kept(forbidden[row], **options)).sum()) <= 1


@pytest.mark.parametrize("options", [{"top_k": 8, "top_p": 0.8}, {"min_p": 0.2}])
def test_draws_follow_the_softmax_of_what_stays(options):
    rows, vocab = 20_000 if torch.cuda.is_available() else 150, 40
    row = torch.randn(1, vocab, generator=torch.Generator().manual_seed(8))
    logits = row.expand(rows, vocab).contiguous()
    filters = find(row, [options | {"temperature": 0.7}])
    everywhere = TokenFilters(filters.least.expand(rows).contiguous(), filters.last_ties.expand(rows).contiguous())
    drawn = draw(
        logits.to(DEVICE),
        temperatures=torch.full((rows,), 0.7, device=DEVICE),
        seeds=torch.arange(rows, device=DEVICE, dtype=torch.int64) * 7919,
        filters=everywhere,
    )
    stays = plainly_kept(row[0], temperature=0.7, **options)
    expected = (row[0].double() / 0.7).masked_fill(~stays, float("-inf")).softmax(dim=-1) * rows
    counts = torch.bincount(drawn.cpu(), minlength=vocab).double()
    assert bool((counts[~stays] == 0).all())
    statistic = float(((counts - expected)[stays] ** 2 / expected[stays]).sum())
    degrees = int(stays.sum()) - 1
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5 + 6


def test_a_row_without_filters_draws_the_same_beside_rows_that_have_some():
    logits = torch.randn(2, 5000, generator=torch.Generator().manual_seed(9)).to(DEVICE)
    temperatures, seeds = torch.ones(2, device=DEVICE), torch.tensor([11, 12], device=DEVICE)
    plain = draw(logits, temperatures=temperatures, seeds=seeds)
    filtered = draw(logits, temperatures=temperatures, seeds=seeds, filters=find(logits, [{}, {"top_k": 2}]))
    assert plain[0] == filtered[0]
    assert int(filtered[1]) in logits[1].topk(2).indices.tolist()


@pytest.mark.parametrize("vocab_size", [5000, 8192])
@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {}, {"top_k": 5}, {"top_p": 0.5, "min_p": 0.1}])
def test_logits_that_are_no_numbers_give_tokens_all_the_same(vocab_size, settings):
    """Whatever a model makes of extreme inputs: an id outside of the vocabulary would end the process."""
    logits = torch.randn(5, vocab_size, generator=torch.Generator().manual_seed(10))
    logits[0] = float("nan")
    logits[1, ::2] = float("nan")
    logits[2] = float("-inf")
    logits[3, 7] = float("inf")
    logits[4, 1:] = float("nan")
    rows = [settings] * len(logits)
    drawn = draw(
        logits.to(DEVICE),
        temperatures=torch.full((len(rows),), settings.get("temperature", 1.0), device=DEVICE),
        seeds=torch.arange(len(rows), device=DEVICE),
        filters=find(logits, rows),
    ).tolist()
    assert all(0 <= token < vocab_size for token in drawn)
    assert drawn[3] == 7
    assert drawn[4] == 0
