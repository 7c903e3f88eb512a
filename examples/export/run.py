"""Runs the layer on the devices that serry bound it to: python run.py step.jax bound.json

bound.json is what `serry export bind -o json` printed. Its device_assignment says which device is
which place of the exported mesh.
"""

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np
from jax import export
from jax.sharding import AxisType, Mesh

with open(sys.argv[1], "rb") as f:
  exported = export.deserialize(bytearray(f.read()))
with open(sys.argv[2]) as f:
  bound = json.load(f)

devices = {d.id: d for d in jax.devices()}
order = np.array([devices[i] for i in bound["device_assignment"]]).reshape(4, 2)
mesh = Mesh(order, ("data", "model"), axis_types=(AxisType.Auto,) * 2)

rng = np.random.default_rng(0)
shapes = [v["shape"] for v in bound["inputs"]]
values = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
placed = [jax.device_put(v, s) for v, s in zip(values, exported.in_shardings_jax(mesh))]
for v, want in zip(placed, bound["inputs"]):
  assert list(v.addressable_shards[0].data.shape) == want["shard_shape"], (v.sharding, want)
params, x = exported.in_tree.unflatten(placed)[0]

y = jax.jit(exported.call)(params, x)["y"]
b, w, x = values
np.testing.assert_allclose(np.asarray(y), np.tanh(x @ w + b), rtol=1e-4, atol=1e-5)
first = y.addressable_shards[0]
print(f"the result is right; device {first.device.id} holds {first.data.shape} of {y.shape}")
