// Package pystack reads the Python stacks of other processes from outside (D-ST): which function each thread is in,
// which file and line, which thread holds the interpreter lock. The process needs no change and takes no signal, and a
// thread that sleeps does not notice. CPython 3.11, 3.12 and 3.13 are known, on amd64 and arm64.
//
// [Open] finds the interpreter inside a process, [Process.Read] returns its [Stacks]. [Native] says what little can be
// said of a process that is not Python.
//
// [Dump] is the other way, for where that is not possible: it asks a process by a signal, which a shim has prepared it for
// ([WriteShim], dump.go). That may wake a thread, so it is never done without being asked for.
//
// The memory of a living program changes while it is read, and a program may be hostile. So nothing is taken on trust:
//
//   - A stack counts only if its thread did not run while it was read. For a thread that sleeps, the kernel's count of
//     context switches proves it. A thread that runs is stopped for the time of one walk, by ptrace. Where neither is
//     possible the thread is shown without a stack, and the reason is said.
//   - Every object is checked: code objects, strings and byte strings by the name of their type, thread states
//     by their place in the list of threads, instruction pointers by the length of their code.
//   - Reads, bytes, threads, frames and lengths have limits (limits.go). A process can at worst show nonsense as its own
//     stack.
//   - A version that is not known is refused: where fields are is never guessed.
//
// The kernel reports a thread that is held to whoever waits for it in this process. So a program must not call
// [os.Process.Wait] for a child while it reads the child: Wait would take the report for the end of the child. To wait by a
// pidfd, as package launch does, is safe.
//
// The part that decodes (walk.go, code.go, linetable.go, symbols.go) sees the process through [Memory] and does nothing
// else, so that tests hand it made-up memory. The part that asks the kernel is in process.go, task.go and stop.go.
// Read process.go first, then walk.go.
package pystack
