"""What numbers of a model become in replies."""

import numpy as np
import pytest

from sgl_runtime.server.vectors import cosine, normed, probabilities


@pytest.mark.parametrize("logits", [[1.0, -2.0, 0.5], [1000.0, -1000.0], [-1e30, 0.0]])
def test_probabilities_of_any_logits_are_finite(logits: list[float]) -> None:
    values = np.array(logits, dtype=np.float32)
    assert probabilities(values, "softmax").sum() == pytest.approx(1)
    shares = probabilities(values, "sigmoid")
    assert ((shares >= 0) & (shares <= 1)).all()
    np.testing.assert_allclose(shares + probabilities(-values, "sigmoid"), 1)
    assert probabilities(values, "none").tolist() == values.tolist()


def test_a_vector_of_zeros_stays_one() -> None:
    assert normed(np.zeros(3, dtype=np.float32)).tolist() == [0, 0, 0]
    np.testing.assert_allclose(normed(np.array([3, 4], dtype=np.float32)), [0.6, 0.8], rtol=1e-6)


def test_cosines_are_never_past_1() -> None:
    vectors = [normed(row) for row in np.random.default_rng(0).normal(size=(200, 576)).astype(np.float32)]
    assert max(float(vector @ vector) for vector in vectors) > 1
    assert {round(cosine(vector, vector), 6) for vector in vectors} == {1}
    assert all(cosine(vector, vector) <= 1 and cosine(vector, -vector) >= -1 for vector in vectors)
