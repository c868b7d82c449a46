"""What stands in cluster/: every file is well formed, keeps strangers out, and puts the journal where the driver runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ray
from packaging.requirements import Requirement
from packaging.version import Version
from ray.autoscaler._private.kuberay.node_provider import IN_CLUSTER_CA_CERT_PATH, IN_CLUSTER_TOKEN_PATH
from ray.autoscaler._private.util import prepare_config, validate_config
from typer.core import TyperGroup
from typer.main import get_command

from microagents.cli import app
from microagents.runtimes.ray.totals import WAITING
from microagents.telemetry import names
from microagents.telemetry.metrics import METRICS
from microagents.telemetry.prometheus import name_of, plain
from tests.cluster.manifests import (
    Component,
    Container,
    Egress,
    NetworkPolicy,
    PersistentVolumeClaim,
    Pod,
    PodMonitor,
    PodSpec,
    PrometheusRule,
    RayCluster,
    RayClusterSpec,
    RayJob,
    Secret,
    Service,
    ServiceMonitor,
    built,
    containers_in,
    read,
    read_as,
)

ROOT = Path(__file__).parent.parent.parent
CLUSTER = ROOT / "cluster"
KUBERAY = CLUSTER / "kuberay"
RAY_UP = CLUSTER / "ray-up"
JOBS = ["one-run/rayjob.yaml", "shared-run/rayjob.yaml", "serve-llm/rayjob.yaml"]
LOOK = "look/pod.yaml"
APPLIED = ["pvc.yaml", "networkpolicy.yaml", "egress.yaml", "service.yaml", "raycluster.yaml"]
WATCHED = ["monitoring/servicemonitor.yaml", "monitoring/podmonitor.yaml", "monitoring/alerts.yaml"]
MANIFESTS = [*APPLIED, *WATCHED, *JOBS, LOOK, "secret.example.yaml"]
FOLDERS = [".", "monitoring", "one-run", "shared-run", "serve-llm", "look"]
"""What `kubectl apply -k` is given."""
KUSTOMIZATIONS = [f"{folder}/kustomization.yaml".removeprefix("./") for folder in (*FOLDERS, "image")]
LAUNCHED = ["aws.yaml", "local.yaml"]
KUBERNETES = "1.32"
"""The oldest one that the manifests are checked for."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

KEY_LIKE = re.compile(r"\bsk-[\w-]{8,}|AKIA[0-9A-Z]{16}|-----BEGIN|\b(?=[\w+]*\d)(?=[\w+]*[a-zA-Z])[\w+]{32,}=*")
"""Keys of providers and clouds, and any long word of letters and digits, as tokens are."""
NAMES_A_SECRET = re.compile(r"\b\w*(KEY|TOKEN|SECRET|PASSWORD)\w*\s*[=:]\s*[\"']?(?P<value>[^\s\"'$.]+)")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def cluster() -> RayCluster:
    return read_as(RayCluster, KUBERAY / "raycluster.yaml")


def job(name: str = JOBS[0]) -> RayJob:
    return read_as(RayJob, KUBERAY / name)


def pods() -> Iterator[PodSpec]:
    """All pods that the manifests make; the cluster of the first RayJob is the RayCluster."""
    for spec in (cluster().spec, job(JOBS[2]).spec.ray_cluster_spec):
        assert spec is not None
        yield spec.head_group_spec.template.spec
        yield from (group.template.spec for group in spec.worker_group_specs)
    yield from (job(name).spec.submitter_pod_template.spec for name in JOBS)
    yield read_as(Pod, KUBERAY / LOOK).spec


def head_container() -> Container:
    return cluster().spec.head_group_spec.template.spec.containers[0]


def launched(name: str) -> dict[str, Any]:
    """A file for `ray up`, as it stands."""
    found: dict[str, Any] = msgspec.yaml.decode(text_of(RAY_UP / name))
    return found


def option(command: str, name: str) -> str:
    words = shlex.split(command)
    return words[words.index(name) + 1]


