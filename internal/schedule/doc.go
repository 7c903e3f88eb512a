// Package schedule says which rank sends which blocks to which rank, round by round, for every collective
// operation. A [Schedule] is data: it is computed by a pure function from the operation, the algorithm and
// the number of ranks, so that it can be checked without any network, costed by a model ([Cost]), printed,
// and run by an engine over any kind of link.
//
// A vector is cut into [Schedule.Blocks] blocks. Blocks need not be equal in size and may be empty, so counts
// that are smaller than the number of ranks, or not divisible by it, need no padding (CL-ALG-4). A schedule
// names blocks only; the engine that runs it knows their bytes.
//
// # Rounds
//
// A rank plays its rounds in order. In one [Round] all sends and receives may be in flight at once. The sends
// see the buffers as they were when the round began, and the work of a round begins when its sends and
// receives are done. An engine may begin a move earlier if no move or work before it touches the same blocks:
// the result is the same, since it depends on the data alone.
//
// Messages between two ranks are received in the order in which they are sent. No schedule needs more than one
// message of buffer between two ranks (CL-ALG-5), because both ends of a message number it by the same step.
//
// # Order of a reduction
//
// A block is reduced on one rank and copied to the others, or all ranks reduce the same partial values in
// pairs. So all ranks hold the same bits. [OneShot] and [Direct] reduce in the order of ranks.
//
// Start with [New] and [Choose]. Read schedule.go first, then ring.go.
package schedule
