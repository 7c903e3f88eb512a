"""Does with Orbax what the questions on stdin ask, one JSON object a line, and
answers each with one on stdout. See orbax_test.go for the questions."""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=32"
os.environ["JAX_PLATFORMS"] = "cpu"

from absl import flags  # noqa: E402
from etils import epath  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint  # noqa: E402
from orbax.checkpoint.experimental.emergency import multihost  # noqa: E402
from orbax.checkpoint.experimental.emergency.multi_tier_checkpointing import (  # noqa: E402
    process_metadata_checkpoint_handler as handlers,
)


def mesh_of(ids, shape):
    by_id = {d.id: d for d in jax.devices()}
    names = [f"axis{i}" for i in range(len(shape))]
    return jax.sharding.Mesh(np.array([by_id[i] for i in ids]).reshape(shape), names)


def read(q):
    handler = handlers.ProcessMetadataCheckpointHandler(distributed_to_device_ids_fn=lambda: [])
    table, ids = handler.restore(epath.Path(q["folder"]), handlers.ProcessMetadataRestoreArgs())
    return {"table": table, "mesh": ids}


def write(q):
    handler = handlers.ProcessMetadataCheckpointHandler(distributed_to_device_ids_fn=lambda: q["table"])
    handler.save(epath.Path(q["folder"]), handlers.ProcessMetadataSaveArgs(global_mesh=mesh_of(q["mesh"], q["shape"])))
    return {}


def remap(q):
    flag = multihost.EXPERIMENTAL_USE_DISTRIBUTED_ID_FOR_MESH_CONSISTENCY
    setattr(flags.FLAGS, flag.name, q["by_task"])
    user = mesh_of(range(int(np.prod(q["shape"]))), q["shape"])
    restored = multihost.consistent_restore_mesh(jax.devices(), user, q["mesh"], q["table"], q["now"])
    return {"mesh": [int(i) for i in restored.device_ids.flatten()], "shape": list(restored.devices.shape)}


def answer(q):
    try:
        return {"read": read, "write": write, "remap": remap}[q["ask"]](q)
    except Exception as e:  # whatever it is, its kind is the answer
        return {"error": type(e).__name__}


def main():
    flags.FLAGS(sys.argv[:1])
    print(json.dumps({"version": orbax.checkpoint.__version__, "devices": len(jax.devices())}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


main()
