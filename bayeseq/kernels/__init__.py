"""Kernels on sparse rows, and the feature maps that turn them into columns.

A kernel is a function of inner products, differentiable in the logs of its numbers; with grouped
inner products also in one weight for each group of features. A feature map turns any kernel into
columns Φ plus the variance that they leave out, so that models see Φ alone.
"""

from bayeseq.kernels.base import Kernel
from bayeseq.kernels.choice import cheapest_map, map_from_arrays, prefers_conjunctions
from bayeseq.kernels.combined import Product, Sum
from bayeseq.kernels.conjunctions import ConjunctionMap, conjunction_count
from bayeseq.kernels.elementary import RBF, Delta, Linear, Polynomial
from bayeseq.kernels.groups import GroupedProducts
from bayeseq.kernels.inducing import features_from_factor, inducing_factor, inducing_features
from bayeseq.kernels.maps import (
    FeatureMap,
    InducingMap,
    LinearMap,
    exact_map,
)
from bayeseq.kernels.points import choose_points, pivoted_rows
from bayeseq.kernels.products import InnerProducts, distinct_rows, inner_products
from bayeseq.kernels.text import KERNELS, kernel_from_text

__all__ = [
    "KERNELS",
    "RBF",
    "ConjunctionMap",
    "Delta",
    "FeatureMap",
    "GroupedProducts",
    "InducingMap",
    "InnerProducts",
    "Kernel",
    "Linear",
    "LinearMap",
    "Polynomial",
    "Product",
    "Sum",
    "cheapest_map",
    "choose_points",
    "conjunction_count",
    "distinct_rows",
    "exact_map",
    "features_from_factor",
    "inducing_factor",
    "inducing_features",
    "inner_products",
    "kernel_from_text",
    "map_from_arrays",
    "pivoted_rows",
    "prefers_conjunctions",
]
