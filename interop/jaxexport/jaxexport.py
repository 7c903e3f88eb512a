"""Makes files with jax.export, and says what jax itself reads in them.

  jaxexport.py make SEED COUNT DIR   writes DIR/N.jax, a random program each, and DIR/N.json, its facts
  jaxexport.py read DIR              reads DIR/*.again and writes their facts to DIR/*.again.json
  jaxexport.py fixtures DIR          writes the files that jax ships for its own tests, and their facts

Facts are what jax says of a file that it has read back: names, shapes, types, shardings, meshes,
platforms, checks, and where jax puts the arguments on meshes of this machine. Eight host devices are
forced on the CPU, so nothing but jax and flatbuffers is needed.
"""

import hashlib
import importlib
import json
import os
import pathlib
import random
import sys
import warnings

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax import tree_util
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

DEVICES = jax.devices()
TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int32": "i32", "int8": "i8", "bool": "bool"}
SPACES = {"device": "", "host": "host", "any": "any"}


def key_name(path):
  parts = []
  for key in path:
    text = str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", ""))))
    parts.append(text.replace("~", "~0").replace("/", "~1"))
  return "/".join(parts)


def names(tree, argument):
  value = tree_util.tree_unflatten(tree, list(range(tree.num_leaves)))
  if not argument:
    found = [key_name(p) for p, _ in tree_util.tree_flatten_with_path(value)[0]]
    return ["out"] if found == [""] else found
  args, kwargs = value
  return [key_name(p) for part in (args, kwargs) for p, _ in tree_util.tree_flatten_with_path(part)[0]]


def entry(e):
  return [] if e is None else list(e) if isinstance(e, tuple) else [e]


def sharding(s):
  if s is None:
    return None
  m = s.mesh.abstract_mesh
  return {
      "names": list(m.axis_names), "sizes": list(m.axis_sizes), "types": [t.name for t in m.axis_types],
      "spec": [entry(e) for e in s.spec], "unreduced": sorted(s.spec.unreduced), "reduced": sorted(s.spec.reduced),
      "memory": s.memory_kind or "",
  }


def values(avals, shardings, found):
  return [{
      "name": n, "dtype": TYPES.get(str(a.dtype), str(a.dtype)), "shape": [str(d) for d in a.shape],
      "memory": SPACES[a.memory_space.name.lower()], "sharding": sharding(s),
  } for n, a, s in zip(found, avals, shardings, strict=True)]


def facts(exported, derivatives):
  out = {
      "function": exported.fun_name, "devices": exported.nr_devices, "platforms": list(exported.platforms),
      "convention": exported.calling_convention_version, "kept": list(exported.module_kept_var_idx),
      "disabled": sorted(check(c) for c in exported.disabled_safety_checks),
      "program": hashlib.sha256(exported.mlir_module_serialized).hexdigest(),
      "inputs": values(exported.in_avals, exported._in_named_shardings, names(exported.in_tree, True)),
      "outputs": values(exported.out_avals, exported._out_named_shardings, names(exported.out_tree, False)),
  }
  if derivatives:
    out["derivative"] = facts(exported.vjp(), derivatives - 1)
  return out


def check(c):
  target = c.is_custom_call()
  return "custom_call:" + target if target else "platform"


def placements(exported, rng):
  """Binds the arguments to meshes of this machine, some of which do not match."""
  shardings = [s for s in exported._in_named_shardings if s is not None]
  if not shardings:
    return []
  m = shardings[0].mesh.abstract_mesh
  out = []
  for kind in ("same", "reversed", "names", "sizes", "types"):
    axis_names, sizes, types = list(m.axis_names), list(m.axis_sizes), list(m.axis_types)
    devices = DEVICES[: int(np.prod(sizes))]
    if kind == "reversed":
      devices = devices[::-1]
    if kind == "names":
      axis_names[rng.randrange(len(axis_names))] = "other"
    if kind == "sizes":
      sizes = [len(devices)] + [1] * (len(sizes) - 1)
    if kind == "types":
      types[0] = AxisType.Explicit if types[0] == AxisType.Auto else AxisType.Auto
    made = Mesh(np.array(devices).reshape(sizes), tuple(axis_names), axis_types=tuple(types))
    one = {"names": axis_names, "sizes": sizes, "types": [t.name for t in types], "ids": [d.id for d in devices]}
    try:
      bound = exported.in_shardings_jax(made)
      one["slices"] = [slices(s, a) for s, a in zip(bound, exported.in_avals)]
    except ValueError as e:
      one["error"] = str(e)
    out.append(one)
  return out


