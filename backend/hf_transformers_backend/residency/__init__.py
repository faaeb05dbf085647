"""What is resident, loading and leased, and everything that changes it."""

from hf_transformers_backend.residency.core import LoadTicket, Residency
from hf_transformers_backend.residency.declared import DeclaredList, DeclaredModel
from hf_transformers_backend.residency.lease import Lease
from hf_transformers_backend.residency.views import (
    CatalogEntry,
    EvictionReason,
    EvictionResult,
    EvictionView,
    FailedView,
    LoadingView,
    ResidencySnapshot,
    ResidentView,
    Unloaded,
)

__all__ = [
    "CatalogEntry",
    "DeclaredList",
    "DeclaredModel",
    "EvictionReason",
    "EvictionResult",
    "EvictionView",
    "FailedView",
    "Lease",
    "LoadTicket",
    "LoadingView",
    "Residency",
    "ResidencySnapshot",
    "ResidentView",
    "Unloaded",
]
