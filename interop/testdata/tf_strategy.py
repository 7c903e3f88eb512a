"""One step of MultiWorkerMirroredStrategy with the service elsewhere.

usage: tf_strategy.py COORDINATOR WORKERS TASK

The strategy allows few names of jobs, so the one that holds the service is
called evaluator.
"""

import json
import os
import sys

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context


def main(coordinator, workers, task):
  workers, task = workers.split(','), int(task)
  os.environ['TF_CONFIG'] = json.dumps({
      'cluster': {'evaluator': [coordinator], 'worker': workers},
      'task': {'type': 'worker', 'index': task},
  })
  context.context().configure_coordination_service(
      service_type='standalone',
      service_leader='/job:evaluator/replica:0/task:0',
      coordinated_jobs=[
          coordination_config_pb2.CoordinatedJob(name='worker', num_tasks=len(workers))
      ],
  )
  strategy = tf.distribute.MultiWorkerMirroredStrategy()
  with strategy.scope():
    weight = tf.Variable(1.0)

  @tf.function
  def step():
    def replica():
      gradient = tf.constant(1.0 + task)
      all_ranks = tf.distribute.get_replica_context().all_reduce('sum', gradient)
      weight.assign_add(all_ranks)
      return all_ranks

    return strategy.run(replica)

  step()
  print('serry: weight', int(weight.numpy()), flush=True)
  sys.stdin.read()  # stays until the test lets it go


main(*sys.argv[1:])
