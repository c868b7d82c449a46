"""The part of Kubernetes' and KubeRay's objects that the manifests use, as types: a field that is not here is refused.

Names and types are those of ``ray.io/v1`` in KubeRay 1.7 (``ray-operator/apis/ray/v1/*_types.go``), and of Kubernetes' core, in their own
spelling once ``rename`` has made ``runAsUser`` of ``run_as_user``. Who uses another field adds it here, from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field


class Part(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A piece of a manifest: no field but its own, and each of its type; the string "0" is no number."""


class Metadata(Part, frozen=True, kw_only=True):
    """What an object is called."""

    name: str
    labels: dict[str, str] = {}


# -- pods ------------------------------------------------------------------------------------------------------------------------------


class SeccompProfile(Part, frozen=True, kw_only=True):
    """Which system calls are let through."""

    type: Literal["RuntimeDefault"]


class PodSecurity(Part, frozen=True, kw_only=True):
    """Who a pod's processes are."""

    run_as_non_root: bool
    run_as_user: int
    fs_group: int | None = None
    seccomp_profile: SeccompProfile


class Capabilities(Part, frozen=True, kw_only=True):
    """Rights of root, one by one."""

    drop: list[str]


class ContainerSecurity(Part, frozen=True, kw_only=True):
    """What a container may do."""

    allow_privilege_escalation: bool
    capabilities: Capabilities


class Resources(Part, frozen=True, kw_only=True):
    """What a container is given, and where it ends."""

    requests: dict[str, str]
    limits: dict[str, str]


class SecretKey(Part, frozen=True, kw_only=True):
    """An entry of a Secret."""

    name: str
    key: str
    optional: bool


class ValueSource(Part, frozen=True, kw_only=True):
    """Where the value of an environment variable is."""

    secret_key_ref: SecretKey


class Variable(Part, frozen=True, kw_only=True):
    """An environment variable: its value, or where it is."""

    name: str
    value: str = ""
    value_from: ValueSource | None = None


class Port(Part, frozen=True, kw_only=True):
    """A port that a container listens at."""

    name: Literal["gcs-server", "dashboard", "totals"]
    container_port: int


class Exec(Part, frozen=True, kw_only=True):
    """A command within a container."""

    command: list[str]


class Handler(Part, frozen=True, kw_only=True):
    """What is done at a turn of a container's life."""

    exec: Exec


class Lifecycle(Part, frozen=True, kw_only=True):
    """Turns of a container's life."""

    pre_stop: Handler


class Mount(Part, frozen=True, kw_only=True):
    """Where a container finds a volume."""

    name: str
    mount_path: str
    read_only: bool = False


class Container(Part, frozen=True, kw_only=True):
    """A container of a pod."""

    name: str
    image: str
    command: list[str] = []
    env: list[Variable] = []
    ports: list[Port] = []
    lifecycle: Lifecycle | None = None
    resources: Resources
    security_context: ContainerSecurity
    volume_mounts: list[Mount] = []


class ClaimReference(Part, frozen=True, kw_only=True):
    """A PersistentVolumeClaim by name."""

    claim_name: str


class TokenFile(Part, frozen=True, kw_only=True):
    """The token of a pod's service account, as a file."""

    path: str


class KeyFile(Part, frozen=True, kw_only=True):
    """A value of a ConfigMap, as a file."""

    key: str
    path: str


class ConfigMapFiles(Part, frozen=True, kw_only=True):
    """Values of a ConfigMap, as files."""

    name: str
    items: list[KeyFile]


class Source(Part, frozen=True, kw_only=True):
    """Files of a projected volume."""

    service_account_token: TokenFile | None = None
    config_map: ConfigMapFiles | None = None


class Projection(Part, frozen=True, kw_only=True):
    """Files that Kubernetes keeps up to date."""

    sources: list[Source]


class Volume(Part, frozen=True, kw_only=True):
    """A volume of a pod."""

    name: str
    persistent_volume_claim: ClaimReference | None = None
    projected: Projection | None = None


class PodSpec(Part, frozen=True, kw_only=True):
    """A pod."""

    restart_policy: Literal["Never"] | None = None
    termination_grace_period_seconds: int | None = None
    automount_service_account_token: bool
    security_context: PodSecurity
    containers: list[Container]
    volumes: list[Volume] = []


class Annotations(Part, frozen=True, kw_only=True):
    """What the machinery around a pod reads."""

    annotations: dict[str, str]


class Template(Part, frozen=True, kw_only=True):
    """What pods are made from."""

    metadata: Annotations | None = None
    spec: PodSpec


# -- KubeRay ---------------------------------------------------------------------------------------------------------------------------


class AuthOptions(Part, frozen=True, kw_only=True):
    """Who may speak to a cluster."""

    mode: Literal["disabled", "token"]


