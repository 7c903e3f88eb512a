"""Makes calls with grpcio, one after the other, whatever becomes of them.

usage: calls.py ADDRESS <STEPS

STEPS is a JSON list of objects as record_test.go defines them.
"""

import base64
import json
import sys
import threading

import grpc


def make(channel, step):
  call = channel.unary_unary(step['Method']).future(
      base64.b64decode(step['Body'] or ''),
      timeout=step['Within'] / 1000 or None,
      compression=grpc.Compression.Gzip if step['Gzip'] else None,
  )
  if step['GiveUp']:
    threading.Timer(step['GiveUp'] / 1000, call.cancel).start()
  try:
    call.result()
  except (grpc.RpcError, grpc.FutureCancelledError):
    pass


with grpc.insecure_channel(sys.argv[1]) as channel:
  for step in json.load(sys.stdin):
    make(channel, step)
