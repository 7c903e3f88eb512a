"""Measures JAX's own mesh code, one figure per line read from stdin.

Each answer is a JSON line with the seconds taken and a sum over the result
that the other side must reach too. Devices are plain objects: so many real
ones cannot be made on one host, and none of the measured code looks at them.
"""

import json
import os
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax._src import mesh_utils, sharding as sharding_lib
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P


class Device:
  def __init__(self, i, coords=None):
    self.id, self.process_index = i, i // 8
    self.platform, self.device_kind = "tpu", "TPU v4"
    if coords is not None:
      self.coords, self.core_on_chip = coords, 0


class Sharding:
  """Looks to JAX like a sharding over devices it does not need to know."""

  def __init__(self, sizes, names, spec):
    mesh = AbstractMesh(tuple(sizes), tuple(names), (AxisType.Auto,) * len(sizes))
    entries = [tuple(e) if isinstance(e, list) else e for e in spec]
    self.named = NamedSharding(mesh, P(*entries))
    self._device_assignment = tuple(Device(i) for i in range(mesh.size))
    self.is_fully_addressable = False
    mine = [d for d in self._device_assignment if d.process_index == 5]
    self._internal_device_list = type("List", (), {"addressable_device_list": mine})()

  def shard_shape(self, shape):
    return self.named.shard_shape(shape)

  def _to_xla_hlo_sharding(self, rank):
    return self.named._to_xla_hlo_sharding(rank)

  def devices_indices_map(self, shape):
    return sharding_lib.common_devices_indices_map(self, shape)


def total(index_map, shape):
  n = 0
  for d, index in index_map.items():
    for k, (s, size) in enumerate(zip(index, shape)):
      start, stop, _ = s.indices(size)
      n += (d.id % 1009 + 1) * (start * (2 * k + 3) + stop)
  return n


def measure(ask):
  if ask["what"] == "order":
    x, y, z = ask["physical"]
    devices = [Device((i * y + j) * z + k, (i, j, k)) for i in range(x) for j in range(y) for k in range(z)]
    start = time.perf_counter()
    laid = mesh_utils.create_device_mesh(ask["shape"], devices)
    took = time.perf_counter() - start
    return took, sum((i % 1009 + 1) * d.id for i, d in enumerate(laid.flat))
  # A sharding per round, so that no cache has seen it.
  s = Sharding(ask["sizes"], ask["names"], ask["spec"])
  shape = tuple(ask["shape"])
  start = time.perf_counter()
  if ask["what"] == "map":
    result = s.devices_indices_map(shape)
  else:
    result = sharding_lib._addressable_devices_indices_map(s, shape)
  return time.perf_counter() - start, total(result, shape)


print(json.dumps({"jax": jax.__version__}), flush=True)
for line in sys.stdin:
  seconds, result = measure(json.loads(line))
  print(json.dumps({"seconds": seconds, "sum": result}), flush=True)
