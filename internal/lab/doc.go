// Package lab is what tests of serry share: servers and clients in virtual time, and the ledger of
// which test shows which clause of the specification. Only tests import it.
//
// Start with [Serve], which runs a real server over connections in memory inside a
// testing/synctest bubble, and with [Lab.N] and [Lab.O], clients of the two dialects that send
// exactly what a test tells them to. [ServeOracle] runs the same server behind grpc-go.
package lab
