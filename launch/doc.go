// Package launch starts the tasks of a job, watches over them, starts them again where that is
// wanted, and says in the end what became of them.
//
// [Start] takes a [Config] and returns a running [Job]; [Job.Wait] returns its [Report], which names
// the task that failed first. [Job.Signal] passes a signal on to every task.
//
// A job is made of attempts, numbered from 1. Each has a coordination service of its own, inside this
// process and on an address of its own, so that what may be left of an older attempt can neither join
// a newer one nor disturb it (C-EPOCH-6, A-SIDE-19); Config.Listen keeps one address through all attempts
// instead. Tasks find it by their environment: jax by the variables that it reads anyway (A-ATT-11), Go programs by
// SERRY_ADDRESS, SERRY_TASK and SERRY_TASKS.
//
// Each attempt has a secret of its own, by which its tasks know each other (CL-TRN-30). Each host keeps it
// in a file for the time of the attempt.
//
// A job can use a service that others run (Config.Relay), which may outlive its own death. Then each
// host has a relay for its tasks, again on an address of its own for each attempt, and that tells the
// service how processes end.
//
// Every task is a process in a process group of its own, watched by a pidfd. The service hears of its
// end at once, with the cause: an exit code other than 0 and a signal are a loss, exit code 0 is a
// polite end, even if the task never said goodbye.
//
// Children that the job did not start, which are processes that tasks left behind, are reaped as they end
// where they are in the group of a task, and with Config.Reap wherever they are.
//
// No process outlives the job. What a task leaves behind in its group is ended with it, and what left
// the group is found by a variable in its environment, SERRY_RUN. Should this process be killed, the
// kernel kills the tasks, and a guard ([Guard], another process in a session of its own) all the rest.
//
// With Config.StateDir hosts get back the tasks that they had in the last run, by what they are and not
// by the number of their launcher, so that programs of any kind find their rank and their data where
// they left them (ranks.go).
//
// What happens after a failure is decided by a plan without clock or I/O (plan.go). The goroutine in
// job.go carries it out, and never blocks: see [Job]. What it needs of the world is behind interfaces
// (world.go, kernel.go). Read job.go first, then plan.go and events.go.
package launch
