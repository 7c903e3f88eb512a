// Package client makes a Go program a member of a job.
//
// [Join] registers the program as one task and returns a [Member] once the service has accepted it;
// with a register barrier, once every task has come. From then on the member keeps itself alive in
// the background. It is one life of one task: when it is lost it is lost for good, its context is
// cancelled with a [Fault] that says why, and who wants to come back calls Join again.
//
//	m, err := client.Join(ctx, client.Config{Address: "coord:8476", Task: serry.TaskID{Job: "worker", Index: 3}})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	for step := 0; step < steps; step++ {
//		train(m.Context(), step) // ends early when the job has lost a task
//		if err := m.Barrier(ctx, "step", serry.BarrierOptions{}); err != nil {
//			return err
//		}
//	}
//	return m.Leave(ctx)
//
// A member shares keys with the others ([Member.KV]), meets them at barriers ([Member.Barrier]),
// learns how they are ([Member.Watch]), agrees with the living ones on who they are
// ([Member.Agree]), and tells the service what it saw of them ([Member.Suspect]).
//
// A service of serry may ask a member what only its process knows, when a person wants to know: where its goroutines are, and
// what parts of the program answer ([Member.Answer]). Programs that are no members, such as launchers, answer by [Attend].
//
// The coordinator may be away for a while. As long as it comes back as the same service, callers
// do not notice: calls wait and are sent again under the same request id, and only when it has been silent
// for Config.OutageTolerance is the member lost.
//
// The member speaks serry's own protocol to a serry server, and the dialects of jaxlib and TensorFlow
// to a stock service, where what those do not have is [ErrUnsupported]. All methods may be called
// from any goroutine. Every wait ends with its context, with the member, or with an answer.
package client
