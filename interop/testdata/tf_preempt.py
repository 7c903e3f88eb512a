"""A TensorFlow worker that saves what it has when a worker is told to end.

usage: tf_preempt.py COORDINATOR WORKERS TASK DIRECTORY

It steps until a preemption handler has saved a checkpoint. When the first step
is done it says so, with its process id.
"""

import json
import os
import sys

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context


def main(coordinator, workers, task, directory):
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
    weight = tf.Variable(0.0)
  checkpoint = tf.train.Checkpoint(weight=weight)

  def leave():
    print('saved', flush=True)
    sys.exit(0)

  handler = tf.distribute.experimental.PreemptionCheckpointHandler(
      tf.distribute.cluster_resolver.TFConfigClusterResolver(), checkpoint,
      os.path.join(directory, f'checkpoint-{task}'),
      tf.distribute.experimental.TerminationConfig(exit_fn=leave))

  @tf.function
  def step():
    def replica():
      weight.assign_add(tf.distribute.get_replica_context().all_reduce('sum', 1.0))

    strategy.run(replica)

  handler.run(step)
  print('ready', os.getpid(), flush=True)
  while True:
    handler.run(step)


main(*sys.argv[1:])
