"""The paper's Table 2 and Figure 1, drawn from the results of a run: errors and time against n, d, ell and z."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders import FD_SVD, FUSED

STYLES = {
    FUSED: ("tab:red", "o", "-"),
    "sparse-shrink": ("tab:orange", "s", "--"),
    "paper": ("tab:purple", "d", "--"),
    FD_SVD: ("tab:blue", "^", "-"),
    "FD by Gram": ("tab:cyan", "v", ":"),
    "TruncatedSVD": ("tab:green", "x", ":"),
    "IncrementalPCA": ("tab:gray", "+", ":"),
    "gensim LSI": ("tab:brown", "*", ":"),
}
MEASURES = (("proj_err", "projection error"), ("cov_err", "covariance error"), ("cpu_s", "run time (CPU s)"))
AXES = {"n": "number of rows n", "d": "dimension d", "ell": "sketch size ell", "z": "non-zeros a row"}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """All figures the results allow, as SVG and PNG; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    sweeps = results.get("sweeps", [])
    if sweeps:
        columns = {label: _points(sweeps, axis) for axis, label in AXES.items()}
        written += _panels(columns, folder / "synthetic")
    runs: dict[str, list[Any]] = {}
    for run in results.get("matrices", []):
        runs.setdefault(run["name"], []).append((run["ell"], run["scores"]))
    for name, points in runs.items():
        written += _panels(
            {f"sketch size ell ({name})": sorted(points, key=lambda p: p[0])}, folder / name, turned=True
        )
    return written


def _points(sweeps: list[dict[str, Any]], axis: str) -> list[tuple[int, Any]]:
    return [(point["shape"][axis], point["scores"]) for point in sweeps if point["axis"] == axis]


def _panels(columns: dict[str, list[tuple[int, Any]]], path: Path, *, turned: bool = False) -> list[Path]:
    """One row of panels a measure, one column a parameter; `turned` puts the measures side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "sfd-stream"  # the same results give the same file
    from matplotlib import pyplot as plt

    shape = (1, len(MEASURES)) if turned else (len(MEASURES), len(columns))
    figure, grid = plt.subplots(*shape, figsize=(3.6 * shape[1], 2.8 * shape[0]), squeeze=False)
    for column, (label, points) in enumerate(columns.items()):
        for row, (measure, title) in enumerate(MEASURES):
            axes = grid[0][row] if turned else grid[row][column]
            _curves(axes, points, measure)
            axes.set_xlabel(label if turned or row == len(MEASURES) - 1 else "")
            axes.set_ylabel(title if turned or column == 0 else "")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncol=len(labels), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.95 if not turned else 0.9))
    files = [path.with_suffix(".svg"), path.with_suffix(".png")]
    figure.savefig(files[0], metadata={"Date": None})
    figure.savefig(files[1], dpi=110)
    plt.close(figure)
    return files


def _curves(axes: Any, points: list[tuple[int, Any]], measure: str) -> None:
    for name, (colour, marker, line) in STYLES.items():
        found = [(x, score[measure]) for x, scores in points for score in scores if score["name"] == name]
        if found:
            xs, ys = zip(*found, strict=True)
            axes.plot(xs, ys, line, marker=marker, color=colour, label=name, markersize=4, linewidth=1)
    along = [x for x, _ in points]
    if max(along) > 20 * min(along):
        axes.set_xscale("log")
    if measure == "cpu_s":
        axes.set_yscale("log")
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, alpha=0.3)
