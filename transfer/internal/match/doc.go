// Package match decides how each transfer between two processes goes, and how it ends: it pairs sends with receives, lets
// data move, and makes both sides agree on one verdict.
//
// Start with [Machine]. There is one for each pair of lives, in each of the two processes, so nothing of an earlier life can
// match. The engine tells it what happens, one method for each kind of observation: an operation is posted, its memory is
// ready, bytes were sent or have come, a message of the peer arrived, contact was lost or made, time passed. [Machine.Take]
// then returns what the engine must do. [Message] is the second type to know: what the two machines tell each other.
//
// # How a transfer goes
//
// The sender offers each send. The receiver pairs an offer with a receive that has the same id; whichever is first waits.
// An offer takes no memory but its own few words, so any order of posting works (TR-ORD-4). When the types agree, and both
// sides are ready, the receiver accepts, and says which bytes it lacks; the sender has them moved. When all bytes are there
// the receiver says that it is done. Data that are small are carried by the offer itself, so that a receive that waits for them
// is done at once (see carry.go).
//
// # One verdict
//
// The receiver decides, because it alone knows whether it has all bytes. A sender ends well only on the word of the
// receiver. A sender that wants to end otherwise (its program cancels, or its deadline passes) asks the receiver to end the
// transfer, and takes the verdict that comes back, which may be that the transfer was complete already. If none comes in
// time, and the receiver may have all bytes, the sender ends "unconfirmed". It keeps asking when there is contact again, and
// the record of the transfer is corrected; the program is told of an end only once (TR-ASY-5).
//
// # Loss
//
// Messages may be lost, doubled and reordered: each says all that the receiver of it needs, so that to repeat one does no
// harm. The sender drives: it repeats an offer, or the wish to end, until it has the verdict; the receiver only answers. So
// there is no state in which both wait. Data are lost only together with contact: the receiver then says again what it
// lacks.
//
// # Memory
//
// Before a transfer ends, the machine has the engine stop moving its bytes ([Stop]), and waits until the engine says that it
// has ([Machine.Stopped]). So no byte is read or written after the end, and the machine knows for certain whether the last
// byte was sent.
//
// The package is pure: no clock, no I/O, no goroutine, no lock. The same calls give the same actions in the same order.
// Every table has a limit: see [Config].
//
// Read machine.go first, then send.go and receive.go.
package match
