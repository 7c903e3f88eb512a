// Package plant names faults that can be planted into serry, to test its tests: fleets in virtual time
// that would not find them would not find a mistake of the same kind either.
//
// A fault is a condition at the place where the mistake would be made. The configuration of a part has a
// field of type [Faults], whose zero value has none; a part that starts others hands it on. The package is
// internal, so that only tests of this module can plant anything, and the check costs one comparison of a
// constant with a field that is never written.
package plant

import "math/bits"

// Faults is a set of faults.
type Faults uint64

// The faults, and what goes wrong with each.
const (
	// Of the machine.
	NoRequestTable    Faults = 1 << iota // a call that is sent again is a new call (C-REQ-2)
	IgnoreIncarnation                    // lives of a task are not told apart (C-INC-3)
	DropRequester                        // the results of a life that was taken for dead are dropped (C-REQ-3)
	ForgetArrivals                       // a new leader forgets who has arrived at a barrier (C-LOG-3)
	SwapAlways                           // a swap does not look at the present value
	ReadNewer                            // a journal of the next version is read, and gone on with (C-LOG-4)

	// Of the server.
	ReplyBeforeJournal // replies leave before the journal has what they tell of (C-LOG-2)
	HalfGroup          // of waves that are written together, the last one leaves no record
	SkipPut            // large values are not written (C-LOG-5)
	NoConfirm          // a leader does not make sure that it leads before it answers a read (C-TERM-2)
	BlockedReader      // a goroutine that reads a connection waits for the journal (C-LOST-5)
	PoliteEnd          // a server that is asked to end ends the job (C-STOP-4)

	// Of the stream.
	SecondWriter   // two goroutines write to one connection
	ReorderFrames  // a frame overtakes the one before it
	NoResend       // calls without an answer are not sent again to the next leader (A-SIDE-2)
	EarlyWatermark // a relay acknowledges a result before it has come (A-SIDE-15)
	HastySilence   // a host is taken for silent after a fraction of the time (C-LOST-5)
	DropFollow     // a new leader does not hear which lives are behind a host (C-LOST-5)
	StaleFollow    // a new leader hears of a life from a host that it has left (C-LOST-5)

	// Of the stores.
	NoFence           // what a leader writes that was deposed takes effect (C-TERM-2)
	UnreadableStage   // a file with a snapshot that was staged in part is called damaged (C-LOG-4)
	SweepBeforeSwitch // the batches that a snapshot covers are removed before it counts
	LateDuplicate     // a write of the snapshot key takes effect whenever it arrives (C-LOG-4)

	// Of links.
	StaleLink  // a process takes a link that was meant for an older life (CL-TRN-25)
	CreditLeak // parked messages that found memory never leave the window of their sender (CL-TRN-2)

	// Of cliques.
	AbortSucceeds // an operation that was cut off returns no error (CL-ERR-6)
	MissRevoke    // the last member is not told that a clique has ended (CL-ABT-15)
	StaleFrames   // frames of a clique are taken for those of the one that took its place (CL-KEY-16)
	OwnView       // a newcomer numbers the ranks of a clique itself (CL-REC-9)
	EarlySignal   // a signal is counted before what its rank has put before it (CL-OP-23)
	CommitInDoubt // a process that does not know the outcome of a step commits it (CL-ATM-4)

	// Of transfers.
	SenderDecides // a sender ends well when its last byte has left (TR-ASY-5)
	ForgetVerdict // a receiver forgets how a transfer ended (TR-MAT-3)
	LateWrites    // a transfer ends while its bytes are moved (TR-CAN-4)
	NoRefusal     // a sender whose data fail does not tell the receiver (TR-ERR-4)
	WrongResume   // gaps between the bytes that came are taken for received (TR-ERR-5)
	NoReask       // nothing is told again when there is contact again (TR-ASY-5)
	SecondEnd     // a verdict that comes late ends a transfer again (TR-ASY-1)
	EarlyRelease  // memory that the receiver may read is free when a send has ended (TR-CAN-7)
	LooseMemory   // the link keeps the memory of a transfer that has ended (TR-CAN-4)

	end
)

// Has says whether one of these faults is in the set.
func (f Faults) Has(other Faults) bool { return f&other != 0 }

var names = [...]string{
	"no request table", "ignored incarnation", "dropped requester", "forgotten arrivals", "swap of anything",
	"reading of a newer journal",
	"reply before journal", "half a group", "skipped put", "no confirmation", "blocked reader", "polite end",
	"second writer", "reordered frames", "no resend", "early watermark", "hasty silence", "dropped follow", "stale follow",
	"no fence", "unreadable stage", "sweep before switch", "late duplicate",
	"stale link", "credit leak",
	"aborted success", "missed revoke", "stale frames", "own view", "early signal", "commit in doubt",
	"deciding sender", "forgotten verdict", "late writes", "no refusal", "wrong resume", "no second question", "second end", "early release", "loose memory",
}

// All lists the faults.
func All() (all []Faults) {
	for f := Faults(1); f < end; f <<= 1 {
		all = append(all, f)
	}
	return all
}

// String names one fault.
func (f Faults) String() string {
	if bits.OnesCount64(uint64(f)) != 1 || f >= end {
		return "faults"
	}
	return names[bits.TrailingZeros64(uint64(f))]
}
