"""Starts children in all ways in which Python does, and another program, prints their numbers, and waits."""
import json
import multiprocessing
import os
import subprocess
import sys
import threading


def child_waits(kind):
  sys.stdout.write(json.dumps({'kind': kind, 'pid': os.getpid()}) + '\n')
  sys.stdout.flush()
  threading.Event().wait()


def parent_waits():
  sleep = subprocess.Popen(['sleep', '1000'])
  sys.stdout.write(json.dumps({'kind': 'sleep', 'pid': sleep.pid}) + '\n')
  sys.stdout.flush()
  threading.Event().wait()


if __name__ == '__main__':
  threading.Thread(target=child_waits, args=('thread',), daemon=True).start()
  for kind in 'fork', 'spawn', 'forkserver':
    multiprocessing.get_context(kind).Process(target=child_waits, args=(kind,), daemon=True).start()
  parent_waits()
