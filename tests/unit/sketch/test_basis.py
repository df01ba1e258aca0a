"""Directions around zero and around the mean, against numpy on the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest

from sfd_stream.sketch.basis import centred_eigen, eigen, energy_inside, skew_of

ROWS = np.random.default_rng(7).normal(1.0, 2.0, size=(6, 4))


def test_directions_around_zero_are_those_of_the_gram_matrix() -> None:
    found = eigen(ROWS)
    assert np.allclose(ROWS.T @ ROWS, (found.directions.T * found.values) @ found.directions)


def test_directions_around_the_mean_are_those_of_the_centred_rows() -> None:
    mean = ROWS.mean(axis=0)
    found = centred_eigen(ROWS, mean, len(ROWS))
    assert np.allclose(found.values[:4], np.linalg.eigvalsh((ROWS - mean).T @ (ROWS - mean))[::-1])


def test_without_loss_the_energy_inside_is_exact() -> None:
    V = eigen(ROWS).directions[:2]
    inside = energy_inside(ROWS, V, float(np.sum(ROWS**2)), delta=0.0, rounding=0.0)
    assert inside.lower == pytest.approx(np.sum((ROWS @ V.T) ** 2))
    assert inside.upper == pytest.approx(inside.lower)


def test_skew_bounds_the_distance_from_orthonormal() -> None:
    assert skew_of(np.eye(3)) < 1e-14
    assert skew_of(2 * np.eye(3)) >= 3
