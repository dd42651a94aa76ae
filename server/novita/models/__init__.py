"""The provider's responses and requests as typed values.

Novita's "cluster" is our region: `Cluster.code` is the region's name in the rest of the product. Money is in 1/100000
USD (`_e5`). Unset strings are None where that has a meaning, "" elsewhere.
"""

from server.novita.models.base import ProviderPage
from server.novita.models.catalog import Cluster, CpuProduct, MonthlyPrice, Product, find_cluster, region_code
from server.novita.models.images import Prewarm, PrewarmQuota, prewarm_name
from server.novita.models.instance import (
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
from server.novita.models.job import Job
from server.novita.models.metrics import GpuSeries, InstanceMetrics, Sample
from server.novita.models.request import CreateInstance, Port, StorageMount, UpgradeInstance
from server.novita.models.storage import Network, NetworkAddress, NetworkStorage
from server.novita.models.template import RegistryAuth, Template, TemplateDraft

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
    "Port",
    "Prewarm",
    "PrewarmQuota",
    "Product",
    "ProviderPage",
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
    "prewarm_name",
    "region_code",
]
