"""Functions that call each other at random, in five threads that never sleep. Each call has a line of its own."""
import random
import threading


def f0(n):
    if n == 0:
        return
    r = random.randrange(6)
    if r == 0:
        f0(n - 1)
    if r == 1:
        f1(n - 1)
    if r == 2:
        f2(n - 1)
    if r == 3:
        f3(n - 1)
    if r == 4:
        f4(n - 1)
    if r == 5:
        f5(n - 1)


def f1(n):
    if n == 0:
        return
    r = random.randrange(6)
    if r == 0:
        f0(n - 1)
    if r == 1:
        f1(n - 1)
    if r == 2:
        f2(n - 1)
    if r == 3:
        f3(n - 1)
    if r == 4:
        f4(n - 1)
    if r == 5:
        f5(n - 1)


def f2(n):
    if n == 0:
        return
    r = random.randrange(6)
    if r == 0:
        f0(n - 1)
    if r == 1:
        f1(n - 1)
    if r == 2:
        f2(n - 1)
    if r == 3:
        f3(n - 1)
    if r == 4:
        f4(n - 1)
    if r == 5:
        f5(n - 1)


def f3(n):
    if n == 0:
        return
    r = random.randrange(6)
    if r == 0:
        f0(n - 1)
    if r == 1:
        f1(n - 1)
    if r == 2:
        f2(n - 1)
    if r == 3:
        f3(n - 1)
    if r == 4:
        f4(n - 1)
    if r == 5:
        f5(n - 1)


def f4(n):
    if n == 0:
        return
    r = random.randrange(6)
    if r == 0:
        f0(n - 1)
    if r == 1:
        f1(n - 1)
    if r == 2:
        f2(n - 1)
    if r == 3:
        f3(n - 1)
    if r == 4:
        f4(n - 1)
    if r == 5:
        f5(n - 1)


def f5(n):
    if n == 0:
        return
    r = random.randrange(6)
    if r == 0:
        f0(n - 1)
    if r == 1:
        f1(n - 1)
    if r == 2:
        f2(n - 1)
    if r == 3:
        f3(n - 1)
    if r == 4:
        f4(n - 1)
    if r == 5:
        f5(n - 1)


def spin():
    while True:
        f0(random.randrange(40))


for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
print("{}", flush=True)
spin()
