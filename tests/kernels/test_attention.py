"""Attention: its references against the formula, and the devices that its kernels need."""

from functools import partial

import numpy as np
import pytest

from memlab.errors import UsageError
from memlab.kernels import attention
from memlab.kernels.catalog import CATALOG
from memlab.kernels.kernel import Limits

HEADS, TOKENS, SIZE = 3, 23, 64
GENERATOR = np.random.default_rng(7)
INPUTS = {name: GENERATOR.uniform(-3, 3, (HEADS, TOKENS, SIZE)) for name in "QKV"}


def formula(causal: bool) -> dict[str, np.ndarray]:
    """The scores, the weights and the outputs, one query after the other."""
    scores = np.full((HEADS, TOKENS, TOKENS), -np.inf)
    weights = np.zeros((HEADS, TOKENS, TOKENS))
    outputs = np.zeros((HEADS, TOKENS, SIZE))
    for head in range(HEADS):
        for query in range(TOKENS):
            keys = query + 1 if causal else TOKENS
            for key in range(keys):
                product = INPUTS["Q"][head, query] @ INPUTS["K"][head, key]
                scores[head, query, key] = product / 8
            exponentials = np.exp(scores[head, query, :keys])
            weights[head, query, :keys] = exponentials / exponentials.sum()
            for key in range(keys):
                outputs[head, query] += weights[head, query, key] * INPUTS["V"][head, key]
    return {"S": scores, "P": weights, "O": outputs}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("at_once", [4 * TOKENS, 1])
def test_references_give_any_elements_of_the_formula(
    causal: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_MAX_SCORES", at_once)
    truth = formula(causal)
    # What lies behind the mask is in memory, and must not be read.
    given = {name: np.where(np.isfinite(array), array, 99.0) for name, array in truth.items()}
    if causal:
        given["P"] = np.where(given["P"] == 0, 99.0, given["P"])
    inputs = {**INPUTS, "S": given["S"], "P": given["P"]}
    for reference, name in (
        (attention.scores_reference, "S"),
        (attention.softmax_reference, "P"),
        (attention.values_reference, "O"),
        (attention.attention_reference, "O"),
    ):
        positions = GENERATOR.integers(truth[name].size, size=(5, 40))  # in no order, repeated

        found = partial(reference, causal=causal)(inputs, positions)

        np.testing.assert_allclose(found, truth[name].reshape(-1)[positions], rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "limits", "message"),
    [
        (
            "attention-wgmma",
            Limits("NVIDIA B200", compute_capability=(10, 0)),
            "attention-wgmma needs compute capability 9.0 (wgmma); NVIDIA B200 has 10.0: "
            "use attention-mma, or --device h200",
        ),
        (
            "attention-tiled",
            Limits("GTX 1080"),
            "attention-tiled with head size 64 needs 52224 bytes of shared memory per block; "
            "GTX 1080 allows 49152: use another --device",
        ),
    ],
)
def test_a_device_that_lacks_something_is_refused(name: str, limits: Limits, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        CATALOG[name].prepare({}, limits)

    assert str(refusal.value) == message
