"""Answers questions about meshes and shardings with what JAX itself computes.

Reads {"cases": [...]} as JSON on stdin and writes {"jax": version,
"answers": [...]} as JSON on stdout, one answer per case in order. Host
devices are forced on the CPU, so nothing but jax is needed. An answer is
either {"stage": ..., "error": kind, "text": ...} for the first step that
fails, or what the case asked for.
"""

import json
import os
import sys

request = json.load(sys.stdin)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=%d" % request.get("devices", 64)

import jax
import numpy as np
from jax._src import mesh as mesh_lib
from jax._src import mesh_utils, sharding_impls
from jax._src.interpreters import mlir
from jax._src.named_sharding import DuplicateSpecError
from jax._src.partition_spec import PartitionSpec as P, UnreducedKind
from jax._src.sharding import IndivisibleError
from jax.sharding import AxisType, Mesh, NamedSharding

context = mlir.make_ir_context()


class Failed(Exception):
  def __init__(self, stage, error):
    self.answer = {"stage": stage, "error": kind_of(error), "text": str(error)}


def kind_of(error):
  if isinstance(error, DuplicateSpecError):
    return "duplicate"
  if isinstance(error, IndivisibleError):
    return "indivisible"
  if isinstance(error, sharding_impls.NonUniformShardingError):
    return "nonuniform"
  if isinstance(error, (NotImplementedError, AssertionError)):
    return "unsupported"
  if isinstance(error, ValueError):
    return "invalid"
  return type(error).__name__


def step(stage, f, *args, **kwargs):
  try:
    return f(*args, **kwargs)
  except Exception as e:
    raise Failed(stage, e) from e


def entry(e):
  if e == "?":
    return P.UNCONSTRAINED
  return tuple(e) if isinstance(e, list) else e


def make_spec(s):
  kind = s.get("kind")
  return P(*[entry(e) for e in s["entries"]], unreduced=set(s.get("unreduced") or []),
           reduced=set(s.get("reduced") or []), unreduced_kind=UnreducedKind[kind] if kind else None)


def make_mesh(m):
  devices = np.array(jax.devices())[m["ids"]].reshape(m["sizes"])
  types = m.get("types")
  return Mesh(devices, tuple(m["names"]), tuple(AxisType[t] for t in types) if types is not None else None)


def ranges(index, shape):
  return [list(s.indices(n)[:2]) for s, n in zip(index, shape)]


def sharding(case):
  mesh = step("mesh", make_mesh, case["mesh"])
  spec = step("spec", make_spec, case["spec"])
  s = step("sharding", NamedSharding, mesh, spec, memory_kind=case.get("memory"))
  shape = tuple(case["shape"])
  step("shape", s.check_compatible_aval, shape)
  answer = {"mesh": str(mesh), "spec": str(spec), "sharding": str(s), "memory": s.memory_kind,
            "replicated": s.is_fully_replicated, "replicated_axes": sorted(s.replicated_axes)}
  answer["shard"] = list(step("shape", s.shard_shape, shape))
  answer["tile"] = str(s._to_xla_hlo_sharding(len(shape)))
  with context:
    answer["shardy"] = [str(s._to_sdy_sharding(len(shape), adapt).build({})) for adapt in (False, True)]
  if case.get("other") is not None:
    other = step("other", NamedSharding, mesh, make_spec(case["other"]))
    try:
      answer["equivalent"] = s.is_equivalent_to(other, len(shape))
    except AssertionError:  # a sharding without a tile is like no other
      answer["equivalent"] = False
  try:
    indices = s.devices_indices_map(shape)
  except Exception as e:
    return answer | {"map_error": kind_of(e)}
  answer["index"] = [[d.id, ranges(i, shape)] for d, i in indices.items()]
  whole = jax.make_array_from_callback(shape, s, lambda i: np.zeros(shape, np.int8)[i])
  answer["replica"] = [[sh.device.id, sh.replica_id] for sh in whole.addressable_shards]
  return answer