def understand(command: str) -> None:
    """Read a command line as the program does; it is not carried out, and a wrong one raises."""
    _, name, *words = shlex.split(command)
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    found = program.get_command(program.make_context("microagents", [], resilient_parsing=True), name)
    assert found is not None
    found.make_context(name, words)


# -- all files -------------------------------------------------------------------------------------------------------------------------


def test_every_file_of_the_folder_is_checked_here() -> None:
    on_disk = {path.relative_to(CLUSTER).as_posix() for path in CLUSTER.rglob("*") if path.is_file()}
    assert on_disk == {
        "Dockerfile",
        "constraints.txt",
        "README.md",
        *[f"kuberay/{name}" for name in (*MANIFESTS, *KUSTOMIZATIONS)],
        *[f"ray-up/{name}" for name in LAUNCHED],
        *["watch/grafana.json", "watch/prometheus.yml"],  # tests/cluster/test_board.py
    }


def secrets_in(text: str) -> list[str]:
    named = [found["value"] for found in NAMES_A_SECRET.finditer(text)]
    return [*KEY_LIKE.findall(text), *named]


def test_no_file_holds_a_secret() -> None:
    found = {path.name: secrets_in(text_of(path)) for path in CLUSTER.rglob("*") if path.is_file()}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_example_of_the_secret_has_names_and_no_values() -> None:
    secret = read_as(Secret, KUBERAY / "secret.example.yaml")
    assert secret.string_data
    assert set(secret.string_data.values()) == {""}


def test_no_service_is_open_to_the_outside() -> None:
    assert cluster().spec.head_group_spec.service_type == "ClusterIP"
    assert not cluster().spec.head_group_spec.enable_ingress
    for path in CLUSTER.rglob("*.yaml"):
        assert re.search(r"LoadBalancer|NodePort|hostPort|hostNetwork|kind: Ingress\b", text_of(path)) is None, (
            path.name
        )


def test_every_file_names_one_version_of_ray_which_the_project_supports() -> None:
    (image,) = re.findall(r"^ARG RAY_VERSION=(\S+)$", text_of(CLUSTER / "Dockerfile"), re.MULTILINE)
    named = {
        found
        for path in CLUSTER.rglob("*")
        if path.is_file()
        for found in re.findall(r"ray\[default\]==(\d[\w.]*)", text_of(path))
    }
    assert named | {cluster().spec.ray_version} == {image}
    assert f"the same Ray ({image} " in text_of(CLUSTER / "README.md")
    (needed,) = [requirement for requirement in map(Requirement, PROJECT["dependencies"]) if requirement.name == "ray"]
    assert Version(image) in needed.specifier
    assert Version(image) >= Version("2.52"), "older ones have no token authentication"


# -- the image -------------------------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions; comments and line breaks are gone."""
    text = re.sub(r"^#.*\n", "", text_of(CLUSTER / "Dockerfile"), flags=re.MULTILINE).replace("\\\n", "")
    parted = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in parted]


def test_the_image_has_a_pinned_base_and_a_user_that_is_not_root() -> None:
    assert {name for name, _ in instructions()} == {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER"}
    (base,) = [rest for name, rest in instructions() if name == "FROM"]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base)
    (user,) = [rest for name, rest in instructions() if name == "USER"]
    assert {int(user)} == {pod.security_context.run_as_user for pod in pods()}
    assert int(user) > 0
    assert [name for name, _ in instructions()].index("USER") > max(
        at for at, (name, _) in enumerate(instructions()) if name == "RUN"
    )


