"""One process of a jax job that leans on the service without a pause, and holds it to its word.

usage: failover.py PROCESSES PROCESS [STEPS]

The coordinator comes by environment alone. Each step computes across all
processes, passes one barrier id twice, and talks through keys, counters and
live sets. Two threads count beside it. Nothing is tried again: an exception
ends the process, and the job.

Lines on stdin:

  steps N   prints "step S" when N more steps are made
  end       ends the job, at a step that all agree on

With STEPS nothing is read: every tenth step is printed, and the job ends after
that many.

The last line is what the process saw, in JSON.
"""

import json
import sys
import threading

import jax
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils

FOREVER = 600_000  # milliseconds; only a test that fails waits so long
KEPT = 8  # steps whose keys stay


def say(*words):
  sys.stdout.write(' '.join(map(str, ('serry:', *words))) + '\n')  # one write, between those of libraries
  sys.stdout.flush()


class Orders:
  """What the test has told us to do, read by a thread of its own."""

  def __init__(self):
    self.lock = threading.Lock()
    self.made = 0  # steps
    self.due = []  # numbers of steps to report
    self.ending = False
    threading.Thread(target=self.read, daemon=True).start()

  def read(self):
    for line in sys.stdin:
      with self.lock:
        if line.strip() == 'end':
          self.ending = True
        else:
          self.due.append(self.made + int(line.split()[1]))

  def made_step(self):
    with self.lock:
      self.made += 1
      for _ in [due for due in self.due if due <= self.made]:
        say('step', self.made)
      self.due = [due for due in self.due if due > self.made]


class Counter(threading.Thread):
  """Counts by one, again and again, and keeps what it was answered."""

  def __init__(self, client):
    super().__init__()
    self.client, self.stopped, self.answers, self.error = client, threading.Event(), [], None

  def run(self):
    try:
      while not self.stopped.wait(0.01):
        self.answers.append(self.client.key_value_increment('count', 1))
    except Exception as error:  # pylint: disable=broad-exception-caught
      self.error = error

  def finish(self):
    self.stopped.set()
    self.join()
    if self.error:
      raise self.error
    return self.answers


class Job:

  def __init__(self, client, processes, me):
    self.client, self.processes, self.me = client, processes, me
    self.others = list(range(processes))
    self.lives = None  # incarnations of all, by process

  def gather(self, *numbers):
    """Row i is what process i gave; by a collective."""
    return multihost_utils.process_allgather(np.array(numbers, np.int32)).reshape(self.processes, -1).tolist()

  def pass_barrier(self, step, half):
    """Nobody passes before all have come: the counter says how many have, exactly."""
    key = f'arrived/{half}'
    self.client.key_value_increment(key, 1)
    self.client.wait_at_barrier('step', FOREVER)
    arrived, want = int(self.client.key_value_try_get(key)), self.processes * (step + 1)
    if arrived != want:
      raise AssertionError(f'step {step}, pass {half}: {arrived} have arrived; want {want}')

  def talk(self, step):
    value = f'{self.me} at {step}'
    self.client.key_value_set(f'said/{self.me}/{step}', value)
    neighbour = (self.me + 1) % self.processes
    said, want = self.client.blocking_key_value_get(f'said/{neighbour}/{step}', FOREVER), f'{neighbour} at {step}'
    if said != want:
      raise AssertionError(f'step {step}: process {neighbour} said {said}; want {want}')
    if step >= KEPT:
      self.client.key_value_delete(f'said/{self.me}/{step - KEPT}')

  def look_around(self, step):
    lives = self.client.get_live_nodes(self.others)
    if sorted(lives) != self.others or self.lives not in (None, lives):
      raise AssertionError(f'step {step}: alive {lives}, before {self.lives}; want all {self.processes}, as before')
    self.lives = lives

  def make_step(self, step, ending):
    """Says whether it was the last step."""
    self.pass_barrier(step, 1)
    self.talk(step)
    self.look_around(step)
    self.pass_barrier(step, 2)
    rows = self.gather(step, self.me, ending)
    if [row[:2] for row in rows] != [[step, process] for process in self.others]:
      raise AssertionError(f'step {step}: gathered {rows}')
    return any(row[2] for row in rows)


class Plan:
  """Orders that are known beforehand."""

  def __init__(self, steps):
    self.made, self.steps = 0, steps

  @property
  def ending(self):
    return self.made + 1 >= self.steps

  def made_step(self):
    self.made += 1
    if self.made % 10 == 0:
      say('step', self.made)


def main(processes, me, steps=None):
  orders = Plan(steps) if steps else Orders()
  jax.distributed.initialize(num_processes=processes, process_id=me)
  client = distributed.global_state.client
  job, counters = Job(client, processes, me), [Counter(client) for _ in range(2)]
  for counter in counters:
    counter.start()
  step = 0
  while not job.make_step(step, orders.ending):
    step += 1
    orders.made_step()
  answers = [counter.finish() for counter in counters]
  client.wait_at_barrier('step', FOREVER)
  say(json.dumps({
      'steps': step + 1,
      'answers': answers,
      'count': int(client.key_value_try_get('count')),
      'arrived': [int(client.key_value_try_get(f'arrived/{half}')) for half in (1, 2)],
      'said': sorted(key for key, _ in client.key_value_dir_get('said/')),
  }))


main(*map(int, sys.argv[1:]))
