"""What the provider's answers become: frozen values, one file per kind of thing.

Novita's "cluster" is a region's machine room: `Cluster.code` is what the rest of the product calls a region. Money is
in 1/100000 USD (`_e5`). Strings that were unset are None where their absence means something, "" where it does not.
"""

from server.novita.wire.catalog import Cluster, CpuProduct, MonthlyPrice, Product, find_cluster, region_code
from server.novita.wire.images import Job, Prewarm, PrewarmQuota
from server.novita.wire.instance import (
    Endpoint,
    Env,
    Jupyter,
    Logs,
    RemoteInstance,
    Ssh,
    StatusError,
    Tool,
    Volume,
    WebTerminal,
)
from server.novita.wire.metrics import GpuSeries, InstanceMetrics, Sample
from server.novita.wire.page import Page
from server.novita.wire.registry import RegistryAuth
from server.novita.wire.request import CreateInstance, Port, StorageMount, UpgradeInstance
from server.novita.wire.storage import Network, NetworkAddress, NetworkStorage
from server.novita.wire.template import Template, TemplateDraft

__all__ = [
    "Cluster",
    "CpuProduct",
    "CreateInstance",
    "Endpoint",
    "Env",
    "GpuSeries",
    "InstanceMetrics",
    "Job",
    "Jupyter",
    "Logs",
    "MonthlyPrice",
    "Network",
    "NetworkAddress",
    "NetworkStorage",
    "Page",
    "Port",
    "Prewarm",
    "PrewarmQuota",
    "Product",
    "RegistryAuth",
    "RemoteInstance",
    "Sample",
    "Ssh",
    "StatusError",
    "StorageMount",
    "Template",
    "TemplateDraft",
    "Tool",
    "UpgradeInstance",
    "Volume",
    "WebTerminal",
    "find_cluster",
    "region_code",
]