class AutoscalerOptions(Part, frozen=True, kw_only=True):
    """The container that adds and ends workers."""

    idle_timeout_seconds: int
    resources: Resources
    security_context: ContainerSecurity
    volume_mounts: list[Mount]


class HeadGroupSpec(Part, frozen=True, kw_only=True):
    """The head of a cluster."""

    service_type: str
    enable_ingress: bool
    ray_start_params: dict[str, str]
    template: Template


class WorkerGroupSpec(Part, frozen=True, kw_only=True):
    """Workers that are alike."""

    group_name: str
    replicas: int
    min_replicas: int
    max_replicas: int
    ray_start_params: dict[str, str]
    template: Template


class RayClusterSpec(Part, frozen=True, kw_only=True):
    """A cluster of Ray."""

    ray_version: str
    auth_options: AuthOptions | None = None
    enable_in_tree_autoscaling: bool = False
    autoscaler_options: AutoscalerOptions | None = None
    head_group_spec: HeadGroupSpec
    worker_group_specs: list[WorkerGroupSpec]


class RayJobSpec(Part, frozen=True, kw_only=True):
    """A job, and the cluster that is made for it."""

    entrypoint: str
    submission_mode: Literal["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"]
    entrypoint_num_cpus: float = 0
    entrypoint_num_gpus: float = 0
    entrypoint_resources: str = ""
    runtime_env_yaml: str = field(name="runtimeEnvYAML", default="")
    shutdown_after_job_finishes: bool = False
    ttl_seconds_after_finished: int = 0
    backoff_limit: int = 0
    submitter_pod_template: Template
    cluster_selector: dict[str, str] = {}
    ray_cluster_spec: RayClusterSpec | None = None


# -- what stands in a file -------------------------------------------------------------------------------------------------------------


class RayCluster(Part, frozen=True, kw_only=True, tag_field="kind"):
    """KubeRay's object of the name."""

    api_version: Literal["ray.io/v1"]
    metadata: Metadata
    spec: RayClusterSpec


class RayJob(Part, frozen=True, kw_only=True, tag_field="kind"):
    """KubeRay's object of the name."""

    api_version: Literal["ray.io/v1"]
    metadata: Metadata
    spec: RayJobSpec


class Pod(Part, frozen=True, kw_only=True, tag_field="kind"):
    """A pod that nobody but a person starts."""

    api_version: Literal["v1"]
    metadata: Metadata
    spec: PodSpec


class Storage(Part, frozen=True, kw_only=True):
    """How much room a claim asks for."""

    requests: dict[str, str]


class ClaimSpec(Part, frozen=True, kw_only=True):
    """What a claim asks for."""

    access_modes: list[str]
    resources: Storage


class PersistentVolumeClaim(Part, frozen=True, kw_only=True, tag_field="kind"):
    """A volume that outlives pods."""

    api_version: Literal["v1"]
    metadata: Metadata
    spec: ClaimSpec


class Secret(Part, frozen=True, kw_only=True, tag_field="kind"):
    """Environment variables that nobody should see."""

    api_version: Literal["v1"]
    metadata: Metadata
    string_data: dict[str, str]


class Selector(Part, frozen=True, kw_only=True):
    """Which objects; all, if it says nothing."""

    match_labels: dict[str, str] = {}


class Addresses(Part, frozen=True, kw_only=True):
    """A range of addresses, without some."""

    cidr: str
    except_: list[str] = field(name="except", default_factory=list)


class Peer(Part, frozen=True, kw_only=True):
    """Who may come in, or be sent to."""

    namespace_selector: Selector | None = None
    pod_selector: Selector | None = None
    ip_block: Addresses | None = None


class PolicyPort(Part, frozen=True, kw_only=True):
    """A port that a rule is about."""

    protocol: Literal["TCP", "UDP"]
    port: int


class Ingress(Part, frozen=True, kw_only=True):
    """Whom one rule lets in."""

    peers: list[Peer] = field(name="from")
    ports: list[PolicyPort] = []


class Egress(Part, frozen=True, kw_only=True):
    """Whom one rule lets be sent to."""

    to: list[Peer]
    ports: list[PolicyPort] = []


class NetworkPolicySpec(Part, frozen=True, kw_only=True):
    """Who may reach which pods."""

    pod_selector: Selector
    policy_types: list[Literal["Ingress", "Egress"]]
    ingress: list[Ingress] = []
    egress: list[Egress] = []


class NetworkPolicy(Part, frozen=True, kw_only=True, tag_field="kind"):
    """Kubernetes' object of the name."""

    api_version: Literal["networking.k8s.io/v1"]
    metadata: Metadata
    spec: NetworkPolicySpec


class ServicePort(Part, frozen=True, kw_only=True):
    """A port of a Service, and the one of its pods."""

    name: str
    port: int
    target_port: str


