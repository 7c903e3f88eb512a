"""Exports a layer, sharded over an abstract mesh of 4 x 2 devices: python export.py step.jax"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def step(params, x):
  return {"y": jnp.tanh(x @ params["w"] + params["b"])}


def value(shape, *spec):
  return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


params = {"w": value((16, 8), None, "model"), "b": value((8,), "model")}
exported = export.export(jax.jit(step))(params, value((32, 16), "data", None))
with open(sys.argv[1], "wb") as f:
  f.write(exported.serialize())
print(f"exported {exported.fun_name} for {exported.nr_devices} devices")