class Device:
  """What mesh_utils looks at."""

  def __init__(self, d):
    self.id, self.process_index = d["id"], d["task"]
    self.device_kind, self.platform = d["kind"], d["platform"]
    if d.get("coords") is not None:
      self.coords, self.core_on_chip = tuple(d["coords"]), d["core"]
    if d.get("slice") is not None:
      self.slice_index = d["slice"]


def order(case):
  devices = [Device(d) for d in case["devices"]]
  if case["call"] == "make":
    real, sharding_impls.Mesh = sharding_impls.Mesh, lambda d, names, axis_types: d
    try:
      laid = step("order", sharding_impls.make_mesh, tuple(case["shape"]), tuple(case["names"]), devices=devices)
    finally:
      sharding_impls.Mesh = real
  elif case["call"] == "arrange":
    laid = step("order", mesh_utils.create_device_mesh, case["shape"], devices,
                contiguous_submeshes=case["contiguous"], allow_split_physical_axes=case["split"])
  else:
    laid = step("order", mesh_utils.create_hybrid_device_mesh, case["shape"], case["outer"], devices,
                process_is_granule=case["by_task"], should_sort_granules_by_key=not case["as_listed"],
                allow_split_physical_axes=case["split"])
  return {"order": [d.id for d in laid.flat], "shape": list(laid.shape)}


class FakeSharding:
  """A sharding seen by one of several processes, on top of a real one."""

  def __init__(self, real, tasks, me):
    self.real = real
    self.num_devices = real.num_devices
    self.is_fully_replicated = real.is_fully_replicated
    self.is_fully_addressable = all(t == me for t in tasks)
    self.device = {}
    for d, t in zip(real._device_assignment, tasks):
      self.device[d] = Device({"id": d.id, "task": t, "kind": "", "platform": ""})
    self.addressable_devices = {d for d in self.device.values() if d.process_index == me}

  def devices_indices_map(self, shape):
    return {self.device[d]: i for d, i in self.real.devices_indices_map(shape).items()}

  def addressable_devices_indices_map(self, shape):
    return {d: i for d, i in self.devices_indices_map(shape).items() if d in self.addressable_devices}

  def shard_shape(self, shape):
    return self.real.shard_shape(shape)


def view(case):
  mesh = make_mesh(case["mesh"])
  real = NamedSharding(mesh, make_spec(case["spec"]))
  shape = tuple(case["shape"])
  views, parts = [], []
  for task in sorted(set(case["tasks"])):
    fake = FakeSharding(real, case["tasks"], task)
    row = []
    for dim in range(len(shape)):
      try:
        row.append(list(sharding_impls.get_process_index_and_count(fake, dim, len(shape))))
      except Exception as e:
        row.append(kind_of(e))
    views.append(row)
    parts.append([sharding_impls.num_addressable_indices(fake, d, shape) for d in range(len(shape))])
  return {"views": views, "parts": parts}


def local(case):
  tasks = iter(case["tasks"])
  devices = np.array([Device({"id": i, "task": next(tasks), "kind": "", "platform": ""}) for i in case["mesh"]["ids"]],
                     dtype=object).reshape(case["mesh"]["sizes"])
  world = type("World", (), {"empty": False, "devices": devices, "axis_names": tuple(case["mesh"]["names"])})()
  real, mesh_lib.Mesh = mesh_lib.Mesh, lambda d, names: d
  answers = []
  try:
    for task in sorted(set(case["tasks"])):
      try:
        part = np.asarray(mesh_lib._get_local_mesh(world, task), dtype=object)
        answers.append({"shape": list(part.shape), "order": [d.id for d in part.flat]})
      except ValueError as e:
        answers.append({"error": kind_of(e)})
  finally:
    mesh_lib.Mesh = real
  return {"local": answers}


kinds = {"sharding": sharding, "order": order, "view": view, "local": local}


def main():
  answers = []
  for case in request["cases"]:
    try:
      answers.append(kinds[case["ask"]](case))
    except Failed as f:
      answers.append(f.answer)
  json.dump({"jax": jax.__version__, "answers": answers}, sys.stdout)


main()