def slices(s, aval):
  if s is None or not all(isinstance(d, int) for d in aval.shape):
    return None
  found = s.devices_indices_map(aval.shape)
  return {str(d.id): [[i.start or 0, n if i.stop is None else i.stop] for i, n in zip(index, aval.shape)]
          for d, index in found.items()}


def random_program(rng):
  """A jitted function with its arguments, and how often it may be differentiated."""
  sizes = rng.choice([(8,), (4, 2), (2, 4), (2, 2, 2), (4,), (2,), (1, 8)])
  axes = rng.sample(["data", "model", "x", "expert", "a/b"], len(sizes))
  kind = rng.choice([AxisType.Auto, AxisType.Auto, AxisType.Explicit])
  mesh = Mesh(np.array(DEVICES[: int(np.prod(sizes))]).reshape(sizes), tuple(axes), axis_types=(kind,) * len(axes))
  sharded = rng.random() < 0.8
  symbolic = rng.random() < 0.4
  b, = export.symbolic_shape("b")

  def leaf():
    rank = rng.randint(0, 3)
    shape = [8 * rng.randint(1, 3) for _ in range(rank)]
    left = list(axes)
    spec = []
    for _ in range(rng.randint(0, rank)):
      take = rng.randint(0, min(2, len(left)))
      names_here = [left.pop(rng.randrange(len(left))) for _ in range(take)]
      spec.append(None if not names_here else names_here[0] if take == 1 else tuple(names_here))
    place = NamedSharding(mesh, P(*spec)) if sharded and rng.random() < 0.8 else None
    if place is None and symbolic and rank:
      shape[0] = rng.choice([b, 2 * b, b + 8])
    dtype = jnp.dtype(rng.choice([jnp.float32, jnp.float32, jnp.bfloat16]))
    return jax.ShapeDtypeStruct(tuple(shape), dtype), place

  def group(depth):
    roll = rng.random()
    if depth == 0 or roll < 0.5:
      return leaf()
    children = [group(depth - 1) for _ in range(rng.randint(1, 3))]
    if roll < 0.7:
      return {rng.choice("wbqk") + str(i) + rng.choice(["", "/s", "~"]): c for i, c in enumerate(children)}
    return children if roll < 0.85 else tuple(children)

  pairs = [group(2) for _ in range(rng.randint(1, 3))]
  is_pair = lambda v: isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], jax.ShapeDtypeStruct)
  pick = lambda i: tuple(tree_util.tree_map(lambda v: v[i], p, is_leaf=is_pair) for p in pairs)
  shapes, places = pick(0), pick(1)

  def f(*args):
    return tree_util.tree_map(lambda v: jnp.sin(v) * 2, args)

  f.__name__ = rng.choice(["step", "forward", "f_1"])
  # in_shardings is a prefix of the arguments: None in it means unspecified for the whole subtree.
  jitted = jax.jit(f, in_shardings=places) if sharded else jax.jit(f)
  order = 1 if rng.random() < 0.3 else 0
  return jitted, shapes, order


def make(seed, count, folder):
  rng = random.Random(seed)
  made = 0
  while made < count:
    jitted, shapes, order = random_program(rng)
    platforms = rng.choice([None, ["cpu"], ["cpu", "cuda", "tpu"]])
    checks = rng.choice([(), (), [export.DisabledSafetyCheck.custom_call("foo")], [export.DisabledSafetyCheck.platform()]])
    exported = export.export(jitted, platforms=platforms, disabled_checks=checks)(*shapes)
    data = bytes(exported.serialize(vjp_order=order))
    loaded = export.deserialize(bytearray(data))
    said = facts(loaded, order)
    said["placements"] = placements(loaded, rng)
    (folder / f"{made}.jax").write_bytes(data)
    (folder / f"{made}.json").write_text(json.dumps(said))
    made += 1


def read(folder):
  for path in sorted(folder.glob("*.again")):
    loaded = export.deserialize(bytearray(path.read_bytes()))
    path.with_suffix(".again.json").write_text(json.dumps(facts(loaded, 0)))


def fixtures(folder):
  for name in ("memory_space", "multiple_meshes", "specified_sharding", "unspecified_sharding"):
    data = importlib.import_module("jax._src.internal_test_util.export_back_compat_test_data.export_with_" + name)
    for i, one in enumerate(data.serializations):
      (folder / f"{name}-{i}.jax").write_bytes(bytes(one["exported_serialized"] if isinstance(one, dict) else one.exported_serialized))


def main():
  warnings.simplefilter("ignore")
  folder = pathlib.Path(sys.argv[-1])
  if sys.argv[1] == "make":
    make(int(sys.argv[2]), int(sys.argv[3]), folder)
  elif sys.argv[1] == "read":
    read(folder)
  else:
    fixtures(folder)
  print(jax.__version__)


main()
