"""Four workers of TensorFlow that reduce and meet at barriers, in which something happens to rank 3 at step 30.

usage: tf_train.py WHAT WORKERS

WORKERS are the addresses of all workers, by comma. It prints "INJECT" when it happens.
"""

import os
import signal
import sys
import time

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context
from tensorflow.python.ops import collective_ops

STEP = 30


def attach(workers, task):
  ctx = context.context()
  ctx.configure_collective_ops(collective_leader='/job:worker/replica:0/task:0')
  ctx.configure_coordination_service(
      service_type='standalone',
      service_leader='/job:coordinator/replica:0/task:0',
      coordinated_jobs=[
          coordination_config_pb2.CoordinatedJob(name='worker', num_tasks=len(workers))
      ],
  )
  cluster = tf.train.ClusterSpec({'coordinator': [os.environ['SERRY_ADDRESS']], 'worker': workers})
  ctx.enable_collective_ops(
      tf.train.ServerDef(
          cluster=cluster.as_cluster_def(), job_name='worker', task_index=task, protocol='grpc',
          default_session_config=ctx.config,
      )
  )
  ctx.ensure_initialized()
  return ctx


def inject(what):
  print('INJECT', flush=True)
  if what == 'tf-segv':
    os.kill(os.getpid(), signal.SIGSEGV)
  elif what == 'tf-raise':
    raise ValueError('bad sample 17 in shard 3')
  elif what == 'tf-stop':
    os.kill(os.getpid(), signal.SIGSTOP)
  elif what == 'tf-barrier':
    time.sleep(3600)


def main(what, workers):
  workers, task = workers.split(','), int(os.environ['SERRY_TASK'])
  ctx = attach(workers, task)
  for step in range(10 * STEP):
    with tf.device(f'/job:worker/replica:0/task:{task}/device:CPU:0'):
      collective_ops.all_reduce(
          tf.constant([1.0]), group_size=len(workers), group_key=1, instance_key=step, merge_op='Add', final_op='Id').numpy()
    if step == STEP:
      if task == 3:
        inject(what)
      ctx.wait_at_barrier('save-100', 3600 * 1000)


main(*sys.argv[1:])
