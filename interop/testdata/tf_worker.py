"""One worker of a TensorFlow cluster whose coordination service is elsewhere.

usage: tf_worker.py COORDINATOR WORKERS TASK

COORDINATOR is the address of the service, WORKERS those of all workers, by
comma. The service is one more job of the cluster, named as leader. Lines on
stdin, each answered by one line:

  set KEY VALUE, get KEY, delete KEY
  barrier ID
  states       the state of every worker, as a code; 0 is well
  reduce       sums 1 + TASK over all workers
"""

import sys

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context
from tensorflow.python.ops import collective_ops

WAIT_MS = 60_000


def say(*words):
  print('serry:', *words, flush=True)


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


class Worker:

  def __init__(self, ctx, size, task):
    self.ctx, self.size, self.task = ctx, size, task
    self.reductions = 0

  def set(self, key, value):
    self.ctx.set_config_key_value(key, value)
    return 'ok'

  def get(self, key):
    return self.ctx.get_config_key_value(key, WAIT_MS)

  def delete(self, key):
    self.ctx.delete_config_key_value(key)
    return 'ok'

  def barrier(self, name):
    self.ctx.wait_at_barrier(name, WAIT_MS)
    return 'ok'

  def states(self):
    return [s.get('code', 0) if s else 0 for s in self.ctx.get_task_states([('worker', self.size)])]

  def reduce(self):
    self.reductions += 1
    with tf.device(f'/job:worker/replica:0/task:{self.task}/device:CPU:0'):
      total = collective_ops.all_reduce(
          tf.constant([1.0 + self.task]), group_size=self.size, group_key=1,
          instance_key=self.reductions, merge_op='Add', final_op='Id')
    return int(total.numpy()[0])


def main(coordinator, workers, task):
  workers, task = workers.split(','), int(task)
  worker = Worker(attach(coordinator, workers, task), len(workers), task)
  say('joined')
  for line in sys.stdin:
    method, *args = line.split()
    try:
      say(getattr(worker, method)(*args))
    except tf.errors.OpError as error:
      say(type(error).__name__, *error.message.split())


main(*sys.argv[1:])
