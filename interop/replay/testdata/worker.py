"""One of two workers of a TensorFlow cluster whose coordination service is elsewhere.

usage: worker.py COORDINATOR WORKERS TASK
"""

import os
import sys

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context
from tensorflow.python.ops import collective_ops

WAIT_MS = 60_000


def attach(coordinator, workers, task):
  ctx = context.context()
  ctx.configure_collective_ops(collective_leader='/job:worker/replica:0/task:0')
  ctx.configure_coordination_service(
      service_type='standalone',
      service_leader='/job:coordinator/replica:0/task:0',
      coordinated_jobs=[
          coordination_config_pb2.CoordinatedJob(name='worker', num_tasks=len(workers))
      ],
  )
  ctx.coordination_service.poll_for_error_from_service_at_startup = True
  cluster = tf.train.ClusterSpec({'coordinator': [coordinator], 'worker': workers})
  ctx.enable_collective_ops(
      tf.train.ServerDef(
          cluster=cluster.as_cluster_def(),
          job_name='worker',
          task_index=task,
          protocol='grpc',
          default_session_config=ctx.config,
      )
  )
  ctx.ensure_initialized()
  return ctx


def main(coordinator, workers, task):
  ctx = attach(coordinator, workers, task)
  if task == 0:
    ctx.set_config_key_value('greeting', 'hello')
  ctx.get_config_key_value('greeting', WAIT_MS)
  try:
    ctx.set_config_key_value('greeting', 'again')
    sys.exit('a second value was taken')
  except tf.errors.AlreadyExistsError:
    pass
  ctx.wait_at_barrier('first', WAIT_MS)
  ctx.get_task_states([('worker', len(workers))])
  with tf.device(f'/job:worker/replica:0/task:{task}/device:CPU:0'):
    collective_ops.all_reduce(
        tf.constant([1.0]), group_size=len(workers), group_key=1, instance_key=1,
        merge_op='Add', final_op='Id')
  if task == 0:
    ctx.delete_config_key_value('greeting')
  ctx.wait_at_barrier('last', WAIT_MS)
  sys.stdout.flush()
  os._exit(0)  # as a worker that is killed: there is no other way out


main(sys.argv[1], sys.argv[2].split(','), int(sys.argv[3]))
