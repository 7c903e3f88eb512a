"""Threads that sleep in all kinds of functions. For each line on stdin, prints the stacks of all threads but one."""
import asyncio
import json
import sys
import threading
import time


class Trainer:
    def step(self, n):
        if n > 0:
            return self.step(n - 1)
        return [self.load(i) for i in (1,)]

    @staticmethod
    def load(_):
        def inner():
            (lambda: time.sleep(1000))()
        inner()


def numbers():
    while True:
        yield time.sleep(1000)


async def coroutine():
    await asyncio.sleep(
        0)
    time.sleep(1000)


def lädt_漢字():
    with threading.Lock() as _:
        exec(compile("\n\ndef made():\n    import time\n    time.sleep(1000)\nmade()", "<made up>", "exec"), {})


def deep(n):
    if n:
        deep(n - 1)
    else:
        time.sleep(1000)


def stack(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append({"function": code.co_qualname, "file": code.co_filename, "line": frame.f_lineno or 0})
        frame = frame.f_back
    return frames


def answer():
    natives = lambda: {t.ident: t.native_id for t in threading.enumerate()}
    for _ in sys.stdin:
        me = threading.get_ident()
        known = natives()
        stacks = {known[i]: stack(f) for i, f in sys._current_frames().items() if i != me and i in known}
        print(json.dumps(stacks), flush=True)


for target in (lambda: Trainer().step(5), lambda: next(numbers()), lambda: asyncio.run(coroutine()), lädt_漢字, lambda: deep(100)):
    threading.Thread(target=target, daemon=True).start()
threading.Thread(target=answer, daemon=True).start()
time.sleep(1000)
