"""Five threads that sleep, at the end of recursions of several depths. Prints their stacks, as Python has them."""
import json
import sys
import threading

ready = threading.Semaphore(0)
gate = threading.Lock()
gate.acquire()


def park(n):
    if n:
        return park(n - 1)
    ready.release(), gate.acquire()


def stack(frame):
    frames = []
    while frame is not None:
        frames.append({"function": frame.f_code.co_qualname, "file": frame.f_code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return frames


threads = [threading.Thread(target=park, args=(10 * i,), daemon=True) for i in range(5)]
for t in threads:
    t.start()
for t in threads:
    ready.acquire()
frames = sys._current_frames()
print(json.dumps({t.native_id: stack(frames[t.ident]) for t in threads}), flush=True)
gate.acquire()
