// Package pact decides at which step all tasks of a job save. It is mode Rounds of package preempt
// without clock and I/O: a [Pact] is what one task knows, says which call the task makes next, and is
// told the answer. Package preempt makes the calls; the tests play millions of histories without it.
//
// # The protocol
//
// Everything that the tasks must see in the same way is a key of the job's store, which orders all
// writes. Only one task can create a key, and all others read what that task wrote. So a key that is
// created once is a decision.
//
// A round collects notices and ends with one step to save at, or without one. A notice belongs to the
// round that the notified task is in. Notices of a round form a chain of falling deadlines: a task that
// has a later deadline than the last notice does not add its own. All tasks follow the chain, so that the
// nearest deadline decides when the tasks begin to agree.
//
// The tasks agree in attempts. In an attempt each task
//
//  1. publishes the last step that it made, and waits for all others at a barrier;
//  2. proposes a step that lies a margin after the highest one. The first proposal that is created
//     counts;
//  3. answers. A task that has not made the proposed step yet holds: from then on it does not make that
//     step before it knows the outcome. A task that has made the step is late. All meet at a second
//     barrier;
//  4. creates the outcome: the step is agreed if every answer is to hold. Otherwise, or if any call has
//     failed, there is another attempt while a deadline is open, and else the round is over.
//
// The outcome is a decision like the proposal: tasks that come to different conclusions, because a
// barrier failed for one of them, follow the outcome that was created first. A task that holds knows
// which step is at stake, and cannot pass it without the outcome. Therefore all tasks save at an agreed
// step, and an agreed step never moves: a task enters the next round only when it has passed it.
//
// A task that restarts reads the keys first and makes no step meanwhile. It takes over an agreed step,
// and the promise that its former life may have given for a proposal.
//
// # Keys
//
// Everything lies below [Dir], a folder for each round:
//
//	1/notice/0            2026-11-15T20:30:00Z worker/3: signal terminated
//	1/try/0/step/worker-3 102
//	1/try/0/proposal      104
//	1/try/0/answer/worker-3 hold
//	1/try/0/outcome       agreed 104
//	1/saved/worker-3      the receipt of a task that has saved
//
// The keys of an attempt are removed in the next one, when all tasks have come there.
//
// Read pact.go first, then attempt.go.
package pact