class ServiceSpec(Part, frozen=True, kw_only=True):
    """Which pods a name within the cluster leads to."""

    type: Literal["ClusterIP"]
    selector: dict[str, str]
    ports: list[ServicePort]


class Service(Part, frozen=True, kw_only=True, tag_field="kind"):
    """Kubernetes' object of the name."""

    api_version: Literal["v1"]
    metadata: Metadata
    spec: ServiceSpec


# -- the Prometheus operator -----------------------------------------------------------------------------------------------------------


class Endpoint(Part, frozen=True, kw_only=True):
    """What Prometheus asks."""

    port: str
    interval: str


class MonitorSpec(Part, frozen=True, kw_only=True):
    """Which Services it asks."""

    selector: Selector
    endpoints: list[Endpoint]


class ServiceMonitor(Part, frozen=True, kw_only=True, tag_field="kind"):
    """The Prometheus operator's object of the name."""

    api_version: Literal["monitoring.coreos.com/v1"]
    metadata: Metadata
    spec: MonitorSpec


class PodMonitorSpec(Part, frozen=True, kw_only=True):
    """Which pods it asks."""

    selector: Selector
    pod_metrics_endpoints: list[Endpoint]


class PodMonitor(Part, frozen=True, kw_only=True, tag_field="kind"):
    """The Prometheus operator's object of the name."""

    api_version: Literal["monitoring.coreos.com/v1"]
    metadata: Metadata
    spec: PodMonitorSpec


class AlertRule(Part, frozen=True, kw_only=True):
    """What somebody is called for."""

    alert: str
    expr: str
    for_: str = field(name="for", default="0s")
    labels: dict[str, str]
    annotations: dict[str, str]


class AlertGroup(Part, frozen=True, kw_only=True):
    """Rules that are computed together."""

    name: str
    rules: list[AlertRule]


class AlertsSpec(Part, frozen=True, kw_only=True):
    """Groups of rules."""

    groups: list[AlertGroup]


class PrometheusRule(Part, frozen=True, kw_only=True, tag_field="kind"):
    """The Prometheus operator's object of the name."""

    api_version: Literal["monitoring.coreos.com/v1"]
    metadata: Metadata
    spec: AlertsSpec


# -- kustomize -------------------------------------------------------------------------------------------------------------------------


class ImageName(Part, frozen=True, kw_only=True):
    """What an image is called in the manifests, and where it is."""

    name: str
    new_name: str
    new_tag: str


class Kustomization(Part, frozen=True, kw_only=True, tag_field="kind"):
    """Files that are applied together; it has no name."""

    api_version: Literal["kustomize.config.k8s.io/v1beta1"]
    resources: list[str]
    components: list[str]


class Component(Part, frozen=True, kw_only=True, tag_field="kind"):
    """What several kustomizations share."""

    api_version: Literal["kustomize.config.k8s.io/v1alpha1"]
    namespace: str
    images: list[ImageName]


Manifest = (
    RayCluster
    | RayJob
    | Pod
    | PersistentVolumeClaim
    | Secret
    | NetworkPolicy
    | Service
    | ServiceMonitor
    | PodMonitor
    | PrometheusRule
    | Kustomization
    | Component
)
M = TypeVar("M", bound=Manifest)


def read(text: str) -> Manifest:
    """The manifest in a file's text.

    Raises:
        ValidationError: it has a field that is not known here, lacks one, or one is of another type.
    """
    found: Manifest = msgspec.yaml.decode(text, type=Manifest)
    return found


def read_as(kind: type[M], path: Path) -> M:
    """The manifest in a file, which must be of this kind."""
    found = read(path.read_text(encoding="utf-8"))
    assert isinstance(found, kind)
    return found


def built(folder: Path) -> list[dict[str, Any]]:
    """The objects that `kustomize build` makes of a folder: its resources, with the images and the namespace of its components."""
    kustomization = read_as(Kustomization, folder / "kustomization.yaml")
    objects = [msgspec.yaml.decode((folder / name).read_bytes()) for name in kustomization.resources]
    for name in kustomization.components:
        component = read_as(Component, folder / name / "kustomization.yaml")
        for each in objects:
            each["metadata"]["namespace"] = component.namespace
            for container in containers_in(each):
                _rename(container, component.images)
    return objects


def containers_in(part: Any) -> Iterator[dict[str, Any]]:
    """All containers at any depth of an object, where kustomize looks for images, also in kinds that it does not know."""
    if isinstance(part, list):
        for each in part:
            yield from containers_in(each)
    elif isinstance(part, dict):
        yield from part.get("containers", ())
        for each in part.values():
            yield from containers_in(each)


def _rename(container: dict[str, Any], images: list[ImageName]) -> None:
    name, _, _ = container["image"].rpartition(":")
    for image in images:
        if image.name == name:
            container["image"] = f"{image.new_name}:{image.new_tag}"
            return