@pytest.mark.slow
def test_what_the_image_copies_builds_a_wheel_that_runs(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for *sources, target in [shlex.split(rest) for name, rest in instructions() if name == "COPY"]:
        for source in sources:
            # As COPY does: a link stays a link, and a folder's content goes into the folder of the target.
            whole = (ROOT / source).is_dir()
            into = str(context / target) if whole else str(context)
            subprocess.run(["cp", "-RP" if whole else "-p", str(ROOT / source), into], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, context], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    ran = subprocess.run(
        [sys.executable, "-m", "microagents", "run", "hanoi", "--no-journal"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert "1,023 steps, all checked by the task's own oracle" in ran.stdout


def test_the_image_installs_every_package_at_one_version() -> None:
    (installs,) = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    assert installs.endswith('"ray[${RAY_EXTRAS}]==${RAY_VERSION}" ".[mcp]"')
    assert "--constraint ${CONSTRAINTS}" in installs
    pinned = {
        each.name: each for each in map(Requirement, re.findall("(?m)^[a-z].*$", text_of(CLUSTER / "constraints.txt")))
    }
    for needed in map(Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["mcp"]]):
        (pin,) = pinned[needed.name].specifier
        assert pin.operator == "=="
        assert Version(pin.version) in needed.specifier
    assert len(pinned) > 60, "what they need is pinned, too"


def test_every_pod_runs_the_image_of_this_version() -> None:
    images = {f"registry.example.com/{name}:{PROJECT['version']}" for name in ("microagents", "microagents-llm")}
    assert {container.image for pod in pods() for container in pod.containers} == images
    given = read_as(Component, KUBERAY / "image/kustomization.yaml").images
    assert {f"{each.name}:{each.new_tag}" for each in given} == images
    for image in images:
        assert f"{image} ." in text_of(CLUSTER / "Dockerfile")


def test_a_registry_set_in_one_place_is_that_of_every_pod(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(KUBERAY, tmp_path / "kuberay"))
    image = folder / "image/kustomization.yaml"
    image.write_text(text_of(image).replace("newName: registry.example.com", "newName: mine.example.org"))
    found = [each for name in FOLDERS for made in built(folder / name) for each in containers_in(made)]
    assert len(found) == sum(text_of(path).count(" image: ") for path in KUBERAY.rglob("*.yaml"))
    assert {each["image"].partition("/")[0] for each in found} == {"mine.example.org"}
    applied = re.findall(r"kubectl apply (?!-k)(\S+ \S+)", text_of(CLUSTER / "README.md"))
    assert applied == [], "a file that is applied by itself has the registry of the checkout"


@pytest.mark.slow
def test_kustomize_builds_what_the_tests_build() -> None:
    known = {"kustomize": ["build"], "kubectl": ["kustomize"]}
    programs = [[program, *words] for program, words in known.items() if shutil.which(program)]
    if not programs:
        pytest.skip("no kustomize on this machine: tests/cluster/manifests.py builds the kustomizations")
    for name in FOLDERS:
        build = [*programs[0], str(KUBERAY / name)]
        ran = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True)
        made = [msgspec.yaml.decode(text) for text in ran.stdout.split("\n---\n")]
        assert sorted(made, key=str) == sorted(built(KUBERAY / name), key=str)


def test_only_the_image_that_serves_a_model_has_a_compiler() -> None:
    text = text_of(CLUSTER / "Dockerfile")
    assert "ARG COMPILER=\n" in text
    assert "procps wget ${COMPILER} " in text
    (build,) = re.findall(r"docker build (.*RAY_EXTRAS=default,serve,llm)", text)
    assert 'COMPILER="gcc libc6-dev"' in build


# -- KubeRay ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_has_no_field_that_its_kind_does_not_have(name: str) -> None:
    text = text_of(KUBERAY / name)
    read(text)
    with pytest.raises(msgspec.ValidationError, match="nmae"):
        read(text.replace("  name:", "  nmae:", 1))


def without_keys(spec: RayClusterSpec | None) -> Any:
    plain = msgspec.to_builtins(spec)
    for container in containers_in(plain):
        container["env"] = [variable for variable in container["env"] if variable["valueFrom"] is None]
    return plain


def test_the_job_s_cluster_is_the_cluster_of_the_other_file_with_keys_of_its_own() -> None:
    assert without_keys(job().spec.ray_cluster_spec) == without_keys(cluster().spec)


def test_what_is_applied_together_is_there() -> None:
    kinds = {name: {each["kind"] for each in built(KUBERAY / name)} for name in FOLDERS}
    assert kinds["."] == {"PersistentVolumeClaim", "NetworkPolicy", "Service", "RayCluster"}
    assert kinds["monitoring"] == {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert {*map(str, (kinds[Path(name).parent.name] for name in JOBS))} == {"{'RayJob'}"}
    assert {each["metadata"]["namespace"] for name in FOLDERS for each in built(KUBERAY / name)} == {"microagents"}


def test_what_kubernetes_itself_knows_of_the_manifests_fits_its_schemas(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate, as .ci/run does")
    objects = [each for name in FOLDERS for each in built(KUBERAY / name) if each["kind"] != "RayJob"]
    known = [each for each in objects if each["apiVersion"] in ("v1", "networking.k8s.io/v1")]
    assert len(known) == 5
    # Kubernetes has no schema of Ray's objects: their pods are checked as pods.
    templates = [msgspec.yaml.decode(text_of(KUBERAY / name)) for name in (*JOBS, "raycluster.yaml")]
    known += [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", **each.get("metadata", {})},
            "spec": each["spec"],
        }
        for each in templates_in(templates)
    ]
    assert len(known) == 5 + 9
    files = [tmp_path / f"{number}.json" for number in range(len(known))]
    for file, each in zip(files, known, strict=True):
        file.write_bytes(msgspec.json.encode(each))
    check = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", KUBERNETES, "--quiet"]
    ran = subprocess.run([*check, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    files[0].write_text(files[0].read_text().replace('"spec"', '"sepc"'))
    assert subprocess.run([*check, files[0]], capture_output=True, check=False).returncode != 0


def templates_in(part: Any) -> Iterator[Any]:
    """All templates of pods at any depth of an object."""
    if isinstance(part, list):
        for each in part:
            yield from templates_in(each)
    elif isinstance(part, dict):
        yield from (each for name, each in part.items() if name in ("template", "submitterPodTemplate"))
        for each in part.values():
            yield from templates_in(each)


def test_pods_with_keys_may_send_to_dns_models_and_providers_and_not_to_a_cloud_s_metadata() -> None:
    policy = read_as(NetworkPolicy, KUBERAY / "egress.yaml").spec
    assert policy.pod_selector == read_as(NetworkPolicy, KUBERAY / "networkpolicy.yaml").spec.pod_selector
    among, names, models, world = policy.egress
    assert (policy.policy_types, among.ports, {each.port for each in names.ports}) == (["Egress"], [], {53})
    assert {each.port for each in world.ports} == {443, 6443}

    def reaches(address: str, rule: Egress) -> bool:
        found = ip_address(address)
        blocks = [peer.ip_block for peer in rule.to if peer.ip_block is not None]
        inside = [block for block in blocks if found in ip_network(block.cidr)]
        return any(not any(found in ip_network(each) for each in block.except_) for block in inside)

    assert reaches("169.254.20.10", names), "NodeLocal DNS"
    assert reaches("104.18.7.192", world)
    assert reaches("2606:4700::6812:7c0", world)
    for metadata in ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254"):
        assert not any(reaches(metadata, rule) for rule in policy.egress)
    (server,) = models.to
    assert server.namespace_selector is not None
    assert server.namespace_selector.match_labels == {"kubernetes.io/metadata.name": "models"}


def test_prometheus_finds_the_totals_and_each_alert_is_about_metrics_that_runs_have() -> None:
    service, monitor = read_as(Service, KUBERAY / "service.yaml"), read_as(ServiceMonitor, KUBERAY / WATCHED[0])
    assert monitor.spec.selector.match_labels.items() <= service.metadata.labels.items()
    (port,), (endpoint,) = service.spec.ports, monitor.spec.endpoints
    assert endpoint.port == port.name
    (viewer,) = [each for each in cluster().spec.head_group_spec.template.spec.containers if each.name == "viewer"]
    assert [each.container_port for each in viewer.ports if each.name == port.target_port] == [port.port]
    assert option(shlex.join(viewer.command), "--metrics-port") == str(port.port)
    understand(shlex.join(viewer.command))
    (group,) = read_as(PrometheusRule, KUBERAY / WATCHED[2]).spec.groups
    named = {name for rule in group.rules for name in re.findall(r"(?:ray_)?microagents_\w+", rule.expr)}
    known = {name_of(metric) for metric in METRICS} | {f"ray_{WAITING}", *map(plain, (names.RUN_ID, names.OUTCOME))}
    assert named <= known


def test_no_autoscaler_ends_the_node_of_a_driver_and_nothing_blocks_a_drain() -> None:
    for spec in (cluster().spec, job().spec.ray_cluster_spec, job(JOBS[2]).spec.ray_cluster_spec):
        assert spec is not None
        about = spec.head_group_spec.template.metadata
        assert about is not None
        kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
        assert about.annotations == kept
        assert all(group.template.metadata is None for group in spec.worker_group_specs)
    assert all("kind: PodDisruptionBudget" not in text_of(path) for path in KUBERAY.rglob("*.yaml"))


RUN = 'microagents_run_id="r"'
ALERTS: list[tuple[str, dict[str, str], str]] = [
    ("RunDied", {f'microagents_state{{{RUN},microagents_outcome="cut off"}}': "_x10 1x40"}, "RunDied"),
    ("a run that completed", {f'microagents_state{{{RUN},microagents_outcome="completed"}}': "_x10 1x40"}, ""),
    ("RunVanished", {f'microagents_state{{{RUN},microagents_outcome="running"}}': "1x22 stale"}, "RunVanished"),
    (
        "RunStandsStill",
        {
            f'microagents_state{{{RUN},microagents_outcome="running"}}': "1x40",
            f"microagents_lease_renewals_total{{{RUN}}}": "0+30x10 300x30",
        },
        "RunStandsStill",
    ),
    (
        "a run that is well",
        {
            f'microagents_state{{{RUN},microagents_outcome="running"}}': "1x40",
            f"microagents_lease_renewals_total{{{RUN}}}": "0+30x40",
        },
        "",
    ),
    (
        "NodeIsAwaited",
        {f'ray_microagents_waiting_for_node{{{RUN},microagents_actor="lane/1"}}': "1x40"},
        "NodeIsAwaited",
    ),
    ("two lanes died", {f"microagents_deaths_total{{{RUN}}}": "0x24 1 2x20"}, ""),
    ("the first deaths, all at once", {f"microagents_deaths_total{{{RUN}}}": "0x24 3x20"}, "ActorsDie"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("series", "alert"), [pytest.param(*each, id=about) for about, *each in ALERTS])
def test_an_alert_calls_for_what_it_is_about(tmp_path: Path, series: dict[str, str], alert: str) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool on this machine: apt-get install prometheus, as .ci/run does")
    rules = msgspec.yaml.decode(text_of(KUBERAY / WATCHED[2]))["spec"]
    (tmp_path / "rules.yml").write_bytes(msgspec.yaml.encode(rules))
    subprocess.run([promtool, "check", "rules", "rules.yml"], cwd=tmp_path, check=True, capture_output=True)
    called = {"expr": "count by (alertname) (ALERTS{alertstate='firing'})", "eval_time": "30m"}
    fired = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    given = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "1m", "input_series": given, "promql_expr_test": [{**called, "exp_samples": fired}]}
    cases = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "cases.yml").write_bytes(msgspec.yaml.encode(cases))
    ran = subprocess.run(
        [promtool, "test", "rules", "cases.yml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


def test_prometheus_may_read_the_metrics_of_every_node_of_ray() -> None:
    monitor = read_as(PodMonitor, KUBERAY / WATCHED[1]).spec
    policy = read_as(NetworkPolicy, KUBERAY / "networkpolicy.yaml").spec
    assert monitor.selector == policy.pod_selector
    assert [each.port for each in monitor.pod_metrics_endpoints] == ["metrics"], "as KubeRay calls the port of Ray"
    assert {each.port for each in policy.ingress[-1].ports} == {8080, 9187}


def test_jobs_that_share_a_cluster_and_its_volume_have_runs_of_their_own() -> None:
    shared = job(JOBS[1])
    assert shared.spec.cluster_selector == {"ray.io/cluster": cluster().metadata.name}
    assert shared.spec.ray_cluster_spec is None
    assert len({option(command, "--run-id") for command in commands()[: len(JOBS)]}) == len(JOBS)
    assert not shared.spec.shutdown_after_job_finishes, "others are at work there"


def test_the_model_that_the_job_serves_is_described_by_fields_and_classes_that_ray_has() -> None:
    spec, installed = job(JOBS[2]).spec, Path(ray.__file__).parent
    assert spec.ray_cluster_spec is not None
    (head, *_) = spec.ray_cluster_spec.head_group_spec.template.spec.containers
    (given,) = [variable.value for variable in head.env if variable.name == "LLM_APP"]
    (application,) = msgspec.yaml.decode(given)["applications"]
    (llm,) = application["args"]["llm_configs"]
    # Their imports need Ray Serve, which nothing else here does.
    config = text_of(installed / "llm/_internal/serve/core/configs/llm_config.py")
    router = llm["deployment_config"]["request_router_config"]["request_router_class"]
    module, _, name = router.partition(":")
    assert f"class {name}(" in text_of(installed.parent / f"{module.replace('.', '/')}.py")
    assert "def build_openai_app(" in text_of(installed / "serve/llm/__init__.py")
    for field in (*llm, *llm["model_loading_config"]):
        assert re.search(rf"(?m)^    {field}: ", config), field
    assert f"openai:{llm['model_loading_config']['model_id']}@" in spec.entrypoint
    assert ",session=prompt" in spec.entrypoint
    (bundle,) = llm["placement_group_config"]["bundles"]
    assert 2 * bundle["GPU"] < 1
    assert 2 * llm["engine_kwargs"]["gpu_memory_utilization"] < 1


def test_a_token_is_asked_for() -> None:
    auth = cluster().spec.auth_options
    assert auth is not None
    assert auth.mode == "token"


def test_the_driver_runs_on_the_head_and_its_journal_is_on_the_volume_there() -> None:
    spec = job().spec
    assert spec.submission_mode == "K8sJobMode"
    # With any of these, Ray may start the driver on another node.
    assert (spec.entrypoint_num_cpus, spec.entrypoint_num_gpus, spec.entrypoint_resources) == (0, 0, "")
    assert "RAY_JOB_ALLOW_DRIVER_ON_WORKER_NODES" not in {variable.name for variable in head_container().env}

    head = cluster().spec.head_group_spec.template.spec
    claim = read_as(PersistentVolumeClaim, KUBERAY / "pvc.yaml")
    claims = {
        volume.persistent_volume_claim.claim_name: volume
        for volume in head.volumes
        if volume.persistent_volume_claim is not None
    }
    volume = claims[claim.metadata.name]
    (mount,) = [mount for mount in head_container().volume_mounts if mount.name == volume.name]
    assert Path(option(spec.entrypoint, "--runs-dir")).is_relative_to(mount.mount_path)
    assert head.security_context.fs_group == head.security_context.run_as_user, "the volume is the user's who writes"


def test_the_volume_is_one_node_s_at_a_time_and_no_worker_wants_it() -> None:
    assert read_as(PersistentVolumeClaim, KUBERAY / "pvc.yaml").spec.access_modes == ["ReadWriteOnce"]
    assert [group.template.spec.volumes for group in cluster().spec.worker_group_specs] == [[]]


def test_a_retry_goes_on_with_the_same_run_and_no_cluster_stays() -> None:
    assert option(job().spec.entrypoint, "--run-id")
    assert job().spec.backoff_limit > 0
    assert job().spec.shutdown_after_job_finishes


def keys_of(spec: RayClusterSpec) -> dict[str, list[str]]:
    """The keys that each container gets, all from the Secret, and under their own names."""
    secret = read_as(Secret, KUBERAY / "secret.example.yaml")
    found: dict[str, list[str]] = {}
    for template in (spec.head_group_spec.template, *(group.template for group in spec.worker_group_specs)):
        for container in template.spec.containers:
            given = [each for each in container.env if each.value_from is not None]
            found[container.name] = [each.name for each in given]
            for each in given:
                assert each.value_from is not None
                entry = each.value_from.secret_key_ref
                assert (entry.name, entry.key) == (secret.metadata.name, each.name)
                assert each.name in secret.string_data
    return found


def test_a_pod_has_the_keys_of_the_providers_that_it_calls_and_no_others() -> None:
    called = {*re.findall(r"--model (\w+):(?![\w.-]+@base_url)", "\n".join(commands()))} - {"sim"}
    keys = [f"{provider.upper()}_API_KEY" for provider in sorted(called)]
    assert keys == ["OPENAI_API_KEY"], "the commands of README.md call it on the cluster that stays"
    assert keys_of(cluster().spec) == {"ray-head": keys, "ray-worker": keys, "viewer": []}
    for name in (JOBS[0], JOBS[2]):
        spec = job(name).spec
        assert spec.ray_cluster_spec is not None
        assert keys_of(spec.ray_cluster_spec) == {"ray-head": [], "ray-worker": [], "viewer": []}
        assert re.search(r"--model (sim:|openai:\w+@base_url=)", spec.entrypoint)
        assert spec.runtime_env_yaml == ""
    others = [*(job(name).spec.submitter_pod_template.spec for name in JOBS), read_as(Pod, KUBERAY / LOOK).spec]
    assert [container.env for pod in others for container in pod.containers] == [[]] * len(others)


def test_a_run_has_time_to_save_before_its_pod_ends() -> None:
    head = cluster().spec.head_group_spec.template.spec
    environment = {variable.name: variable.value for variable in head_container().env}
    assert head.termination_grace_period_seconds is not None
    assert 10 < int(environment["RAY_JOB_STOP_WAIT_TIME_S"]) < head.termination_grace_period_seconds
    lifecycle = head_container().lifecycle
    assert lifecycle is not None
    assert "pkill -TERM -x microagents" in lifecycle.pre_stop.exec.command[-1]


def test_every_head_misses_a_silent_node_as_soon_as_the_guide_says() -> None:
    (advised,) = re.findall(r"the head is started with `(RAY_health_check[^`]+)`", text_of(ROOT / "docs/ray.md"))
    checks = dict(each.split("=") for each in advised.split())
    for spec in (cluster().spec, job(JOBS[0]).spec.ray_cluster_spec, job(JOBS[2]).spec.ray_cluster_spec):
        assert spec is not None
        given = {each.name: each.value for each in spec.head_group_spec.template.spec.containers[0].env}
        assert given.items() >= checks.items()
    for name in LAUNCHED:
        assert " ".join(advised.split()) in launched(name)["head_start_ray_commands"][-1]


def test_no_pod_has_rights_that_it_does_not_need() -> None:
    for pod in pods():
        assert pod.security_context.run_as_non_root
        assert not pod.automount_service_account_token
        for container in pod.containers:
            assert not container.security_context.allow_privilege_escalation
            assert container.security_context.capabilities.drop == ["ALL"]


def test_workers_join_for_waiting_lanes_and_only_the_autoscaler_may_speak_to_kubernetes() -> None:
    spec, folder = cluster().spec, "/var/run/secrets/kubernetes.io/serviceaccount"  # where Ray's autoscaler looks
    assert spec.enable_in_tree_autoscaling
    assert all(group.min_replicas == group.replicas < group.max_replicas for group in spec.worker_group_specs)
    options = spec.autoscaler_options
    assert options is not None
    assert not options.security_context.allow_privilege_escalation
    (mount,) = options.volume_mounts
    assert (mount.mount_path, mount.read_only) == (folder, True)
    (volume,) = [volume for volume in spec.head_group_spec.template.spec.volumes if volume.name == mount.name]
    assert volume.projected is not None
    files = [
        each.service_account_token.path for each in volume.projected.sources if each.service_account_token is not None
    ]
    files += [
        item.path for each in volume.projected.sources if each.config_map is not None for item in each.config_map.items
    ]
    assert {str(Path(folder, name)) for name in files} == {IN_CLUSTER_TOKEN_PATH, IN_CLUSTER_CA_CERT_PATH}
    assert mount.name not in {
        other.name for pod in pods() for container in pod.containers for other in container.volume_mounts
    }


def test_every_pod_says_what_it_needs() -> None:
    for container in (container for pod in pods() for container in pod.containers):
        assert set(container.resources.requests) == {"cpu", "memory"}
        # A Ray node that is given less than it believes to have is killed without a word.
        assert container.resources.limits["memory"] == container.resources.requests["memory"]


# -- ray up ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_takes_the_file(name: str) -> None:
    validate_config(prepare_config(launched(name)))


@pytest.mark.parametrize("name", LAUNCHED)
def test_every_machine_asks_for_the_token_and_the_dashboard_stays_on_its_own(name: str) -> None:
    config = launched(name)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert any("export RAY_AUTH_MODE=token" in command for command in config["setup_commands"])
    *_, head = config["head_start_ray_commands"]
    assert re.findall(r"--dashboard-host=(\S+)", head) == ["127.0.0.1"]


@pytest.mark.parametrize("name", LAUNCHED)
def test_keys_are_in_the_environment_of_ray_on_every_machine_and_come_from_outside_of_the_checkout(name: str) -> None:
    config = launched(name)
    (keys,) = [remote for remote in config["file_mounts"] if remote.endswith("keys.env")]
    assert config["file_mounts"][keys].startswith("~/")
    for node in ("head", "worker"):
        *_, start = config[f"{node}_start_ray_commands"]
        assert re.search(re.escape(f"set -a; . {keys}; set +a;") + ".* ray start", start)


def test_both_files_set_machines_up_in_the_same_way() -> None:
    aws, local = launched("aws.yaml"), launched("local.yaml")
    shared = ["file_mounts", "rsync_filter", "rsync_exclude", "head_start_ray_commands", "worker_start_ray_commands"]
    assert {name: aws[name] for name in shared} == {name: local[name] for name in shared}
    assert [command.replace(" boto3", "") for command in aws["setup_commands"]] == local["setup_commands"]


def test_the_disk_of_a_head_on_aws_outlives_its_cluster() -> None:
    config = launched("aws.yaml")
    assert config["provider"]["cache_stopped_nodes"] is True
    head = config["available_node_types"][config["head_node_type"]]["node_config"]
    assert "InstanceMarketOptions" not in head, "a spot machine is terminated, with its disk"


# -- commands --------------------------------------------------------------------------------------------------------------------------


def commands() -> list[str]:
    """Every command of ours that a file of the folder gives to somebody."""
    lines = [line for line in text_of(CLUSTER / "README.md").splitlines() if line.startswith("    ")]
    given = [re.search(r"microagents (run|show) [^'&|]*", line) for line in lines]
    entrypoints = [re.search(r"microagents run [^']*", job(name).spec.entrypoint) for name in JOBS]
    given = [*entrypoints, *given]
    return [*[command[0] for command in given if command is not None]]


@pytest.mark.slow
def test_the_commands_that_are_given_are_commands() -> None:
    assert len(commands()) > 5
    for command in commands():
        understand(command)


def test_journals_are_kept_in_an_absolute_folder() -> None:
    for command in commands():
        assert Path(option(command, "--runs-dir")).is_absolute()
        assert " run " not in command or option(command, "--run-id")
