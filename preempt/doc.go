// Package preempt finds one step at which all tasks of a job can save before some of them are taken
// away.
//
// A [Notifier] turns what a scheduler says (a signal, a file, a metadata endpoint, a date) into a
// [Notice]. A [Sync] hears the notice of any task and lets all agree on one step. The training loop
// asks it at every step:
//
//	for step := int64(0); ; step++ {
//		train(step)
//		save, err := sync.Reached(ctx, step)
//		if err != nil {
//			return err
//		}
//		if save {
//			checkpoint(step)
//			sync.Saved(ctx, step) // a receipt that others can read
//			break
//		}
//	}
//
// Every task must ask at every step, with the same numbers. There are two protocols. [Compat], the
// default, is jax's: Go members and jaxlib processes of one job agree on the same step, once per
// run. [Rounds] is for jobs of Go members alone: it can be gone through again and again, and steps go
// on while the tasks agree. In mode Rounds all tasks save at one step, or each of them has an error or a
// log line that says why not:
//
//   - The nearest deadline of all notices decides when the tasks agree.
//   - An agreed step does not move. Notices that come before a task has passed it are served by it.
//   - Tasks try again while a deadline is open, and for BarrierTimeout after a notice in any case.
//   - A task that restarts saves at the step that was agreed on with its former life.
//   - A task that can no longer learn what was agreed on does not go on: see [ErrUndecided].
//
// The decisions of mode Rounds are in package preempt/internal/pact, which explains the protocol; read
// it first, then rounds.go.
//
// The package knows no client: [Member] and [Keys] say what it needs, and the types of package client
// have it. Methods may be called from any goroutine.
package preempt
